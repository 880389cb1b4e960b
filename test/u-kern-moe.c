/* SPDX-License-Identifier: Apache-2.0 */
/* Routers: against plain sorts and sums, and differences. */
#include "test/kern-test.h"

enum { T = 5, N = 15, E = 6, TOPK = 3, R = N * TOPK };

static struct kern_moe_dims dims;     /* the case at hand */
static double *logits, *dprob, *bias; /* bias may be NULL */
static const double coef = 0.75;
/* What all ranks have chosen so far in the step. */
static const double tally[E] = {40, 17, 31, 90, 5, 12};

enum { CASES = 11 };

static void make_case(int i)
{
	dims = (struct kern_moe_dims){
		.M = N,
		.T = T,
		.E = E,
		.K = i == 5 || i == 10 ? 1 : TOPK,
		.score = i < 3 || i == 9	    ? KERN_SOFTMAX
			 : i < 6 || i == 8 || i > 9 ? KERN_SIGMOID
						    : KERN_SQRTSOFTPLUS,
		.pre = i == 1 || i == 9,
		.scale = i % 2 ? 2.5 : 1,
		.aux = 0.3,
		.seq_aux = 0.2,
		.global = 0.4,
		.sinkhorn = i > 8,
		.z = 0.1,
		.ranks = 1,
		.experts = E,
	};
	if (i == 2 || i == 4 || i == 8) {
		dims.groups = 3;
		dims.group_topk = i == 4 ? 1 : 2;
		dims.K = 2;
	}
	bias = i == 7 || i == 8 ? rnd_new(E, 0.3) : NULL;
	logits = rnd_new(N * E, 2);
	dprob = rnd_new(N * TOPK, 1);
}

/* The bias for table K. */
static void *steer(const struct kern *k)
{
	return bias ? vec_new(k, bias, E) : NULL;
}

static double naive_score(double x)
{
	return dims.score == KERN_SIGMOID ? 1 / (1 + exp(-x))
					  : sqrt(log(1 + exp(x)));
}

/* All scores of token N and their sum; of a softmax its denominator, too. */
static double naive_scores(int64_t n, double *s)
{
	double sum = 0, den = 0;

	for (int64_t e = 0; e < E; e++)
		den += exp(logits[n * E + e]);
	for (int64_t e = 0; e < E; e++) {
		double x = logits[n * E + e];

		s[e] = dims.score == KERN_SOFTMAX ? exp(x) / den
						  : naive_score(x);
		sum += s[e];
	}
	return sum;
}

/* How many of X are before its element E: larger, or as large and earlier. */
static int64_t rank_of(const double *x, int64_t e, int64_t count)
{
	int64_t before = 0;

	for (int64_t i = 0; i < count; i++)
		before += x[i] > x[e] || (i < e && x[i] == x[e]);
	return before;
}

/* X without the experts of groups that token N may not go to. */
static void naive_groups(double *x, const double *s)
{
	int64_t size = dims.groups ? E / dims.groups : E;
	int64_t most = dims.group_topk ? dims.K / dims.group_topk : 0;
	bool plain = dims.score == KERN_SOFTMAX && !dims.pre;
	double worth[E] = {0};

	for (int64_t g = 0; g < dims.groups; g++)
		for (int64_t i = 0; i < size; i++)
			if (rank_of(x + g * size, i, size) < most)
				worth[g] +=
					(plain || bias ? x : s)[g * size + i];
	for (int64_t e = 0; e < E && dims.group_topk; e++)
		if (rank_of(worth, e / size, dims.groups) >= dims.group_topk)
			x[e] = -INFINITY;
}

/* W of Sinkhorn's iteration on all tokens, in plain sums. */
static void naive_sinkhorn(double *w)
{
	double off = 1;

	for (int64_t e = 0; e < E; e++)
		w[e] = 1;
	while (off > 1e-4) {
		double column[E] = {0};

		for (int64_t n = 0; n < N; n++) {
			double sum = 0;

			for (int64_t e = 0; e < E; e++)
				sum += w[e] * exp(logits[n * E + e]);
			for (int64_t e = 0; e < E; e++)
				column[e] += exp(logits[n * E + e]) / sum / N;
		}
		off = 0;
		for (int64_t e = 0; e < E; e++) {
			off += fabs(1 / (E * column[e]) - w[e]) / E;
			w[e] = 1 / (E * column[e]);
		}
	}
}

