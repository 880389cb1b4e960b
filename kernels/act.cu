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

template struct cuda_act<float>;
template struct cuda_act<bf16>;
