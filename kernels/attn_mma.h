/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in bf16 on tensor cores: Dao, "FlashAttention-2", 2023, with
 * mma.sync m16n8k16.  A block has four warps, each with M times 16 rows; a
 * product's result stays in registers, where it is laid out as the next
 * product's left operand.  Tiles are DP wide, D rounded up, with zeros.
 */
#ifndef KERNELS_ATTN_MMA_H
#define KERNELS_ATTN_MMA_H

#include "kernels/attn_cuda.h"

#define THREADS 128
#define WARPS	4
#define LOG2E	1.4426950408889634f

/* Rows of a tile are 16 bytes longer: eight of them lie in different banks. */
template <int DP> constexpr int LD = DP + 8;

/* Products of 16 M rows by N columns, as mma.sync leaves them. */
template <int M, int N> struct frag {
	float v[M][N / 8][4];
};

static __device__ __forceinline__ uint32_t shared_at(const bf16 *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes from global memory, or zeros. */
static __device__ __forceinline__ void copy16(bf16 *to, const bf16 *from,
					      bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(
			     shared_at(to)),
		     "l"(from), "r"(there ? 16 : 0));
}

static __device__ __forceinline__ void copies_commit(void)
{
	asm volatile("cp.async.commit_group;\n");
}

/* Wait until at most N of the committed groups are under way. */
template <int N> static __device__ __forceinline__ void copies_wait(void)
{
	asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

/* Four 8 x 8 matrices, the row of each from a quarter of the lanes. */
static __device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const bf16 *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
		     "{%0, %1, %2, %3}, [%4];\n"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_at(p))
		     : "memory");
}

static __device__ __forceinline__ void ldmatrix_t(uint32_t (&r)[4],
						  const bf16 *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
		     "{%0, %1, %2, %3}, [%4];\n"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_at(p))
		     : "memory");
}

/* d (16, 8) += a (16, 16) b (16, 8) */
static __device__ __forceinline__ void mma(float (&d)[4],
					   const uint32_t (&a)[4], uint32_t b0,
					   uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		     "{%0, %1, %2, %3};\n"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
		       "r"(b1));
}

static __device__ __forceinline__ uint32_t pack(float a, float b)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(a, b);

	return *(uint32_t *)&v;
}

/* Rows FIRST .. + ROWS of a head, DP wide; zeros past T and D. */
template <int ROWS, int DP>
static __device__ __forceinline__ void tile_load(bf16 *to, const bf16 *from,
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

/* 2^x, to within two units of the last place. */
static __device__ __forceinline__ float power2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* s (16 M, N) = x (16 M, DP) y^T, y (N, DP). */
template <int M, int N, int DP>
static __device__ __forceinline__ void mul_nt(frag<M, N> &s, const bf16 *x,
					      const bf16 *y)
{
	int lane = threadIdx.x % 32;
	const bf16 *xl = x + lane % 16 * LD<DP> + lane / 16 * 8;
	const bf16 *yl =
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
				mma(s.v[m][n / 8], a[m], b[0], b[1]);
				mma(s.v[m][n / 8 + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* acc (16 M, W) += s (16 M, N), rounded, times W columns of y (N, DP). */
template <int M, int N, int W, int DP>
static __device__ __forceinline__ void mul_nn(frag<M, W> &acc,
					      const frag<M, N> &s,
					      const bf16 *y)
{
	int lane = threadIdx.x % 32;
	const bf16 *yl = y + lane % 16 * LD<DP> + lane / 16 * 8;

#pragma unroll
	for (int k = 0; k < N; k += 16) {
		uint32_t a[M][4], b[4];

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const float *c = s.v[m][k / 8 + i / 2];

				a[m][i] = pack(c[i % 2 * 2], c[i % 2 * 2 + 1]);
			}
#pragma unroll
		for (int n = 0; n < W; n += 16) {
			ldmatrix_t(b, yl + k * LD<DP> + n);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma(acc.v[m][n / 8], a[m], b[0], b[1]);
				mma(acc.v[m][n / 8 + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* The row, of this warp's, of element C of tile M. */
static __device__ __forceinline__ int frag_row(int m, int c)
{
	return 16 * m + threadIdx.x % 32 / 4 + c / 2 * 8;
}

/* The column of element C of tile T. */
static __device__ __forceinline__ int frag_col(int t, int c)
{
	return 8 * t + threadIdx.x % 4 * 2 + c % 2;
}

/*
 * The warp's rows, from FIRST on, of a head, columns C0 on: acc times
 * SCALE.  D is a multiple of 8, so a tile of eight is all there or not.
 */
template <int M, int W>
static __device__ __forceinline__ void rows_store(bf16 *to, int64_t ld,
						  const frag<M, W> &acc,
						  float scale, int first,
						  int c0,
						  const struct attn_arg &a)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int c = 0; c < 4; c += 2) {
			int row = first + frag_row(m, c);

			if (row >= a.T)
				continue;
#pragma unroll
			for (int t = 0; t < W / 8; t++) {
				const float *v = acc.v[m][t];
				int col = c0 + frag_col(t, 0);

				if (col < a.D)
					*(uint32_t *)(to + row * ld + col) =
						pack(v[c] * scale,
						     v[c + 1] * scale);
			}
		}
}

/*
 * f = the factors of a tile whose rows are queries: this thread's elements
 * are E, E + 1 of one and F, F + 1 of another.  WHOLE: rows start at a
 * multiple of four elements, so two lanes share the words of each row; each
 * makes one row's and they swap halves.
 */
static __device__ __forceinline__ void factors_rows(float (&f)[4],
						    const struct dropper &drop,
						    int64_t e0, int64_t e1,
						    bool whole)
{
	bool odd = threadIdx.x & 1;
	uint4 w;

	if (!whole) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int64_t e = (i < 2 ? e0 : e1) + i % 2;

			f[i] = drop.pick(drop.words((uint64_t)e / 4),
					 (int)(e % 4));
		}
		return;
	}
	w = drop.words((uint64_t)(odd ? e1 : e0) / 4);
	uint32_t x = __shfl_xor_sync(~0u, odd ? w.x : w.z, 1);
	uint32_t y = __shfl_xor_sync(~0u, odd ? w.y : w.w, 1);

	f[0] = (odd ? x : w.x) >= drop.limit ? drop.keep : 0;
	f[1] = (odd ? y : w.y) >= drop.limit ? drop.keep : 0;
	f[2] = (odd ? w.z : x) >= drop.limit ? drop.keep : 0;
	f[3] = (odd ? w.w : y) >= drop.limit ? drop.keep : 0;
}

/* Queries I0 on, keys J0 on: no weight where the key is later. */
template <int M, int N>
static __device__ __forceinline__ void mask(frag<M, N> &s, int i0, int j0)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int t = 0; t < N / 8; t++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				if (j0 + frag_col(t, c) > i0 + frag_row(m, c))
					s.v[m][t][c] = -INFINITY;
}

static inline bool served(std::initializer_list<const void *> pointers,
			  const struct attn_arg *a)
{
	return a->D <= 256 && a->D % 8 == 0 && aligned(pointers);
}

/* Bytes of ROWS rows of DP; KERNEL is told that it may use so much. */
template <int DP, typename F> static int shared_for(F *kernel, int rows)
{
	int bytes = rows * LD<DP> * (int)sizeof(bf16);

	cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	return bytes;
}

#endif
