/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c on the GPU: rows to experts and back, and their products. */
#include <limits.h>

#include "kernels/mma.h"

/* Threads of a block, and the tile that it computes: rows, columns, depth. */
#define THREADS 256
#define BM	128
#define BN	128
#define BK	32
/* Slices of depth that are on their way or in use. */
#define STAGES 4
/* The tile where there are no tensor cores. */
#define PLAIN	   64
#define PLAIN_DEEP 16
/* Tiles of rows that go over the columns together, for the caches. */
#define TOGETHER 8

template <typename T, int W>
static __global__ void gather_kernel(T *y, const T *x, const int32_t *row,
				     int64_t n, int64_t K, int64_t C)
{
	for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
		int64_t r = row[i];

		if (r < 0)
			continue;
		for (int64_t c = threadIdx.x * W; c < C; c += blockDim.x * W) {
			float v[W];

			load<W>(v, x + i / K * C + c);
			store<W>(y + r * C + c, v);
		}
	}
}

template <typename T, int W>
static __global__ void combine_kernel(T *y, const T *x, const int32_t *row,
				      int64_t N, int64_t K, int64_t C)
{
	for (int64_t n = blockIdx.x; n < N; n += gridDim.x)
		for (int64_t c = threadIdx.x * W; c < C; c += blockDim.x * W) {
			float sum[W] = {};

			for (int64_t k = n * K; k < (n + 1) * K; k++) {
				int64_t r = row[k];
				float v[W];

				if (r < 0)
					continue;
				load<W>(v, x + r * C + c);
#pragma unroll
				for (int j = 0; j < W; j++)
					sum[j] += v[j];
			}
			store<W>(y + n * C + c, sum);
		}
}

/* Threads for rows of so many loads. */
static unsigned threads_for(int64_t loads)
{
	return loads <= 32 ? 32 : loads <= 128 ? 128 : 256;
}

template <typename T>
void cuda_moe<T>::gather(struct queue *q, void *y, const void *x,
			 const int32_t *row, int64_t N, int64_t K, int64_t C)
{
	bool ok = aligned({x, y}) && C % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (gather_kernel<T, W>),
			  blocks_for(N * K, 1, 1 << 20), threads_for(C / W), 0,
			  (T *)y, (const T *)x, row, N * K, K, C));
}

template <typename T>
void cuda_moe<T>::combine(struct queue *q, void *y, const void *x,
			  const int32_t *row, int64_t N, int64_t K, int64_t C)
{
	bool ok = aligned({x, y}) && C % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (combine_kernel<T, W>), blocks_for(N, 1, 1 << 20),
			  threads_for(C / W), 0, (T *)y, (const T *)x, row, N,
			  K, C));
}

/* Rows of one expert, from ROW on; how many follows from its end. */
struct tile {
	int32_t expert, row;
};

/* All of them, in the queue's workspace; their number is known there only. */
struct tiles {
	int32_t *count;
	struct tile *list;
	int64_t most;
};

static __global__ void __launch_bounds__(1024)
	tiles_kernel(struct tiles t, const int32_t *end, int64_t experts,
		     int rows)
{
	__shared__ int area[32];
	int before = 0, all;

	for (int64_t i = 0; i < experts; i += blockDim.x) {
		int64_t e = i + threadIdx.x;
		int first = e && e < experts ? end[e - 1] : 0;
		int n = e < experts ? (int)ceil_div(end[e] - first, rows) : 0;
		int at = before + block_scan(n, &all, area);

		for (int k = 0; k < n; k++)
			t.list[at + k] = {(int32_t)e, first + k * rows};
		before += all;
	}
	if (threadIdx.x == 0)
		*t.count = before;
}

