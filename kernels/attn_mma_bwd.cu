/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's backward in 16 bits on tensor cores: one kernel by keys for dk
 * and dv, one by queries for dq.  That is 7 products instead of 5, but
 * nothing is added by two blocks.
 */
#include "kernels/attn_mma.h"

/* By queries: dq of 64 M of them, from blocks of N keys. */
template <int DP, int M, int N, bool DROP, typename T>
static __global__ void __launch_bounds__(THREADS)
	bwd_queries_kernel(T *dqkv, const T *dout, const float *lse,
			   const float *delta, const T *qkv, struct attn_arg a)
{
	extern __shared__ __align__(16) char area[];
	constexpr int ROWS = 16 * M * WARPS, SIZE = N * LD<DP>;
	T *query = (T *)area, *grad = query + ROWS * LD<DP>;
	T *key = grad + ROWS * LD<DP>, *value = key + 2 * SIZE;
	dropper drop(a.drop);
	int b = blockIdx.x / a.H, h = blockIdx.x % a.H, now = 0;
	int i0 = (gridDim.y - 1 - blockIdx.y) * ROWS;
	int row = threadIdx.x / 32 * 16 * M;
	struct attn_place at = attn_place(a, b, h);
	float log2[M][2], del[M][2];
	frag<M, DP> acc = {};
	frag<M, N> s, dp;
	left<T, M, N> ds;

	rows_read(log2, del, lse + at.lse, delta + at.lse, i0 + row, a);
	tile_load<ROWS, DP>(query, qkv + at.q, a.ld, i0, a);
	tile_load<ROWS, DP>(grad, dout + at.o, a.ldo, i0, a);
	tile_load<N, DP>(key, qkv + at.k, a.ld, 0, a);
	tile_load<N, DP>(value, qkv + at.v, a.ld, 0, a);
	copies_commit();
	for (int j0 = 0; j0 < i0 + ROWS && j0 < a.T; j0 += N) {
		tile_load<N, DP>(key + (now ^ SIZE), qkv + at.k, a.ld, j0 + N,
				 a);
		tile_load<N, DP>(value + (now ^ SIZE), qkv + at.v, a.ld, j0 + N,
				 a);
		copies_commit();
		copies_wait<1>();
		__syncthreads();
		if (j0 < i0 + row + 16 * M) {
			mul_nt<M, N, DP>(s, query + row * LD<DP>, key + now);
			mul_nt<M, N, DP>(dp, grad + row * LD<DP>, value + now);
			if (j0 + N > i0 + row)
				mask(s, i0 + row, j0);
			weights_rows(s, log2, a.scale * LOG2E);
			if constexpr (DROP)
				drop_rows(s, drop, b, h, i0 + row, j0, a);
			gradient_rows<DROP>(dp, s, del, drop.keep);
			left_from<false>(ds, dp);
			mul_nn<M, N, DP, DP>(acc, ds, key + now);
		}
		__syncthreads();
		now ^= SIZE;
	}
	copies_wait<0>();
	rows_store(dqkv + at.q, a.ld, acc, a.scale, i0 + row, 0, a);
}

/*
 * By keys: W columns, from W blockIdx.z on, of dk and dv of 64 M of them,
 * from blocks of N queries, ITEMS of those for each head of the group.
 */
