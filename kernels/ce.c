/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross entropy over a vocabulary cut by columns. */
#include "kernels/kern_cpu.h"
#include "kernels/vmath.h"

static bool label_here(int64_t label, int64_t valid, int64_t first)
{
	return label >= first && label - first < valid;
}

void K(ce_max)(struct queue *q, void *m, const void *logits, int64_t N,
	       int64_t V, int64_t valid)
{
	(void)q;
#pragma omp parallel for if (N * V > KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		((REAL *)m)[n] = row_max((const REAL *)logits + n * V, valid);
}

void K(ce_sums)(struct queue *q, void *sums, const void *logits, const void *m,
		const int32_t *labels, int64_t N, int64_t V, int64_t valid,
		int64_t first)
{
	REAL *z = sums, *picked = z + N;

	(void)q;
#pragma omp parallel for if (N * V > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		const REAL *x = (const REAL *)logits + n * V;
		REAL mn = ((const REAL *)m)[n];

		z[n] = (REAL)LANES_SUM(i, valid, (double)vexp(x[i] - mn));
		picked[n] = label_here(labels[n], valid, first)
				    ? x[labels[n] - first] - mn
				    : 0;
	}
}

static void grad_row(REAL *x, REAL m, REAL scale, int64_t V, int64_t valid)
{
#pragma omp simd
	for (int64_t i = 0; i < valid; i++)
		x[i] = vexp(x[i] - m) * scale;
	memset(x + valid, 0, (V - valid) * sizeof(*x));
}

void K(ce_grad)(struct queue *q, double *loss, double *right, void *logits,
		const void *m, const void *sums, const int32_t *labels,
		const double *coef, int64_t N, int64_t V, int64_t valid,
		int64_t first)
{
	const REAL *z = sums, *picked = z + N;
	double total = 0;

	(void)q;
#pragma omp parallel for if (N * V > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *x = (REAL *)logits + n * V;

		if (labels[n] < 0) {
			memset(x, 0, V * sizeof(*x));
			continue;
		}
		grad_row(x, ((const REAL *)m)[n], (REAL)(*coef / (double)z[n]),
			 V, valid);
		if (label_here(labels[n], valid, first))
			x[labels[n] - first] -= (REAL)*coef;
	}
	for (int64_t n = 0; n < N; n++)
		if (labels[n] >= 0)
			total += log((double)z[n]) - (double)picked[n];
	*loss += total;
	for (int64_t n = 0; n < N && right; n++)
		*right += labels[n] >= 0 && picked[n] == 0;
}
