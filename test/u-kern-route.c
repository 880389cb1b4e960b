/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of routers; u-kern-moe compares them with plain sums. */
#include "test/kern-test.h"

enum { N = 16, E = 8, K = 4, MAP = 2 * N * K + 2 * E };

static struct kern_moe_dims dims_of(int score)
{
	return (struct kern_moe_dims){.M = N,
				      .T = N,
				      .E = E,
				      .K = K,
				      .score = (enum kern_score)score,
				      .scale = 2.5,
				      .aux = 0.3,
				      .ranks = 1,
				      .experts = E};
}

/* What is chosen has the scale as its sum. */
static void sums(void **state)
{
	double *logits = rnd_new(N * E, 3), *bias = rnd_new(E, 1);

	(void)state;
	for (int score = KERN_SOFTMAX; score <= KERN_SQRTSOFTPLUS; score++)
		EACH_TABLE(k)
		{
			struct kern_moe_dims d = dims_of(score);
			void *prob = vec_new(k, NULL, N * K);
			int32_t map[MAP];

			k->route_fwd(NULL, prob, map, vec_new(k, logits, N * E),
				     score ? vec_new(k, bias, E) : NULL, &d);
			for (int n = 0; n < N; n++) {
				double sum = 0;

				for (int i = 0; i < K; i++)
					sum += get(k, prob, n * K + i);
				assert_true(fabs(sum / d.scale - 1) <
					    tolerance(k));
			}
		}
}

/* The probability that NAME has among the K choices at P and EXPERT, or -1. */
static double chance(const double *p, const int32_t *expert, int32_t name)
{
	for (int i = 0; i < K; i++)
		if (expert[i] == name)
			return p[i];
	return -1;
}

/* A bias decides who is chosen, but not what the same ones get. */
static void bias_steers(void **state)
{
	double *logits = rnd_new(N * E, 3), bias[E] = {0.1, 0, 0.1, 0};
	double p[2][N * K];
	int32_t map[2][MAP];
	int same = 0, other = 0;

	(void)state;
	for (int score = KERN_SIGMOID; score <= KERN_SQRTSOFTPLUS; score++) {
		struct kern_moe_dims d = dims_of(score);

		for (int b = 0; b < 2; b++)
			kern_cpu_f64.route_fwd(NULL, p[b], map[b], logits,
					       b ? bias : NULL, &d);
		for (int n = 0; n < N; n++) {
			const int32_t *before = map[0] + n * K;
			const int32_t *after = map[1] + n * K;
			bool all = true;

			for (int i = 0; i < K; i++)
				all = all && chance(p[0] + n * K, before,
						    after[i]) >= 0;
			same += all;
			other += !all;
			for (int i = 0; all && i < K; i++)
				assert_true(fabs(chance(p[0] + n * K, before,
							after[i]) -
						 p[1][n * K + i]) < 1e-15);
		}
	}
	assert_true(same > 0 && other > 0);
}

/* With experts that are all as likely the loss is its coefficient. */
static void balanced(void **state)
{
	double logits[N * E] = {0}, prob[N * K];
	int32_t map[MAP];

	(void)state;
	for (int score = KERN_SOFTMAX; score <= KERN_SQRTSOFTPLUS; score++) {
		struct kern_moe_dims d = dims_of(score);
		double stat[MOE_METRICS] = {0};

		kern_cpu_f64.route_fwd(NULL, prob, map, logits, NULL, &d);
		kern_cpu_f64.route_loss(NULL, stat, logits, map, NULL, &d);
		assert_true(fabs(stat[MOE_AUX] - d.aux) < 1e-15);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(sums),
		UNIT(bias_steers),
		UNIT(balanced),
	};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
