/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of the feed-forward layer, plain and gated. */
#include "kernels/kern_cpu.h"
#include "kernels/vmath.h"

#if REAL_IS_FLOAT
/*
 * The normal distribution's cumulative function; BELL is e^(-x^2 / 2).  A
 * fit of the form of Abramowitz and Stegun 7.1.26, its error under 2e-8.
 */
static inline float normal_cdf(float x, float bell)
{
	float t = 1 / (1 + 0.28f * fabsf(x)), tail = -0.106020743f;

	tail = fmaf(tail, t, 0.390762744f);
	tail = fmaf(tail, t, -0.238471551f);
	tail = fmaf(tail, t, 0.270131750f);
	tail = fmaf(tail, t, 0.0669951891f);
	tail = fmaf(tail, t, 0.116602599f);
	tail *= t * bell;
	return x < 0 ? tail : 1 - tail;
}
#else
static inline double normal_cdf(double x, double bell)
{
	(void)bell;
	return 0.5 * (1 + erf(x * 0.70710678118654752));
}
#endif

static inline REAL normal_bell(REAL x)
{
	return vexp(RC(-0.5) * x * x);
}

/*
 * GELU_TANH, SILU and QUICK_GELU are x sigmoid(k(x)), since
 * (1 + tanh u) / 2 = sigmoid(2 u).
 */
static inline REAL gate_arg(REAL x, enum kern_act act)
{
	if (act == KERN_GELU_TANH)
		return 2 * RC(0.79788456080286536) *
		       (x + RC(0.044715) * x * x * x);
	return act == KERN_SILU ? x : RC(1.702) * x;
}

static inline REAL gate_slope(REAL x, enum kern_act act)
{
	if (act == KERN_GELU_TANH)
		return 2 * RC(0.79788456080286536) *
		       (1 + 3 * RC(0.044715) * x * x);
	return act == KERN_SILU ? 1 : RC(1.702);
}

static inline REAL act_value(REAL x, enum kern_act act)
{
	if (act == KERN_GELU)
		return x * normal_cdf(x, normal_bell(x));
	if (act == KERN_RELU2)
		return x > 0 ? x * x : 0;
	return x * vsigmoid(gate_arg(x, act));
}

/* Return the derivative and put the value in *Y. */
static inline REAL act_slope(REAL *y, REAL x, enum kern_act act)
{
	REAL s;

	if (act == KERN_GELU) {
		REAL bell = normal_bell(x);

		s = normal_cdf(x, bell);
		*y = x * s;
		return s + RC(0.39894228040143268) * x * bell;
	}
	if (act == KERN_RELU2) {
		*y = x > 0 ? x * x : 0;
		return x > 0 ? 2 * x : 0;
	}
	s = vsigmoid(gate_arg(x, act));
	*y = x * s;
	return s + x * s * (1 - s) * gate_slope(x, act);
}

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* One row of F; inlined with a constant ACT, which then costs nothing. */
ALWAYS_INLINE void fwd_row(REAL *restrict y, const REAL *restrict x,
			   const REAL *restrict up, int64_t F,
			   enum kern_act act)
{
	if (up) {
		for (int64_t i = 0; i < F; i++)
			y[i] = act_value(x[i], act) * up[i];
	} else {
		for (int64_t i = 0; i < F; i++)
			y[i] = act_value(x[i], act);
	}
}

ALWAYS_INLINE void bwd_row(REAL *restrict dx, REAL *restrict dup,
			   const REAL *restrict dy, const REAL *restrict x,
			   const REAL *restrict up, int64_t F,
			   enum kern_act act)
{
	if (up) {
		for (int64_t i = 0; i < F; i++) {
			REAL y, slope = act_slope(&y, x[i], act), g = dy[i];

			dx[i] = g * up[i] * slope;
			dup[i] = g * y;
		}
	} else {
		for (int64_t i = 0; i < F; i++) {
			REAL y;

			dx[i] = dy[i] * act_slope(&y, x[i], act);
		}
	}
}

