/* SPDX-License-Identifier: Apache-2.0 */
/* elem.c on the GPU, and columns_add, the end of every sum over rows. */
#include "kernels/kern_cuda.h"

static __global__ void cast_kernel(bf16 *y, const float *x, int64_t n,
				   bool wide)
{
	constexpr int W = WIDE<bf16>;
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; i < ceil_div(n, W); i += step) {
		if (wide && i * W + W <= n) {
			float a[W];

			load<W>(a, x + i * W);
			store<W>(y + i * W, a);
			continue;
		}
		for (int64_t j = i * W; j < n && j < i * W + W; j++)
			y[j] = (bf16)x[j];
	}
}

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

void kern_cuda_cast_bf16(struct queue *q, void *y, const void *x, int64_t n)
{
	LAUNCH(q, cast_kernel, blocks_for(n, 256 * WIDE<bf16>, 4096), 256, 0,
	       (bf16 *)y, (const float *)x, n, aligned({x, y}));
}
