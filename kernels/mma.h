/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor cores by mma.sync m16n8k16, and what brings them their operands. */
#ifndef KERNELS_MMA_H
#define KERNELS_MMA_H

#include "kernels/kern_cuda.h"

static __device__ __forceinline__ uint32_t shared_at(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* MACRO(NAME) with PTX's name of T, bf16 or fp16. */
#define WITH_PTX(T, macro)                             \
	do {                                           \
		if constexpr (std::is_same_v<T, bf16>) \
			macro("bf16");                 \
		else                                   \
			macro("f16");                  \
	} while (0)

/* Two numbers, rounded; what is too large for T becomes infinite. */
template <typename T>
static __device__ __forceinline__ uint32_t pack(float a, float b)
{
	uint32_t v;

#define PACK(t) asm("cvt.rn." t "x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a))
	WITH_PTX(T, PACK);
#undef PACK
	return v;
}

/* 16 bytes from global memory, or zeros. */
static __device__ __forceinline__ void copy16(void *to, const void *from,
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
static __device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
		     "{%0, %1, %2, %3}, [%4];\n"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_at(p))
		     : "memory");
}

static __device__ __forceinline__ void ldmatrix_t(uint32_t (&r)[4],
						  const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
		     "{%0, %1, %2, %3}, [%4];\n"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_at(p))
		     : "memory");
}

/* d (16, 8) += a (16, 16) b (16, 8) */
template <typename T>
static __device__ __forceinline__ void mma(float (&d)[4],
					   const uint32_t (&a)[4], uint32_t b0,
					   uint32_t b1)
{
#define MMA(t)                                                                \
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." t "." t ".f32 " \
		     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "         \
		     "{%0, %1, %2, %3};\n"                                    \
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])         \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),   \
		       "r"(b1))
	WITH_PTX(T, MMA);
#undef MMA
}

#endif