/* Cut the rows of all experts into tiles of ROWS. */
static struct tiles tiles_of(struct queue *q, const int32_t *end, int64_t R,
			     int64_t experts, int rows)
{
	struct tiles t = {(int32_t *)q->work, (struct tile *)(q->work + 16),
			  ceil_div(R, rows) + experts};

	if (t.most > (int64_t)(QUEUE_WORK / sizeof(*t.list)) - 2) {
		queue_fail(q, "experts", "too many rows");
		t.most = 0;
		return t;
	}
	LAUNCH(q, tiles_kernel, 1, 1024, 0, t, end, experts, rows);
	return t;
}

/* Blocks for all tiles there can be, times COLS tiles of columns. */
static unsigned tile_blocks(struct queue *q, const struct tiles *t,
			    int64_t cols)
{
	int64_t blocks = ceil_div(t->most, TOGETHER) * TOGETHER * cols;

	if (blocks > INT_MAX)
		queue_fail(q, "experts", "too many rows");
	return blocks > INT_MAX ? 0 : (unsigned)blocks;
}

/* The tile of this block, and its rows; false if there is none. */
static __device__ bool my_tile(const struct tiles &t, const int32_t *end,
			       int64_t cols, int most, struct tile *mine,
			       int *rows, int64_t *col)
{
	int64_t batch = TOGETHER * cols, in = blockIdx.x % batch;
	int64_t i = blockIdx.x / batch * TOGETHER + in % TOGETHER;

	if (i >= *t.count)
		return false;
	*mine = t.list[i];
	*rows = min(end[mine->expert] - mine->row, most);
	*col = in / TOGETHER;
	return true;
}

/*
 * An operand of a product: a matrix whose rows are LD apart, either (ROWS,
 * depth), or transposed: (depth, ROWS).
 */
template <typename T> struct side {
	const T *p;
	int64_t ld, rows;
};

/* (R, C) of a matrix of which only ROWS and COLS are left; zeros behind. */
template <int R, int C, typename T>
static __device__ __forceinline__ void tile_load(T *to, const T *from,
						 int64_t ld, int64_t rows,
						 int64_t cols)
{
#pragma unroll
	for (int i = threadIdx.x; i < R * C / 8; i += THREADS) {
		int r = i / (C / 8), c = i % (C / 8) * 8;
		bool there = r < rows && c < cols;

		copy16(to + r * (C + 8) + c, there ? from + r * ld + c : from,
		       there);
	}
}

/* Elements of a slice of one side, with what keeps the banks apart. */
#define SIDE (BM * (BK + 8))
static_assert(BM == BN && BK * (BM + 8) <= SIDE, "a side's room");

/* A slice of N rows, from depth K on, of DEEP. */
template <bool TURNED, typename T>
static __device__ __forceinline__ void side_load(T *to, const struct side<T> &s,
						 int64_t k, int64_t deep)
{
	if constexpr (TURNED)
		tile_load<BK, BM>(to, s.p + k * s.ld, s.ld, deep - k, s.rows);
	else
		tile_load<BM, BK>(to, s.p + k, s.ld, s.rows, deep - k);
}

/* Rows M .. + 16 of a left side at depth K. */
template <bool TURNED, typename T>
static __device__ __forceinline__ void left_frag(uint32_t (&a)[4], const T *s,
						 int m, int k)
{
	int lane = threadIdx.x % 32;

	if constexpr (TURNED)
		ldmatrix_t(a, s + (k + lane / 16 * 8 + lane % 8) * (BM + 8) +
				      m + lane / 8 % 2 * 8);
	else
		ldmatrix(a, s + (m + lane % 16) * (BK + 8) + k + lane / 16 * 8);
}

/* Columns N .. + 16 of a right side at depth K. */
template <bool TURNED, typename T>
static __device__ __forceinline__ void right_frag(uint32_t (&b)[4], const T *s,
						  int n, int k)
{
	int lane = threadIdx.x % 32;

	if constexpr (TURNED)
		ldmatrix_t(b,
			   s + (k + lane % 16) * (BN + 8) + n + lane / 16 * 8);
	else
		ldmatrix(b, s + (n + lane / 16 * 8 + lane % 8) * (BK + 8) + k +
				    lane / 8 % 2 * 8);
}

