/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in 16 bits on tensor cores: Dao, "FlashAttention-2", 2023, with
 * mma.sync m16n8k16.  A block has four warps, each with M times 16 rows; a
 * product's result stays in registers, where it is laid out as the next
 * product's left operand.  Tiles are DP wide, D rounded up, with zeros.
 */
#ifndef KERNELS_ATTN_MMA_H
#define KERNELS_ATTN_MMA_H

#include "kernels/attn_frag.h"

#define THREADS 128
#define WARPS	4

/* Rows of a tile are 16 bytes longer: eight of them lie in different banks. */
template <int DP> constexpr int LD = DP + 8;

/* Rows FIRST .. + ROWS of a head, DP wide; zeros past T and D. */
template <int ROWS, int DP, typename T>
static __device__ __forceinline__ void tile_load(T *to, const T *from,
						 int64_t ld, int first,
						 const struct attn_arg &a)
{
	constexpr int PER = DP / 8;

#pragma unroll
	for (int i = threadIdx.x; i < ROWS * PER; i += THREADS) {
		int r = i / PER, c = i % PER * 8;
		bool there = first + r < a.T && c < a.D;

		copy16(to + r * LD<DP> + c,
		       there ? from + (first + r) * ld + c : from, there);
	}
}

/* s (16 M, N) = x (16 M, DP) y^T, y (N, DP). */
template <int M, int N, int DP, typename T>
static __device__ __forceinline__ void mul_nt(frag<M, N> &s, const T *x,
					      const T *y)
{
	int lane = threadIdx.x % 32;
	const T *xl = x + lane % 16 * LD<DP> + lane / 16 * 8;
	const T *yl =
		y + (lane / 16 * 8 + lane % 8) * LD<DP> + lane / 8 % 2 * 8;

	s = {};
#pragma unroll
	for (int k = 0; k < DP; k += 16) {
		uint32_t a[M][4], b[4];

#pragma unroll
		for (int m = 0; m < M; m++)
			ldmatrix(a[m], xl + 16 * m * LD<DP> + k);
#pragma unroll
		for (int n = 0; n < N; n += 16) {
			ldmatrix(b, yl + n * LD<DP> + k);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma<T>(s.v[m][n / 8], a[m], b[0], b[1]);
				mma<T>(s.v[m][n / 8 + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* acc (16 M, W) += x (16 M, N) times W columns of y (N, DP). */
template <int M, int N, int W, int DP, typename T>
static __device__ __forceinline__ void mul_nn(frag<M, W> &acc,
					      const left<T, M, N> &x,
					      const T *y)
{
	int lane = threadIdx.x % 32;
	const T *yl = y + lane % 16 * LD<DP> + lane / 16 * 8;

#pragma unroll
	for (int k = 0; k < N; k += 16) {
		uint32_t b[4];

#pragma unroll
		for (int n = 0; n < W; n += 16) {
			ldmatrix_t(b, yl + k * LD<DP> + n);
#pragma unroll
			for (int m = 0; m < M; m++) {
				const uint32_t(&a)[4] = x.v[m][k / 16];

				mma<T>(acc.v[m][n / 8], a, b[0], b[1]);
				mma<T>(acc.v[m][n / 8 + 1], a, b[2], b[3]);
			}
		}
	}
}

/* Bytes of ROWS rows of DP; KERNEL is told that it may use so much. */
template <int DP, typename F> static int shared_for(F *kernel, int rows)
{
	int bytes = rows * LD<DP> * (int)sizeof(uint16_t);

	cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	return bytes;
}

#endif
