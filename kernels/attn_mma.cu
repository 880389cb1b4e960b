/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's forward in bf16 on tensor cores. */
#include "kernels/attn_mma.h"

/*
 * The softmax of a block of scores, with the maxima and sums so far of this
 * thread's rows: s becomes 2^(scale s - most), and acc is brought to the new
 * maximum.  SUM is of this thread's columns only.
 */
template <int M, int N, int W>
static __device__ __forceinline__ void softmax(frag<M, N> &s, frag<M, W> &acc,
					       float (&most)[M][2],
					       float (&sum)[M][2], float scale)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int c = 0; c < 4; c += 2) {
			float top = most[m][c / 2], add = 0, old;

#pragma unroll
			for (int t = 0; t < N / 8; t++)
				top = fmaxf(top, fmaxf(s.v[m][t][c],
						       s.v[m][t][c + 1]));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
			old = power2((most[m][c / 2] - top) * scale);
			most[m][c / 2] = top;
			top *= scale;
#pragma unroll
			for (int t = 0; t < N / 8; t++)
#pragma unroll
				for (int i = c; i < c + 2; i++) {
					float &x = s.v[m][t][i];

					x = power2(fmaf(x, scale, -top));
					add += x;
				}
			sum[m][c / 2] = sum[m][c / 2] * old + add;
#pragma unroll
			for (int t = 0; t < W / 8; t++) {
				acc.v[m][t][c] *= old;
				acc.v[m][t][c + 1] *= old;
			}
		}
}

/* s *= the dropout's factors, for queries I0 on and keys J0 on. */
template <int M, int N>
static __device__ __forceinline__ void drop_scores(frag<M, N> &s,
						   const struct dropper &drop,
						   int b, int h, int i0, int j0,
						   const struct attn_arg &a)
{
#pragma unroll
	for (int m = 0; m < M; m++) {
		int i = i0 + frag_row(m, 0);
		int64_t e = attn_elem(a, b, h, i) + j0 + frag_col(0, 0);

#pragma unroll
		for (int t = 0; t < N / 8; t++) {
			float f[4];

			factors_rows(f, drop, e + 8 * t,
				     e + 8 * t + 8 * a.heads * a.T,
				     a.T % 4 == 0);
#pragma unroll
			for (int c = 0; c < 4; c++)
				s.v[m][t][c] *= f[c];
		}
	}
}

template <int DP, int M, int N, bool DROP>
static __global__ void __launch_bounds__(THREADS)
	fwd_kernel(bf16 *o, float *lse, const bf16 *qkv, struct attn_arg a)
{
	extern __shared__ __align__(16) bf16 area[];
	constexpr int ROWS = 16 * M * WARPS, SIZE = N * LD<DP>;
	bf16 *query = area, *key = query + ROWS * LD<DP>;
	bf16 *value = key + 2 * SIZE;
	dropper drop(a.drop);
	int b = blockIdx.x / a.H, h = blockIdx.x % a.H, now = 0;
	int i0 = (gridDim.y - 1 - blockIdx.y) * ROWS; /* long ones first */
	int row = threadIdx.x / 32 * 16 * M;
	struct attn_place at = attn_place(a, b, h);
	float most[M][2], sum[M][2] = {};
	frag<M, DP> acc = {};
	frag<M, N> s;

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
			softmax(s, acc, most, sum, a.scale * LOG2E);
			if constexpr (DROP)
				drop_scores(s, drop, b, h, i0 + row, j0, a);
			mul_nn<M, N, DP, DP>(acc, s, value + now);
		}
		__syncthreads();
		now ^= SIZE;
	}
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int c = 0; c < 4; c += 2) {
			int i = i0 + row + frag_row(m, c);
			float z = sum[m][c / 2];

			z += __shfl_xor_sync(~0u, z, 1);
			z += __shfl_xor_sync(~0u, z, 2);
			if (threadIdx.x % 4 == 0 && i < a.T)
				lse[at.lse + i] =
					most[m][c / 2] * a.scale + logf(z);
#pragma unroll
			for (int t = 0; t < DP / 8; t++) {
				acc.v[m][t][c] /= z;
				acc.v[m][t][c + 1] /= z;
			}
		}
	copies_wait<0>();
	rows_store(o + at.o, a.ldo, acc, 1, i0 + row, 0, a);
}

template <int DP, int M, int N, bool DROP>
static void fwd_launch(struct queue *q, bf16 *o, float *lse, const bf16 *qkv,
		       const struct attn_arg *a)
{
	auto *kernel = fwd_kernel<DP, M, N, DROP>;
	constexpr int ROWS = 16 * M * WARPS;

	LAUNCH(q, kernel, dim3(a->B * a->H, (unsigned)ceil_div(a->T, ROWS)),
	       THREADS, shared_for<DP>(kernel, ROWS + 4 * N), o, lse, qkv, *a);
}

template <bool DROP>
static void fwd_any(struct queue *q, bf16 *o, float *lse, const bf16 *qkv,
		    const struct attn_arg *a)
{
	if (a->D <= 64)
		fwd_launch<64, 2, 64, DROP>(q, o, lse, qkv, a);
	else if (a->D <= 128)
		fwd_launch<128, 2, 64, DROP>(q, o, lse, qkv, a);
	else
		fwd_launch<256, 1, 32, DROP>(q, o, lse, qkv, a);
}

bool attn_mma_fwd(struct queue *q, bf16 *o, float *lse, const bf16 *qkv,
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
