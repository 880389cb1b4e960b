/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPU's routers share: a warp for a token.  What is counted in
 * integers may be added in any order.
 */
#ifndef KERNELS_ROUTE_CUDA_H
#define KERNELS_ROUTE_CUDA_H

#include "kernels/kern_cuda.h"

/* A warp's part of the shared memory. */
struct room {
	double *key, *worth; /* (E), (groups) */
	float *x;	     /* (E) */
};

static size_t room_bytes(const struct kern_moe_dims *d)
{
	size_t bytes = (size_t)d->E * 12 + (size_t)d->groups * 8;

	return (bytes + 7) / 8 * 8;
}

/* Tokens of a block: several if they are small. */
static int tokens_of(const struct kern_moe_dims *d)
{
	return d->E <= 512 ? 4 : 1;
}

static __device__ struct room room_of(char *area, const struct kern_moe_dims &d)
{
	size_t bytes = ((size_t)d.E * 12 + (size_t)d.groups * 8 + 7) / 8 * 8;
	double *at = (double *)(area + threadIdx.x / 32 * bytes);

	return {at, at + d.E, (float *)(at + d.E + d.groups)};
}

/* Let KERNEL have the shared memory that D asks for; returns its bytes. */
template <typename F>
static int room_for(F *kernel, const struct kern_moe_dims *d)
{
	int bytes = (int)room_bytes(d) * tokens_of(d);

	cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	return bytes;
}

/* What all of a token's scores follow from. */
struct token {
	float most, sum; /* the largest logit, the sum of e^(x - most) */
};

static __device__ struct token token_load(const float *x, int64_t E)
{
	struct token t = {-INFINITY, 0};

	for (int64_t e = threadIdx.x % 32; e < E; e += 32)
		t.most = fmaxf(t.most, x[e]);
	t.most = warp_max(t.most);
	for (int64_t e = threadIdx.x % 32; e < E; e += 32)
		t.sum += expf(x[e] - t.most);
	t.sum = warp_sum(t.sum);
	return t;
}

static __device__ __forceinline__ float score_of(float x, const struct token &t,
						 enum kern_score score)
{
	if (score == KERN_SOFTMAX)
		return expf(x - t.most) / t.sum;
	if (score == KERN_SIGMOID)
		return 1 / (1 + expf(-x));
	return sqrtf(x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)));
}

/* The probabilities of the chosen, before the scale: their sum. */
static __device__ float chosen_sum(const float *x, const int32_t *expert,
				   const struct token &t,
				   const struct kern_moe_dims &d)
{
	bool post = d.score == KERN_SOFTMAX && !d.pre;
	float sum = 0;

	if (d.score == KERN_SOFTMAX ? d.pre : d.K == 1)
		return 1;
	for (int64_t k = threadIdx.x % 32; k < d.K; k += 32)
		sum += post ? expf(x[expert[k]] - x[expert[0]])
			    : score_of(x[expert[k]], t, d.score);
	return warp_sum(sum) + (post ? 0 : 1e-20f);
}

static __device__ float chosen_prob(const float *x, const int32_t *expert,
				    int64_t k, float sum, const struct token &t,
				    const struct kern_moe_dims &d)
{
	bool post = d.score == KERN_SOFTMAX && !d.pre;

	return (post ? expf(x[expert[k]] - x[expert[0]])
		     : score_of(x[expert[k]], t, d.score)) /
	       sum;
}

/* x = a token's logits. */
static __device__ void logits_load(float *x, const float *logits, int64_t E)
{
	__syncwarp();
	for (int64_t e = threadIdx.x % 32; e < E; e += 32)
		x[e] = logits[e];
	__syncwarp();
}

#endif
