/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in 16 bits on sm_90a: Shah et al., "FlashAttention-3", 2024.  A
 * block's last warpgroup fetches tiles with the tensor memory accelerator
 * into a ring of slots; the others, with 64 rows each, multiply them.
 *
 * A tile of ROWS rows and DP columns lies in shared memory as DP / 64 panels
 * of ROWS rows of 128 bytes, swizzled by eight rows, D rounded up with zeros;
 * it starts at a multiple of 1024 bytes.
 */
#ifndef KERNELS_ATTN_WGMMA_H
#define KERNELS_ATTN_WGMMA_H

#include <cuda.h>

#include "kernels/attn_frag.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTN_WGMMA 1
#endif

#define GROUP 128 /* threads of a warpgroup */

/*
 * Registers of a thread, of the 65536 of BLOCKS blocks with GROUPS and one
 * warpgroups: the compiler's limit at first; then the last gives away most.
 */
#define REGISTERS_FETCH 24
template <int GROUPS, int BLOCKS>
constexpr int REGISTERS_FIRST = 512 / (GROUPS + 1) / BLOCKS / 8 * 8;
template <int GROUPS, int BLOCKS>
constexpr int REGISTERS_MORE = ((GROUPS + 1) * REGISTERS_FIRST<GROUPS, BLOCKS> -
				REGISTERS_FETCH) /
			       GROUPS / 8 * 8;

template <int N> static __device__ __forceinline__ void registers_less(void)
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_more(void)
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
}

/* Bytes of a tile, and of a panel. */
template <int ROWS, int DP> constexpr uint32_t TILE_BYTES = ROWS *DP * 2;
template <int ROWS> constexpr uint32_t PANEL = ROWS * 128;

/*
 * Barriers of a ring's slots.  Item n lies in slot n % SLOTS; FULL is
 * complete when it is there, EMPTY when all readers have left it.
 */
template <int SLOTS> struct ring {
	uint64_t full[SLOTS], empty[SLOTS];
};

static __device__ __forceinline__ void barrier_init(uint64_t *bar, int count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(
			     shared_at(bar)),
		     "r"(count));
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(
			     shared_at(bar))
		     : "memory");
}

