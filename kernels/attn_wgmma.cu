/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's forward in 16 bits on sm_90a. */
#include "kernels/attn_wgmma.h"

/* The driver's function, without linking to the driver. */
static decltype(&cuTensorMapEncodeTiled) driver_encode(void)
{
	enum cudaDriverEntryPointQueryResult found;
	void *f = NULL;

	if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f,
					     12000, cudaEnableDefault,
					     &found) != cudaSuccess ||
	    found != cudaDriverEntryPointSuccess) {
		cudaGetLastError();
		return NULL;
	}
	return (decltype(&cuTensorMapEncodeTiled))f;
}

/* Its dimensions: column, head, token, sample; what lies outside reads 0. */
bool attn_map(CUtensorMap *map, const void *p, int64_t heads,
	      const struct attn_arg *a)
{
	static const auto encode = driver_encode();
	cuuint64_t D = (cuuint64_t)a->D, H = (cuuint64_t)heads;
	cuuint64_t T = (cuuint64_t)a->T;
	cuuint64_t size[4] = {D, H, T, (cuuint64_t)a->B};
	cuuint64_t bytes[3] = {2 * D, 2 * D * H, 2 * D * H * T};
	cuuint32_t box[4] = {64, 1, 64, 1}, step[4] = {1, 1, 1, 1};

	return encode &&
	       encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)p, size,
		      bytes, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
		      CU_TENSOR_MAP_SWIZZLE_128B,
		      CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/*
 * 64 GROUPS queries of a head, from blocks of N keys.  The ring's items are
 * the keys' and the values' tiles in turn.  While one warpgroup is at its
 * softmax, the others keep the tensor cores busy.
 */
template <int DP, int GROUPS, int N, int SLOTS, int BLOCKS, bool DROP,
	  typename T>
static __global__ void __launch_bounds__(GROUP *(GROUPS + 1), BLOCKS)
	fwd_kernel(const __grid_constant__ CUtensorMap map, T *o, float *lse,
		   struct attn_arg a)
{
#ifdef ATTN_WGMMA
	extern __shared__ __align__(1024) char area[];
	__shared__ ring<SLOTS> ring;
	__shared__ uint64_t query_full;
	constexpr int ROWS = 64 * GROUPS;
	constexpr uint32_t TILE = TILE_BYTES<N, DP>;
	uint32_t query = shared_at(area), tile = query + TILE_BYTES<ROWS, DP>;
	int warp = threadIdx.x / 32, b = blockIdx.x / a.H, h = blockIdx.x % a.H;
	int i0 = (gridDim.y - 1 - blockIdx.y) * ROWS; /* long ones first */
	int blocks = (min(i0 + ROWS, a.T) + N - 1) / N;

	if (threadIdx.x == 0) {
		ring_init(ring, 1, 4 * GROUPS);
		barrier_init(&query_full, 1);
	}
	barriers_ready();
	if (warp >= 4 * GROUPS) {
		int head = h / a.per * (a.per + 2);

		registers_less<REGISTERS_FETCH>();
		if (threadIdx.x % GROUP)
			return;
		barrier_expect(&query_full, TILE_BYTES<ROWS, DP>);
		tile_fetch<ROWS, DP>(query, map, head + h % a.per, i0, b,
				     &query_full);
		blocks_fetch<N, DP>(ring, tile, map, head + a.per, b, blocks);
		return;
	}
	registers_more<REGISTERS_MORE<GROUPS, BLOCKS>>();

	dropper drop(a.drop);
	struct attn_place at = attn_place(a, b, h);
	int group = warp / 4, row = i0 + 16 * warp;
	int mine = min(blocks, (i0 + 64 * group + 64 + N - 1) / N);
	float most[1][2] = {{-INFINITY, -INFINITY}}, sum[1][2] = {}, old[1][2];
	frag<1, DP> acc = {};
	frag<1, N> s;
	left<T, 1, N> p;

	query += 64 * 128 * group;
	barrier_wait(&query_full, 0);
	for (int j = 0; j < mine; j++) {
		int key = 2 * j, value = key + 1;

		ring_wait_full(ring, key);
		products_begin();
		mul_nt<T, ROWS, N, DP>(s, query, tile + key % SLOTS * TILE);
		products_wait<0>(s);
		ring_leave(ring, key);
		if (j * N + N > row)
			mask(s, row, j * N);
		softmax(s, most, sum, old, a.scale * LOG2E);
		rows_scale(acc, old);
		if constexpr (DROP)
			drop_rows(s, drop, b, h, row, j * N, a);
		left_from<DROP>(p, s);
		ring_wait_full(ring, value);
		products_begin(p, acc);
		mul_nn<N, DP>(acc, p, tile + value % SLOTS * TILE);
		products_wait<0>(acc);
		ring_leave(ring, value);
	}
	ring_skip(ring, 2 * mine, 2 * blocks);
	softmax_end(lse + at.lse, most, sum, drop.keep, row, a);
	rows_scale(acc, sum);
	rows_store(o + at.o, a.ldo, acc, 1, row, 0, a);
#endif
}

template <int DP, int GROUPS, int N, int SLOTS, int BLOCKS, bool DROP,
	  typename T>
static bool fwd_launch(struct queue *q, T *o, float *lse, const T *qkv,
		       const struct attn_arg *a)
{
	auto *kernel = fwd_kernel<DP, GROUPS, N, SLOTS, BLOCKS, DROP, T>;
	constexpr size_t BYTES =
		TILE_BYTES<64 * GROUPS, DP> + SLOTS * TILE_BYTES<N, DP>;
	static const bool ready = kernel_ready(kernel, BYTES);
	CUtensorMap map;

	if (!ready || !attn_map(&map, qkv, a->H + 2 * a->G, a))
		return false;
	LAUNCH(q, kernel,
	       dim3(a->B * a->H, (unsigned)ceil_div(a->T, 64 * GROUPS)),
	       GROUP * (GROUPS + 1), BYTES, map, o, lse, *a);
	return true;
}

/* Sizes by measurement; dropout's words need registers. */
template <bool DROP, typename... A> static bool fwd_any(int D, A... args)
{
	constexpr int GROUPS = DROP ? 2 : 3;

	if (D <= 64)
		return fwd_launch<64, 2, 64, 4, 2, DROP>(args...);
	return fwd_launch<128, GROUPS, 128, 4, 1, DROP>(args...);
}

template <typename T>
bool attn_wgmma_fwd(struct queue *q, T *o, float *lse, const T *qkv,
		    const struct attn_arg *a)
{
	if (a->D > 128 || !served({o, qkv}, a))
		return false;
	return a->drop.key ? fwd_any<true>(a->D, q, o, lse, qkv, a)
			   : fwd_any<false>(a->D, q, o, lse, qkv, a);
}

template bool attn_wgmma_fwd(struct queue *q, bf16 *o, float *lse,
			     const bf16 *qkv, const struct attn_arg *a);
template bool attn_wgmma_fwd(struct queue *q, fp16 *o, float *lse,
			     const fp16 *qkv, const struct attn_arg *a);