/* The probability of each expert for token N, 0 if it is not chosen. */
static void naive_route(int64_t n, double *p, int64_t *place)
{
	bool plain = dims.score == KERN_SOFTMAX && !dims.pre;
	double x[E], s[E], w[E], sum = 0;

	naive_scores(n, s);
	naive_sinkhorn(w);
	for (int64_t e = 0; e < E; e++) {
		x[e] = bias ? s[e] + bias[e] : logits[n * E + e];
		x[e] += dims.sinkhorn ? log(w[e]) : 0;
	}
	naive_groups(x, s);
	for (int64_t e = 0; e < E; e++) {
		place[e] = rank_of(x, e, E);
		p[e] = 0;
		if (place[e] < dims.K)
			p[e] = plain ? exp(x[e]) : s[e];
		sum += p[e];
	}
	if (!plain && (dims.score == KERN_SOFTMAX || dims.K == 1))
		sum = 1;
	for (int64_t e = 0; e < E; e++)
		p[e] *= dims.scale / sum;
}

static int64_t naive_count(int64_t e, int64_t first, int64_t end)
{
	int64_t count = 0;

	for (int64_t n = first; n < end; n++)
		count += rank_of(logits + n * E, e, E) < dims.K;
	return count;
}

static void naive_losses(double *aux, double *z)
{
	double k = (double)dims.K, so_far = 0;

	for (int64_t e = 0; e < E; e++)
		so_far += tally[e];
	*aux = *z = 0;
	for (int64_t n = 0; n < N; n++) {
		int64_t first = n / T * T;
		double s[E], sum = naive_scores(n, s), den = 0;

		for (int64_t e = 0; e < E; e++) {
			double part = s[e] / sum;

			den += exp(logits[n * E + e]);
			*aux += dims.aux * E / (k * N * N) * part *
				(double)naive_count(e, 0, N);
			*aux += dims.global * E / N * part * tally[e] / so_far;
			*aux += dims.seq_aux * E / (k * T * T) * part *
				(double)naive_count(e, first, first + T) /
				(N / T);
		}
		*z += dims.z * log(den) * log(den) / N;
	}
}

static int32_t *map_new(void)
{
	return keep((size_t)kern_map_size(&dims) * sizeof(int32_t));
}

static void check_map(const struct kern *k, const int32_t *map)
{
	const struct kern_map all_of = kern_map((int32_t *)map, &dims);
	const struct kern_map *m = &all_of;
	double all[E] = {0};
	int64_t r = 0;

	k->tally(NULL, all, map, &dims);
	k->tally(NULL, all, map, &dims);

	for (int64_t e = 0; e < E; e++) {
		for (int64_t i = 0; i < N * dims.K; i++) {
			if (m->expert[i] != e)
				continue;
			assert_int_equal(m->row[i], r++);
		}
		assert_int_equal(m->end[e], r);
		assert_true(all[e] == 2 * (double)naive_count(e, 0, N));
		for (int64_t b = 0; b < N / T; b++)
			assert_int_equal(m->load[b * E + e],
					 naive_count(e, b * T, (b + 1) * T));
	}
	assert_int_equal(r, N * dims.K);
}

static void check_stat(const struct kern *k, const struct kern_map *m,
		       const double *stat)
{
	double aux, z, tol = is_f32(k) ? 1e-5 : 1e-12;
	int64_t most = 0;

	naive_losses(&aux, &z);
	for (int64_t e = 0; e < E; e++) {
		int64_t rows = m->end[e] - (e ? m->end[e - 1] : 0);

		most = rows > most ? rows : most;
	}
	assert_true(fabs(stat[MOE_AUX] - 1 - aux) < tol);
	assert_true(fabs(stat[MOE_Z] - 1 - z) < tol);
	assert_true(fabs(stat[MOE_LOAD] - 1 -
			 (double)(most * E) / (double)(N * dims.K)) < 1e-12);
	assert_true(stat[MOE_COUNT] == 2);
}

