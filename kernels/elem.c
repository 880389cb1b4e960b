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

static void put(char *to, const char *from, int64_t n, int64_t bytes)
{
	if (from)
		memcpy(to, from + n * bytes, (size_t)bytes);
	else
		memset(to, 0, (size_t)bytes);
}

void K(join)(struct queue *q, void *y, const void *a, const void *b,
	     const void *c, int64_t N, int64_t A, int64_t B, int64_t C)
{
	(void)q;
#pragma omp parallel for if (N * (A + B + C) > 4 * KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		char *row = (char *)y + n * (A + B + C);

		put(row, a, n, A);
		put(row + A, b, n, B);
		put(row + A + B, c, n, C);
	}
}

void K(cut)(struct queue *q, void *y, const void *x, int64_t N, int64_t bytes,
	    int64_t step)
{
	(void)q;
#pragma omp parallel for if (N * bytes > 4 * KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		memcpy((char *)y + n * bytes, (const char *)x + n * step,
		       (size_t)bytes);
}
