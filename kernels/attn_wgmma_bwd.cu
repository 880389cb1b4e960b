/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's backward in 16 bits on sm_90a: one kernel by queries for dq, one
 * by keys for dk and dv.  That is 7 products instead of 5, but nothing is
 * added by two blocks and no operand but a tile passes through shared memory.
 */
#include "kernels/attn_wgmma.h"

/*
 * By queries: dq of 64 GROUPS of them, from blocks of N keys.  The ring's
 * items are the keys' and the values' tiles in turn.
 */
template <int DP, int GROUPS, int N, int SLOTS, bool DROP, typename T>
static __global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1)
	bwd_queries_kernel(const __grid_constant__ CUtensorMap map,
			   const __grid_constant__ CUtensorMap map_dout,
			   T *dqkv, const float *lse, const float *delta,
			   struct attn_arg a)
{
#ifdef ATTN_WGMMA
	extern __shared__ __align__(1024) char area[];
	__shared__ ring<SLOTS> ring;
	__shared__ uint64_t rows_full;
	constexpr int ROWS = 64 * GROUPS;
	constexpr uint32_t TILE = TILE_BYTES<N, DP>, OWN = TILE_BYTES<ROWS, DP>;
	uint32_t query = shared_at(area), dout = query + OWN, tile = dout + OWN;
	int warp = threadIdx.x / 32, b = blockIdx.x / a.H, h = blockIdx.x % a.H;
	int i0 = (gridDim.y - 1 - blockIdx.y) * ROWS; /* long ones first */
	int blocks = (min(i0 + ROWS, a.T) + N - 1) / N;

	if (threadIdx.x == 0) {
		ring_init(ring, 1, 4 * GROUPS);
		barrier_init(&rows_full, 1);
	}
	barriers_ready();
	if (warp >= 4 * GROUPS) {
		int head = h / a.per * (a.per + 2);

		registers_less<REGISTERS_FETCH>();
		if (threadIdx.x % GROUP)
			return;
		barrier_expect(&rows_full, 2 * OWN);
		tile_fetch<ROWS, DP>(query, map, head + h % a.per, i0, b,
				     &rows_full);
		tile_fetch<ROWS, DP>(dout, map_dout, h, i0, b, &rows_full);
		blocks_fetch<N, DP>(ring, tile, map, head + a.per, b, blocks);
		return;
	}
	registers_more<REGISTERS_MORE<GROUPS, 1>>();

	dropper drop(a.drop);
	struct attn_place at = attn_place(a, b, h);
	int group = warp / 4, row = i0 + 16 * warp;
	int mine = min(blocks, (i0 + 64 * group + 64 + N - 1) / N);
	float log2[1][2], del[1][2];
	frag<1, DP> acc = {};
	frag<1, N> s, dp;
	left<T, 1, N> ds;

	rows_read(log2, del, lse + at.lse, delta + at.lse, row, a);
	query += 64 * 128 * group;
	dout += 64 * 128 * group;
	barrier_wait(&rows_full, 0);
	for (int j = 0; j < mine; j++) {
		int key = 2 * j, value = key + 1;
		uint32_t keys = tile + key % SLOTS * TILE;

		ring_wait_full(ring, key);
		ring_wait_full(ring, value);
		products_begin();
		mul_nt<T, ROWS, N, DP>(s, query, keys);
		mul_nt<T, ROWS, N, DP>(dp, dout, tile + value % SLOTS * TILE);
		products_wait<1>(s);
		if (j * N + N > row)
			mask(s, row, j * N);
		weights_rows(s, log2, a.scale * LOG2E);
		if constexpr (DROP)
			drop_rows(s, drop, b, h, row, j * N, a);
		products_wait<0>(dp);
		ring_leave(ring, value);
		gradient_rows<DROP>(dp, s, del, drop.keep);
		left_from<false>(ds, dp);
		products_begin(acc, ds);
		mul_nn<N, DP>(acc, ds, keys);
		products_wait<0>(acc);
		ring_leave(ring, key);
	}
	ring_skip(ring, 2 * mine, 2 * blocks);
	rows_store(dqkv + at.q, a.ld, acc, a.scale, row, 0, a);
#endif
}

/* What a slot of the kernel by keys holds besides its two tiles. */
template <int N> struct query_rows {
	float log2[N], del[N];
};

