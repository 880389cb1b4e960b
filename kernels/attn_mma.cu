/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's forward in 16 bits on tensor cores. */
#include "kernels/attn_mma.h"

template <int DP, int M, int N, bool DROP, typename T>
static __global__ void __launch_bounds__(THREADS)
	fwd_kernel(T *o, float *lse, const T *qkv, struct attn_arg a)
{
	extern __shared__ __align__(16) char area[];
	constexpr int ROWS = 16 * M * WARPS, SIZE = N * LD<DP>;
	T *query = (T *)area, *key = query + ROWS * LD<DP>;
	T *value = key + 2 * SIZE;
	dropper drop(a.drop);
	int b = blockIdx.x / a.H, h = blockIdx.x % a.H, now = 0;
	int i0 = (gridDim.y - 1 - blockIdx.y) * ROWS; /* long ones first */
	int row = threadIdx.x / 32 * 16 * M;
	struct attn_place at = attn_place(a, b, h);
	float most[M][2], sum[M][2] = {}, old[M][2];
	frag<M, DP> acc = {};
	frag<M, N> s;
	left<T, M, N> p;

#pragma unroll
	for (int m = 0; m < M; m++)
		most[m][0] = most[m][1] = -INFINITY;
	tile_load<ROWS, DP>(query, qkv + at.q, a.ld, i0, a);
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
			if (j0 + N > i0 + row)
				mask(s, i0 + row, j0);
			softmax(s, most, sum, old, a.scale * LOG2E);
			rows_scale(acc, old);
			if constexpr (DROP)
				drop_rows(s, drop, b, h, i0 + row, j0, a);
			left_from<DROP>(p, s);
			mul_nn<M, N, DP, DP>(acc, p, value + now);
		}
		__syncthreads();
		now ^= SIZE;
	}
	softmax_end(lse + at.lse, most, sum, drop.keep, i0 + row, a);
	rows_scale(acc, sum);
	copies_wait<0>();
	rows_store(o + at.o, a.ldo, acc, 1, i0 + row, 0, a);
}

template <int DP, int M, int N, bool DROP, typename T>
static void fwd_launch(struct queue *q, T *o, float *lse, const T *qkv,
		       const struct attn_arg *a)
{
	auto *kernel = fwd_kernel<DP, M, N, DROP, T>;
	constexpr int ROWS = 16 * M * WARPS;

	LAUNCH(q, kernel, dim3(a->B * a->H, (unsigned)ceil_div(a->T, ROWS)),
	       THREADS, shared_for<DP>(kernel, ROWS + 4 * N), o, lse, qkv, *a);
}

template <bool DROP, typename T>
static void fwd_any(struct queue *q, T *o, float *lse, const T *qkv,
		    const struct attn_arg *a)
{
	if (a->D <= 64)
		fwd_launch<64, 2, 64, DROP>(q, o, lse, qkv, a);
	else if (a->D <= 128)
		fwd_launch<128, 2, 64, DROP>(q, o, lse, qkv, a);
	else
		fwd_launch<256, 1, 32, DROP>(q, o, lse, qkv, a);
}

template <typename T>
bool attn_mma_fwd(struct queue *q, T *o, float *lse, const T *qkv,
		  const struct attn_arg *a)
{
	if (!served({o, qkv}, a))
		return false;
	if (a->drop.key)
		fwd_any<true>(q, o, lse, qkv, a);
	else
		fwd_any<false>(q, o, lse, qkv, a);
	return true;
}

template bool attn_mma_fwd(struct queue *q, bf16 *o, float *lse,
			   const bf16 *qkv, const struct attn_arg *a);
template bool attn_mma_fwd(struct queue *q, fp16 *o, float *lse,
			   const fp16 *qkv, const struct attn_arg *a);
