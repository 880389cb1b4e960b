/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of squares and AdamW. */
#include "test/kern-test.h"

static void sum_of_squares(void **state)
{
	static const int64_t sizes[] = {0, 1, 2, 63, 64, 65, 1000, 50003};

	(void)state;
	EACH_TABLE(k)
	{
		for (int s = 0; s < 8; s++) {
			int64_t n = sizes[s];
			double *x = rnd_new(n, 1), want = 2.5 + dot(x, x, n);
			double acc = 2.5;

			k->sumsq(NULL, &acc, vec_new(k, x, n), n);
			assert_true(fabs(acc - want) <= 1e-13 * want);
		}
	}
}

/* Three steps of three weights, computed by an independent program. */
static void golden(void **state)
{
	static const double grad[3][3] = {
		{0.1, -0.2, 0.0}, {0.3, 0.05, -0.001}, {-0.4, 0.2, 2.0}};
	static const double want[3][3] = {
		{0.4895000009999999, -1.2387500005, 2.997},
		{0.4799235800039695, -1.2327635915319066, 3.0013524973928902},
		{0.4800489615867183, -1.2333773561196943, 2.9921217192861995}};
	static const double start[3] = {0.5, -1.25, 3.0};

	(void)state;
	EACH_TABLE(k)
	{
		void *p = vec_new(k, start, 3), *m = vec_new(k, zeros(3), 3);
		void *v = vec_new(k, zeros(3), 3);

		for (int t = 0; t < 3; t++) {
			struct kern_adam h = {.lr = 0.01,
					      .weight_decay = 0.1,
					      .beta1 = 0.9,
					      .beta2 = 0.95,
					      .eps = 1e-8,
					      .correct1 = 1 - pow(0.9, t + 1),
					      .correct2 = 1 - pow(0.95, t + 1),
					      .grad_scale = 1};

			k->adamw(NULL, p, NULL, m, v, vec_new(k, grad[t], 3), 3,
				 &h, true);
			check_close("p", k, p, want[t], 3,
				    is_f32(k) ? 1e-6 : 4e-16);
		}
	}
}

enum { N = 40037 };

static const struct kern_adam usual = {.lr = 3e-3,
				       .weight_decay = 0.1,
				       .beta1 = 0.9,
				       .beta2 = 0.999,
				       .eps = 1e-8,
				       .correct1 = 0.19,
				       .correct2 = 0.002,
				       .grad_scale = 0.37};

static struct {
	double *p, *m, *v, *g;
} from;

static void make(void)
{
	from.p = rnd_new(N, 1);
	from.m = rnd_new(N, 0.1);
	from.v = rnd_new(N, 0.1);
	from.g = rnd_new(N, 1);
	for (int i = 0; i < N; i++)
		from.v[i] = fabs(from.v[i]);
}

/* The formula of kern.h, in its words. */
static void check_formula(bool decay)
{
	const struct kern_adam *h = &usual;
	double *p = zeros(N), *m = zeros(N), *v = zeros(N);

	for (int i = 0; i < N; i++) {
		double gi = from.g[i] * h->grad_scale, update;

		m[i] = h->beta1 * from.m[i] + (1 - h->beta1) * gi;
		v[i] = h->beta2 * from.v[i] + (1 - h->beta2) * gi * gi;
		update = m[i] / h->correct1 /
			 (sqrt(v[i] / h->correct2) + h->eps);
		if (decay)
			update += h->weight_decay * from.p[i];
		p[i] = from.p[i] - h->lr * update;
	}
	EACH_TABLE(k)
	{
		void *pk = vec_new(k, from.p, N), *mk = vec_new(k, from.m, N);
		void *vk = vec_new(k, from.v, N);

		k->adamw(NULL, pk, NULL, mk, vk, vec_new(k, from.g, N), N, h,
			 decay);
		check_close("p", k, pk, p, N, tolerance(k));
		check_close("m", k, mk, m, N, tolerance(k));
		check_close("v", k, vk, v, N, tolerance(k));
	}
}

static void formula(void **state)
{
	(void)state;
	make();
	check_formula(true);
	check_formula(false);
}

/* An element's bits do not depend on where the array was cut. */
static void cuts(void **state)
{
	static const int64_t cut[] = {0, 1, 8, 21, 30000, 30003, N};

	(void)state;
	make();
	EACH_TABLE(k)
	{
		void *g = vec_new(k, from.g, N);
		void *a[3] = {vec_new(k, from.p, N), vec_new(k, from.m, N),
			      vec_new(k, from.v, N)};
		void *b[3] = {vec_new(k, from.p, N), vec_new(k, from.m, N),
			      vec_new(k, from.v, N)};

		k->adamw(NULL, a[0], NULL, a[1], a[2], g, N, &usual, true);
		for (int i = 0; i < 6; i++) {
			size_t at = (size_t)cut[i] * k->size;

			k->adamw(NULL, (char *)b[0] + at, NULL,
				 (char *)b[1] + at, (char *)b[2] + at,
				 (char *)g + at, cut[i + 1] - cut[i], &usual,
				 true);
		}
		for (int i = 0; i < 3; i++)
			assert_memory_equal(a[i], b[i], N * k->size);
	}
}

static struct {
	void *p, *g;
	double acc;
} big;

static void run_adamw(const struct kern *k)
{
	void *m = vec_new(k, from.m, N), *v = vec_new(k, from.v, N);

	k->copy(NULL, big.p, big.g, bytes_of(k, N));
	k->adamw(NULL, big.p, NULL, m, v, big.g, N, &usual, true);
}

static void run_sumsq(const struct kern *k)
{
	big.acc = 0;
	k->sumsq(NULL, &big.acc, big.g, N);
}

static void threads(void **state)
{
	(void)state;
	make();
	EACH_TABLE(k)
	{
		big.g = vec_new(k, from.g, N);
		big.p = vec_new(k, NULL, N);
		check_threads(run_adamw, k, big.p, N * k->size);
		check_threads(run_sumsq, k, &big.acc, sizeof(big.acc));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(sum_of_squares), UNIT(golden),
					   UNIT(formula), UNIT(cuts),
					   UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
