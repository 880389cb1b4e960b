/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross entropy: values, gradients, padding, a cut vocabulary. */
#include "test/kern-test.h"

enum { N = 9, V = 41, VALID = 37, RANKS = 4 };

static struct {
	double *x, coef;
	int32_t labels[N];
} c;

static void make_case(double scale)
{
	c.x = rnd_new(N * V, scale);
	c.coef = 0.3;
	for (int n = 0; n < N; n++)
		c.labels[n] = n * 11 % VALID; /* some begin a rank */
	c.labels[2] = -1;
	c.labels[5] = -100;
}

/* The three ops in turn on one rank; return the loss. */
static double right; /* rows whose label has the largest logit */

static double run_all(const struct kern *k, void *logits, double coef)
{
	void *m = vec_new(k, NULL, N), *sums = vec_new(k, NULL, 2 * N);
	double loss = 1.5;

	right = 0;

	k->ce_max(NULL, m, logits, N, V, VALID);
	k->ce_sums(NULL, sums, logits, m, c.labels, N, V, VALID, 0);
	k->ce_grad(NULL, &loss, &right, logits, m, sums, c.labels, &coef, N, V,
		   VALID, 0);
	return loss - 1.5;
}

/* Return the loss of the definition, and its gradient in DX. */
static double naive(double *dx)
{
	double loss = 0;

	memset(dx, 0, N * V * sizeof(*dx));
	for (int n = 0; n < N; n++) {
		double z = 0, most = -HUGE_VAL;

		if (c.labels[n] < 0)
			continue;
		for (int v = 0; v < VALID; v++)
			most = fmax(most, c.x[n * V + v]);
		for (int v = 0; v < VALID; v++)
			z += exp(c.x[n * V + v] - most);
		loss += most + log(z) - c.x[n * V + c.labels[n]];
		for (int v = 0; v < VALID; v++)
			dx[n * V + v] =
				c.coef * (exp(c.x[n * V + v] - most) / z -
					  (v == c.labels[n]));
	}
	return loss;
}

static void values(void **state)
{
	static const double scale[] = {0.01, 3, 300, 20000};
	double *dx = zeros(N * V);

	(void)state;
	for (int s = 0; s < 4; s++) {
		double want;

		make_case(scale[s]);
		for (int n = 0; n < N; n++) /* padding is never read */
			for (int v = VALID; v < V; v++)
				c.x[n * V + v] = NAN;
		want = naive(dx);
		EACH_TABLE(k)
		{
			void *x = vec_new(k, c.x, N * V);
			double loss = run_all(k, x, c.coef);

			assert_true(fabs(loss - want) <=
				    tolerance(k) * fabs(want));
			check_close("dx", k, x, dx, N * V, tolerance(k));
		}
	}
}

/* A label counts as right if nothing is above it, and only if scored. */
static void right_ones(void **state)
{
	int hits = 0, scored = 0;

	(void)state;
	make_case(1);
	for (int n = 0; n < N; n++) {
		int label = c.labels[n] < 0 ? 0 : c.labels[n];
		double *x = c.x + n * V;

		scored += c.labels[n] >= 0;
		if (n % 3)
			continue;
		x[label] = 9;
		hits += c.labels[n] >= 0;
		if (n % 2 == 0)
			x[(label + 1) % VALID] = 9; /* as large: right, too */
		if (VALID < V)
			x[VALID] = 99; /* padding takes no part */
	}
	EACH_TABLE(k)
	{
		run_all(k, vec_new(k, c.x, N * V), 1);
		assert_true(right >= hits && right < scored);
		for (int n = 0; n < N; n++) {
			int32_t was = c.labels[n];
			double before = right;

			if (was < 0 || n % 3)
				continue;
			c.labels[n] = -1;
			run_all(k, vec_new(k, c.x, N * V), 1);
			assert_true(right == before - 1);
			c.labels[n] = was;
			run_all(k, vec_new(k, c.x, N * V), 1);
		}
	}
}

static double loss_of_x(void)
{
	double *x = keep(N * V * sizeof(*x));
	double loss;
	int was = kept_count - 1;

	memcpy(x, c.x, N * V * sizeof(*x));
	loss = run_all(&kern_cpu_f64, x, c.coef);
	while (kept_count > was)
		free(kept[--kept_count]);
	return c.coef * loss;
}

static void differences(void **state)
{
	double *dx;

	(void)state;
	make_case(2);
	dx = vec_new(&kern_cpu_f64, c.x, N * V);
	run_all(&kern_cpu_f64, dx, c.coef);
	check_grad("x", c.x, dx, N * V, loss_of_x);
}

