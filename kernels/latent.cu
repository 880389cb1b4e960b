/* SPDX-License-Identifier: Apache-2.0 */
/* latent.c on the GPU; the table is float.  A block for each token. */
#include "kernels/kern_cuda.h"

struct latent_arg {
	struct places at;
	int H, D, Dv, P, R;
};

/*
 * Element I of a part of width P: turned by the angles CS of its pair (SIGN 1
 * or -1), where there are any.
 */
template <typename T>
static __device__ __forceinline__ float turned(const T *x, int i,
					       const float *cs, int R,
					       float sign)
{
	float c, s, a = (float)x[i];

	if (i >= 2 * R)
		return a;
	c = cs[i / 2 * 2];
	s = sign * cs[i / 2 * 2 + 1];
	return i % 2 ? a * c + (float)x[i - 1] * s
		     : a * c - (float)x[i + 1] * s;
}

template <typename T>
static __global__ void fwd_kernel(T *qkv, const T *query, const T *kv,
				  const T *pos, const float *table,
				  struct latent_arg a)
{
	int64_t n = blockIdx.x, p = a.at.of(n);
	int plain = a.D - a.P, head = 2 * a.D + a.Dv;
	const float *cs = table + p * 2 * a.R;
	T *out = qkv + n * a.H * head;

	if (p >= a.at.room)
		return;
	query += n * a.H * a.D;
	kv += n * a.H * (plain + a.Dv);
	pos += n * a.P;
	for (int i = threadIdx.x; i < a.H * head; i += blockDim.x) {
		int h = i / head, c = i % head;
		const T *qh = query + h * a.D, *kvh = kv + h * (plain + a.Dv);
		float x;

		if (c < plain)
			x = (float)qh[c];
		else if (c < a.D)
			x = turned(qh + plain, c - plain, cs, a.R, 1.0f);
		else if (c < a.D + plain)
			x = (float)kvh[c - a.D];
		else if (c < 2 * a.D)
			x = turned(pos, c - a.D - plain, cs, a.R, 1.0f);
		else
			x = (float)kvh[plain + c - 2 * a.D];
		out[i] = (T)x;
	}
}

/* Element I of the sum over heads of the keys' shared parts. */
template <typename T>
static __device__ float shared_sum(const T *in, int i,
				   const struct latent_arg &a)
{
	int head = 2 * a.D + a.Dv, at = 2 * a.D - a.P + i;
	float sum = 0;

	for (int h = 0; h < a.H; h++)
		sum += (float)in[h * head + at];
	return sum;
}

template <typename T>
static __global__ void bwd_kernel(T *dquery, T *dkv, T *dpos, const T *dqkv,
				  const float *table, struct latent_arg a)
{
	extern __shared__ float sum[];
	int64_t n = blockIdx.x;
	int plain = a.D - a.P, head = 2 * a.D + a.Dv, wide = plain + a.Dv;
	const float *cs = table + a.at.of(n) * 2 * a.R;
	const T *in = dqkv + n * a.H * head;

	dquery += n * a.H * a.D;
	dkv += n * a.H * wide;
	dpos += n * a.P;
	for (int i = threadIdx.x; i < a.H * a.D; i += blockDim.x) {
		const T *qh = in + i / a.D * head;
		int c = i % a.D;

		dquery[i] = (T)(c < plain ? (float)qh[c]
					  : turned(qh + plain, c - plain, cs,
						   a.R, -1.0f));
	}
	for (int i = threadIdx.x; i < a.H * wide; i += blockDim.x) {
		const T *kh = in + i / wide * head + a.D;
		int c = i % wide;

		dkv[i] = kh[c < plain ? c : a.D + c - plain];
	}
	for (int i = threadIdx.x; i < a.P; i += blockDim.x)
		sum[i] = shared_sum(in, i, a);
	__syncthreads();
	for (int i = threadIdx.x; i < a.P; i += blockDim.x)
		dpos[i] = (T)turned(sum, i, cs, a.R, -1.0f);
}

static struct latent_arg latent_arg(const struct kern_attn_dims *d, int64_t P,
				    int64_t R, const int32_t *pos, int64_t room)
{
	struct latent_arg a = {{pos, d->T, room}, (int)d->H, (int)d->D,
			       (int)d->Dv,	  (int)P,    (int)R};

	return a;
}

template <typename T>
void cuda_latent<T>::at(struct queue *q, void *qkv, const void *query,
			const void *kv, const void *shared, const void *table,
			const int32_t *pos, const struct kern_attn_dims *d,
			int64_t P, int64_t R, int64_t room)
{
	LAUNCH(q, fwd_kernel<T>, (unsigned)(d->B * d->T), 256, 0, (T *)qkv,
	       (const T *)query, (const T *)kv, (const T *)shared,
	       (const float *)table, latent_arg(d, P, R, pos, room));
}

template <typename T>
void cuda_latent<T>::fwd(struct queue *q, void *qkv, const void *query,
			 const void *kv, const void *pos, const void *table,
			 const struct kern_attn_dims *d, int64_t P, int64_t R)
{
	at(q, qkv, query, kv, pos, table, NULL, d, P, R, d->T);
}

template <typename T>
void cuda_latent<T>::bwd(struct queue *q, void *dquery, void *dkv, void *dpos,
			 const void *dqkv, const void *table,
			 const struct kern_attn_dims *d, int64_t P, int64_t R)
{
	LAUNCH(q, bwd_kernel<T>, (unsigned)(d->B * d->T), 256,
	       (size_t)P * sizeof(float), (T *)dquery, (T *)dkv, (T *)dpos,
	       (const T *)dqkv, (const float *)table,
	       latent_arg(d, P, R, NULL, d->T));
}

template struct cuda_latent<float>;
template struct cuda_latent<bf16>;
template struct cuda_latent<fp16>;
