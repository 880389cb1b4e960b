/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embed.c on the GPU.  The backward sorts the tokens by id, which keeps the
 * order of equal ones, and gives each id's tokens to one block.
 */
#include <cub/device/device_radix_sort.cuh>

#include "kernels/kern_cuda.h"

template <typename T, int W>
static __global__ void fwd_kernel(T *y, const int32_t *ids, const T *w,
				  int64_t C, int64_t first, int64_t rows)
{
	int64_t n = blockIdx.x, id = ids[n] - first;
	bool here = id >= 0 && id < rows;

	for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += blockDim.x * W) {
		float v[W] = {};

		if (here)
			load<W>(v, w + id * C + c);
		store<W>(y + n * C + c, v);
	}
}

template <typename T, int W>
static __global__ void pos_fwd_kernel(T *y, const T *w, struct places at,
				      int64_t C, int64_t row0, int64_t shift)
{
	int64_t n = blockIdx.x, t = at.of(row0 + n);

	if (t >= at.room)
		return;
	t = t + shift < at.room ? t + shift : 0;
	for (int64_t c = (int64_t)threadIdx.x * W; c < C; c += blockDim.x * W) {
		float a[W], b[W];

		load<W>(a, y + n * C + c);
		load<W>(b, w + t * C + c);
#pragma unroll
		for (int j = 0; j < W; j++)
			a[j] += b[j];
		store<W>(y + n * C + c, a);
	}
}

/* SUM += the rows of dy for place T in a sample, in their order. */
template <typename T, int W>
static __device__ __forceinline__ void add_place(float (&sum)[W], const T *dy,
						 int64_t N, int64_t C,
						 int64_t T_, int64_t row0,
						 int64_t t)
{
	float v[W];

#pragma unroll 4
	for (int64_t n = (t - row0 % T_ + T_) % T_; n < N; n += T_) {
		load<W>(v, dy + n * C);
#pragma unroll
		for (int j = 0; j < W; j++)
			sum[j] += v[j];
	}
}

/*
 * A block for each position P: the place P - shift, and for P = 0 those at
 * the end of a sample that have none.
 */
template <typename T, int W>
static __global__ void pos_bwd_kernel(float *dw, const T *dy, int64_t N,
				      int64_t C, int64_t T_, int64_t row0,
				      int64_t shift)
{
	int64_t p = blockIdx.x;
	int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * W;
	float sum[W];

	if (c >= C)
		return;
	load<W>(sum, dw + p * C + c);
	if (p >= shift)
		add_place<T, W>(sum, dy + c, N, C, T_, row0, p - shift);
	for (int64_t t = T_ - shift; p == 0 && t < T_; t++)
		add_place<T, W>(sum, dy + c, N, C, T_, row0, t);
	store<W>(dw + p * C + c, sum);
}

/* Keys: this rank's row, or ROWS for a token that is not here. */
static __global__ void keys_kernel(uint32_t *key, int32_t *token,
				   const int32_t *ids, int n, int64_t first,
				   int64_t rows)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int64_t id;

	if (i >= n)
		return;
	id = ids[i] - first;
	key[i] = (uint32_t)(id >= 0 && id < rows ? id : rows);
	token[i] = i;
}

/* Where the tokens of token I's id end: doubling steps, then halving ones. */
static __device__ __forceinline__ int run_end(const uint32_t *key, int i, int n)
{
	uint32_t id = key[i];
	int step = 1;

	while (i + step < n && key[i + step] == id) {
		i += step;
		step *= 2;
	}
	for (; step; step /= 2)
		if (i + step < n && key[i + step] == id)
			i += step;
	return i + 1;
}

/* A block for each sorted token; only the first of an id works, for all. */
template <typename T, int W>
static __global__ void bwd_kernel(float *dw, const T *dy, const uint32_t *key,
				  const int32_t *token, int n, int64_t C,
				  int64_t rows)
{
	int i = blockIdx.x, end;
	int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * W;
	uint32_t id = key[i];
	float sum[W], v[W];

	if (id >= rows || (i && key[i - 1] == id) || c >= C)
		return;
	end = run_end(key, i, n);
	load<W>(sum, dw + id * C + c);
#pragma unroll 8
	for (; i < end; i++) {
		load<W>(v, dy + token[i] * C + c);
#pragma unroll
		for (int j = 0; j < W; j++)
			sum[j] += v[j];
	}
	store<W>(dw + id * C + c, sum);
}

/* Tokens sorted at a time: with the sort's own needs, within QUEUE_WORK. */
#define TOKENS (1 << 20)