template <int DP, int M, int N, int W, bool DROP, typename T>
static __global__ void __launch_bounds__(THREADS)
	bwd_keys_kernel(T *dqkv, const T *dout, const float *lse,
			const float *delta, const T *qkv, struct attn_arg a)
{
	extern __shared__ __align__(16) char area[];
	__shared__ __align__(8) float log2[2][N], del[2][N];
	constexpr int ROWS = 16 * M * WARPS, SIZE = N * LD<DP>;
	T *key = (T *)area, *value = key + ROWS * LD<DP>;
	T *query = value + ROWS * LD<DP>, *grad = query + 2 * SIZE;
	dropper drop(a.drop);
	int b = blockIdx.x / a.G, h0 = blockIdx.x % a.G * a.per;
	int j0 = blockIdx.y * ROWS, c0 = W * blockIdx.z;
	int row = threadIdx.x / 32 * 16 * M;
	int items = (a.T - j0 + N - 1) / N;
	struct attn_place at = attn_place(a, b, h0);
	frag<M, W> dk = {}, dv = {};
	frag<M, N> s, dp;
	left<T, M, N> p, ds;
	auto fetch = [&](int item) {
		int h = h0 + item / items, i0 = j0 + item % items * N;
		int now = item % 2;
		struct attn_place from = attn_place(a, b, h);

		tile_load<N, DP>(query + now * SIZE, qkv + from.q, a.ld, i0, a);
		tile_load<N, DP>(grad + now * SIZE, dout + from.o, a.ldo, i0,
				 a);
		copies_commit();
		for (int i = threadIdx.x; i < N; i += THREADS) {
			bool there = i0 + i < a.T;

			log2[now][i] = there ? lse[from.lse + i0 + i] * LOG2E
					     : INFINITY;
			del[now][i] = there ? delta[from.lse + i0 + i] : 0;
		}
	};

	tile_load<ROWS, DP>(key, qkv + at.k, a.ld, j0, a);
	tile_load<ROWS, DP>(value, qkv + at.v, a.ld, j0, a);
	fetch(0);
	for (int item = 0; item < items * a.per; item++) {
		int h = h0 + item / items, i0 = j0 + item % items * N;
		int now = item % 2;

		if (item + 1 < items * a.per)
			fetch(item + 1);
		else
			copies_commit();
		copies_wait<1>();
		__syncthreads();
		if (i0 + N > j0 + row) {
			mul_nt<M, N, DP>(s, key + row * LD<DP>,
					 query + now * SIZE);
			mul_nt<M, N, DP>(dp, value + row * LD<DP>,
					 grad + now * SIZE);
			if (i0 < j0 + row + 16 * M)
				mask_columns(s, i0, j0 + row);
			weights_columns(s, log2[now], a.scale * LOG2E);
			if constexpr (DROP)
				drop_columns(s, drop, b, h, i0, j0 + row, a);
			left_from<DROP>(p, s);
			gradient_columns<DROP>(dp, s, del[now], drop.keep);
			left_from<false>(ds, dp);
			mul_nn<M, N, W, DP>(dv, p, grad + now * SIZE + c0);
			mul_nn<M, N, W, DP>(dk, ds, query + now * SIZE + c0);
		}
		__syncthreads();
	}
	rows_store(dqkv + at.k, a.ld, dk, a.scale, j0 + row, c0, a);
	rows_store(dqkv + at.v, a.ld, dv, drop.keep, j0 + row, c0, a);
}

template <int DP, int M, int N, int W, bool DROP, typename T>
static void keys_launch(struct queue *q, T *dqkv, const T *dout,
			const float *lse, const float *delta, const T *qkv,
			const struct attn_arg *a)
{
	auto *kernel = bwd_keys_kernel<DP, M, N, W, DROP, T>;
	constexpr int ROWS = 16 * M * WARPS;

	LAUNCH(q, kernel,
	       dim3(a->B * a->G, (unsigned)ceil_div(a->T, ROWS), DP / W),
	       THREADS, shared_for<DP>(kernel, 2 * ROWS + 4 * N), dqkv, dout,
	       lse, delta, qkv, *a);
}

template <int DP, int M, int N, bool DROP, typename T>
static void queries_launch(struct queue *q, T *dqkv, const T *dout,
			   const float *lse, const float *delta, const T *qkv,
			   const struct attn_arg *a)
{
	auto *kernel = bwd_queries_kernel<DP, M, N, DROP, T>;
	constexpr int ROWS = 16 * M * WARPS;

	LAUNCH(q, kernel, dim3(a->B * a->H, (unsigned)ceil_div(a->T, ROWS)),
	       THREADS, shared_for<DP>(kernel, 2 * ROWS + 4 * N), dqkv, dout,
	       lse, delta, qkv, *a);
}

template <bool DROP, typename... A> static void bwd_any(int D, A... args)
{
	if (D <= 64) {
		keys_launch<64, 2, 32, 64, DROP>(args...);
		queries_launch<64, 2, 32, DROP>(args...);
	} else if (D <= 128) {
		keys_launch<128, 1, 64, 128, DROP>(args...);
		queries_launch<128, 1, 64, DROP>(args...);
	} else {
		keys_launch<256, 1, 32, 128, DROP>(args...);
		queries_launch<256, 1, 32, DROP>(args...);
	}
}

template <typename T>
bool attn_mma_bwd(struct queue *q, T *dqkv, const T *dout, const float *lse,
		  const float *delta, const T *qkv, const struct attn_arg *a)
{
	if (!served({dqkv, dout, qkv}, a))
		return false;
	if (a->drop.key)
		bwd_any<true>(a->D, q, dqkv, dout, lse, delta, qkv, a);
	else
		bwd_any<false>(a->D, q, dqkv, dout, lse, delta, qkv, a);
	return true;
}

template bool attn_mma_bwd(struct queue *q, bf16 *dqkv, const bf16 *dout,
			   const float *lse, const float *delta,
			   const bf16 *qkv, const struct attn_arg *a);
template bool attn_mma_bwd(struct queue *q, fp16 *dqkv, const fp16 *dout,
			   const float *lse, const float *delta,
			   const fp16 *qkv, const struct attn_arg *a);