/* A warp's part of a tile: 64 rows, 32 columns; eight warps, four across. */
struct part {
	float v[4][4][4];

	static __device__ int row0(void)
	{
		return threadIdx.x / 128 * 64;
	}

	static __device__ int col0(void)
	{
		return threadIdx.x / 32 % 4 * 32;
	}

	/* Call F(row, column, value, next column's) for all of it. */
	template <typename F> __device__ void each(F f) const
	{
		int lane = threadIdx.x % 32;

#pragma unroll
		for (int m = 0; m < 4; m++)
#pragma unroll
			for (int n = 0; n < 4; n++)
#pragma unroll
				for (int c = 0; c < 4; c += 2)
					f(row0() + 16 * m + lane / 4 + c * 4,
					  col0() + 8 * n + lane % 4 * 2,
					  v[m][n][c], v[m][n][c + 1]);
	}
};

/* acc += a slice of both sides. */
template <bool AT, bool BT, typename T>
static __device__ __forceinline__ void slice(struct part &acc, const T *a,
					     const T *b)
{
#pragma unroll
	for (int k = 0; k < BK; k += 16) {
		uint32_t x[4][4], y[4];

#pragma unroll
		for (int m = 0; m < 4; m++)
			left_frag<AT>(x[m], a, acc.row0() + 16 * m, k);
#pragma unroll
		for (int n = 0; n < 4; n += 2) {
			right_frag<BT>(y, b, acc.col0() + 8 * n, k);
#pragma unroll
			for (int m = 0; m < 4; m++) {
				mma<T>(acc.v[m][n], x[m], y[0], y[1]);
				mma<T>(acc.v[m][n + 1], x[m], y[2], y[3]);
			}
		}
	}
}

/* acc = a b, over DEEP; every slice is fetched STAGES - 1 ahead. */
template <bool AT, bool BT, typename T>
static __device__ void product(struct part &acc, const struct side<T> &a,
			       const struct side<T> &b, int64_t deep, T *area)
{
	int64_t steps = ceil_div(deep, BK);
	auto fetch = [&](int64_t i) {
		T *to = area + i % STAGES * 2 * SIDE;

		if (i < steps) {
			side_load<AT>(to, a, i * BK, deep);
			side_load<BT>(to + SIDE, b, i * BK, deep);
		}
		copies_commit();
	};

	acc = {};
	for (int i = 0; i < STAGES - 1; i++)
		fetch(i);
	for (int64_t i = 0; i < steps; i++) {
		const T *at = area + i % STAGES * 2 * SIDE;

		copies_wait<STAGES - 2>();
		__syncthreads();
		fetch(i + STAGES - 1);
		slice<AT, BT>(acc, at, at + SIDE);
	}
}

/*
 * y (rows, out) = x (rows, deep) of a weight that lies (out, deep), or TURNED
 * (deep, out), for each expert.
 */
template <bool TURNED, typename T>
static __global__ void __launch_bounds__(THREADS)
	rows_mma_kernel(T *y, const T *x, const T *w, const int32_t *end,
			struct tiles t, int64_t out, int64_t deep)
{
	extern __shared__ __align__(16) char area[];
	struct tile mine;
	struct part acc;
	int64_t col;
	int rows;

	if (!my_tile(t, end, ceil_div(out, BN), BM, &mine, &rows, &col))
		return;
	col *= BN;
	w += mine.expert * out * deep + (TURNED ? col : col * deep);
	product<false, TURNED, T>(acc, {x + mine.row * deep, deep, rows},
				  {w, TURNED ? out : deep, out - col}, deep,
				  (T *)area);
	y += mine.row * out + col;
	acc.each([&](int r, int c, float v, float next) {
		if (r < rows && c < out - col)
			*(uint32_t *)(y + r * out + c) = pack<T>(v, next);
	});
}

