/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the CPU's ops, and what the matrix library must be told. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/gemm.h"
#include "kernels/kern_cpu.h"

#if REAL_IS_FLOAT
#ifdef BLIS_TYPE_DEFS_H /* this <cblas.h> is BLIS's, but lacks the next */
void bli_thread_set_num_threads(dim_t n_threads);

/*
 * What the environment sets stays.
 *
 * Without packing, BLIS's kernels for small matrices sum in an order that
 * depends on how the rows were shared among threads.
 *
 * BLIS 0.9 tells how many AVX-512 units a Xeon has by its marketing name and
 * falls back to AVX2, at half the speed, when a virtual machine hides that
 * name.  All of Intel's cores with bf16 instructions have two.
 */
static void blis_init(void)
{
#ifdef __x86_64__
	char id[16];

	snprintf(id, sizeof(id), "%d", BLIS_ARCH_SKX);
	if (__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512bf16"))
		setenv("BLIS_ARCH_TYPE", id, 0);
#endif
	setenv("BLIS_PACK_A", "1", 0);
	setenv("BLIS_PACK_B", "1", 0);
}

void kern_gemm_threads(int threads)
{
	bli_thread_set_num_threads(threads);
}
#else
static void blis_init(void)
{
}

void kern_gemm_threads(int threads)
{
	(void)threads;
}
#endif

void kern_cpu_init(int threads)
{
	blis_init();
	omp_set_num_threads(threads);
}
#endif