/* The same, and BYTES more of tiles are to come. */
static __device__ __forceinline__ void barrier_expect(uint64_t *bar,
						      uint32_t bytes)
{
	asm volatile(
		"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::
			"r"(shared_at(bar)),
		"r"(bytes)
		: "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *bar,
						    uint32_t parity)
{
	uint32_t done;

	do {
		asm volatile("{\n"
			     ".reg .pred p;\n"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, "
			     "[%1], %2;\n"
			     "selp.u32 %0, 1, 0, p;\n"
			     "}\n"
			     : "=r"(done)
			     : "r"(shared_at(bar)), "r"(parity)
			     : "memory");
	} while (!done);
}

/* By one thread: FILLERS threads arrive at FULL, READERS at EMPTY. */
template <int SLOTS>
static __device__ __forceinline__ void ring_init(ring<SLOTS> &r, int fillers,
						 int readers)
{
	for (int i = 0; i < SLOTS; i++) {
		barrier_init(&r.full[i], fillers);
		barrier_init(&r.empty[i], readers);
	}
}

/* Make barriers that one thread made known to all of a block. */
static __device__ __forceinline__ void barriers_ready(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
	__syncthreads();
}

template <int SLOTS>
static __device__ __forceinline__ void ring_wait_full(ring<SLOTS> &r, int item)
{
	barrier_wait(&r.full[item % SLOTS], item / SLOTS % 2);
}

template <int SLOTS>
static __device__ __forceinline__ void ring_wait_empty(ring<SLOTS> &r, int item)
{
	barrier_wait(&r.empty[item % SLOTS], item / SLOTS % 2 ^ 1);
}

/* By a warp whose products have read ITEM; its first lane arrives. */
template <int SLOTS>
static __device__ __forceinline__ void ring_leave(ring<SLOTS> &r, int item)
{
	if (threadIdx.x % 32 == 0)
		barrier_arrive(&r.empty[item % SLOTS]);
}

/* This warp has no use for items FROM .. TO. */
template <int SLOTS>
static __device__ __forceinline__ void ring_skip(ring<SLOTS> &r, int from,
						 int to)
{
	for (; from < to; from++) {
		ring_wait_full(r, from);
		ring_leave(r, from);
	}
}

/* By one thread: the tile of HEAD's rows ROW on of sample B; BAR counts it. */
template <int ROWS, int DP>
static __device__ __forceinline__ void tile_fetch(uint32_t to,
						  const CUtensorMap &map,
						  int head, int row, int b,
						  uint64_t *bar)
{
#pragma unroll
	for (int c = 0; c < DP; c += 64)
#pragma unroll
		for (int r = 0; r < ROWS; r += 64)
			asm volatile(
				"cp.async.bulk.tensor.4d.shared::cluster"
				".global.tile.mbarrier::complete_tx::bytes "
				"[%0], [%1, {%2, %3, %4, %5}], [%6];\n" ::"r"(
					to + c / 64 * PANEL<ROWS> + r * 128),
				"l"(&map), "r"(c), "r"(head), "r"(row + r),
				"r"(b), "r"(shared_at(bar))
				: "memory");
}

/*
 * By one thread: the items of a ring whose slots begin at TILE, the tiles of
 * N keys and of their values in turn, BLOCKS of each; HEAD is the keys'.
 */
template <int N, int DP, int SLOTS>
static __device__ __forceinline__ void blocks_fetch(ring<SLOTS> &r,
						    uint32_t tile,
						    const CUtensorMap &map,
						    int head, int b, int blocks)
{
	for (int n = 0; n < 2 * blocks; n++) {
		uint64_t *full = &r.full[n % SLOTS];

		ring_wait_empty(r, n);
		barrier_expect(full, TILE_BYTES<N, DP>);
		tile_fetch<N, DP>(tile + n % SLOTS * TILE_BYTES<N, DP>, map,
				  head + n % 2, n / 2 * N, b, full);
	}
}

/*
 * What wgmma is told of an operand at AT: swizzled by 128 bytes, eight rows
 * to the next 1024, PANEL bytes to the next panel where rows are summed over.
 */
static __device__ __forceinline__ uint64_t operand(uint32_t at, uint32_t panel)
{
	return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 |
	       (uint64_t)(panel >> 4) << 16 | (at & 0x3ffff) >> 4;
}

#define R4(v, t)  "+f"(v[t][0]), "+f"(v[t][1]), "+f"(v[t][2]), "+f"(v[t][3])
#define R16(v, t) R4(v, t), R4(v, t + 1), R4(v, t + 2), R4(v, t + 3)
#define R32(v)	  R16(v, 0), R16(v, 4)
#define R64(v)	  R32(v), R16(v, 8), R16(v, 12)
#define N10(d)                                                               \
	"%" d "0, %" d "1, %" d "2, %" d "3, %" d "4, %" d "5, %" d "6, %" d \
	"7, %" d "8, %" d "9, "
#define N32 N10("") N10("1") N10("2") "%30, %31"
#define N64     \
	N10("") \
	N10("1") N10("2") N10("3") N10("4") N10("5") "%60, %61, %62, %63"
#define WGMMA(n, t) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." t "." t " "

/* d (64, N) = x y^T, both in shared memory, D summed over; += if ADD. */
template <typename T, int N>
static __device__ __forceinline__ void wgmma_nt(frag<1, N> &d, uint64_t x,
						uint64_t y, bool add)
{
	static_assert(N == 64 || N == 128);
#define NT64(t)                                                          \
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" WGMMA( \
			     "64", t) "{" N32                            \
				      "}, %32, %33, p, 1, 1, 0, 0;\n}\n" \
		     : R32(d.v[0])                                       \
		     : "l"(x), "l"(y), "r"((int)add))
#define NT128(t)                                                          \
	asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" WGMMA(  \
			     "128", t) "{" N64                            \
				       "}, %64, %65, p, 1, 1, 0, 0;\n}\n" \
		     : R64(d.v[0])                                        \
		     : "l"(x), "l"(y), "r"((int)add))
	if constexpr (N == 64)
		WITH_PTX(T, NT64);
	else
		WITH_PTX(T, NT128);
