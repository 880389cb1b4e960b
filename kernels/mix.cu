/* SPDX-License-Identifier: Apache-2.0 */
/* mix.c on the GPU. */
#include "kernels/kern_cuda.h"

/* What every row's choice is made from. */
struct choice {
	const int32_t *doc;
	int64_t T, of;
	struct drop_arg drop;
};

static __device__ int64_t position(const struct choice &c, int64_t n)
{
	return (c.drop.row0 + n) % c.T;
}

static __device__ int64_t shift_of(const struct choice &c, const dropper &drop,
				   int64_t n)
{
	int64_t row = c.drop.row0 + n, s;
	uint64_t word =
		drop.word(drop.words((uint64_t)row / 4), (int)(row % 4));

	s = (int64_t)(word * (uint64_t)c.of >> 32);
	if (position(c, n) + s >= c.T)
		return 0;
	return c.doc && c.doc[n + s] != c.doc[n] ? 0 : s;
}

/* A block for each row, of W elements of type U. */
template <typename U>
static __global__ void fwd_kernel(U *y, const U *x, int64_t N, int64_t W,
				  int64_t shift, struct choice c)
{
	dropper drop(c.drop);

	for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
		if (shift_of(c, drop, n) != shift)
			continue;
		for (int64_t i = threadIdx.x; i < W; i += blockDim.x)
			y[n * W + i] = x[(n + shift) * W + i];
	}
}

template <typename U>
static __global__ void bwd_kernel(U *dx, const U *dy, int64_t N, int64_t W,
				  int64_t shift, struct choice c)
{
	dropper drop(c.drop);

	for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
		bool took = position(c, n) >= shift &&
			    shift_of(c, drop, n - shift) == shift;

		for (int64_t i = threadIdx.x; i < W; i += blockDim.x)
			dx[n * W + i] = took ? dy[(n - shift) * W + i] : U();
	}
}

static struct choice choice(const int32_t *doc, int64_t T, int64_t of,
			    const struct kern_drop *d)
{
	struct choice c = {doc, T, of, {}};

	c.drop.key = d->key;
	c.drop.site = d->site;
	c.drop.row0 = d->row0;
	return c;
}

template <typename U>
static void fwd(struct queue *q, void *y, const void *x, int64_t N,
		int64_t bytes, int64_t shift, const struct choice &c)
{
	LAUNCH(q, fwd_kernel<U>, blocks_for(N, 1, 4096), 256, 0, (U *)y,
	       (const U *)x, N, bytes / (int64_t)sizeof(U), shift, c);
}

template <typename U>
static void bwd(struct queue *q, void *dx, const void *dy, int64_t N,
		int64_t bytes, int64_t shift, const struct choice &c)
{
	LAUNCH(q, bwd_kernel<U>, blocks_for(N, 1, 4096), 256, 0, (U *)dx,
	       (const U *)dy, N, bytes / (int64_t)sizeof(U), shift, c);
}

void cuda_mix_fwd(struct queue *q, void *y, const void *x, const int32_t *doc,
		  int64_t N, int64_t bytes, int64_t T, int64_t shift,
		  int64_t of, const struct kern_drop *d)
{
	struct choice c = choice(doc, T, of, d);

	if (bytes % 16 == 0 && aligned({x, y}))
		fwd<uint4>(q, y, x, N, bytes, shift, c);
	else
		fwd<uint16_t>(q, y, x, N, bytes, shift, c);
}

void cuda_mix_bwd(struct queue *q, void *dx, const void *dy, const int32_t *doc,
		  int64_t N, int64_t bytes, int64_t T, int64_t shift,
		  int64_t of, const struct kern_drop *d)
{
	struct choice c = choice(doc, T, of, d);

	if (bytes % 16 == 0 && aligned({dx, dy}))
		bwd<uint4>(q, dx, dy, N, bytes, shift, c);
	else
		bwd<uint16_t>(q, dx, dy, N, bytes, shift, c);
}
