/* SPDX-License-Identifier: Apache-2.0 */
/* The next token: which ones can be drawn, and how often each is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/sample.h"

enum { V = 23, DRAWS = 40000 };

static char work[4096];

static const struct sampler samplers[] = {
	{.temperature = 1, .top_p = 1},
	{.temperature = 0.6, .top_p = 1},
	{.temperature = 3, .top_p = 1},
	{.temperature = 1, .top_k = 1, .top_p = 1},
	{.temperature = 1, .top_k = 5, .top_p = 1},
	{.temperature = 1, .top_k = 23, .top_p = 1},
	{.temperature = 1, .top_k = 1000, .top_p = 1},
	{.temperature = 1, .top_p = 0.5},
	{.temperature = 2, .top_p = 0.95},
	{.temperature = 1, .top_p = 1e-9},
	{.temperature = 1.5, .top_k = 7, .top_p = 0.8},
};
enum { SAMPLERS = sizeof(samplers) / sizeof(*samplers) };

/* Ties among the logits, two tokens that cannot come. */
static void make_logits(double *x)
{
	for (int i = 0; i < V; i++)
		x[i] = (i * 7 % 11) * 0.4 - 1;
	x[4] = x[19] = -INFINITY;
}

/* Tokens that come before I in the order of logits, then ids. */
static int rank_of(const double *x, int i)
{
	int n = 0;

	for (int j = 0; j < V; j++)
		n += x[j] > x[i] || (j < i && x[j] == x[i]);
	return n;
}

/* Exact probabilities, each token by the definition alone. */
static void exact(const struct sampler *s, const double *x, double *p)
{
	double sum = 0, before[V] = {0}, kept = 0;
	int rank[V];

	for (int i = 0; i < V; i++) {
		rank[i] = rank_of(x, i);
		p[i] = s->top_k && rank[i] >= s->top_k
			       ? 0
			       : exp(x[i] / s->temperature);
		sum += p[i];
	}
	/* a token stays if those before it have not the share yet */
	for (int i = 0; i < V; i++)
		for (int j = 0; j < V; j++)
			before[i] += rank[j] < rank[i] ? p[j] / sum : 0;
	for (int i = 0; i < V; i++) {
		p[i] = before[i] < s->top_p - 1e-12 ? p[i] : 0;
		kept += p[i];
	}
	for (int i = 0; i < V; i++)
		p[i] /= kept;
}

/* What is drawn over many positions, texts and seeds. */
static void count_draws(const struct sampler *s, const double *x, int *count)
{
	struct sampler one = *s;

	assert_true(sample_work(V) <= sizeof(work));
	memset(count, 0, V * sizeof(*count));
	for (int i = 0; i < DRAWS; i++) {
		int64_t id;

		one.seed = (uint64_t)(i / 1000) << 20;
		id = sample_next(&one, x, V, i % 10, i / 10 % 100, work);
		assert_in_range(id, 0, V - 1);
		count[id]++;
	}
}

static void distribution(void **state)
{
	double x[V], p[V];
	int count[V];

	(void)state;
	make_logits(x);
	for (int k = 0; k < SAMPLERS; k++) {
		exact(&samplers[k], x, p);
		count_draws(&samplers[k], x, count);
		for (int i = 0; i < V; i++) {
			double want = DRAWS * p[i];
			double sigma = sqrt(want * (1 - p[i]));

			/* every token that can come does */
			assert_int_equal(count[i] > 0, p[i] > 0);
			if (fabs(count[i] - want) > 4.5 * sigma + 1e-9)
				fail_msg("sampler %d, token %d: %d of %d, "
					 "not %g",
					 k, i, count[i], DRAWS, want);
		}
	}
}

static void most_likely(void **state)
{
	static const struct sampler greedy = {.top_p = 1, .seed = 3};
	double x[V];

	(void)state;
	make_logits(x);
	/* 0.4 * 10 - 1 three times: 3, 14 */
	assert_true(x[3] == x[14]);
	for (int i = 0; i < 50; i++)
		assert_int_equal(sample_next(&greedy, x, V, i, i, work), 3);
	x[22] = 3.5;
	assert_int_equal(sample_next(&greedy, x, V, 0, 0, work), 22);
	x[0] = 3.5;
	assert_int_equal(sample_next(&greedy, x, V, 0, 0, work), 0);
}

static void not_numbers(void **state)
{
	double x[V];

	(void)state;
	for (int k = 0; k < SAMPLERS; k++) {
		make_logits(x);
		x[9] = NAN;
		assert_int_equal(sample_next(&samplers[k], x, V, 0, 0, work),
				 -1);
		x[9] = INFINITY;
		assert_int_equal(sample_next(&samplers[k], x, V, 0, 0, work),
				 -1);
		for (int i = 0; i < V; i++)
			x[i] = -INFINITY;
		assert_int_equal(sample_next(&samplers[k], x, V, 0, 0, work),
				 -1);
	}
}

/* Logits far from 0 are only seen by their differences. */
static void large_logits(void **state)
{
	double x[V], y[V];

	(void)state;
	make_logits(x);
	for (int i = 0; i < V; i++)
		y[i] = x[i] + 4096;
	for (int k = 0; k < SAMPLERS; k++)
		for (int i = 0; i < 500; i++)
			assert_int_equal(
				sample_next(&samplers[k], x, V, 1, i, work),
				sample_next(&samplers[k], y, V, 1, i, work));
}

/* Uniform, and another number for every seed, text and position. */
static void uniform(void **state)
{
	double sum = 0, squares = 0;
	int n = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 3; seed++)
		for (int text = 0; text < 30; text++)
			for (int at = 0; at < 300; at++, n++) {
				double u = sample_uniform(seed << 33, text, at);

				assert_true(u >= 0 && u < 1);
				sum += u;
				squares += u * u;
			}
	assert_true(fabs(sum / n - 0.5) < 4 / sqrt(12.0 * n));
	assert_true(fabs(squares / n - 1.0 / 3) < 0.01);
	assert_true(sample_uniform(1, 2, 3) == sample_uniform(1, 2, 3));
	assert_true(sample_uniform(1, 2, 3) != sample_uniform(1, 3, 2));
	assert_true(sample_uniform(1, 2, 3) != sample_uniform(2, 2, 3));
	assert_true(sample_uniform(1, 2, 3) !=
		    sample_uniform(1, 2, 3 + ((int64_t)1 << 32)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(distribution), cmocka_unit_test(most_likely),
		cmocka_unit_test(not_numbers), cmocka_unit_test(large_logits),
		cmocka_unit_test(uniform)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
