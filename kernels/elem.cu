/* SPDX-License-Identifier: Apache-2.0 */
/* elem.c on the GPU, and columns_add, the end of every sum over rows. */
#include "kernels/kern_cuda.h"

/* 32 columns a block; eight threads share the rows of each. */
static __global__ void columns_kernel(float *out, const float *part,
				      int64_t parts, int64_t C)
{
	__shared__ float sum[8][32];
	int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
	float s = 0;

	if (c < C) {
#pragma unroll 8
		for (int64_t p = threadIdx.y; p < parts; p += 8)
			s += part[p * C + c];
	}
	sum[threadIdx.y][threadIdx.x] = s;
	__syncthreads();
	if (threadIdx.y || c >= C)
		return;
	for (int i = 1; i < 8; i++)
		s += sum[i][threadIdx.x];
	out[c] += s;
}

void columns_add(struct queue *q, float *out, const float *part, int64_t parts,
		 int64_t C)
{
	LAUNCH(q, columns_kernel, (unsigned)ceil_div(C, 32), dim3(32, 8), 0,
	       out, part, parts, C);
}

void cuda_zero(struct queue *q, void *y, int64_t bytes)
{
	cudaError_t bad = cudaMemsetAsync(y, 0, (size_t)bytes, q->stream);

	if (bad != cudaSuccess)
		queue_fail(q, "zero", cudaGetErrorString(bad));
}

void cuda_copy(struct queue *q, void *y, const void *x, int64_t bytes)
{
	cudaError_t bad = cudaMemcpyAsync(y, x, (size_t)bytes,
					  cudaMemcpyDefault, q->stream);

	if (bad != cudaSuccess)
		queue_fail(q, "copy", cudaGetErrorString(bad));
}

/* N rows of BYTES into rows that begin STEP bytes apart. */
static cudaError_t put(struct queue *q, char *y, int64_t step, const void *x,
		       int64_t N, int64_t bytes)
{
	if (!x || !bytes)
		return cudaSuccess;
	return cudaMemcpy2DAsync(y, (size_t)step, x, (size_t)bytes,
				 (size_t)bytes, (size_t)N, cudaMemcpyDefault,
				 q->stream);
}

/* Zeros are set before, all at once. */
void cuda_join(struct queue *q, void *y, const void *a, const void *b,
	       const void *c, int64_t N, int64_t A, int64_t B, int64_t C)
{
	int64_t step = A + B + C;
	char *to = (char *)y;
	cudaError_t bad;

	if ((A && !a) || (B && !b) || (C && !c))
		cuda_zero(q, y, N * step);
	bad = put(q, to, step, a, N, A);
	if (bad == cudaSuccess)
		bad = put(q, to + A, step, b, N, B);
	if (bad == cudaSuccess)
		bad = put(q, to + A + B, step, c, N, C);
	if (bad != cudaSuccess)
		queue_fail(q, "join", cudaGetErrorString(bad));
}

void cuda_cut(struct queue *q, void *y, const void *x, int64_t N, int64_t bytes,
	      int64_t step)
{
	cudaError_t bad = cudaMemcpy2DAsync(y, (size_t)bytes, x, (size_t)step,
					    (size_t)bytes, (size_t)N,
					    cudaMemcpyDefault, q->stream);

	if (bad != cudaSuccess)
		queue_fail(q, "cut", cudaGetErrorString(bad));
}