/* Equal logits: ln V; and every row of the gradient sums to 0. */
static void invariants(void **state)
{
	int scored = N - 2;

	(void)state;
	make_case(0);
	EACH_TABLE(k)
	{
		void *x = vec_new(k, c.x, N * V);
		double want = scored * log(VALID), loss = run_all(k, x, 1);

		assert_true(fabs(loss - want) <= tolerance(k) * want);
	}
	make_case(4);
	EACH_TABLE(k)
	{
		void *x = vec_new(k, c.x, N * V);

		run_all(k, x, 1);
		for (int n = 0; n < N; n++) {
			double sum = 0;

			for (int v = 0; v < V; v++)
				sum += get(k, x, n * V + v);
			assert_true(fabs(sum) < (is_f32(k) ? 1e-6 : 1e-15));
		}
	}
}

/* One rank's columns FIRST .. FIRST + WIDTH of the whole vocabulary. */
struct rank {
	int64_t first, width, valid;
	void *x, *m, *sums;
};

static void cut_columns(const struct kern *k, struct rank *r)
{
	r->x = vec_new(k, NULL, N * r->width);
	r->m = vec_new(k, NULL, N);
	r->sums = vec_new(k, NULL, 2 * N);
	for (int n = 0; n < N; n++)
		for (int v = 0; v < r->valid; v++)
			set(k, r->x, n * r->width + v,
			    c.x[n * V + r->first + v]);
}

/* Reduce m by maximum and sums by addition, as ranks would. */
static void reduce(const struct kern *k, struct rank *ranks,
		   void (*op)(const struct kern *k, struct rank *r), bool max)
{
	for (int r = 0; r < RANKS; r++)
		op(k, &ranks[r]);
	for (int i = 0; i < (max ? N : 2 * N); i++) {
		double all = max ? -HUGE_VAL : 0;

		for (int r = 0; r < RANKS; r++) {
			double one =
				get(k, max ? ranks[r].m : ranks[r].sums, i);

			all = max ? fmax(all, one) : all + one;
		}
		for (int r = 0; r < RANKS; r++)
			set(k, max ? ranks[r].m : ranks[r].sums, i, all);
	}
}

static void op_max(const struct kern *k, struct rank *r)
{
	k->ce_max(NULL, r->m, r->x, N, r->width, r->valid);
}

static void op_sums(const struct kern *k, struct rank *r)
{
	k->ce_sums(NULL, r->sums, r->x, r->m, c.labels, N, r->width, r->valid,
		   r->first);
}

/* 11 + 11 + 11 + 8 columns, of which the last rank's 4 exist; see VALID. */
static void check_cut(const struct kern *k, struct rank *ranks)
{
	void *whole = vec_new(k, c.x, N * V);
	double want = run_all(k, whole, c.coef);

	for (int r = 0; r < RANKS; r++)
		cut_columns(k, &ranks[r]);
	reduce(k, ranks, op_max, true);
	reduce(k, ranks, op_sums, false);
	for (int r = 0; r < RANKS; r++) {
		struct rank *p = &ranks[r];
		double loss = 0;

		k->ce_grad(NULL, &loss, NULL, p->x, p->m, p->sums, c.labels,
			   &c.coef, N, p->width, p->valid, p->first);
		assert_true(fabs(loss - want) <= tolerance(k) * want);
		for (int n = 0; n < N; n++)
			for (int v = 0; v < p->width; v++) {
				double got = get(k, p->x, n * p->width + v);
				double all = v < p->valid
						     ? get(k, whole,
							   n * V + v + p->first)
						     : 0;

				assert_true(fabs(got - all) <= tolerance(k));
			}
	}
}

static void cut(void **state)
{
	(void)state;
	make_case(5);
	EACH_TABLE(k)
	{
		struct rank some[RANKS] = {{.first = 0, 11, 11},
					   {.first = 11, 11, 11},
					   {.first = 22, 11, 11},
					   {.first = 33, 11, 4}};
		struct rank none[RANKS] = {{.first = 0, 19, 19},
					   {.first = 19, 18, 18},
					   {.first = 37, 19, 0},
					   {.first = 56, 19, 0}};

		check_cut(k, some);
		check_cut(k, none);
	}
}

/* ce_max to the bit, wherever the largest stands. */
static void maximum(void **state)
{
	enum { ROWS = 291, WIDE = 300 };
	double *x = rnd_new(ROWS * WIDE, 1), *want = zeros(ROWS);

	(void)state;
	for (int n = 0; n < ROWS; n++) {
		want[n] = n % 2 ? 1.5 : -0.5;
		for (int v = 0; v < ROWS; v++)
			x[n * WIDE + v] -= n % 2 ? 0 : 2;
		for (int v = ROWS; v < WIDE; v++)
			x[n * WIDE + v] = 9;
		x[n * WIDE + n] = want[n];
	}
	EACH_TABLE(k)
	{
		void *m = vec_new(k, NULL, ROWS);

		k->ce_max(NULL, m, vec_new(k, x, ROWS * WIDE), ROWS, WIDE,
			  ROWS);
		check_close("m", k, m, want, ROWS, 0);
	}
}

