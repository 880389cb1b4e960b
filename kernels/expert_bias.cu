/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c's biases of experts on the GPU; sums over rows are in their order. */
#include "kernels/kern_cuda.h"

#define COLS 32 /* of a block of the gradient's */
#define DEEP 32 /* rows that it takes at a time */

/* Rows whose probabilities are in the workspace at a time. */
#define TOGETHER ((int64_t)(QUEUE_WORK / sizeof(float)))

/* A block for each of N choices. */
template <typename T, int W>
static __global__ void fwd_kernel(T *y, const T *bias, const float *prob,
				  struct kern_map m, int64_t n, int64_t first,
				  int64_t C)
{
	for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
		int64_t r = m.row[i];
		float p = prob && r >= 0 ? prob[i] : 1;
		const T *from = bias + (m.expert[i] - first) * C;

		if (r < 0)
			continue;
		for (int64_t c = threadIdx.x * W; c < C; c += blockDim.x * W) {
			float a[W], b[W];

			load<W>(a, y + r * C + c);
			load<W>(b, from + c);
#pragma unroll
			for (int j = 0; j < W; j++)
				a[j] += p * b[j];
			store<W>(y + r * C + c, a);
		}
	}
}

/* of (rows FROM .. END) = the probabilities of N choices, by their rows. */
static __global__ void probs_kernel(float *of, const float *prob,
				    const int32_t *row, int64_t n, int64_t from,
				    int64_t end)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; i < n; i += step)
		if (row[i] >= from && row[i] < end)
			of[row[i] - from] = prob[i];
}

/*
 * dbias (experts, C) += the sums over an expert's rows, of FROM .. END: a
 * block for COLS columns of an expert.  prob: of these rows, or NULL.
 */
template <typename T>
static __global__ void __launch_bounds__(COLS *DEEP)
	sums_kernel(float *dbias, const T *dy, const float *prob,
		    const int32_t *ends, int64_t from, int64_t end, int64_t C)
{
	__shared__ float part[DEEP][COLS];
	int64_t e = blockIdx.y, lo = e ? ends[e - 1] : 0, hi = ends[e];
	int64_t c = (int64_t)blockIdx.x * COLS + threadIdx.x;
	float sum = 0;

	lo = max(lo, from);
	hi = min(hi, end);
	for (int64_t r = lo + threadIdx.y; r < hi && c < C; r += DEEP)
		sum += (prob ? prob[r - from] : 1) * (float)dy[r * C + c];
	part[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || c >= C || lo >= hi)
		return;
	for (int i = 1; i < DEEP; i++)
		sum += part[i][threadIdx.x];
	dbias[e * C + c] += sum;
}

/* dprob (N) += each choice's row of dy times its expert's bias: a warp. */
template <typename T, int W>
static __global__ void dprob_kernel(float *dprob, const T *dy, const T *bias,
				    struct kern_map m, int64_t n, int64_t first,
				    int64_t C)
{
	int lane = threadIdx.x % 32, per = blockDim.x / 32;
	int64_t i = (int64_t)blockIdx.x * per + threadIdx.x / 32;

	for (; i < n; i += (int64_t)gridDim.x * per) {
		int64_t r = m.row[i];
		const T *with = bias + (m.expert[i] - first) * C;
		float sum = 0;

		if (r < 0)
			continue;
		for (int64_t c = lane * W; c < C; c += 32 * W) {
			float a[W], b[W];

			load<W>(a, dy + r * C + c);
			load<W>(b, with + c);
#pragma unroll
			for (int j = 0; j < W; j++)
				sum += a[j] * b[j];
		}
		sum = warp_sum(sum);
		if (lane == 0)
			dprob[i] += sum;
	}
}

template <typename T>
void cuda_expert_bias<T>::fwd(struct queue *q, void *y, const void *bias,
			      const void *prob, const int32_t *map, int64_t C,
			      const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */
	int64_t n = d->ranks * d->M * d->K;
	bool ok = aligned({y, bias}) && C % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (fwd_kernel<T, W>), blocks_for(n, 1, 1 << 20), 128,
			  0, (T *)y, (const T *)bias, (const float *)prob, m, n,
			  d->first, C));
}

template <typename T>
void cuda_expert_bias<T>::bwd(struct queue *q, void *dbias, void *dprob,
			      const void *dy, const void *bias,
			      const void *prob, const int32_t *map, int64_t C,
			      const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */
	int64_t n = d->ranks * d->M * d->K, rows = kern_moe_rows(d);
	dim3 grid((unsigned)ceil_div(C, COLS), (unsigned)d->experts);
	float *of = prob ? (float *)q->work : NULL;
	bool ok = aligned({dy, bias}) && C % WIDE<T> == 0;

	for (int64_t r = 0; r < rows; r += TOGETHER) {
		int64_t end = r + TOGETHER < rows ? r + TOGETHER : rows;

		if (prob)
			LAUNCH(q, probs_kernel, blocks_for(n, 256, 1 << 12),
			       256, 0, of, (const float *)prob, m.row, n, r,
			       end);
		LAUNCH(q, sums_kernel<T>, grid, dim3(COLS, DEEP), 0,
		       (float *)dbias, (const T *)dy, of, m.end, r, end, C);
	}
	if (!dprob)
		return;
	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (dprob_kernel<T, W>), blocks_for(n, 8, 1 << 20),
			  256, 0, (float *)dprob, (const T *)dy,
			  (const T *)bias, m, n, d->first, C));
}

template struct cuda_expert_bias<float>;
template struct cuda_expert_bias<bf16>;
template struct cuda_expert_bias<fp16>;
