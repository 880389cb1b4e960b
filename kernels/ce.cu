/* SPDX-License-Identifier: Apache-2.0 */
/* ce.c on the GPU, a block for each row. */
#include "kernels/kern_cuda.h"

#define THREADS 512

static __device__ __forceinline__ bool label_here(int64_t label, int64_t valid,
						  int64_t first)
{
	return label >= first && label - first < valid;
}

/* The largest or, with EXP, the sum of exp(x - m), of x (n). */
template <typename T, int W, bool EXP>
static __device__ __forceinline__ float row_pass(const T *x, int64_t n, float m)
{
	float r = EXP ? 0 : -INFINITY;

	for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += THREADS * W) {
		float v[W];

		if (W == 1 || i + W <= n) {
			load<W>(v, x + i);
		} else {
#pragma unroll
			for (int j = 0; j < W; j++)
				v[j] = i + j < n ? (float)x[i + j] : -INFINITY;
		}
#pragma unroll
		for (int j = 0; j < W; j++)
			r = EXP ? r + expf(v[j] - m) : fmaxf(r, v[j]);
	}
	return r;
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
	max_kernel(float *m, const T *logits, int64_t V, int64_t valid)
{
	__shared__ float area[32];
	int64_t n = blockIdx.x;
	float most = row_pass<T, W, false>(logits + n * V, valid, 0);

	most = block_max(most, area);
	if (threadIdx.x == 0)
		m[n] = most;
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
	sums_kernel(float *sums, const T *logits, const float *m,
		    const int32_t *labels, int64_t N, int64_t V, int64_t valid,
		    int64_t first)
{
	__shared__ float area[32];
	int64_t n = blockIdx.x;
	const T *x = logits + n * V;
	float z = block_sum(row_pass<T, W, true>(x, valid, m[n]), area);

	if (threadIdx.x)
		return;
	sums[n] = z;
	sums[N + n] = label_here(labels[n], valid, first)
			      ? (float)x[labels[n] - first] - m[n]
			      : 0;
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
	grad_kernel(T *logits, const float *m, const float *sums,
		    const int32_t *labels, const double *coef, int64_t V,
		    int64_t valid, int64_t first)
{
	int64_t n = blockIdx.x, label = labels[n];
	T *x = logits + n * V;
	float mn = m[n], scale = (float)(*coef / (double)sums[n]);

	if (label < 0)
		valid = 0;
	label = label_here(label, valid, first) ? label - first : -1;
	for (int64_t i = (int64_t)threadIdx.x * W; i < V; i += THREADS * W) {
		float v[W];

		load<W>(v, x + i);
#pragma unroll
		for (int j = 0; j < W; j++) {
			v[j] = i + j < valid ? expf(v[j] - mn) * scale : 0;
			if (i + j == label)
				v[j] -= (float)*coef;
		}
		store<W>(x + i, v);
	}
}

/* One block adds all rows, in an order that N alone decides. */
static __global__ void loss_kernel(double *loss, double *right,
				   const float *sums, const int32_t *labels,
				   int64_t N)
{
	__shared__ double area[32];
	double s = 0, hits = 0;

	for (int64_t n = threadIdx.x; n < N; n += blockDim.x)
		if (labels[n] >= 0) {
			s += log((double)sums[n]) - (double)sums[N + n];
			hits += sums[N + n] == 0;
		}
	s = block_sum(s, area);
	if (right)
		hits = block_sum(hits, area);
	if (threadIdx.x)
		return;
	*loss += s;
	if (right)
		*right += hits;
}

template <typename T>
void cuda_ce<T>::max(struct queue *q, void *m, const void *logits, int64_t N,
		     int64_t V, int64_t valid)
{
	WITH_WIDTH(T, W, aligned({logits}) && V % WIDE<T> == 0,
		   LAUNCH(q, (max_kernel<T, W>), (unsigned)N, THREADS, 0,
			  (float *)m, (const T *)logits, V, valid));
}

template <typename T>
void cuda_ce<T>::sums(struct queue *q, void *sums, const void *logits,
		      const void *m, const int32_t *labels, int64_t N,
		      int64_t V, int64_t valid, int64_t first)
{
	WITH_WIDTH(T, W, aligned({logits}) && V % WIDE<T> == 0,
		   LAUNCH(q, (sums_kernel<T, W>), (unsigned)N, THREADS, 0,
			  (float *)sums, (const T *)logits, (const float *)m,
			  labels, N, V, valid, first));
}

template <typename T>
void cuda_ce<T>::grad(struct queue *q, double *loss, double *right,
		      void *logits, const void *m, const void *sums,
		      const int32_t *labels, const double *coef, int64_t N,
		      int64_t V, int64_t valid, int64_t first)
{
	WITH_WIDTH(T, W, aligned({logits}) && V % WIDE<T> == 0,
		   LAUNCH(q, (grad_kernel<T, W>), (unsigned)N, THREADS, 0,
			  (T *)logits, (const float *)m, (const float *)sums,
			  labels, coef, V, valid, first));
	LAUNCH(q, loss_kernel, 1, 1024, 0, loss, right, (const float *)sums,
	       labels, N);
}

template struct cuda_ce<float>;
template struct cuda_ce<bf16>;
template struct cuda_ce<fp16>;