/* Sort N ids within the workspace; return the sorted keys and tokens. */
static bool sort(struct queue *q, const int32_t *ids, int n, int64_t first,
		 int64_t rows, const uint32_t **key, const int32_t **token)
{
	uint32_t *k0 = (uint32_t *)q->work, *k1 = k0 + TOKENS;
	int32_t *t0 = (int32_t *)(k1 + TOKENS), *t1 = t0 + TOKENS;
	size_t room = QUEUE_WORK - 4 * sizeof(*k0) * TOKENS, need = 0;
	int bits = 1;
	cudaError_t bad;

	while (bits < 32 && rows >> bits)
		bits++;
	LAUNCH(q, keys_kernel, (unsigned)ceil_div(n, 256), 256, 0, k0, t0, ids,
	       n, first, rows);
	bad = cub::DeviceRadixSort::SortPairs(NULL, need, k0, k1, t0, t1, n, 0,
					      bits, q->stream);
	if (bad == cudaSuccess && need <= room)
		bad = cub::DeviceRadixSort::SortPairs(t1 + TOKENS, need, k0, k1,
						      t0, t1, n, 0, bits,
						      q->stream);
	else if (bad == cudaSuccess)
		bad = cudaErrorMemoryAllocation;
	if (bad != cudaSuccess)
		queue_fail(q, "embed_bwd", cudaGetErrorString(bad));
	*key = k1;
	*token = t1;
	return bad == cudaSuccess;
}

template <typename T>
void cuda_embed<T>::fwd(struct queue *q, void *y, const int32_t *ids,
			const void *w, int64_t N, int64_t C, int64_t first,
			int64_t rows)
{
	WITH_WIDTH(T, W, aligned({y, w}) && C % WIDE<T> == 0,
		   LAUNCH(q, (fwd_kernel<T, W>), (unsigned)N, 128, 0, (T *)y,
			  ids, (const T *)w, C, first, rows));
}

template <typename T>
void cuda_embed<T>::bwd(struct queue *q, void *dw, const void *dy,
			const int32_t *ids, int64_t N, int64_t C, int64_t first,
			int64_t rows)
{
	bool ok = aligned({dw, dy}) && C % WIDE<T> == 0;

	for (int64_t i = 0; i < N; i += TOKENS) {
		int n = (int)(N - i < TOKENS ? N - i : TOKENS);
		const T *dyi = (const T *)dy + i * C;
		const uint32_t *key;
		const int32_t *token;

		if (!sort(q, ids + i, n, first, rows, &key, &token))
			return;
		WITH_WIDTH(T, W, ok,
			   LAUNCH(q, (bwd_kernel<T, W>),
				  dim3((unsigned)n,
				       (unsigned)ceil_div(C, 128 * W)),
				  128, 0, (float *)dw, dyi, key, token, n, C,
				  rows));
	}
}

template <typename T>
void cuda_embed<T>::pos_fwd(struct queue *q, void *y, const void *w, int64_t N,
			    int64_t C, int64_t T_, int64_t row0, int64_t shift)
{
	struct places at = {NULL, T_, T_};

	WITH_WIDTH(T, W, aligned({y, w}) && C % WIDE<T> == 0,
		   LAUNCH(q, (pos_fwd_kernel<T, W>), (unsigned)N, 128, 0,
			  (T *)y, (const T *)w, at, C, row0, shift));
}

template <typename T>
void cuda_embed<T>::pos_at(struct queue *q, void *y, const void *w,
			   const int32_t *pos, int64_t B, int64_t T_, int64_t C,
			   int64_t room, int64_t shift)
{
	struct places at = {pos, T_, room};

	WITH_WIDTH(T, W, aligned({y, w}) && C % WIDE<T> == 0,
		   LAUNCH(q, (pos_fwd_kernel<T, W>), (unsigned)(B * T_), 128, 0,
			  (T *)y, (const T *)w, at, C, 0, shift));
}

template <typename T>
void cuda_embed<T>::pos_bwd(struct queue *q, void *dw, const void *dy,
			    int64_t N, int64_t C, int64_t T_, int64_t row0,
			    int64_t shift)
{
	WITH_WIDTH(T, W, aligned({dw, dy}) && C % WIDE<T> == 0,
		   LAUNCH(q, (pos_bwd_kernel<T, W>),
			  dim3((unsigned)T_, (unsigned)ceil_div(C, 128 * W)),
			  128, 0, (float *)dw, (const T *)dy, N, C, T_, row0,
			  shift));
}

template struct cuda_embed<float>;
template struct cuda_embed<bf16>;
template struct cuda_embed<fp16>;