/* dw (out, in) += dy^T x of an expert's rows. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
	weight_mma_kernel(float *dw, const T *dy, const T *x,
			  const int32_t *end, int64_t out, int64_t in)
{
	extern __shared__ __align__(16) char area[];
	int64_t e = blockIdx.z, first = e ? end[e - 1] : 0;
	int64_t rows = end[e] - first;
	int64_t r0 = (int64_t)blockIdx.y * BM, c0 = (int64_t)blockIdx.x * BN;
	struct part acc;

	if (!rows)
		return;
	product<true, true, T>(acc, {dy + first * out + r0, out, out - r0},
			       {x + first * in + c0, in, in - c0}, rows,
			       (T *)area);
	dw += (e * out + r0) * in + c0;
	acc.each([&](int r, int c, float v, float next) {
		float2 *to = (float2 *)(dw + r * in + c);

		if (r < out - r0 && c < in - c0)
			*to = make_float2(to->x + v, to->y + next);
	});
}

/* Without tensor cores: a thread's part of a tile, four by four. */
struct square {
	float v[4][4];
};

/* at (PLAIN_DEEP, PLAIN) = a slice of one side; zeros behind its end. */
template <bool TURNED, typename T>
static __device__ void plain_load(float (*at)[PLAIN + 4],
				  const struct side<T> &s, int64_t k,
				  int64_t deep)
{
#pragma unroll
	for (int i = threadIdx.x; i < PLAIN * PLAIN_DEEP; i += THREADS) {
		int r = TURNED ? i % PLAIN : i / PLAIN_DEEP;
		int d = TURNED ? i / PLAIN : i % PLAIN_DEEP;
		bool there = r < s.rows && k + d < deep;
		int64_t from = TURNED ? (k + d) * s.ld + r : r * s.ld + k + d;

		at[d][r] = there ? (float)s.p[from] : 0;
	}
}

template <bool AT, bool BT, typename T>
static __device__ void plain_product(struct square &acc,
				     const struct side<T> &a,
				     const struct side<T> &b, int64_t deep)
{
	__shared__ __align__(16) float x[PLAIN_DEEP][PLAIN + 4];
	__shared__ __align__(16) float y[PLAIN_DEEP][PLAIN + 4];
	int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;

	acc = {};
	for (int64_t k = 0; k < deep; k += PLAIN_DEEP) {
		plain_load<AT>(x, a, k, deep);
		plain_load<BT>(y, b, k, deep);
		__syncthreads();
#pragma unroll
		for (int d = 0; d < PLAIN_DEEP; d++) {
			float u[4], v[4];

			load<4>(u, &x[d][row]);
			load<4>(v, &y[d][col]);
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++)
					acc.v[i][j] += u[i] * v[j];
		}
		__syncthreads();
	}
}

template <typename T, bool TURNED>
static __global__ void rows_plain_kernel(T *y, const T *x, const T *w,
					 const int32_t *end, struct tiles t,
					 int64_t out, int64_t deep)
{
	int row = threadIdx.x / 16 * 4, at = threadIdx.x % 16 * 4, rows;
	struct square acc;
	struct tile mine;
	int64_t col;

	if (!my_tile(t, end, ceil_div(out, PLAIN), PLAIN, &mine, &rows, &col))
		return;
	col *= PLAIN;
	w += mine.expert * out * deep + (TURNED ? col : col * deep);
	plain_product<false, TURNED, T>(acc, {x + mine.row * deep, deep, rows},
					{w, TURNED ? out : deep, out - col},
					deep);
	y += mine.row * out + col;
	for (int i = 0; i < 4 && row + i < rows; i++)
		for (int j = 0; j < 4 && at + j < out - col; j++)
			y[(row + i) * out + at + j] = (T)acc.v[i][j];
}