static void route(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		make_case(i);
		EACH_TABLE(k)
		{
			double stat[MOE_METRICS] = {1, 1, 1, 1};
			void *prob = vec_new(k, NULL, N * dims.K);
			int32_t *map = map_new();
			struct kern_map m = kern_map(map, &dims);

			void *x = vec_new(k, logits, N * E);

			k->route_fwd(NULL, prob, map, x, steer(k), &dims);
			k->route_loss(NULL, stat, x, map, tally, &dims);
			for (int64_t n = 0; n < N; n++) {
				int64_t place[E];
				double p[E];

				naive_route(n, p, place);
				for (int64_t e = 0; e < E; e++) {
					int64_t at = n * dims.K + place[e];

					if (place[e] >= dims.K)
						continue;
					assert_int_equal(m.expert[at], e);
					assert_true(fabs(get(k, prob, at) -
							 p[e]) < 1e-6);
				}
			}
			check_map(k, map);
			check_stat(k, &m, stat);
		}
	}
}

/* What an expert bias is moved by, and where to. */
static void balance(void **state)
{
	static const double loads[4] = {3, 5, 4, 9};

	(void)state;
	make_case(7);
	dims.bias_rate = 0.25;
	dims.fair = 4;
	EACH_TABLE(k)
	{
		double ones[E] = {1, 1, 1, 1, 1, 1};
		void *count = vec_new(k, ones, E),
		     *dx = vec_new(k, NULL, N * E);
		void *prob = vec_new(k, NULL, N * dims.K);
		void *to = vec_new(k, bias, 4);
		void *x = vec_new(k, logits, N * E);
		int32_t *map = map_new();
		struct kern_map m = kern_map(map, &dims);

		k->route_fwd(NULL, prob, map, x, steer(k), &dims);
		k->route_bwd(NULL, dx, count, vec_new(k, dprob, N * dims.K), x,
			     map, NULL, &coef, &dims);
		for (int64_t e = 0; e < E; e++)
			assert_true(get(k, count, e) ==
				    1 + m.end[e] - (e ? m.end[e - 1] : 0));
		k->balance(NULL, to, NULL, vec_new(k, loads, 4), 4, &dims);
		for (int64_t e = 0; e < 4; e++) {
			double step = e == 2 ? 0 : e ? -0.25 : 0.25;

			assert_true(fabs(get(k, to, e) - bias[e] - step) <
				    1e-6);
		}
	}
}

/* Equal logits: the experts with the lowest numbers, in order. */
static void ties(void **state)
{
	double *same = zeros(N * E);

	(void)state;
	EACH_TABLE(k)
	{
		for (int i = 0; i < CASES; i++) {
			void *prob;
			struct kern_map m;
			int32_t *map;

			make_case(i);
			bias = NULL;
			map = map_new();
			m = kern_map(map, &dims);
			prob = vec_new(k, NULL, N * dims.K);
			k->route_fwd(NULL, prob, map, vec_new(k, same, N * E),
				     NULL, &dims);
			for (int64_t n = 0; n < N * dims.K; n++)
				assert_int_equal(m.expert[n], n % dims.K);
		}
	}
}

/* Whether choice I is among those that its expert has room for. */
static bool has_room(const struct kern *k, const struct kern_map *m,
		     const void *prob, int64_t i)
{
	int64_t each = dims.M * dims.K, first = i / each * each, before = 0;

	for (int64_t j = first; j < first + each && dims.capacity; j++) {
		double p = get(k, prob, j), mine = get(k, prob, i);
		bool earlier = dims.by_position
				       ? j < i
				       : p > mine || (p == mine && j < i);

		before += m->expert[j] == m->expert[i] && earlier;
	}
	return !dims.capacity || before < dims.capacity;
}

/* Three ranks with two experts each; this is the second one. */
static void make_ranks(int64_t capacity, bool by_position)
{
	dims.M = T;
	dims.ranks = 3;
	dims.me = 1;
	dims.first = 2;
	dims.experts = 2;
	dims.capacity = capacity;
	dims.by_position = by_position;
}

