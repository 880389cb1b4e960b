/* SPDX-License-Identifier: Apache-2.0 */
/* act.c on the GPU. */
#include "kernels/kern_cuda.h"

static __device__ __forceinline__ float sigmoid(float x)
{
	return __fdividef(1, 1 + __expf(-x));
}

/* As in act.c: these three are x sigmoid(k(x)). */
template <enum kern_act A> static __device__ __forceinline__ float arg(float x)
{
	if constexpr (A == KERN_GELU_TANH)
		return 2 * 0.79788456080286536f * (x + 0.044715f * x * x * x);
	return A == KERN_SILU ? x : 1.702f * x;
}

template <enum kern_act A>
static __device__ __forceinline__ float arg_slope(float x)
{
	if constexpr (A == KERN_GELU_TANH)
		return 2 * 0.79788456080286536f * (1 + 3 * 0.044715f * x * x);
	return A == KERN_SILU ? 1.0f : 1.702f;
}

/* The value; *SLOPE = the derivative. */
template <enum kern_act A>
static __device__ __forceinline__ float value(float x, float *slope)
{
	float s;

	if constexpr (A == KERN_RELU2) {
		*slope = x > 0 ? 2 * x : 0;
		return x > 0 ? x * x : 0;
	} else if constexpr (A == KERN_GELU) {
		s = 0.5f * erfcf(-0.70710678118654752f * x);
		*slope = s + 0.39894228040143268f * x * expf(-0.5f * x * x);
		return x * s;
	} else {
		s = sigmoid(arg<A>(x));
		*slope = s + x * s * (1 - s) * arg_slope<A>(x);
		return x * s;
	}
}

/* A row of F for each y of the grid; ld: elements from one x to the next. */
template <typename T, int W, enum kern_act A, bool GATED>
static __global__ void fwd_kernel(T *y, const T *x, int64_t N, int64_t F)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x * W;
	int64_t c0 = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;

	for (int64_t n = blockIdx.y; n < N; n += gridDim.y) {
		const T *xn = x + n * F * (1 + GATED);

		for (int64_t c = c0; c < F; c += step) {
			float v[W], up[W], unused;

			load<W>(v, xn + c);
			if constexpr (GATED)
				load<W>(up, xn + F + c);
#pragma unroll
			for (int j = 0; j < W; j++) {
				v[j] = value<A>(v[j], &unused);
				if constexpr (GATED)
					v[j] *= up[j];
			}
			store<W>(y + n * F + c, v);
		}
	}
}

template <typename T, int W, enum kern_act A, bool GATED>
static __global__ void bwd_kernel(T *dx, const T *dy, const T *x, int64_t N,
				  int64_t F)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x * W;
	int64_t c0 = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;

	for (int64_t n = blockIdx.y; n < N; n += gridDim.y) {
		const T *xn = x + n * F * (1 + GATED);
		T *dxn = dx + n * F * (1 + GATED);

		for (int64_t c = c0; c < F; c += step) {
			float v[W], g[W], up[W], slope;

			load<W>(v, xn + c);
			load<W>(g, dy + n * F + c);
			if constexpr (GATED)
				load<W>(up, xn + F + c);
#pragma unroll
			for (int j = 0; j < W; j++) {
				float a = value<A>(v[j], &slope);

				v[j] = g[j] * slope;
				if constexpr (GATED) {
					v[j] *= up[j];
					up[j] = g[j] * a;
				}
			}
			store<W>(dxn + c, v);
			if constexpr (GATED)
				store<W>(dxn + F + c, up);
		}
	}
}

/* Plain ones see the array as one row. */
template <int W> static dim3 grid_for(int64_t N, int64_t F)
{
	unsigned x = blocks_for(F, 256 * W, 4096);
	int64_t y = 4096 / x;

	return dim3(x, (unsigned)(N < y ? N : y));
}