template <typename T>
static __global__ void weight_plain_kernel(float *dw, const T *dy, const T *x,
					   const int32_t *end, int64_t out,
					   int64_t in)
{
	int row = threadIdx.x / 16 * 4, at = threadIdx.x % 16 * 4;
	int64_t e = blockIdx.z, first = e ? end[e - 1] : 0;
	int64_t rows = end[e] - first, r0 = (int64_t)blockIdx.y * PLAIN;
	int64_t c0 = (int64_t)blockIdx.x * PLAIN;
	struct square acc;

	if (!rows)
		return;
	plain_product<true, true, T>(acc,
				     {dy + first * out + r0, out, out - r0},
				     {x + first * in + c0, in, in - c0}, rows);
	dw += (e * out + r0) * in + c0;
	for (int i = 0; i < 4 && row + i < out - r0; i++)
		for (int j = 0; j < 4 && at + j < in - c0; j++)
			dw[(row + i) * in + at + j] += acc.v[i][j];
}

/* Bytes of the slices' memory; KERNEL is told that it may use so much. */
template <typename F> static int slices_for(F *kernel)
{
	int bytes = STAGES * 2 * SIDE * (int)sizeof(uint16_t);

	cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	return bytes;
}

/* What the tensor cores can have: 16 bits, and rows of whole packs. */
template <typename T> constexpr bool SHORT = sizeof(T) == 2;

template <typename T>
static bool has_packs(std::initializer_list<const void *> pointers, int64_t out,
		      int64_t in)
{
	return SHORT<T> && aligned(pointers) && out % 8 == 0 && in % 8 == 0;
}

/* Of each expert: y (R, out) = x (R, deep) and its weight. */
template <typename T, bool TURNED>
static void rows_product(struct queue *q, void *y, const void *x, const void *w,
			 const int32_t *end, int64_t R, int64_t out,
			 int64_t deep, int64_t experts)
{
	bool packs = has_packs<T>({y, x, w}, out, deep);
	struct tiles t = tiles_of(q, end, R, experts, packs ? BM : PLAIN);
	int64_t cols = ceil_div(out, packs ? BN : PLAIN);

	if constexpr (SHORT<T>)
		if (packs) {
			auto *kernel = rows_mma_kernel<TURNED, T>;

			LAUNCH(q, kernel, tile_blocks(q, &t, cols), THREADS,
			       slices_for(kernel), (T *)y, (const T *)x,
			       (const T *)w, end, t, out, deep);
			return;
		}
	LAUNCH(q, (rows_plain_kernel<T, TURNED>), tile_blocks(q, &t, cols),
	       THREADS, 0, (T *)y, (const T *)x, (const T *)w, end, t, out,
	       deep);
}

template <typename T>
void cuda_moe<T>::fwd(struct queue *q, void *y, const void *x, const void *w,
		      const int32_t *end, int64_t R, int64_t out, int64_t in,
		      int64_t experts)
{
	rows_product<T, false>(q, y, x, w, end, R, out, in, experts);
}

template <typename T>
void cuda_moe<T>::bwd_x(struct queue *q, void *dx, const void *dy,
			const void *w, const int32_t *end, int64_t R,
			int64_t out, int64_t in, int64_t experts)
{
	rows_product<T, true>(q, dx, dy, w, end, R, in, out, experts);
}

template <typename T>
void cuda_moe<T>::bwd_w(struct queue *q, void *dw, const void *dy,
			const void *x, const int32_t *end, int64_t R,
			int64_t out, int64_t in, int64_t experts)
{
	bool packs = has_packs<T>({dw, dy, x}, out, in);
	int64_t tile = packs ? BM : PLAIN;
	dim3 grid((unsigned)ceil_div(in, tile), (unsigned)ceil_div(out, tile),
		  (unsigned)experts);

	(void)R;
	if constexpr (SHORT<T>)
		if (packs) {
			LAUNCH(q, weight_mma_kernel<T>, grid, THREADS,
			       slices_for(weight_mma_kernel<T>), (float *)dw,
			       (const T *)dy, (const T *)x, end, out, in);
			return;
		}
	LAUNCH(q, weight_plain_kernel<T>, grid, THREADS, 0, (float *)dw,
	       (const T *)dy, (const T *)x, end, out, in);
}

template struct cuda_moe<float>;
template struct cuda_moe<bf16>;
template struct cuda_moe<fp16>;