/* Rows are those of this rank's experts, as far as they have room. */
static void check_rows(const struct kern *k, const struct kern_map *m,
		       const void *prob)
{
	int64_t r = 0;

	for (int64_t e = 0; e < dims.experts; e++) {
		for (int64_t i = 0; i < N * dims.K; i++)
			if (m->expert[i] == dims.first + e &&
			    has_room(k, m, prob, i))
				assert_int_equal(m->row[i], r++);
		assert_int_equal(m->end[e], r);
	}
	assert_true(r <= kern_moe_rows(&dims));
	for (int64_t i = 0; i < N * dims.K; i++)
		r -= m->row[i] >= 0;
	assert_int_equal(r, 0);
}

/*
 * Capacities of 1 and 2, by probability and by place, with ties; losses and
 * gradients are of this rank's tokens alone.
 */
static void ranks(void **state)
{
	double *alone = zeros(T * E);

	(void)state;
	for (int i = 0; i < 4 * CASES; i++) {
		double stat[2][MOE_METRICS] = {{0}}, prob[2][R];
		int32_t *map[2];
		struct kern_map m;
		double *dx = zeros(T * E), *mine;

		make_case(i / 4);
		for (int64_t e = 0; e < E; e++) /* as probable as another */
			logits[7 * E + e] = logits[8 * E + e];
		mine = logits + T * E;
		make_ranks(i % 4 / 2 + 1, i % 2);
		map[0] = map_new();
		m = kern_map(map[0], &dims);
		kern_cpu_f64.route_fwd(NULL, prob[0], map[0], logits, NULL,
				       &dims);
		kern_cpu_f64.route_loss(NULL, stat[0], mine, map[0], tally,
					&dims);
		check_rows(&kern_cpu_f64, &m, prob[0]);
		kern_cpu_f64.route_bwd(NULL, dx, NULL, dprob, mine, map[0],
				       tally, &coef, &dims);
		dims.ranks = 1;
		dims.me = dims.first = dims.capacity = 0;
		dims.experts = E;
		map[1] = map_new();
		kern_cpu_f64.route_fwd(NULL, prob[1], map[1], mine, NULL,
				       &dims);
		kern_cpu_f64.route_loss(NULL, stat[1], mine, map[1], tally,
					&dims);
		kern_cpu_f64.route_bwd(NULL, alone, NULL, dprob, mine, map[1],
				       tally, &coef, &dims);
		assert_memory_equal(stat[0], stat[1], sizeof(stat[0]));
		assert_memory_equal(dx, alone, T * E * sizeof(*dx));
	}
}

/* Rows that are not there: nothing goes, nothing comes, no gradient. */
static void no_rows(void **state)
{
	static const int32_t row[4] = {1, -1, -1, 0};
	double x[4] = {1, 2, 3, 4}, y[2] = {9, 9}, back[2] = {9, 9};
	double wide[4] = {1, 2, 3, 4}, p[4] = {2, 2, 2, 2}, dp[4], out[2];
	const struct kern *k = &kern_cpu_f64;

	(void)state;
	k->gather(NULL, y, x, row, 2, 2, 1);
	assert_true(y[1] == 1 && y[0] == 2);
	k->combine(NULL, back, y, row, 2, 2, 1);
	assert_true(back[0] == 1 && back[1] == 2);
	k->expert_act_fwd(NULL, out, x, p, row, 4, 1, KERN_RELU2, false);
	assert_true(out[1] == 2 * 4 && out[0] == 2 * 1);
	k->expert_act_bwd(NULL, wide, dp, y, x, p, row, 4, 1, KERN_RELU2,
			  false);
	assert_true(dp[0] == 1 * 4 && dp[1] == 0 && dp[2] == 0 && dp[3] == 2);
}

/* What the gradient of a router is of. */
static double objective(void)
{
	double stat[MOE_METRICS] = {0}, prob[R];
	int32_t map[4 * R + E];

	kern_cpu_f64.route_fwd(NULL, prob, map, logits, bias, &dims);
	kern_cpu_f64.route_loss(NULL, stat, logits, map, tally, &dims);
	return dot(prob, dprob, N * dims.K) +
	       coef * (stat[MOE_AUX] + stat[MOE_Z]);
}

