/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c on the GPU; the table is float. */
#include "kernels/kern_cuda.h"

struct rope_arg {
	struct places at;
	int heads, per, D, R; /* heads: of q and k, per: of a group */
	bool interleaved;
	float sign;
};

/* W pairs from J on, of the head at X. */
template <typename T, int W>
static __device__ __forceinline__ void rotate(T *x, const float *cs, int j,
					      const struct rope_arg &r)
{
	float a[W], b[W], both[2 * W], turn[2 * W];

	load<2 * W>(turn, cs + 2 * j);
	if (r.interleaved) {
		load<2 * W>(both, x + 2 * j);
	} else {
		load<W>(a, x + j);
		load<W>(b, x + j + r.R);
	}
#pragma unroll
	for (int i = 0; i < W; i++) {
		float c = turn[2 * i], s = r.sign * turn[2 * i + 1];
		float p = r.interleaved ? both[2 * i] : a[i];
		float q = r.interleaved ? both[2 * i + 1] : b[i];

		a[i] = both[2 * i] = p * c - q * s;
		b[i] = both[2 * i + 1] = q * c + p * s;
	}
	if (r.interleaved) {
		store<2 * W>(x + 2 * j, both);
	} else {
		store<W>(x + j, a);
		store<W>(x + j + r.R, b);
	}
}

/* A block for each token. */
template <typename T, int W>
static __global__ void rope_kernel(T *qkv, const float *table,
				   struct rope_arg r)
{
	int64_t n = blockIdx.x, p = r.at.of(n);
	int packs = r.R / W, groups = r.heads / (r.per + 1);
	const float *cs = table + p * 2 * r.R;
	T *row = qkv + n * groups * (r.per + 2) * r.D;

	if (p >= r.at.room)
		return;
	for (int i = threadIdx.x; i < r.heads * packs; i += blockDim.x) {
		int h = i / packs, j = i % packs * W;

		h += h / (r.per + 1); /* skip the values before it */
		rotate<T, W>(row + (int64_t)h * r.D, cs, j, r);
	}
}

template <typename T>
static void turn(struct queue *q, void *qkv, const void *table,
		 const struct places &at, const struct kern_attn_dims *d,
		 int64_t R, bool interleaved, int sign)
{
	struct rope_arg r = {
		at,	(int)(d->H + d->G), (int)(d->H / d->G), (int)d->D,
		(int)R, interleaved,	    (float)sign};
	bool ok = aligned({qkv, table}) && d->D % WIDE<T> == 0 &&
		  R % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (rope_kernel<T, W>), (unsigned)(d->B * d->T), 128,
			  0, (T *)qkv, (const float *)table, r));
}

template <typename T>
void cuda_rope<T>::rope(struct queue *q, void *qkv, const void *table,
			const struct kern_attn_dims *d, int64_t R,
			bool interleaved, int sign)
{
	turn<T>(q, qkv, table, {NULL, d->T, d->T}, d, R, interleaved, sign);
}

template <typename T>
void cuda_rope<T>::at(struct queue *q, void *qkv, const void *table,
		      const int32_t *pos, const struct kern_attn_dims *d,
		      int64_t R, bool interleaved, int64_t room)
{
	turn<T>(q, qkv, table, {pos, d->T, room}, d, R, interleaved, 1);
}

template struct cuda_rope<float>;
template struct cuda_rope<bf16>;
template struct cuda_rope<fp16>;
