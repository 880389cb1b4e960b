/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays: clear, copy, add, and sum the pieces of several ranks. */
#include <string.h>

#include "kernels/kern_cpu.h"

void K(zero)(struct queue *q, void *y, int64_t n)
{
	(void)q;
#pragma omp parallel if (n > KERN_SMALL)
	{
		struct span s = span_mine(n, 1024);

		if (s.lo < s.hi)
			memset((REAL *)y + s.lo, 0,
			       (s.hi - s.lo) * sizeof(REAL));
	}
}

void K(copy)(struct queue *q, void *y, const void *x, int64_t n)
{
	(void)q;
#pragma omp parallel if (n > KERN_SMALL)
	{
		struct span s = span_mine(n, 1024);

		if (s.lo < s.hi)
			memcpy((REAL *)y + s.lo, (const REAL *)x + s.lo,
			       (s.hi - s.lo) * sizeof(REAL));
	}
}

void K(add)(struct queue *q, void *y, const void *x, int64_t n)
{
	(void)q;
#pragma omp parallel if (n > KERN_SMALL)
	{
		struct span s = span_mine(n, 1024);

#pragma omp simd
		for (int64_t i = s.lo; i < s.hi; i++)
			((REAL *)y)[i] += ((const REAL *)x)[i];
	}
}

/* So few elements stay in the first cache while all ranks' are added. */
#define BLOCK 1024

static void sum_block(REAL *y, const REAL *x, int64_t R, int64_t stride,
		      int64_t n)
{
	memcpy(y, x, n * sizeof(*y));
	for (int64_t r = 1; r < R; r++) {
		const REAL *xr = x + r * stride;

#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			y[i] += xr[i];
	}
}

void K(sum)(struct queue *q, void *y, const void *x, int64_t R, int64_t n)
{
	(void)q;
#pragma omp parallel for if (n > KERN_SMALL)
	for (int64_t i = 0; i < n; i += BLOCK)
		sum_block((REAL *)y + i, (const REAL *)x + i, R, n,
			  n - i < BLOCK ? n - i : BLOCK);
}