#undef NT64
#undef NT128
}

/* d (64, N) += x (64, 16) y (16, N), y in shared memory. */
template <typename T, int N>
static __device__ __forceinline__ void wgmma_nn(frag<1, N> &d,
						const uint32_t (&x)[4],
						uint64_t y)
{
	static_assert(N == 64 || N == 128);
#define NN64(t)                                                         \
	asm volatile(WGMMA("64", t) "{" N32 "}, {%32, %33, %34, %35}, " \
				    "%36, 1, 1, 1, 1;\n"                \
		     : R32(d.v[0])                                      \
		     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y))
#define NN128(t)                                                         \
	asm volatile(WGMMA("128", t) "{" N64 "}, {%64, %65, %66, %67}, " \
				     "%68, 1, 1, 1, 1;\n"                \
		     : R64(d.v[0])                                       \
		     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y))
	if constexpr (N == 64)
		WITH_PTX(T, NN64);
	else
		WITH_PTX(T, NN128);
#undef NN64
#undef NN128
}

/* Keep the compiler from moving what makes or uses X over this place. */
template <int N> static __device__ __forceinline__ void hold(frag<1, N> &x)
{
#pragma unroll
	for (int t = 0; t < N / 8; t++)
#pragma unroll
		for (int c = 0; c < 4; c++)
			asm volatile("" : "+f"(x.v[0][t][c])::"memory");
}

template <typename T, int N>
static __device__ __forceinline__ void hold(left<T, 1, N> &x)
{
#pragma unroll
	for (int k = 0; k < N / 16; k++)
#pragma unroll
		for (int i = 0; i < 4; i++)
			asm volatile("" : "+r"(x.v[0][k][i])::"memory");
}

/* Before products that use X, written since the last ones. */
template <typename... F>
static __device__ __forceinline__ void products_begin(F &...x)
{
	(hold(x), ...);
	asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ void products_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Wait until at most LEFT groups of products are under way; D's is done. */
template <int LEFT, typename... F>
static __device__ __forceinline__ void products_wait(F &...d)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT)
		     : "memory");
	(hold(d), ...);
}

/*
 * s (64, N) = 64 rows of the tile X (of XROWS) at Y (N, DP) transposed.
 * X is the first row's place.
 */
template <typename T, int XROWS, int N, int DP>
static __device__ __forceinline__ void mul_nt(frag<1, N> &s, uint32_t x,
					      uint32_t y)
{
#pragma unroll
	for (int k = 0; k < DP; k += 16)
		wgmma_nt<T>(
			s, operand(x + k / 64 * PANEL<XROWS> + k % 64 * 2, 0),
			operand(y + k / 64 * PANEL<N> + k % 64 * 2, 0), k > 0);
	products_commit();
}

/* acc (64, DP) += x (64, N) times the tile Y (N, DP). */
template <int N, int DP, typename T>
static __device__ __forceinline__ void mul_nn(frag<1, DP> &acc,
					      const left<T, 1, N> &x,
					      uint32_t y)
{
#pragma unroll
	for (int k = 0; k < N; k += 16)
		wgmma_nn<T>(acc, x.v[0][k / 16],
			    operand(y + k * 128, PANEL<N>));
	products_commit();
}

/* A map of the heads, HEADS of D columns of 16 bits, of all tokens of P. */
bool attn_map(CUtensorMap *map, const void *p, int64_t heads,
	      const struct attn_arg *a);

/*
 * May KERNEL run here?  Its body, and so its barriers in static shared
 * memory, is compiled for sm_90a alone.  It is told that it may use BYTES.
 */
template <typename F> static bool kernel_ready(F *kernel, size_t bytes)
{
	struct cudaFuncAttributes f;

	if (cudaFuncGetAttributes(&f, kernel) != cudaSuccess) {
		cudaGetLastError(); /* not this launch's failure */
		return false;
	}
	return f.sharedSizeBytes &&
	       cudaFuncSetAttribute(kernel,
				    cudaFuncAttributeMaxDynamicSharedMemorySize,
				    (int)bytes) == cudaSuccess;
}

#endif
