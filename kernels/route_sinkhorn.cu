/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sinkhorn of route.c on the GPU, as precise: what it finds is what a
 * choice goes by.  Its blocks go from round to round together; each has a
 * fixed part of a micro-batch's tokens, and all add up what all have found, so
 * they agree when to stop.
 */
#include <cooperative_groups.h>

#include "kernels/kern_cuda.h"

#define BLOCKS 32
#define MOST   1000 /* rounds */

/* Of so many experts: tokens at a time, a warp each. */
static int warps_for(int64_t E)
{
	return E <= 512 ? 8 : 1;
}

/* A block's shared memory: doubles (E), and a row for each warp. */
struct area {
	double *w, *column, *share;
};

/*
 * SHARE (E) = e^x of a token's logits X, divided by M and by their sum, each
 * times w; by a warp.
 */
static __device__ void token_share(double *share, const float *x,
				   const double *w, int64_t M, int64_t E)
{
	int lane = threadIdx.x % 32;
	float most = -INFINITY;
	double sum = 0;

	for (int64_t e = lane; e < E; e += 32)
		most = fmaxf(most, x[e]);
	most = warp_max(most);
	for (int64_t e = lane; e < E; e += 32) {
		share[e] = exp((double)x[e] - (double)most);
		sum += w[e] * share[e];
	}
	sum = (warp_sum(sum) + 1e-8) * (double)M;
	for (int64_t e = lane; e < E; e += 32)
		share[e] /= sum;
}

/* column (E) = the sums over tokens LO .. HI. */
static __device__ void columns(const struct area &s, const float *logits,
			       int64_t lo, int64_t hi, int64_t M, int64_t E)
{
	int warp = threadIdx.x / 32, warps = blockDim.x / 32;

	for (int64_t e = threadIdx.x; e < E; e += blockDim.x)
		s.column[e] = 0;
	for (int64_t n = lo; n < hi; n += warps) {
		if (n + warp < hi)
			token_share(s.share + warp * E, logits + (n + warp) * E,
				    s.w, M, E);
		__syncthreads();
		for (int64_t e = threadIdx.x; e < E; e += blockDim.x)
			for (int i = 0; i < warps && n + i < hi; i++)
				s.column[e] += s.share[i * E + e];
		__syncthreads();
	}
}

/* w from the columns of all blocks; how much it has changed in the mean. */
static __device__ double settle(const struct area &s, const double *columns,
				int64_t E, double *room)
{
	double off = 0;

	for (int64_t e = threadIdx.x; e < E; e += blockDim.x) {
		double sum = 0, was = s.w[e];

		for (int i = 0; i < BLOCKS; i++)
			sum += columns[i * E + e];
		s.w[e] = 1 / ((double)E * (sum + 1e-8));
		off += fabs(s.w[e] - was) / (double)E;
	}
	off = block_sum(off, room);
	__syncthreads();
	return off;
}

/* log_w (ranks, E); all (2, BLOCKS, E): what blocks find, in turns. */
static __global__ void sinkhorn_kernel(double *log_w, double *all,
				       const float *logits,
				       struct kern_moe_dims d)
{
	extern __shared__ double shared[];
	__shared__ double room[32];
	struct area s = {shared, shared + d.E, shared + 2 * d.E};
	int64_t lo = d.M * blockIdx.x / BLOCKS;
	int64_t hi = d.M * (blockIdx.x + 1) / BLOCKS;
	int turn = 0;

	for (int64_t r = 0; r < d.ranks; r++) {
		const float *x = logits + r * d.M * d.E;
		double off = 1;

		for (int64_t e = threadIdx.x; e < d.E; e += blockDim.x)
			s.w[e] = 1;
		__syncthreads();
		for (int i = 0; i < MOST && off > 1e-4; i++, turn ^= 1) {
			double *now = all + turn * BLOCKS * d.E;

			columns(s, x, lo, hi, d.M, d.E);
			for (int64_t e = threadIdx.x; e < d.E; e += blockDim.x)
				now[blockIdx.x * d.E + e] = s.column[e];
			cooperative_groups::this_grid().sync();
			off = settle(s, now, d.E, room);
		}
		for (int64_t e = threadIdx.x; e < d.E && blockIdx.x == 0;
		     e += blockDim.x)
			log_w[r * d.E + e] = log(s.w[e]);
	}
}

const double *cuda_sinkhorn(struct queue *q, const float *logits,
			    const struct kern_moe_dims *d)
{
	struct kern_moe_dims dims = *d;
	double *log_w = (double *)q->work, *all = log_w + d->ranks * d->E;
	int warps = warps_for(d->E);
	size_t bytes = (size_t)((2 + warps) * d->E) * sizeof(double);
	size_t need = (size_t)((d->ranks + 2 * BLOCKS) * d->E) * sizeof(double);
	void *args[] = {&log_w, &all, &logits, &dims};
	cudaError_t bad;

	if (need > QUEUE_WORK) {
		queue_fail(q, "sinkhorn", "too many experts");
		return log_w;
	}
	cudaFuncSetAttribute(sinkhorn_kernel,
			     cudaFuncAttributeMaxDynamicSharedMemorySize,
			     (int)bytes);
	bad = cudaLaunchCooperativeKernel(
		(const void *)sinkhorn_kernel, dim3(BLOCKS),
		dim3(32 * (unsigned)warps), args, bytes, q->stream);
	if (bad != cudaSuccess)
		queue_fail(q, "sinkhorn", cudaGetErrorString(bad));
	return log_w;
}
