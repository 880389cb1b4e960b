/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's softmax and its gradient in the registers of tensor cores'
 * products.  A warp has 16 M rows; mma.sync m16n8k16 and wgmma m64nNk16 lay
 * them out alike, and as the next product takes its left operand.
 *
 * With dropout a dropped weight P is kept as -P: its sign is what the
 * products and the gradient need to know.
 */
#ifndef KERNELS_ATTN_FRAG_H
#define KERNELS_ATTN_FRAG_H

#include "kernels/attn_cuda.h"
#include "kernels/mma.h"

#define LOG2E 1.4426950408889634f

/* A product: 16 M rows, N columns. */
template <int M, int N> struct frag {
	float v[M][N / 8][4];
};

/* A left operand of 16 M rows, N columns, pairs of T. */
template <typename T, int M, int N> struct left {
	uint32_t v[M][N / 16][4];
};

/* x (16 M, N) = s, rounded; what is negative becomes 0 if POSITIVE. */
template <bool POSITIVE, typename T, int M, int N>
static __device__ __forceinline__ void left_from(left<T, M, N> &x,
						 const frag<M, N> &s)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int k = 0; k < N / 16; k++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				const float *c = s.v[m][2 * k + i / 2];
				float a = c[i % 2 * 2], b = c[i % 2 * 2 + 1];

				x.v[m][k][i] = POSITIVE ? pack<T>(fmaxf(a, 0),
								  fmaxf(b, 0))
							: pack<T>(a, b);
			}
}

/* 2^x, to within two units of the last place. */
static __device__ __forceinline__ float power2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
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
 * SCALE.  D is a multiple of 8, so a tile of eight is all there or not.  Two
 * lanes swap halves of two tiles, so that a row's 32 bytes go at once.
 */
template <typename T, int M, int W>
static __device__ __forceinline__ void rows_store(T *to, int64_t ld,
						  const frag<M, W> &acc,
						  float scale, int first,
						  int c0,
						  const struct attn_arg &a)
{
	bool odd = threadIdx.x & 1;

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int c = 0; c < 4; c += 2) {
			int row = first + frag_row(m, c);

#pragma unroll
			for (int t = 0; t < W / 8; t += 2) {
				const float *v = acc.v[m][t] + c;
				const float *w = acc.v[m][t + 1] + c;
				uint32_t x =
					pack<T>(v[0] * scale, v[1] * scale);
				uint32_t y =
					pack<T>(w[0] * scale, w[1] * scale);
				uint32_t z =
					__shfl_xor_sync(~0u, odd ? x : y, 1);
				int col = c0 + 8 * (t + odd) +
					  threadIdx.x % 4 / 2 * 4;

				if (row < a.T && col < a.D)
					*(uint2 *)(to + row * ld + col) =
						odd ? make_uint2(z, y)
						    : make_uint2(x, z);
			}
		}
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

/* The same where rows are keys and columns queries. */
template <int M, int N>
static __device__ __forceinline__ void mask_columns(frag<M, N> &s, int i0,
						    int j0)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int t = 0; t < N / 8; t++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				if (j0 + frag_row(m, c) > i0 + frag_col(t, c))
					s.v[m][t][c] = -INFINITY;
}

/*
 * The softmax of a block of scores, with the maxima and sums so far of this
 * thread's rows: s becomes 2^(scale s - most), and what was summed so far is
 * to be multiplied by OLD.  SUM is of this thread's columns only.
 */
template <int M, int N>
static __device__ __forceinline__ void softmax(frag<M, N> &s,
					       float (&most)[M][2],
					       float (&sum)[M][2],
					       float (&old)[M][2], float scale)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int c = 0; c < 4; c += 2) {
			float top = most[m][c / 2], add = 0;

#pragma unroll
			for (int t = 0; t < N / 8; t++)
				top = fmaxf(top, fmaxf(s.v[m][t][c],
						       s.v[m][t][c + 1]));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
			old[m][c / 2] = power2((most[m][c / 2] - top) * scale);
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
			sum[m][c / 2] = sum[m][c / 2] * old[m][c / 2] + add;
		}
}

