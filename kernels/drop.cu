/* SPDX-License-Identifier: Apache-2.0 */
/* drop.c on the GPU. */
#include "kernels/kern_cuda.h"

template <typename T, int W>
static __global__ void drop_kernel(T *y, const T *x, int64_t n, int64_t elem,
				   struct drop_arg arg)
{
	dropper drop(arg);
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (i *= W; i < n; i += step * W) {
		float v[W], f[W];

		load<W>(v, x + i);
		drop.factors<W>(f, elem + i);
#pragma unroll
		for (int j = 0; j < W; j++)
			v[j] = f[j] != 0 ? v[j] * f[j] : 0;
		store<W>(y + i, v);
	}
}

template <typename T>
void cuda_drop<T>::drop(struct queue *q, void *y, const void *x, int64_t N,
			int64_t C, const struct kern_drop *d)
{
	struct drop_arg arg = drop_arg(d);
	int64_t n = N * C;

	if (!arg.key) {
		if (y != x)
			cuda_copy(q, y, x, n * (int64_t)sizeof(T));
		return;
	}
	WITH_WIDTH(T, W, aligned({x, y}) && C % WIDE<T> == 0,
		   LAUNCH(q, (drop_kernel<T, W>), blocks_for(n, 256 * W, 4096),
			  256, 0, (T *)y, (const T *)x, n, arg.row0 * C, arg));
}

/* The factors of elements ELEM .. + W, of low + unit w for their words w. */
template <int W>
static __device__ __forceinline__ void noise(float (&f)[W], const dropper &drop,
					     int64_t elem, float low,
					     float unit)
{
#pragma unroll
	for (int i = 0; i < W; i += 4) {
		uint4 w = drop.words((uint64_t)(elem + i) / 4);

#pragma unroll
		for (int j = 0; j < (W < 4 ? W : 4); j++)
			f[i + j] =
				low + unit * (float)drop.word(
						     w, (int)((elem + j) % 4));
	}
}

template <typename T, int W>
static __global__ void jitter_kernel(T *y, const T *x, int64_t n, int64_t elem,
				     float low, float unit, struct drop_arg arg)
{
	dropper drop(arg);
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (i *= W; i < n; i += step * W) {
		float v[W], f[W];

		load<W>(v, x + i);
		noise<W>(f, drop, elem + i, low, unit);
#pragma unroll
		for (int j = 0; j < W; j++)
			v[j] *= f[j];
		store<W>(y + i, v);
	}
}

template <typename T>
void cuda_drop<T>::jitter(struct queue *q, void *y, const void *x, int64_t N,
			  int64_t C, const struct kern_drop *d)
{
	struct drop_arg arg = drop_arg(d);
	float low = (float)(1 - d->p + d->p * 0x1p-32);
	float unit = (float)(2 * d->p * 0x1p-32);
	int64_t n = N * C;

	WITH_WIDTH(T, W, aligned({x, y}) && C % WIDE<T> == 0,
		   LAUNCH(q, (jitter_kernel<T, W>),
			  blocks_for(n, 256 * W, 4096), 256, 0, (T *)y,
			  (const T *)x, n, arg.row0 * C, low, unit, arg));
}

template struct cuda_drop<float>;
template struct cuda_drop<bf16>;
template struct cuda_drop<fp16>;