/* By one warp: the items of the kernel by keys, from query J0 on. */
template <int N, int DP, int SLOTS>
static __device__ __forceinline__ void queries_fetch(
	ring<SLOTS> &r, query_rows<N> *rows, uint32_t tile,
	const CUtensorMap &map, const CUtensorMap &map_dout, const float *lse,
	const float *delta, int j0, int blocks, const struct attn_arg &a)
{
	constexpr uint32_t TILE = TILE_BYTES<N, DP>;
	int b = blockIdx.x / a.G, g = blockIdx.x % a.G;
	int lane = threadIdx.x % 32;

	for (int n = 0; n < blocks * a.per; n++) {
		int h = n / blocks, i0 = j0 + n % blocks * N;
		int64_t from = attn_place(a, b, g * a.per + h).lse + i0;
		uint64_t *full = &r.full[n % SLOTS];
		uint32_t to = tile + n % SLOTS * 2 * TILE;
		query_rows<N> &row = rows[n % SLOTS];
		float l[N / 32], d[N / 32];

#pragma unroll
		for (int i = 0; i < N / 32; i++) {
			int at = 32 * i + lane;
			bool there = i0 + at < a.T;

			l[i] = there ? lse[from + at] * LOG2E : INFINITY;
			d[i] = there ? delta[from + at] : 0;
		}
		ring_wait_empty(r, n);
#pragma unroll
		for (int i = 0; i < N / 32; i++) {
			row.log2[32 * i + lane] = l[i];
			row.del[32 * i + lane] = d[i];
		}
		if (lane) {
			barrier_arrive(full);
			continue;
		}
		barrier_expect(full, 2 * TILE);
		tile_fetch<N, DP>(to, map, g * (a.per + 2) + h, i0, b, full);
		tile_fetch<N, DP>(to + TILE, map_dout, g * a.per + h, i0, b,
				  full);
	}
}

#ifdef ATTN_WGMMA
/* A block's own keys, and the values of the next head behind them. */
template <int ROWS, int DP>
static __device__ void keys_fetch(uint32_t key, const CUtensorMap &map,
				  int head, int j0, int b, uint64_t *full)
{
	constexpr uint32_t BYTES = TILE_BYTES<ROWS, DP>;

	if (threadIdx.x % 32)
		return;
	barrier_expect(full, 2 * BYTES);
	tile_fetch<ROWS, DP>(key, map, head, j0, b, full);
	tile_fetch<ROWS, DP>(key + BYTES, map, head + 1, j0, b, full);
}
#endif

/*
 * By keys: dk and dv of 64 GROUPS of them, from blocks of N queries of each
 * head of the group.  An item of the ring is a block's queries and dout.  The
 * next block's scores are under way together with this one's last products.
 */
template <int DP, int GROUPS, int N, int SLOTS, bool DROP, typename T>
static __global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1)
	bwd_keys_kernel(const __grid_constant__ CUtensorMap map,
			const __grid_constant__ CUtensorMap map_dout, T *dqkv,
			const float *lse, const float *delta, struct attn_arg a)
{
#ifdef ATTN_WGMMA
	extern __shared__ __align__(1024) char area[];
	__shared__ ring<SLOTS> ring;
	__shared__ uint64_t rows_full;
	__shared__ __align__(8) query_rows<N> rows[SLOTS];
	constexpr int ROWS = 64 * GROUPS;
	constexpr uint32_t TILE = TILE_BYTES<N, DP>, OWN = TILE_BYTES<ROWS, DP>;
	uint32_t key = shared_at(area), value = key + OWN, tile = value + OWN;
	int warp = threadIdx.x / 32, b = blockIdx.x / a.G;
	int h0 = blockIdx.x % a.G * a.per, j0 = blockIdx.y * ROWS;
	int blocks = (a.T - j0 + N - 1) / N, items = blocks * a.per;

	if (threadIdx.x == 0) {
		ring_init(ring, 32, GROUP * GROUPS);
		barrier_init(&rows_full, 1);
	}
	barriers_ready();
	if (warp >= 4 * GROUPS) {
		int head = blockIdx.x % a.G * (a.per + 2) + a.per;
		registers_less<REGISTERS_FETCH>();
		if (warp > 4 * GROUPS)
			return;
		keys_fetch<ROWS, DP>(key, map, head, j0, b, &rows_full);
		queries_fetch<N, DP>(ring, rows, tile, map, map_dout, lse,
				     delta, j0, blocks, a);
		return;
	}
	registers_more<REGISTERS_MORE<GROUPS, 1>>();
	dropper drop(a.drop);
	struct attn_place at = attn_place(a, b, h0);
	int group = warp / 4, row = j0 + 16 * warp;
	frag<1, DP> dk = {}, dv = {};
	frag<1, N> s, dp;
	left<T, 1, N> p, ds;
	auto gradients = [&](int n) {
		int i0 = j0 + n % blocks * N;
		uint32_t queries = tile + n % SLOTS * 2 * TILE;
		uint32_t dout = queries + TILE;
		const query_rows<N> &r = rows[n % SLOTS];
		products_begin();
		mul_nt<T, ROWS, N, DP>(dp, value, dout);
		if (i0 < row + 16)
			mask_columns(s, i0, row);
		weights_columns(s, r.log2, a.scale * LOG2E);
		if constexpr (DROP)
			drop_columns(s, drop, b, h0 + n / blocks, i0, row, a);
		left_from<DROP>(p, s);
		products_wait<0>(dp);
		gradient_columns<DROP>(dp, s, r.del, drop.keep);
		left_from<false>(ds, dp);
		products_begin(dk, dv, p, ds);
		mul_nn<N, DP>(dv, p, dout);
		mul_nn<N, DP>(dk, ds, queries);
	};
	key += 64 * 128 * group;
	value += 64 * 128 * group;
	barrier_wait(&rows_full, 0);
	ring_wait_full(ring, 0);
	products_begin();
	mul_nt<T, ROWS, N, DP>(s, key, tile);
	products_wait<0>(s);
	for (int n = 0; n < items - 1; n++) {
		ring_wait_full(ring, n + 1);
		gradients(n);
		mul_nt<T, ROWS, N, DP>(s, key,
				       tile + (n + 1) % SLOTS * 2 * TILE);
		products_wait<0>(dk, dv, s);
		/* each thread has read rows, too */
		barrier_arrive(&ring.empty[n % SLOTS]);
	}
	gradients(items - 1);
	products_wait<0>(dk, dv);
	rows_store(dqkv + at.k, a.ld, dk, a.scale, row, 0, a);
	rows_store(dqkv + at.v, a.ld, dv, drop.keep, row, 0, a);
#endif
}

