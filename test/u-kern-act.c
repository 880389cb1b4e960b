/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, plain and gated, forward and backward. */
#include "test/kern-test.h"

enum { N = 5, F = 43, ACTS = 5 };

static struct {
	enum kern_act act;
	bool gated;
	double *x, *dy, *y;
} c;

static void make_case(int i)
{
	c.act = (enum kern_act)(i % ACTS);
	c.gated = i >= ACTS;
	c.x = rnd_new(2 * N * F, 5);
	c.dy = rnd_new(N * F, 1);
	c.y = zeros(N * F);
}

/* By the C library, as the definitions read. */
static double naive(double x, enum kern_act act)
{
	switch (act) {
	case KERN_GELU: return x * 0.5 * (1 + erf(x / sqrt(2)));
	case KERN_GELU_TANH:
		return 0.5 * x *
		       (1 +
			tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
	case KERN_SILU: return x / (1 + exp(-x));
	case KERN_RELU2: return x > 0 ? x * x : 0;
	default: return x / (1 + exp(-1.702 * x));
	}
}

static int64_t width(void)
{
	return c.gated ? 2 * F : F;
}

static void forward(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * ACTS; i++) {
		make_case(i);
		for (int64_t n = 0; n < N; n++)
			for (int64_t f = 0; f < F; f++) {
				double *x = c.x + n * width() + f;

				c.y[n * F + f] = naive(x[0], c.act) *
						 (c.gated ? x[F] : 1);
			}
		EACH_TABLE(k)
		{
			void *y = vec_new(k, NULL, N * F);

			k->act_fwd(NULL, y, vec_new(k, c.x, 2 * N * F), N, F,
				   c.act, c.gated);
			check_close("y", k, y, c.y, N * F, tolerance(k));
		}
	}
}

static double loss(void)
{
	kern_cpu_f64.act_fwd(NULL, c.y, c.x, N, F, c.act, c.gated);
	return dot(c.y, c.dy, N * F);
}

static void differences(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * ACTS; i++) {
		const struct kern *k = &kern_cpu_f64;
		int64_t n;
		double *dx;
		void *dx32;

		make_case(i);
		n = N * width();
		dx = vec_new(k, NULL, n);
		k->act_bwd(NULL, dx, c.dy, c.x, N, F, c.act, c.gated);
		check_grad("x", c.x, dx, n, loss);
		k = &kern_cpu_f32;
		dx32 = vec_new(k, NULL, n);
		k->act_bwd(NULL, dx32, vec_new(k, c.dy, N * F),
			   vec_new(k, c.x, n), N, F, c.act, c.gated);
		check_close("dx", k, dx32, dx, n, tolerance(k));
	}
}

/* Far out, the value is x or 0 and the slope 1 or 0; relu2 apart. */
static void far(void **state)
{
	double x[4] = {-1e4, -100, 100, 1e4}, one[4] = {1, 1, 1, 1};
	double want[4] = {0, 0, 100, 1e4}, slope[4] = {0, 0, 1, 1};

	(void)state;
	EACH_TABLE(k)
	{
		for (int i = 0; i < ACTS; i++) {
			void *y = vec_new(k, NULL, 4), *dx = vec_new(k, x, 4);
			enum kern_act act = (enum kern_act)i;

			if (act == KERN_RELU2)
				continue;
			k->act_fwd(NULL, y, vec_new(k, x, 4), 1, 4, act, false);
			check_close("y", k, y, want, 4, 1e-15);
			k->act_bwd(NULL, dx, vec_new(k, one, 4),
				   vec_new(k, x, 4), 1, 4, act, false);
			check_close("dx", k, dx, slope, 4, 1e-15);
		}
	}
}

/* At 0: 0, with half the slope; NaN stays NaN. */
static void points(void **state)
{
	double x[2] = {0, NAN}, one[2] = {1, 1};

	(void)state;
	EACH_TABLE(k)
	{
		for (int i = 0; i < ACTS; i++) {
			void *y = vec_new(k, one, 2), *dx = vec_new(k, one, 2);
			void *xk = vec_new(k, x, 2);
			enum kern_act act = (enum kern_act)i;

			if (act == KERN_RELU2)
				continue;
			k->act_fwd(NULL, y, xk, 1, 2, act, false);
			assert_true(get(k, y, 0) == 0);
			assert_true(isnan(get(k, y, 1)));
			k->act_bwd(NULL, dx, vec_new(k, one, 2), xk, 1, 2, act,
				   false);
			assert_true(fabs(get(k, dx, 0) - 0.5) < 1e-7);
			assert_true(isnan(get(k, dx, 1)));
		}
	}
}

/* A value's bits do not depend on its place in a row. */
static void place(void **state)
{
	enum { L = 27 };
	double *x = rnd_new(L, 4);

	(void)state;
	EACH_TABLE(k)
	{
		for (int i = 0; i < ACTS; i++) {
			char *all = vec_new(k, NULL, L);
			char *one = vec_new(k, NULL, L);
			char *xk = vec_new(k, x, L);

			k->act_fwd(NULL, all, xk, 1, L, (enum kern_act)i,
				   false);
			for (size_t j = 0; j < L; j++)
				k->act_fwd(NULL, one + j * k->size,
					   xk + j * k->size, 1, 1,
					   (enum kern_act)i, false);
			assert_memory_equal(all, one, L * k->size);
		}
	}
}

enum { BIG_N = 301, BIG_F = 63 };

static struct {
	void *x, *dy, *out;
} big;

static void run_big(const struct kern *k)
{
	size_t size = BIG_N * BIG_F * k->size;

	k->act_fwd(NULL, big.out, big.x, BIG_N, BIG_F, KERN_GELU, true);
	k->act_bwd(NULL, (char *)big.out + size, big.dy, big.x, BIG_N, BIG_F,
		   KERN_SILU, true);
}

static void threads(void **state)
{
	enum { ALL = BIG_N * BIG_F };

	(void)state;
	EACH_TABLE(k)
	{
		big.x = vec_new(k, rnd_new(2 * ALL, 3), 2 * ALL);
		big.dy = vec_new(k, rnd_new(ALL, 1), ALL);
		big.out = vec_new(k, NULL, 3 * ALL);
		check_threads(run_big, k, big.out, 3 * ALL * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(forward), UNIT(differences),
					   UNIT(far),	  UNIT(points),
					   UNIT(place),	  UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
