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

void cuda_copy_rows(struct queue *q, void *y, int64_t ystep, const void *x,
		    int64_t xstep, int64_t N, int64_t bytes)
{
	cudaError_t bad = cudaMemcpy2DAsync(y, (size_t)ystep, x, (size_t)xstep,
					    (size_t)bytes, (size_t)N,
					    cudaMemcpyDefault, q->stream);

	if (bad != cudaSuccess)
		queue_fail(q, "copy of rows", cudaGetErrorString(bad));
}
