/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ways to compute attention on a GPU share. */
#ifndef KERNELS_ATTN_CUDA_H
#define KERNELS_ATTN_CUDA_H

#include "kernels/kern_cuda.h"

struct attn_arg {
	int B, T, H, G, D, Dv, per; /* per: query heads of a group */
	int window;		    /* 0: none */
	int64_t ld, ldo;	    /* from a token's row to the next */
	float scale;
	const int32_t *doc; /* (B, T) or NULL */
	enum kern_sink sink;
	int64_t heads, head0;
	struct drop_arg drop;
};

/* Query head H of sample B: where it lies in qkv, o and lse. */
struct attn_place {
	int64_t q, k, v, o, lse;
};

static __device__ __forceinline__ struct attn_place attn_place(
	const struct attn_arg &a, int b, int h)
{
	int64_t row = (int64_t)b * a.T, g = h / a.per;
	int64_t group = row * a.ld + g * ((a.per + 1) * a.D + a.Dv);

	return {group + h % a.per * a.D, group + a.per * a.D,
		group + (a.per + 1) * a.D, row * a.ldo + (int64_t)h * a.Dv,
		((int64_t)b * a.H + h) * a.T};
}

/* The number, for dropout, of query I's first element. */
static __device__ __forceinline__ int64_t attn_elem(const struct attn_arg &a,
						    int b, int h, int i)
{
	return ((a.drop.row0 + (int64_t)b * a.T + i) * a.heads + a.head0 + h) *
	       a.T;
}

/*
 * Attention, T bf16 or fp16, on tensor cores: wgmma on sm_90a with D <= 128,
 * mma on sm_80 and later with D <= 256; D a multiple of 8, arrays aligned to
 * 16 bytes, and nothing beside: no window, sinks or documents, Dv = D.  True
 * if it did the work.  What fp16 cannot hold, dS among it, becomes infinite.
 */
template <typename T>
bool attn_wgmma_fwd(struct queue *q, T *o, float *lse, const T *qkv,
		    const struct attn_arg *a);
template <typename T>
bool attn_mma_fwd(struct queue *q, T *o, float *lse, const T *qkv,
		  const struct attn_arg *a);
/* DELTA (B, H, T) = the sums of dout o over a head. */
template <typename T>
bool attn_wgmma_bwd(struct queue *q, T *dqkv, const T *dout, const float *lse,
		    const float *delta, const T *qkv, const struct attn_arg *a);
template <typename T>
bool attn_mma_bwd(struct queue *q, T *dqkv, const T *dout, const float *lse,
		  const float *delta, const T *qkv, const struct attn_arg *a);

#endif