#define EACH_ACT(act, CALL)                                 \
	switch (act) {                                      \
	case KERN_GELU: CALL(KERN_GELU); break;             \
	case KERN_GELU_TANH: CALL(KERN_GELU_TANH); break;   \
	case KERN_SILU: CALL(KERN_SILU); break;             \
	case KERN_RELU2: CALL(KERN_RELU2); break;           \
	case KERN_QUICK_GELU: CALL(KERN_QUICK_GELU); break; \
	}

template <typename T, int W>
static void fwd_wide(struct queue *q, T *y, const T *x, int64_t N, int64_t F,
		     enum kern_act act, bool gated)
{
	dim3 grid = gated ? grid_for<W>(N, F) : grid_for<W>(1, N * F);

#define CALL(A)                                                                \
	if (gated)                                                             \
		LAUNCH(q, (fwd_kernel<T, W, A, true>), grid, 256, 0, y, x, N,  \
		       F);                                                     \
	else                                                                   \
		LAUNCH(q, (fwd_kernel<T, W, A, false>), grid, 256, 0, y, x, 1, \
		       N *F)
	EACH_ACT(act, CALL)
#undef CALL
}

template <typename T, int W>
static void bwd_wide(struct queue *q, T *dx, const T *dy, const T *x, int64_t N,
		     int64_t F, enum kern_act act, bool gated)
{
	dim3 grid = gated ? grid_for<W>(N, F) : grid_for<W>(1, N * F);

#define CALL(A)                                                               \
	if (gated)                                                            \
		LAUNCH(q, (bwd_kernel<T, W, A, true>), grid, 256, 0, dx, dy,  \
		       x, N, F);                                              \
	else                                                                  \
		LAUNCH(q, (bwd_kernel<T, W, A, false>), grid, 256, 0, dx, dy, \
		       x, 1, N *F)
	EACH_ACT(act, CALL)
#undef CALL
}

template <typename T>
void cuda_act<T>::fwd(struct queue *q, void *y, const void *x, int64_t N,
		      int64_t F, enum kern_act act, bool gated)
{
	bool ok = aligned({x, y}) && (gated ? F : N * F) % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   (fwd_wide<T, W>(q, (T *)y, (const T *)x, N, F, act, gated)));
}

template <typename T>
void cuda_act<T>::bwd(struct queue *q, void *dx, const void *dy, const void *x,
		      int64_t N, int64_t F, enum kern_act act, bool gated)
{
	bool ok = aligned({x, dx, dy}) && (gated ? F : N * F) % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   (bwd_wide<T, W>(q, (T *)dx, (const T *)dy, (const T *)x, N,
				   F, act, gated)));
}

/* A choice for each block of the grid's; its row of F, times PROB. */
template <typename T, int W, enum kern_act A, bool GATED>
static __global__ void rows_fwd_kernel(T *y, const T *x, const float *prob,
				       const int32_t *row, int64_t N, int64_t F)
{
	for (int64_t i = blockIdx.x; i < N; i += gridDim.x) {
		int64_t r = row[i];
		const T *xr = x + r * F * (1 + GATED);

		if (r < 0)
			continue;
		for (int64_t c = threadIdx.x * W; c < F; c += blockDim.x * W) {
			float v[W], up[W], unused;

			load<W>(v, xr + c);
			if constexpr (GATED)
				load<W>(up, xr + F + c);
#pragma unroll
			for (int j = 0; j < W; j++) {
				v[j] = value<A>(v[j], &unused) * prob[i];
				if constexpr (GATED)
					v[j] *= up[j];
			}
			store<W>(y + r * F + c, v);
		}
	}
}

/* One pack of a row; returns its part of the probability's gradient. */
template <typename T, int W, enum kern_act A, bool GATED>
static __device__ __forceinline__ float row_backward(T *dx, const T *dy,
						     const T *x, float p,
						     int64_t F)
{
	float v[W], g[W], up[W], slope, sum = 0;

	load<W>(v, x);
	load<W>(g, dy);
	if constexpr (GATED)
		load<W>(up, x + F);
#pragma unroll
	for (int j = 0; j < W; j++) {
		float a = value<A>(v[j], &slope);

		v[j] = g[j] * p * slope;
		if constexpr (GATED) {
			sum += g[j] * a * up[j];
			v[j] *= up[j];
			up[j] = g[j] * p * a;
		} else {
			sum += g[j] * a;
		}
	}
	store<W>(dx, v);
	if constexpr (GATED)
		store<W>(dx + F, up);
	return sum;
}

