/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the ops share: arrays for either table, comparisons. */
#ifndef TEST_KERN_TEST_H
#define TEST_KERN_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kern.h"

/* Arrays live until the test's teardown. */
static void *kept[512];
static int kept_count;

static inline void *keep(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p || kept_count == (int)(sizeof(kept) / sizeof(kept[0])))
		abort();
	kept[kept_count++] = p;
	return p;
}

static inline int keep_none(void **state)
{
	(void)state;
	while (kept_count > 0)
		free(kept[--kept_count]);
	return 0;
}

static inline int two_threads(void **state)
{
	(void)state;
	kern_cpu_init(2);
	return 0;
}

#define UNIT(f) cmocka_unit_test_teardown(f, keep_none)

/* Both tables, for a loop. */
static const struct kern *const tables[] = {&kern_cpu_f32, &kern_cpu_f64};
#define EACH_TABLE(k)                  \
	for (int t_ = 0; t_ < 2; t_++) \
		for (const struct kern *k = tables[t_]; k; k = NULL)

static inline bool is_f32(const struct kern *k)
{
	return k->size == sizeof(float);
}

static inline double get(const struct kern *k, const void *v, int64_t i)
{
	return is_f32(k) ? (double)((const float *)v)[i]
			 : ((const double *)v)[i];
}

static inline int64_t bytes_of(const struct kern *k, int64_t n)
{
	return n * (int64_t)k->size;
}

static inline void set(const struct kern *k, void *v, int64_t i, double x)
{
	if (is_f32(k))
		((float *)v)[i] = (float)x;
	else
		((double *)v)[i] = x;
}

/* Uniform in -1 .. 1, and a float: both tables can hold it. */
static inline double rnd(void)
{
	static uint64_t s = 1;

	s = s * 6364136223846793005 + 1442695040888963407;
	return (double)(int32_t)(s >> 32 & 0xffffff00) * 0x1p-31;
}

/* N random doubles within SCALE; the values that every test starts from. */
static inline double *rnd_new(int64_t n, double scale)
{
	double *x = keep((size_t)n * sizeof(*x));

	for (int64_t i = 0; i < n; i++)
		x[i] = (double)(float)(rnd() * scale);
	return x;
}

/* An array of the table's type: a copy of X, or NaN if X is NULL. */
static inline void *vec_new(const struct kern *k, const double *x, int64_t n)
{
	void *v = keep((size_t)n * k->size);

	for (int64_t i = 0; i < n; i++)
		set(k, v, i, x ? x[i] : (double)NAN);
	return v;
}

static inline double *zeros(int64_t n)
{
	double *x = keep((size_t)n * sizeof(*x));

	for (int64_t i = 0; i < n; i++)
		x[i] = 0;
	return x;
}

/* 2e-6 (f32) or 1e-13 (f64) of the largest value wanted. */
static inline double tolerance(const struct kern *k)
{
	return is_f32(k) ? 2e-6 : 1e-13;
}

/* Fail unless |got - want| <= TOL max(|want|, 1e-3) everywhere. */
static inline void check_close(const char *what, const struct kern *k,
			       const void *got, const double *want, int64_t n,
			       double tol)
{
	double most = 1e-3;

	for (int64_t i = 0; i < n; i++)
		if (fabs(want[i]) > most)
			most = fabs(want[i]);
	for (int64_t i = 0; i < n; i++) {
		double g = get(k, got, i);

		if (!(fabs(g - want[i]) <= tol * most))
			fail_msg("%s %s[%lld]: got %.17g, want %.17g", k->name,
				 what, (long long)i, g, want[i]);
	}
}

/*
 * Fail unless GRAD (n) is the derivative of LOSS by X (n), within 1e-6 of
 * the largest one, by central differences; f64 only.
 */
static inline void check_grad(const char *what, double *x, const double *grad,
			      int64_t n, double (*loss)(void))
{
	const double eps = 1e-5;
	double most = 1e-3;

	for (int64_t i = 0; i < n; i++)
		if (fabs(grad[i]) > most)
			most = fabs(grad[i]);
	for (int64_t i = 0; i < n; i++) {
		double was = x[i], up, down, want;

		x[i] = was + eps;
		up = loss();
		x[i] = was - eps;
		down = loss();
		x[i] = was;
		want = (up - down) / (2 * eps);
		if (!(fabs(grad[i] - want) <= 1e-6 * most))
			fail_msg("d %s[%lld]: got %.12g, differences say %.12g",
				 what, (long long)i, grad[i], want);
	}
}

static inline double dot(const double *x, const double *y, int64_t n)
{
	double s = 0;

	for (int64_t i = 0; i < n; i++)
		s += x[i] * y[i];
	return s;
}

/*
 * RUN writes BYTES at OUT (after filling it as it needs to): fail unless 1,
 * 2 and 3 threads give the same bits.
 */
static inline void check_threads(void (*run)(const struct kern *k),
				 const struct kern *k, const void *out,
				 size_t bytes)
{
	void *first = keep(bytes);

	for (int threads = 1; threads <= 3; threads++) {
		kern_cpu_init(threads);
		run(k);
		if (threads == 1)
			memcpy(first, out, bytes);
		else
			assert_memory_equal(first, out, bytes);
	}
	kern_cpu_init(2);
}

#endif