#define EACH_ACT(ACT, CALL)                                 \
	switch (ACT) {                                      \
	case KERN_GELU: CALL(KERN_GELU); break;             \
	case KERN_GELU_TANH: CALL(KERN_GELU_TANH); break;   \
	case KERN_SILU: CALL(KERN_SILU); break;             \
	case KERN_RELU2: CALL(KERN_RELU2); break;           \
	case KERN_QUICK_GELU: CALL(KERN_QUICK_GELU); break; \
	}

void K(act_fwd)(struct queue *q, void *y, const void *x, int64_t N, int64_t F,
		enum kern_act act, bool gated)
{
	(void)q;
#pragma omp parallel for if (N * F > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *yn = (REAL *)y + n * F;
		const REAL *xn = (const REAL *)x + n * F * (1 + gated);
		const REAL *up = gated ? xn + F : NULL;

#define CALL(act_) fwd_row(yn, xn, up, F, act_)
		EACH_ACT(act, CALL)
#undef CALL
	}
}

void K(act_bwd)(struct queue *q, void *dx, const void *dy, const void *x,
		int64_t N, int64_t F, enum kern_act act, bool gated)
{
	(void)q;
#pragma omp parallel for if (N * F > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *dxn = (REAL *)dx + n * F * (1 + gated);
		const REAL *xn = (const REAL *)x + n * F * (1 + gated);
		const REAL *up = gated ? xn + F : NULL;
		const REAL *dyn = (const REAL *)dy + n * F;

#define CALL(act_) bwd_row(dxn, gated ? dxn + F : NULL, dyn, xn, up, F, act_)
		EACH_ACT(act, CALL)
#undef CALL
	}
}

void K(expert_act_fwd)(struct queue *q, void *y, const void *x,
		       const void *prob, const int32_t *row, int64_t N,
		       int64_t F, enum kern_act act, bool gated)
{
	(void)q;
#pragma omp parallel for if (N * F > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		REAL *yr = (REAL *)y + row[n] * F;
		const REAL *xr = (const REAL *)x + row[n] * F * (1 + gated);
		const REAL *up = gated ? xr + F : NULL;
		REAL p = ((const REAL *)prob)[n];

		if (row[n] < 0)
			continue;
#define CALL(act_) fwd_row(yr, xr, up, F, act_)
		EACH_ACT(act, CALL)
#undef CALL
		for (int64_t i = 0; i < F; i++)
			yr[i] *= p;
	}
}

/* The gradient of a row's probability: dy times what it multiplies. */
ALWAYS_INLINE REAL prob_slope(const REAL *dy, const REAL *x, const REAL *up,
			      int64_t F, enum kern_act act)
{
	return (REAL)LANES_SUM(
		i, F,
		(double)(dy[i] * act_value(x[i], act) * (up ? up[i] : 1)));
}

void K(expert_act_bwd)(struct queue *q, void *dx, void *dprob, const void *dy,
		       const void *x, const void *prob, const int32_t *row,
		       int64_t N, int64_t F, enum kern_act act, bool gated)
{
	(void)q;
#pragma omp parallel for if (N * F > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		int64_t width = F * (1 + gated);
		REAL *dxr = (REAL *)dx + row[n] * width;
		const REAL *xr = (const REAL *)x + row[n] * width;
		const REAL *up = gated ? xr + F : NULL;
		const REAL *dyr = (const REAL *)dy + row[n] * F;
		REAL p = ((const REAL *)prob)[n], *dp = (REAL *)dprob + n;

		*dp = 0;
		if (row[n] < 0)
			continue;
#define CALL(act_)                              \
	*dp = prob_slope(dyr, xr, up, F, act_); \
	bwd_row(dxr, gated ? dxr + F : NULL, dyr, xr, up, F, act_)
		EACH_ACT(act, CALL)
#undef CALL
		for (int64_t i = 0; i < width; i++)
			dxr[i] *= p;
	}
}