template <typename T, int W, enum kern_act A, bool GATED>
static __global__ void rows_bwd_kernel(T *dx, float *dprob, const T *dy,
				       const T *x, const float *prob,
				       const int32_t *row, int64_t N, int64_t F)
{
	__shared__ float area[32];

	for (int64_t i = blockIdx.x; i < N; i += gridDim.x) {
		int64_t r = row[i], at = r * F * (1 + GATED);
		float sum = 0;

		for (int64_t c = threadIdx.x * W; c < F && r >= 0;
		     c += blockDim.x * W)
			sum += row_backward<T, W, A, GATED>(
				dx + at + c, dy + r * F + c, x + at + c,
				prob[i], F);
		sum = block_sum(sum, area);
		if (threadIdx.x == 0)
			dprob[i] = sum;
	}
}

/* Threads for a row of F. */
template <int W> static unsigned row_threads(int64_t F)
{
	return F <= 32 * W ? 32 : F <= 128 * W ? 128 : 256;
}

template <typename T, int W>
static void rows_fwd(struct queue *q, T *y, const T *x, const float *prob,
		     const int32_t *row, int64_t N, int64_t F,
		     enum kern_act act, bool gated)
{
	unsigned grid = blocks_for(N, 1, 1 << 20), block = row_threads<W>(F);

#define CALL(A)                                                                \
	if (gated)                                                             \
		LAUNCH(q, (rows_fwd_kernel<T, W, A, true>), grid, block, 0, y, \
		       x, prob, row, N, F);                                    \
	else                                                                   \
		LAUNCH(q, (rows_fwd_kernel<T, W, A, false>), grid, block, 0,   \
		       y, x, prob, row, N, F)
	EACH_ACT(act, CALL)
#undef CALL
}

template <typename T, int W>
static void rows_bwd(struct queue *q, T *dx, float *dprob, const T *dy,
		     const T *x, const float *prob, const int32_t *row,
		     int64_t N, int64_t F, enum kern_act act, bool gated)
{
	unsigned grid = blocks_for(N, 1, 1 << 20), block = row_threads<W>(F);

#define CALL(A)                                                              \
	if (gated)                                                           \
		LAUNCH(q, (rows_bwd_kernel<T, W, A, true>), grid, block, 0,  \
		       dx, dprob, dy, x, prob, row, N, F);                   \
	else                                                                 \
		LAUNCH(q, (rows_bwd_kernel<T, W, A, false>), grid, block, 0, \
		       dx, dprob, dy, x, prob, row, N, F)
	EACH_ACT(act, CALL)
#undef CALL
}

template <typename T>
void cuda_expert_act<T>::fwd(struct queue *q, void *y, const void *x,
			     const void *prob, const int32_t *row, int64_t N,
			     int64_t F, enum kern_act act, bool gated)
{
	bool ok = aligned({x, y}) && F % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   (rows_fwd<T, W>(q, (T *)y, (const T *)x, (const float *)prob,
				   row, N, F, act, gated)));
}

template <typename T>
void cuda_expert_act<T>::bwd(struct queue *q, void *dx, void *dprob,
			     const void *dy, const void *x, const void *prob,
			     const int32_t *row, int64_t N, int64_t F,
			     enum kern_act act, bool gated)
{
	bool ok = aligned({x, dx, dy}) && F % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   (rows_bwd<T, W>(q, (T *)dx, (float *)dprob, (const T *)dy,
				   (const T *)x, (const float *)prob, row, N, F,
				   act, gated)));
}

template struct cuda_act<float>;
template struct cuda_expert_act<float>;
template struct cuda_act<bf16>;
template struct cuda_act<fp16>;
template struct cuda_expert_act<bf16>;
template struct cuda_expert_act<fp16>;
