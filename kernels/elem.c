/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays and rows: clear, copy. */
#include <string.h>

#include "kernels/kern_cpu.h"

/* The calling thread's share of so many bytes. */
static struct span my_bytes(int64_t bytes)
{
	return span_mine(bytes, 4096);
}

void K(zero)(struct queue *q, void *y, int64_t bytes)
{
	(void)q;
#pragma omp parallel if (bytes > 4 * KERN_SMALL)
	{
		struct span s = my_bytes(bytes);

		if (s.lo < s.hi)
			memset((char *)y + s.lo, 0, (size_t)(s.hi - s.lo));
	}
}

void K(copy)(struct queue *q, void *y, const void *x, int64_t bytes)
{
	(void)q;
#pragma omp parallel if (bytes > 4 * KERN_SMALL)
	{
		struct span s = my_bytes(bytes);

		if (s.lo < s.hi)
			memcpy((char *)y + s.lo, (const char *)x + s.lo,
			       (size_t)(s.hi - s.lo));
	}
}

void K(copy_rows)(struct queue *q, void *y, int64_t ystep, const void *x,
		  int64_t xstep, int64_t N, int64_t bytes)
{
	(void)q;
#pragma omp parallel for if (N * bytes > 4 * KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		memcpy((char *)y + n * ystep, (const char *)x + n * xstep,
		       (size_t)bytes);
}
