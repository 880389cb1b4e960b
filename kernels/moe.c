/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: rows in the order of experts, and their products. */
#include <string.h>

#include "kernels/kern_cpu.h"

void K(gather)(struct queue *q, void *y, const void *x, const int32_t *row,
	       int64_t N, int64_t topk, int64_t C)
{
	(void)q;
#pragma omp parallel for if (N * topk * C > KERN_SMALL)
	for (int64_t i = 0; i < N * topk; i++)
		if (row[i] >= 0)
			memcpy((REAL *)y + row[i] * C,
			       (const REAL *)x + i / topk * C,
			       (size_t)C * sizeof(REAL));
}

void K(combine)(struct queue *q, void *y, const void *x, const int32_t *row,
		int64_t N, int64_t topk, int64_t C)
{
	(void)q;
#pragma omp parallel for if (N * topk * C > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *restrict yn = (REAL *)y + n * C;

		memset(yn, 0, (size_t)C * sizeof(REAL));
		for (int64_t k = n * topk; k < (n + 1) * topk; k++) {
			const REAL *restrict xr = (const REAL *)x + row[k] * C;

			if (row[k] < 0)
				continue;
#pragma omp simd
			for (int64_t i = 0; i < C; i++)
				yn[i] += xr[i];
		}
	}
}

/* Call PRODUCT with the rows LO .. LO + ROWS of each expert e. */
#define EACH_EXPERT(PRODUCT)                                                \
	for (int64_t e = 0; e < experts; e++) {                             \
		int64_t lo = e ? end[e - 1] : 0, rows = end[e] - lo;        \
		REAL *we = (REAL *)w + e * out * in;                        \
		REAL *xe = (REAL *)x + lo * in, *ye = (REAL *)y + lo * out; \
                                                                            \
		if (rows)                                                   \
			PRODUCT;                                            \
	}

void K(experts_fwd)(struct queue *q, void *y, const void *x, const void *w,
		    const int32_t *end, int64_t R, int64_t out, int64_t in,
		    int64_t experts)
{
	(void)R;
	EACH_EXPERT(K(linear_fwd)(q, ye, xe, we, NULL, rows, out, in))
}

void K(experts_bwd_x)(struct queue *q, void *x, const void *y, const void *w,
		      const int32_t *end, int64_t R, int64_t out, int64_t in,
		      int64_t experts)
{
	(void)R;
	EACH_EXPERT(K(linear_bwd_x)(q, xe, ye, we, rows, out, in))
}

void K(experts_bwd_w)(struct queue *q, void *w, const void *y, const void *x,
		      const int32_t *end, int64_t R, int64_t out, int64_t in,
		      int64_t experts)
{
	(void)R;
	EACH_EXPERT(K(linear_bwd_w)(q, we, ye, xe, rows, out, in))
}

/* The bias of choice I's expert, or of its gradient. */
static REAL *bias_of(const void *bias, const struct kern_map *m, int64_t i,
		     int64_t C, const struct kern_moe_dims *d)
{
	return (REAL *)bias + (m->expert[i] - d->first) * C;
}

void K(expert_bias_fwd)(struct queue *q, void *y, const void *bias,
			const void *prob, const int32_t *map, int64_t C,
			const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d);
	int64_t N = d->ranks * d->M * d->K;

	(void)q;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t i = 0; i < N; i++) {
		REAL p = prob ? ((const REAL *)prob)[i] : 1;

		if (m.row[i] < 0)
			continue;
		for (int64_t c = 0; c < C; c++)
			((REAL *)y)[m.row[i] * C + c] +=
				p * bias_of(bias, &m, i, C, d)[c];
	}
}

/* DBIAS of expert E: its rows in the order of the choices. */
static void bias_gradient(REAL *dbias, const REAL *dy, const REAL *prob,
			  const struct kern_map *m, int64_t C, int64_t e,
			  int64_t N)
{
	for (int64_t i = 0; i < N; i++)
		for (int64_t c = 0;
		     c < C && m->row[i] >= 0 && m->expert[i] == e; c++)
			dbias[c] +=
				(prob ? prob[i] : 1) * dy[m->row[i] * C + c];
}

void K(expert_bias_bwd)(struct queue *q, void *dbias, void *dprob,
			const void *dy, const void *bias, const void *prob,
			const int32_t *map, int64_t C,
			const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d);
	int64_t N = d->ranks * d->M * d->K;

	(void)q;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t e = 0; e < d->experts; e++)
		bias_gradient((REAL *)dbias + e * C, dy, prob, &m, C,
			      d->first + e, N);
	if (!dprob)
		return;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t i = 0; i < N; i++) {
		double sum = 0;

		for (int64_t c = 0; c < C && m.row[i] >= 0; c++)
			sum += (double)((const REAL *)dy)[m.row[i] * C + c] *
			       (double)bias_of(bias, &m, i, C, d)[c];
		((REAL *)dprob)[i] += (REAL)sum;
	}
}
