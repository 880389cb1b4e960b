/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays: clear, copy. */
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
