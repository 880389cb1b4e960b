/* SPDX-License-Identifier: Apache-2.0 */
/* The residual addition, and LayerNorm and RMSNorm fused with it. */
#include "kernels/drop.h"
#include "kernels/kern_cpu.h"
#include "kernels/vmath.h"

/* y = x + dropout(branch + bias), for part of a row that begins at ELEM. */
static void resid_part(REAL *y, const REAL *x, const REAL *branch,
		       const REAL *bias, int64_t n, int64_t elem,
		       const struct kern_drop *d)
{
	REAL f[DROP_BLOCK];

	drop_factors(f, d, elem, n);
	if (bias) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			y[i] = x[i] + (branch[i] + bias[i]) * f[i];
	} else {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			y[i] = x[i] + branch[i] * f[i];
	}
}

static void resid_row(REAL *y, const REAL *x, const REAL *branch,
		      const REAL *bias, int64_t C, int64_t row,
		      const struct kern_drop *d)
{
	if (drop_on(d)) {
		for (int64_t c = 0; c < C; c += DROP_BLOCK)
			resid_part(y + c, x + c, branch + c,
				   bias ? bias + c : NULL,
				   C - c < DROP_BLOCK ? C - c : DROP_BLOCK,
				   row * C + c, d);
	} else if (bias) {
#pragma omp simd
		for (int64_t i = 0; i < C; i++)
			y[i] = x[i] + (branch[i] + bias[i]);
	} else {
#pragma omp simd
		for (int64_t i = 0; i < C; i++)
			y[i] = x[i] + branch[i];
	}
}

void K(resid)(struct queue *q, void *xout, const void *x, const void *branch,
	      const void *bias, int64_t N, int64_t C, const struct kern_drop *d)
{
	(void)q;
	if (!branch)
		return;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		resid_row((REAL *)xout + n * C, (const REAL *)x + n * C,
			  (const REAL *)branch + n * C, bias, C,
			  (d ? d->row0 : 0) + n, d);
}

static void row_stat(REAL stat[2], const REAL *x,
		     const struct kern_norm_dims *dims)
{
	double mean = 0, square;

	if (dims->kind == KERN_LAYERNORM)
		mean = LANES_SUM(i, dims->C, (double)x[i]) / (double)dims->C;
	square = LANES_SUM(i, dims->C,
			   ((double)x[i] - mean) * ((double)x[i] - mean));
	stat[0] = (REAL)mean;
	stat[1] = (REAL)(1 / sqrt(square / (double)dims->C + dims->eps));
}

static void norm_row(REAL *y, const REAL *x, const REAL *w, const REAL *b,
		     const REAL stat[2], const struct kern_norm_dims *dims)
{
	REAL mean = stat[0], r = stat[1], one = dims->zero_centered;

	if (b) {
#pragma omp simd
		for (int64_t i = 0; i < dims->C; i++)
			y[i] = (x[i] - mean) * r * (one + w[i]) + b[i];
	} else {
#pragma omp simd
		for (int64_t i = 0; i < dims->C; i++)
			y[i] = (x[i] - mean) * r * (one + w[i]);
	}
}

void K(norm_fwd)(struct queue *q, void *y, void *xout, void *stat,
		 const void *x, const void *branch, const void *bias,
		 const void *w, const void *b,
		 const struct kern_norm_dims *dims, const struct kern_drop *d)
{
	int64_t N = dims->N, C = dims->C;

	(void)q;
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		const REAL *xn = (const REAL *)x + n * C;
		REAL *sn = (REAL *)stat + 2 * n;

		if (branch) {
			REAL *to = (REAL *)xout + n * C;

			resid_row(to, xn, (const REAL *)branch + n * C, bias, C,
				  (d ? d->row0 : 0) + n, d);
			xn = to;
		}
		row_stat(sn, xn, dims);
		norm_row((REAL *)y + n * C, xn, w, b, sn, dims);
	}
}

/*
 * dx = dres + r (g - mean(g) - xhat mean(g xhat)) with g = dy w and
 * xhat = (x - mean) r; RMSNorm has no mean(g).
 */
static void norm_bwd_row(REAL *dx, const REAL *dy, const REAL *dres,
			 const REAL *x, const REAL stat[2], const REAL *w,
			 const struct kern_norm_dims *dims)
{
	REAL mean = stat[0], r = stat[1], one = dims->zero_centered, mg = 0;
	REAL mgx;
	int64_t C = dims->C;

	if (dims->kind == KERN_LAYERNORM)
		mg = (REAL)(LANES_SUM(i, C, (double)(dy[i] * (one + w[i]))) /
			    (double)C);
	mgx = (REAL)(LANES_SUM(i, C,
			       (double)(dy[i] * (one + w[i])) *
				       (double)((x[i] - mean) * r)) /
		     (double)C);
	if (dres) {
#pragma omp simd
		for (int64_t i = 0; i < C; i++)
			dx[i] = dres[i] + r * (dy[i] * (one + w[i]) - mg -
					       (x[i] - mean) * r * mgx);
	} else {
#pragma omp simd
		for (int64_t i = 0; i < C; i++)
			dx[i] = r * (dy[i] * (one + w[i]) - mg -
				     (x[i] - mean) * r * mgx);
	}
}

/* dw, db of W columns from C0 on: sums over the rows, in double. */
static void norm_bwd_columns(REAL *dw, REAL *db, const REAL *dy, const REAL *x,
			     const REAL *stat, int64_t N, int64_t C, int64_t c0,
			     int64_t width)
{
	double sw[256] = {0}, sb[256] = {0};

	for (int64_t n = 0; n < N; n++) {
		const REAL *dyn = dy + n * C + c0, *xn = x + n * C + c0;
		REAL mean = stat[2 * n], r = stat[2 * n + 1];

#pragma omp simd
		for (int64_t i = 0; i < width; i++)
			sw[i] += (double)(dyn[i] * ((xn[i] - mean) * r));
		if (!db)
			continue;
#pragma omp simd
		for (int64_t i = 0; i < width; i++)
			sb[i] += (double)dyn[i];
	}
	for (int64_t i = 0; i < width; i++) {
		dw[c0 + i] += (REAL)sw[i];
		if (db)
			db[c0 + i] += (REAL)sb[i];
	}
}

void K(norm_bwd)(struct queue *q, void *dx, void *dw, void *db, const void *dy,
		 const void *dres, const void *x, const void *stat,
		 const void *w, const struct kern_norm_dims *dims)
{
	int64_t N = dims->N, C = dims->C;

	(void)q;
	/* dw and db by columns, dx by rows: dx must be neither dy nor x. */
#pragma omp parallel if (N * C > KERN_SMALL)
	{
		struct span c = span_mine(C, 16);

		for (int64_t i = c.lo; i < c.hi; i += 256)
			norm_bwd_columns(dw, db, dy, x, stat, N, C, i,
					 c.hi - i < 256 ? c.hi - i : 256);
#pragma omp for
		for (int64_t n = 0; n < N; n++)
			norm_bwd_row((REAL *)dx + n * C,
				     (const REAL *)dy + n * C,
				     dres ? (const REAL *)dres + n * C : NULL,
				     (const REAL *)x + n * C,
				     (const REAL *)stat + 2 * n, w, dims);
	}
}
