/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions that a compiler can vectorise, and reductions whose
 * order is written down.  A lane of a vector and a leftover element get the
 * same operations, so that a value never depends on where a loop was cut.
 */
#ifndef KERNELS_VMATH_H
#define KERNELS_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kern_cpu.h"

/*
 * e^x = 2^n e^r, |r| <= ln 2 / 2, with the Taylor series of e^r to where the
 * remainder is under half an ulp.  0 below the smallest normal number,
 * infinity from 2^(largest exponent + 1/2) on, NaN for NaN.  Adding SHIFT
 * rounds to an integer and leaves it in the low bits of the sum.
 */
#if REAL_IS_FLOAT
static inline float vexp(float x)
{
	const float shift = 0x1.8p23f;
	float t = fmaf(x, 0x1.715476p+0f, shift), n = t - shift;
	float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, x));
	float y = 1.0f / 5040, two_n;
	uint32_t bits;

	y = fmaf(y, r, 1.0f / 720);
	y = fmaf(y, r, 1.0f / 120);
	y = fmaf(y, r, 1.0f / 24);
	y = fmaf(y, r, 1.0f / 6);
	y = fmaf(y, r, 0.5f);
	y = fmaf(y, r, 1.0f);
	y = fmaf(y, r, 1.0f);
	memcpy(&bits, &t, sizeof(bits));
	bits = (bits + 127) << 23;
	memcpy(&two_n, &bits, sizeof(bits));
	y *= two_n;
	y = x < -0x1.5d58ap+6f ? 0.0f : y;
	return x > 0x1.61814ap+6f ? (float)INFINITY : y;
}
#else
static inline double vexp(double x)
{
	const double shift = 0x1.8p52;
	double t = fma(x, 0x1.71547652b82fep+0, shift), n = t - shift;
	double r = fma(n, -0x1.62e42fefa38p-1, x);
	double y = 1.0 / 6227020800, two_n;
	uint64_t bits;

	r = fma(n, -0x1.ef35793c7673p-45, r);
	y = fma(y, r, 1.0 / 479001600);
	y = fma(y, r, 1.0 / 39916800);
	y = fma(y, r, 1.0 / 3628800);
	y = fma(y, r, 1.0 / 362880);
	y = fma(y, r, 1.0 / 40320);
	y = fma(y, r, 1.0 / 5040);
	y = fma(y, r, 1.0 / 720);
	y = fma(y, r, 1.0 / 120);
	y = fma(y, r, 1.0 / 24);
	y = fma(y, r, 1.0 / 6);
	y = fma(y, r, 0.5);
	y = fma(y, r, 1.0);
	y = fma(y, r, 1.0);
	memcpy(&bits, &t, sizeof(bits));
	bits = (bits + 1023) << 52;
	memcpy(&two_n, &bits, sizeof(bits));
	y *= two_n;
	y = x < -0x1.6232bdd7abcd2p+9 ? 0.0 : y;
	return x > 0x1.62b7d369a5aa8p+9 ? (double)INFINITY : y;
}
#endif

/* The logistic function, 1 / (1 + e^-x). */
static inline REAL vsigmoid(REAL x)
{
	return 1 / (1 + vexp(-x));
}

#define LANES 16

/* The sum of LANES partial sums, pairwise. */
static inline double lanes_sum(const double *acc)
{
	double s[LANES / 2];

	for (int i = 0; i < LANES / 2; i++)
		s[i] = acc[i] + acc[i + LANES / 2];
	return ((s[0] + s[4]) + (s[2] + s[6])) +
	       ((s[1] + s[5]) + (s[3] + s[7]));
}

/*
 * Return the sum over i < N of TERM, a double expression of i: lane l adds
 * the elements l, l + LANES, ...; the leftover ones are added by themselves.
 */
#define LANES_SUM(i, N, TERM)                                \
	({                                                   \
		double acc_[LANES] = {0}, rest_ = 0;         \
		int64_t i_ = 0, n_ = (N);                    \
		for (; i_ + LANES <= n_; i_ += LANES)        \
			for (int l_ = 0; l_ < LANES; l_++) { \
				int64_t i = i_ + l_;         \
				acc_[l_] += (TERM);          \
			}                                    \
		for (int64_t i = i_; i < n_; i++)            \
			rest_ += (TERM);                     \
		lanes_sum(acc_) + rest_;                     \
	})

static inline REAL larger(REAL a, REAL b)
{
	return a > b ? a : b;
}

/* The largest of x (n), -infinity if there is none. */
static inline REAL row_max(const REAL *x, int64_t n)
{
	enum { MANY = 4 * LANES }; /* or the compiler unrolls and is lost */
	REAL m[MANY], most = -(REAL)INFINITY;
	int64_t i = 0;

	for (int l = 0; l < MANY; l++)
		m[l] = most;
	for (; i + MANY <= n; i += MANY)
		for (int l = 0; l < MANY; l++)
			m[l] = larger(x[i + l], m[l]);
	for (; i < n; i++)
		most = larger(x[i], most);
	for (int l = 0; l < MANY; l++)
		most = larger(m[l], most);
	return most;
}

/*
 * s (n) = e^(s - m), m the larger of their maximum and SINK (-infinity: none);
 * return the sum with the sink's.
 */
static inline double softmax_row(REAL *s, int64_t n, REAL sink, REAL *m)
{
	REAL most = larger(row_max(s, n), sink);
	double sum;

	*m = most;
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		s[i] = vexp(s[i] - most);
	sum = LANES_SUM(i, n, (double)s[i]);
	if (sink > -INFINITY)
		sum += exp((double)sink - (double)most);
	return sum;
}

#endif