/* acc's rows *= BY. */
template <int M, int W>
static __device__ __forceinline__ void rows_scale(frag<M, W> &acc,
						  const float (&by)[M][2])
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int t = 0; t < W / 8; t++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				acc.v[m][t][c] *= by[m][c / 2];
}

/*
 * After the last block, rows FIRST on of a head: lse, and SUM becomes what
 * acc is to be multiplied by, KEEP over the row's sum.
 */
template <int M>
static __device__ __forceinline__ void softmax_end(float *lse,
						   const float (&most)[M][2],
						   float (&sum)[M][2],
						   float keep, int first,
						   const struct attn_arg &a)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int i = first + frag_row(m, 2 * half);
			float z = sum[m][half];

			z += __shfl_xor_sync(~0u, z, 1);
			z += __shfl_xor_sync(~0u, z, 2);
			if (threadIdx.x % 4 == 0 && i < a.T)
				lse[i] = most[m][half] * a.scale + logf(z);
			sum[m][half] = keep / z;
		}
}

static __device__ __forceinline__ uint32_t drop_word(const struct dropper &drop,
						     int64_t e)
{
	uint4 u = drop.words((uint64_t)e / 4);

	return e & 2 ? (e & 1 ? u.w : u.z) : (e & 1 ? u.y : u.x);
}

/*
 * w = the random words of a tile whose rows are queries: this thread's
 * elements are E0, E0 + 1 of one and E1, E1 + 1 of another.  WHOLE: rows
 * start at a multiple of four elements, so two lanes share the words of each
 * row; each makes one row's and they swap halves.
 */
static __device__ __forceinline__ void words_rows(uint32_t (&w)[4],
						  const struct dropper &drop,
						  int64_t e0, int64_t e1,
						  bool whole)
{
	bool odd = threadIdx.x & 1;
	uint4 u;

	if (!whole) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			w[i] = drop_word(drop, (i < 2 ? e0 : e1) + i % 2);
		return;
	}
	u = drop.words((uint64_t)(odd ? e1 : e0) / 4);
	uint32_t x = __shfl_xor_sync(~0u, odd ? u.x : u.z, 1);
	uint32_t y = __shfl_xor_sync(~0u, odd ? u.y : u.w, 1);

	w[0] = odd ? x : u.x;
	w[1] = odd ? y : u.y;
	w[2] = odd ? u.z : x;
	w[3] = odd ? u.w : y;
}

/*
 * The same for a tile whose columns are queries, NEXT elements apart: this
 * thread's are E, E + NEXT, E + 8, E + NEXT + 8.  Four lanes, four apart,
 * share the words of four rows; each makes those of one of its elements, and
 * the four by four words are transposed.
 */
static __device__ __forceinline__ void words_columns(uint32_t (&w)[4],
						     const struct dropper &drop,
						     int64_t e, int64_t next,
						     bool whole)
{
	int r = threadIdx.x / 4 % 4;

	if (!whole) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			w[i] = drop_word(drop, e + i % 2 * next + i / 2 * 8);
		return;
	}
	uint4 u = drop.words((uint64_t)(e + r % 2 * next + r / 2 * 8) / 4);

	w[0] = u.x, w[1] = u.y, w[2] = u.z, w[3] = u.w;
#pragma unroll
	for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (i & bit)
				continue;
			uint32_t give = r & bit ? w[i] : w[i + bit];
			uint32_t take = __shfl_xor_sync(~0u, give, 4 * bit);

			if (r & bit)
				w[i] = take;
			else
				w[i + bit] = take;
		}
}

/* The dropped of s become negative; queries I0 on, keys J0 on. */
template <int M, int N>
static __device__ __forceinline__ void drop_rows(frag<M, N> &s,
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
			uint32_t w[4];

			words_rows(w, drop, e + 8 * t,
				   e + 8 * t + 8 * a.heads * a.T, a.T % 4 == 0);
#pragma unroll
			for (int c = 0; c < 4; c++)
				if (w[c] < drop.limit)
					s.v[m][t][c] = -s.v[m][t][c];
		}
	}
}

