/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout by itself and noise, over arrays seen as one run of elements. */
#include "kernels/drop.h"
#include "kernels/kern_cpu.h"

static void drop_block(REAL *y, const REAL *x, int64_t n, int64_t elem,
		       const struct kern_drop *d)
{
	REAL f[DROP_BLOCK];

	drop_factors(f, d, elem, n);
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = f[i] != 0 ? x[i] * f[i] : 0;
}

void K(drop)(struct queue *q, void *y, const void *x, int64_t N, int64_t C,
	     const struct kern_drop *d)
{
	int64_t n = N * C;

	if (!drop_on(d)) {
		if (y != x)
			K(copy)(q, y, x, n * (int64_t)sizeof(REAL));
		return;
	}
#pragma omp parallel for if (n > KERN_SMALL)
	for (int64_t i = 0; i < n; i += DROP_BLOCK) {
		int64_t m = n - i < DROP_BLOCK ? n - i : DROP_BLOCK;

		drop_block((REAL *)y + i, (const REAL *)x + i, m,
			   d->row0 * C + i, d);
	}
}

static void jitter_block(REAL *y, const REAL *x, int64_t n, int64_t elem,
			 const struct kern_drop *d)
{
	REAL unit = (REAL)(2 * d->p * 0x1p-32);
	REAL low = (REAL)(1 - d->p + d->p * 0x1p-32);
	uint32_t word[4][16];

	for (int64_t i = 0; i < n;) {
		int64_t at = (elem + i) % 4;

		drop_words64(word, d, (uint64_t)(elem + i) / 4);
		for (; at < 64 && i < n; at++, i++)
			y[i] = x[i] * (low + unit * (REAL)word[at % 4][at / 4]);
	}
}

void K(jitter)(struct queue *q, void *y, const void *x, int64_t N, int64_t C,
	       const struct kern_drop *d)
{
	int64_t n = N * C;

	(void)q;
#pragma omp parallel for if (n > KERN_SMALL)
	for (int64_t i = 0; i < n; i += DROP_BLOCK) {
		int64_t m = n - i < DROP_BLOCK ? n - i : DROP_BLOCK;

		jitter_block((REAL *)y + i, (const REAL *)x + i, m,
			     d->row0 * C + i, d);
	}
}