/* KERNEL for HEADS heads, 64 GROUPS rows a block, BYTES of shared memory. */
template <auto KERNEL, int GROUPS, size_t BYTES, typename T>
static bool bwd_launch(int heads, struct queue *q, T *dqkv, const T *dout,
		       const float *lse, const float *delta, const T *qkv,
		       const struct attn_arg *a)
{
	static const bool ready = kernel_ready(KERNEL, BYTES);
	CUtensorMap map, map_dout;

	if (!ready || !attn_map(&map, qkv, a->H + 2 * a->G, a) ||
	    !attn_map(&map_dout, dout, a->H, a))
		return false;
	LAUNCH(q, KERNEL,
	       dim3(a->B * heads, (unsigned)ceil_div(a->T, 64 * GROUPS)),
	       GROUP * (GROUPS + 1), BYTES, map, map_dout, dqkv, lse, delta,
	       *a);
	return true;
}

template <int DP, int GROUPS, int N, int SLOTS, bool DROP, typename T,
	  typename... A>
static bool queries_launch(int heads, struct queue *q, T *dqkv, A... args)
{
	constexpr auto *kernel =
		bwd_queries_kernel<DP, GROUPS, N, SLOTS, DROP, T>;

	return bwd_launch<kernel, GROUPS,
			  2 * TILE_BYTES<64 * GROUPS, DP> +
				  SLOTS * TILE_BYTES<N, DP>>(heads, q, dqkv,
							     args...);
}

template <int DP, int GROUPS, int N, int SLOTS, bool DROP, typename T,
	  typename... A>
static bool keys_launch(int heads, struct queue *q, T *dqkv, A... args)
{
	constexpr auto *kernel = bwd_keys_kernel<DP, GROUPS, N, SLOTS, DROP, T>;

	return bwd_launch<kernel, GROUPS,
			  2 * TILE_BYTES<64 * GROUPS, DP> +
				  SLOTS * 2 * TILE_BYTES<N, DP>>(heads, q, dqkv,
								 args...);
}

/* Sizes by measurement; dropout's words need registers. */
template <bool DROP, typename... A>
static bool bwd_any(const struct attn_arg *a, A... args)
{
	constexpr int GROUPS = DROP ? 2 : 3, N = DROP ? 64 : 128;

	if (a->D <= 64)
		return keys_launch<64, GROUPS, 64, 4, DROP>(a->G, args..., a) &&
		       queries_launch<64, 2, N, 4, DROP>(a->H, args..., a);
	return keys_launch<128, 2, 64, 3, DROP>(a->G, args..., a) &&
	       queries_launch<128, 2, 64, 6, DROP>(a->H, args..., a);
}

template <typename T>
bool attn_wgmma_bwd(struct queue *q, T *dqkv, const T *dout, const float *lse,
		    const float *delta, const T *qkv, const struct attn_arg *a)
{
	if (a->D > 128 || !served({dqkv, dout, qkv}, a))
		return false;
	return a->drop.key ? bwd_any<true>(a, q, dqkv, dout, lse, delta, qkv)
			   : bwd_any<false>(a, q, dqkv, dout, lse, delta, qkv);
}

template bool attn_wgmma_bwd(struct queue *q, bf16 *dqkv, const bf16 *dout,
			     const float *lse, const float *delta,
			     const bf16 *qkv, const struct attn_arg *a);
template bool attn_wgmma_bwd(struct queue *q, fp16 *dqkv, const fp16 *dout,
			     const float *lse, const float *delta,
			     const fp16 *qkv, const struct attn_arg *a);