/* The same where rows are keys and columns queries. */
template <int M, int N>
static __device__ __forceinline__ void drop_columns(frag<M, N> &s,
						    const struct dropper &drop,
						    int b, int h, int i0,
						    int j0,
						    const struct attn_arg &a)
{
	int64_t next = a.heads * a.T;

#pragma unroll
	for (int m = 0; m < M; m++) {
		int64_t e = attn_elem(a, b, h, i0 + frag_col(0, 0)) + j0 +
			    frag_row(m, 0);

#pragma unroll
		for (int t = 0; t < N / 8; t++, e += 8 * next) {
			uint32_t w[4];

			words_columns(w, drop, e, next, a.T % 4 == 0);
#pragma unroll
			for (int c = 0; c < 4; c++)
				if (w[c] < drop.limit)
					s.v[m][t][c] = -s.v[m][t][c];
		}
	}
}

/* From scores to P = 2^(scale s - log2), log2 and later del of rows. */
template <int M, int N>
static __device__ __forceinline__ void weights_rows(frag<M, N> &s,
						    const float (&log2)[M][2],
						    float scale)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int t = 0; t < N / 8; t++)
#pragma unroll
			for (int c = 0; c < 4; c++) {
				float &x = s.v[m][t][c];

				x = power2(fmaf(x, scale, -log2[m][c / 2]));
			}
}

/* ds = |P| (f dp - delta), f = KEEP where P > 0 and 0 where it was dropped. */
template <bool DROP>
static __device__ __forceinline__ float gradient(float p, float dp, float delta,
						 float keep)
{
	if (!DROP)
		return p * (dp - delta);
	return fabsf(p) * ((p > 0 ? keep * dp : 0) - delta);
}

/* dp becomes ds. */
template <bool DROP, int M, int N>
static __device__ __forceinline__ void gradient_rows(frag<M, N> &dp,
						     const frag<M, N> &p,
						     const float (&del)[M][2],
						     float keep)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int t = 0; t < N / 8; t++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				dp.v[m][t][c] = gradient<DROP>(
					p.v[m][t][c], dp.v[m][t][c],
					del[m][c / 2], keep);
}

/* The same where columns are queries; log2 and del (N) are theirs. */
template <int M, int N>
static __device__ __forceinline__ void weights_columns(frag<M, N> &s,
						       const float *log2,
						       float scale)
{
#pragma unroll
	for (int t = 0; t < N / 8; t++) {
		float2 l = *(const float2 *)(log2 + frag_col(t, 0));

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int c = 0; c < 4; c++) {
				float &x = s.v[m][t][c];

				x = power2(fmaf(x, scale, c % 2 ? -l.y : -l.x));
			}
	}
}

template <bool DROP, int M, int N>
static __device__ __forceinline__ void gradient_columns(frag<M, N> &dp,
							const frag<M, N> &p,
							const float *del,
							float keep)
{
#pragma unroll
	for (int t = 0; t < N / 8; t++) {
		float2 d = *(const float2 *)(del + frag_col(t, 0));

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				dp.v[m][t][c] = gradient<DROP>(
					p.v[m][t][c], dp.v[m][t][c],
					c % 2 ? d.y : d.x, keep);
	}
}

/* log2 (M, 2) and del of the warp's rows FIRST on; no weight past T. */
template <int M>
static __device__ __forceinline__ void rows_read(float (&log2)[M][2],
						 float (&del)[M][2],
						 const float *lse,
						 const float *delta, int first,
						 const struct attn_arg &a)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int i = first + frag_row(m, 2 * half);
			bool there = i < a.T;

			log2[m][half] = there ? lse[i] * LOG2E : INFINITY;
			del[m][half] = there ? delta[i] : 0;
		}
}

static inline bool served(std::initializer_list<const void *> pointers,
			  const struct attn_arg *a)
{
	return a->D <= 256 && a->D % 8 == 0 && aligned(pointers);
}

#endif
