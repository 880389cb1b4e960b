/* SPDX-License-Identifier: Apache-2.0 */
/* Token and position embeddings: rows looked up and rows added to. */
#include <string.h>

#include "kernels/kern_cpu.h"

static void row_add(REAL *y, const REAL *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] += x[i];
}

void K(embed_fwd)(struct queue *q, void *y, const int32_t *ids, const void *w,
		  int64_t N, int64_t C, int64_t first, int64_t rows)
{
	(void)q;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *yn = (REAL *)y + n * C;
		int64_t id = ids[n] - first;

		if (id >= 0 && id < rows)
			memcpy(yn, (const REAL *)w + id * C, C * sizeof(*yn));
		else
			memset(yn, 0, C * sizeof(*yn));
	}
}

/* Threads share the columns, so that a row's additions keep their order. */
void K(embed_bwd)(struct queue *q, void *dw, const void *dy, const int32_t *ids,
		  int64_t N, int64_t C, int64_t first, int64_t rows)
{
	(void)q;
#pragma omp parallel if (N * C > KERN_SMALL)
	{
		struct span c = span_mine(C, 16);

		for (int64_t n = 0; n < N; n++) {
			int64_t id = ids[n] - first;

			if (id >= 0 && id < rows)
				row_add((REAL *)dw + id * C + c.lo,
					(const REAL *)dy + n * C + c.lo,
					c.hi - c.lo);
		}
	}
}

static int64_t position(int64_t row, int64_t T, int64_t shift)
{
	int64_t p = row % T + shift;

	return p < T ? p : 0;
}

void K(pos_fwd)(struct queue *q, void *y, const void *w, int64_t N, int64_t C,
		int64_t T, int64_t row0, int64_t shift)
{
	(void)q;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		row_add((REAL *)y + n * C,
			(const REAL *)w + position(row0 + n, T, shift) * C, C);
}

void K(pos_bwd)(struct queue *q, void *dw, const void *dy, int64_t N, int64_t C,
		int64_t T, int64_t row0, int64_t shift)
{
	(void)q;
#pragma omp parallel if (N * C > KERN_SMALL)
	{
		struct span c = span_mine(C, 16);

		for (int64_t n = 0; n < N; n++)
			row_add((REAL *)dw + position(row0 + n, T, shift) * C +
					c.lo,
				(const REAL *)dy + n * C + c.lo, c.hi - c.lo);
	}
}