/* No valid column: m is -infinity, and the sums are 0 for any m. */
static void nothing_here(void **state)
{
	int32_t label = 3;
	double big[1] = {5}, x[2] = {NAN, NAN};

	(void)state;
	EACH_TABLE(k)
	{
		void *m = vec_new(k, NULL, 1), *sums = vec_new(k, NULL, 2);

		k->ce_max(NULL, m, vec_new(k, x, 2), 1, 2, 0);
		assert_true(get(k, m, 0) == -HUGE_VAL);
		k->ce_sums(NULL, sums, vec_new(k, x, 2), vec_new(k, big, 1),
			   &label, 1, 2, 0, 40);
		assert_true(get(k, sums, 0) == 0 && get(k, sums, 1) == 0);
	}
}

/*
 * ce_grad with m = 0, sums = {1, 0}, coefficient 1 and the label elsewhere
 * leaves e^x: how exact is the exponential that all ops use?
 */
static void exponential(void **state)
{
	enum { L = 20001 };
	double *x = zeros(L), one[2] = {1, 0}, coef = 1, loss = 0;
	int32_t label = L;

	(void)state;
	EACH_TABLE(k)
	{
		double limit = is_f32(k) ? 1.3e-7 : 2.3e-16;
		double low = is_f32(k) ? -87 : -708;
		void *y;

		for (int i = 0; i < L; i++)
			x[i] = (double)(float)(low * i / (L - 1));
		for (int i = 0; i < L / 2; i++) /* all that is reduced to */
			x[i] = (double)(float)(0.7 * i / (L / 2) - 0.35);
		for (int i = L / 2; i < L / 2 + 5000; i++)
			x[i] = -x[i];
		y = vec_new(k, x, L);
		k->ce_grad(NULL, &loss, NULL, y, vec_new(k, zeros(1), 1),
			   vec_new(k, one, 2), &label, &coef, 1, L, L, 0);
		for (int i = 0; i < L; i++)
			assert_true(fabs(get(k, y, i) / exp(x[i]) - 1) <=
				    limit);
	}
}

static void exponential_ends(void **state)
{
	double x[6] = {-HUGE_VAL, HUGE_VAL, NAN, 0, -1e5, 1e5};
	double one[2] = {1, 0}, coef = 1, loss = 0;
	int32_t label = 7;

	(void)state;
	EACH_TABLE(k)
	{
		void *y = vec_new(k, x, 6);

		k->ce_grad(NULL, &loss, NULL, y, vec_new(k, zeros(1), 1),
			   vec_new(k, one, 2), &label, &coef, 1, 6, 6, 0);
		assert_true(get(k, y, 0) == 0 && get(k, y, 4) == 0);
		assert_true(get(k, y, 1) == HUGE_VAL &&
			    get(k, y, 5) == HUGE_VAL);
		assert_true(isnan(get(k, y, 2)) && get(k, y, 3) == 1);
	}
}

enum { BIG_N = 33, BIG_V = 1003 };

static struct {
	void *from, *out;
	int32_t labels[BIG_N];
} big;

/* out: logits, m, sums, loss */
static void run_big(const struct kern *k)
{
	size_t size = BIG_N * k->size;
	char *x = big.out, *m = x + BIG_V * size, *sums = m + size;
	double loss = 0, coef = 0.1;

	k->copy(NULL, x, big.from, bytes_of(k, BIG_N * BIG_V));
	k->ce_max(NULL, m, x, BIG_N, BIG_V, BIG_V - 1);
	k->ce_sums(NULL, sums, x, m, big.labels, BIG_N, BIG_V, BIG_V - 1, 0);
	k->ce_grad(NULL, &loss, NULL, x, m, sums, big.labels, &coef, BIG_N,
		   BIG_V, BIG_V - 1, 0);
	memcpy(sums + 2 * size, &loss, sizeof(loss));
}

static void threads(void **state)
{
	enum { ALL = BIG_N * (BIG_V + 3) };

	(void)state;
	for (int n = 0; n < BIG_N; n++)
		big.labels[n] = n * 31 % BIG_V - 1;
	EACH_TABLE(k)
	{
		big.from = vec_new(k, rnd_new(BIG_N * BIG_V, 3), BIG_N * BIG_V);
		big.out = vec_new(k, NULL, ALL + 2);
		check_threads(run_big, k, big.out, ALL * k->size + 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(values),	    UNIT(right_ones),  UNIT(differences),
		UNIT(invariants),   UNIT(cut),	       UNIT(maximum),
		UNIT(nothing_here), UNIT(exponential), UNIT(exponential_ends),
		UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
