/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays: clear, copy, add. */
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