static void differences(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const struct kern *k = &kern_cpu_f64;
		double *dx, prob[R];
		void *dx32;
		int32_t *map;

		make_case(i);
		map = map_new();
		dx = vec_new(k, NULL, N * E);
		k->route_fwd(NULL, prob, map, logits, bias, &dims);
		k->route_bwd(NULL, dx, NULL, dprob, logits, map, tally, &coef,
			     &dims);
		check_grad("logits", logits, dx, N * E, objective);
		k = &kern_cpu_f32;
		dx32 = vec_new(k, NULL, N * E);
		k->route_bwd(NULL, dx32, NULL, vec_new(k, dprob, N * dims.K),
			     vec_new(k, logits, N * E), map, tally, &coef,
			     &dims);
		check_close("dlogits", k, dx32, dx, N * E, tolerance(k));
	}
}

/* Scores so far out that their exponentials are 0 or infinite. */
static void far(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		make_case(i);
		for (int64_t n = 0; n < N * E; n++)
			logits[n] *= n % 2 ? 1e4 : 400;
		EACH_TABLE(k)
		{
			void *x = vec_new(k, logits, N * E);
			void *dx = vec_new(k, NULL, N * E);
			void *prob = vec_new(k, NULL, N * dims.K);
			double stat[MOE_METRICS] = {0};
			int32_t *map = map_new();

			k->route_fwd(NULL, prob, map, x, steer(k), &dims);
			k->route_loss(NULL, stat, x, map, tally, &dims);
			k->route_bwd(NULL, dx, NULL,
				     vec_new(k, dprob, N * dims.K), x, map,
				     tally, &coef, &dims);
			assert_true(isfinite(stat[MOE_AUX] + stat[MOE_Z]));
			for (int64_t n = 0; n < N * dims.K; n++)
				assert_true(isfinite(get(k, prob, n)));
			for (int64_t n = 0; n < N * E; n++)
				assert_true(isfinite(get(k, dx, n)));
		}
	}
}

/* Logits that are no numbers: every choice is an expert. */
static void not_numbers(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		make_case(i);
		for (int64_t n = 0; n < N * E; n += 3)
			logits[n] = NAN;
		for (int64_t e = 0; e < E; e++)
			logits[e] = NAN;
		EACH_TABLE(k)
		{
			void *x = vec_new(k, logits, N * E);
			void *prob = vec_new(k, NULL, N * dims.K);
			int32_t *map = map_new();
			struct kern_map m = kern_map(map, &dims);

			k->route_fwd(NULL, prob, map, x, steer(k), &dims);
			for (int64_t n = 0; n < N * dims.K; n++)
				assert_in_range(m.expert[n], 0, E - 1);
			assert_int_equal(m.end[E - 1], N * dims.K);
		}
	}
}

enum { BIG_N = 640, BIG_E = 64 };

static struct {
	void *logits, *dprob, *out;
	int32_t *map;
	double stat[MOE_METRICS];
} big;

static void run_big(const struct kern *k)
{
	int64_t n = BIG_N * dims.K;
	char *out = big.out;

	memset(big.stat, 0, sizeof(big.stat));
	k->route_fwd(NULL, out, big.map, big.logits, NULL, &dims);
	k->route_loss(NULL, big.stat, big.logits, big.map, NULL, &dims);
	out += (size_t)n * k->size;
	k->route_bwd(NULL, out, NULL, big.dprob, big.logits, big.map, NULL,
		     &coef, &dims);
	out += BIG_N * BIG_E * k->size;
	memcpy(out, big.stat, sizeof(big.stat));
}

static void threads(void **state)
{
	(void)state;
	make_case(4);
	dims.M = BIG_N;
	dims.T = 32;
	dims.E = dims.experts = BIG_E;
	dims.groups = 16;
	EACH_TABLE(k)
	{
		int64_t n = BIG_N * dims.K, all = BIG_N * BIG_E;

		big.logits = vec_new(k, rnd_new(all, 2), all);
		big.dprob = vec_new(k, rnd_new(n, 1), n);
		big.map = map_new();
		big.out = keep((size_t)(n + all + 8) * sizeof(double));
		check_threads(run_big, k, big.out,
			      (size_t)(n + all) * k->size + sizeof(big.stat));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(route), UNIT(balance),	UNIT(ties),
		UNIT(ranks), UNIT(no_rows),	UNIT(differences),
		UNIT(far),   UNIT(not_numbers), UNIT(threads),
	};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
