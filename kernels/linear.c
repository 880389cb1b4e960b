/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: a matrix product each way, and the bias. */
#include "kernels/gemm.h"
#include "kernels/kern_cpu.h"

/* Below so many multiplications, threads cost more than they bring. */
#define SMALL (1 << 19)

/*
 * Up to so many rows, as in generation, the product takes as long as reading
 * the matrix; a BLAS would copy it into blocks first.
 */
enum { FEW = 8 };

static void threads_for(int64_t work)
{
	kern_gemm_threads(work < SMALL ? 1 : omp_get_max_threads());
}

static void bias_add(REAL *y, const REAL *bias, int64_t N, int64_t C)
{
#pragma omp parallel for if (N * C > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *yn = y + n * C;

#pragma omp simd
		for (int64_t i = 0; i < C; i++)
			yn[i] += bias[i];
	}
}

static REAL dot(const REAL *a, const REAL *b, int64_t n)
{
	REAL s = 0;

#pragma omp simd reduction(+ : s)
	for (int64_t i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

/* The same sums, of four rows of x at a time. */
static void dot4(REAL s[4], const REAL *w, const REAL *x, int64_t n)
{
	const REAL *x1 = x + n, *x2 = x + 2 * n, *x3 = x + 3 * n;
	REAL a = 0, b = 0, c = 0, d = 0;

#pragma omp simd reduction(+ : a, b, c, d)
	for (int64_t i = 0; i < n; i++) {
		a += w[i] * x[i];
		b += w[i] * x1[i];
		c += w[i] * x2[i];
		d += w[i] * x3[i];
	}
	s[0] = a;
	s[1] = b;
	s[2] = c;
	s[3] = d;
}

static void few_rows(REAL *y, const REAL *x, const REAL *w, int64_t N,
		     int64_t out, int64_t in)
{
#pragma omp parallel for if (N * out * in > 8 * SMALL)
	for (int64_t o = 0; o < out; o++) {
		const REAL *wo = w + o * in;
		REAL s[FEW];
		int64_t n = 0;

		for (; n + 4 <= N; n += 4)
			dot4(s + n, wo, x + n * in, in);
		for (; n < N; n++)
			s[n] = dot(wo, x + n * in, in);
		for (n = 0; n < N; n++)
			y[n * out + o] = s[n];
	}
}

void K(linear_fwd)(struct queue *q, void *y, const void *x, const void *w,
		   const void *bias, int64_t N, int64_t out, int64_t in)
{
	(void)q;
	if (N <= FEW) {
		few_rows(y, x, w, N, out, in);
	} else {
		threads_for(N * out * in);
		mul_nt(y, out, x, in, w, in, N, out, in, 1);
	}
	if (bias)
		bias_add(y, bias, N, out);
}

void K(linear_sum)(struct queue *q, void *y, const void *x, const void *w,
		   const void *bias, int64_t N, int64_t out, int64_t in)
{
	K(linear_fwd)(q, y, x, w, bias, N, out, in);
}

void K(linear_bwd_x)(struct queue *q, void *dx, const void *dy, const void *w,
		     int64_t N, int64_t out, int64_t in)
{
	(void)q;
	threads_for(N * out * in);
	mul_nn(dx, in, dy, out, w, in, N, in, out, 1);
}

void K(linear_bwd_w)(struct queue *q, void *dw, const void *dy, const void *x,
		     int64_t N, int64_t out, int64_t in)
{
	(void)q;
	threads_for(N * out * in);
	mul_tn(dw, in, dy, out, x, in, out, in, N, 1, 1);
}

/* db of WIDTH columns from C0 on: sums over the rows, in double. */
static void bias_columns(REAL *db, const REAL *dy, int64_t N, int64_t C,
			 int64_t c0, int64_t width)
{
	double sum[256] = {0};

	for (int64_t n = 0; n < N; n++) {
		const REAL *dyn = dy + n * C + c0;

#pragma omp simd
		for (int64_t i = 0; i < width; i++)
			sum[i] += (double)dyn[i];
	}
	for (int64_t i = 0; i < width; i++)
		db[c0 + i] += (REAL)sum[i];
}

void K(bias_bwd)(struct queue *q, void *db, const void *dy, int64_t N,
		 int64_t C)
{
	(void)q;
#pragma omp parallel if (N * C > KERN_SMALL)
	{
		struct span c = span_mine(C, 16);

		for (int64_t i = c.lo; i < c.hi; i += 256)
			bias_columns(db, dy, N, C, i,
				     c.hi - i < 256 ? c.hi - i : 256);
	}
}
