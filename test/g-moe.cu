/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's routers and experts against cpu_f64, as g-kern does it.
 *
 *	g-moe [--only TEXT] [SEED]
 */
#include "test/gpu-test.h"

/* A model's routers: scores, groups, ranks with a part of the experts. */
static std::vector<struct kern_moe_dims> routers;

static struct kern_moe_dims *add(int64_t M, int64_t T, int64_t E, int64_t K,
				 enum kern_score score)
{
	struct kern_moe_dims d = {};

	d.M = M;
	d.T = T;
	d.E = d.experts = E;
	d.K = K;
	d.score = score;
	d.scale = d.ranks = 1;
	routers.push_back(d);
	return &routers.back();
}

static void part(struct kern_moe_dims *d, int64_t ranks, int64_t me,
		 int64_t capacity, bool by_position)
{
	d->ranks = ranks;
	d->me = me;
	d->experts = d->E / ranks;
	d->first = me * d->experts;
	d->capacity = capacity;
	d->by_position = by_position;
}

static void limit(struct kern_moe_dims *d, int64_t groups, int64_t topk)
{
	d->groups = groups;
	d->group_topk = topk;
}

static void make_routers(void)
{
	struct kern_moe_dims *d = add(60, 20, 8, 2, KERN_SOFTMAX);

	d->aux = 0.3;
	d->seq_aux = 0.2;
	d->global = 0.4;
	d->z = 0.1;
	d = add(300, 100, 64, 6, KERN_SOFTMAX);
	d->pre = true;
	d->scale = 1.5;
	d->aux = 0.3;
	d->z = 0.1;
	d = add(300, 60, 64, 8, KERN_SIGMOID);
	d->scale = 2.5;
	d->seq_aux = 0.2;
	limit(d, 8, 4);
	d = add(90, 30, 16, 1, KERN_SQRTSOFTPLUS);
	d->aux = 0.3;
	d = add(90, 30, 40, 4, KERN_SOFTMAX);
	d->z = 0.1;
	limit(d, 5, 2);
	part(add(40, 20, 12, 3, KERN_SOFTMAX), 3, 1, 5, false);
	part(add(40, 20, 12, 3, KERN_SIGMOID), 3, 2, 7, true);
	d = add(40, 40, 700, 9, KERN_SQRTSOFTPLUS);
	d->aux = 0.1;
	d->global = 0.2;
	limit(d, 70, 3);
	add(5000, 1000, 1, 1, KERN_SIGMOID); /* a gate */
	add(200, 100, 8, 1, KERN_SIGMOID)->sinkhorn = true;
	add(3000, 1000, 64, 6, KERN_SOFTMAX)->sinkhorn = true;
	d = add(30, 30, 700, 9, KERN_SOFTMAX);
	d->sinkhorn = true;
	limit(d, 70, 3);
	d = add(40, 20, 12, 3, KERN_SOFTMAX);
	d->sinkhorn = true;
	part(d, 3, 1, 5, false);
	d = add(3000, 1000, 16, 4, KERN_SOFTMAX);
	d->aux = 0.1;
	part(d, 2, 1, 0, false);
	part(add(3000, 1000, 16, 4, KERN_SOFTMAX), 2, 0, 400, true);
}

/* Where tokens go; M is cpu_f64's map. */
static void test_choice(const struct kern &k, enum type t, int i, bool biased,
			std::vector<int32_t> &m)
{
	const struct kern_moe_dims *d = &routers[i];
	int64_t N = d->ranks * d->M;
	struct arr *prob = out(F32, N * d->K), *logits = in(F32, N * d->E, 2);
	struct arr *map = out(I32, kern_map_size(d));
	struct arr *bias = biased ? in(t, d->E, 0.3) : NULL;

	prob->tol = 5e-6;
	map->tol = 0;
	m.resize((size_t)map->n);
	check(
		[&] {
			CPU.route_fwd(NULL, ref(prob), m.data(), ref(logits),
				      ref(bias), d);
			map->ref.assign(m.begin(), m.end());
		},
		[&] {
			k.route_fwd(queue, dev(prob), (int32_t *)dev(map),
				    dev(logits), dev(bias), d);
		},
		"%s route_fwd %d bias %d", k.name, i, biased);
}

/* Its losses and gradients, by another token's logits. */
static void test_router(const struct kern &k, enum type t, int i, bool biased)
{
	const struct kern_moe_dims *d = &routers[i];
	int64_t n = d->M * d->E;
	std::vector<int32_t> m;
	std::vector<double> so_far;
	struct arr *stat, *x, *map, *tally, *dx, *count, *dprob, *coef;
	auto at = [&](auto P) {
		return P(map) == ref(map) ? m.data() : (int32_t *)P(map);
	};

	test_choice(k, t, i, biased, m);
	for (int64_t e = 0; e < d->E; e++)
		so_far.push_back(rnd32() % 1000);
	map = ints_of(m.data(), (int64_t)m.size());
	stat = inout(F64, MOE_METRICS);
	x = in(F32, n, 2);
	tally = d->global > 0 ? with(F64, so_far, false) : NULL;
	stat->tol = 1e-5;
	check(BOTH(k, route_loss, (double *)P(stat), P(x), at(P),
		   (double *)P(tally), d),
	      "%s route_loss %d", k.name, i);
	map = ints_of(m.data(), (int64_t)m.size());
	dx = out(t, n);
	count = biased ? inout(F32, d->E) : NULL;
	dprob = in(F32, d->M * d->K);
	x = in(F32, n, 2);
	tally = d->global > 0 ? with(F64, so_far, false) : NULL;
	coef = in(F64, 1);
	if (t == F32)
		dx->tol = 1e-5;
	check(BOTH(k, route_bwd, P(dx), P(count), P(dprob), P(x), at(P),
		   (double *)P(tally), (double *)P(coef), d),
	      "%s route_bwd %d", k.name, i);
	map = ints_of(m.data(), (int64_t)m.size());
	tally = with(F64, so_far, true);
	check(BOTH(k, tally, (double *)P(tally), at(P), d), "%s tally %d",
	      k.name, i);
}

static void test_balance(const struct kern &k, enum type t)
{
	struct kern_moe_dims d = {};
	int64_t n = 300;
	struct arr *p = inout(F32, n), *low = t != F32 ? out(t, n) : NULL;
	std::vector<double> loads;
	struct arr *count;

	d.bias_rate = 0.125;
	d.fair = 3;
	for (int64_t i = 0; i < n; i++)
		loads.push_back(rnd32() % 7);
	count = with(F32, loads, false);
	check(
		[&] {
			CPU.balance(NULL, ref(p), NULL, ref(count), n, &d);
			if (low)
				low->ref = p->ref;
		},
		[&] {
			k.balance(queue, dev(low ? low : p),
				  low ? dev(p) : NULL, dev(count), n, &d);
		},
		"%s balance", k.name);
}

/* ROUTER's choices, of random tokens. */
static std::vector<int32_t> some_map(const struct kern_moe_dims *d)
{
	int64_t N = d->ranks * d->M;
	std::vector<double> logits = randoms(N * d->E, 2);
	std::vector<double> prob((size_t)(N * d->K));
	std::vector<int32_t> m((size_t)kern_map_size(d));

	CPU.route_fwd(NULL, prob.data(), m.data(), logits.data(), NULL, d);
	return m;
}

static void test_bias(const struct kern &k, enum type t, int i, int64_t C,
		      bool probs)
{
	const struct kern_moe_dims *d = &routers[i];
	int64_t N = d->ranks * d->M * d->K, R = kern_moe_rows(d);
	std::vector<int32_t> m = some_map(d);
	struct arr *map = ints_of(m.data(), (int64_t)m.size());
	struct arr *y = inout(t, R * C), *bias = in(t, d->experts * C);
	struct arr *prob = probs ? in(F32, N) : NULL, *dbias, *dprob;
	auto at = [&](auto P) {
		return P(map) == ref(map) ? m.data() : (int32_t *)P(map);
	};

	check(BOTH(k, expert_bias_fwd, P(y), P(bias), P(prob), at(P), C, d),
	      "%s expert_bias_fwd %d C %ld probs %d", k.name, i, (long)C,
	      probs);
	map = ints_of(m.data(), (int64_t)m.size());
	dbias = inout(F32, d->experts * C);
	dprob = probs ? inout(F32, N) : NULL;
	y = in(t, R * C);
	bias = probs ? in(t, d->experts * C) : NULL;
	prob = probs ? in(F32, N) : NULL;
	dbias->tol = 1e-5;
	if (dprob)
		dprob->tol = 1e-5;
	check(BOTH(k, expert_bias_bwd, P(dbias), P(dprob), P(y), P(bias),
		   P(prob), at(P), C, d),
	      "%s expert_bias_bwd %d C %ld probs %d", k.name, i, (long)C,
	      probs);
}

/* N tokens with K choices each, some of which have none of R rows. */
static std::vector<int32_t> some_rows(int64_t choices, int64_t R)
{
	std::vector<int32_t> row((size_t)choices, -1);

	for (int64_t r = 0; r < R; r++)
		row[r * choices / R] = (int32_t)((r * 7 + 3) % R);
	return row;
}

static void test_rows(const struct kern &k, enum type t, int64_t C)
{
	int64_t N = 50, K = 3, R = 101; /* 7 and 101 have no divisor */
	std::vector<int32_t> r = some_rows(N * K, R);
	struct arr *row = ints_of(r.data(), N * K);
	struct arr *y = inout(t, R * C), *x = in(t, N * C);
	auto at = [&](auto P) {
		return P(row) == ref(row) ? r.data() : (int32_t *)P(row);
	};

	check(BOTH(k, gather, P(y), P(x), at(P), N, K, C), "%s gather C %ld",
	      k.name, C);
	row = ints_of(r.data(), N * K);
	y = out(t, N * C);
	x = in(t, R * C);
	check(BOTH(k, combine, P(y), P(x), at(P), N, K, C), "%s combine C %ld",
	      k.name, C);
}

/* Experts with many rows, with one and with none; rows behind the last. */
static void test_experts(const struct kern &k, enum type t, int64_t out_,
			 int64_t in_)
{
	static const int32_t ends[] = {0, 37, 38, 338, 338, 466, 600};
	int64_t E = 7, R = 640;
	struct arr *end = ints_of(ends, E), *y = inout(t, R * out_);
	struct arr *x = in(t, R * in_), *w = in(t, E * out_ * in_), *dw;
	auto at = [&](auto P) {
		return P(end) == ref(end) ? ends : (const int32_t *)P(end);
	};

	check(BOTH(k, experts_fwd, P(y), P(x), P(w), at(P), R, out_, in_, E),
	      "%s experts_fwd %ld %ld", k.name, out_, in_);
	end = ints_of(ends, E);
	x = inout(t, R * in_);
	y = in(t, R * out_);
	w = in(t, E * out_ * in_);
	check(BOTH(k, experts_bwd_x, P(x), P(y), P(w), at(P), R, out_, in_, E),
	      "%s experts_bwd_x %ld %ld", k.name, out_, in_);
	end = ints_of(ends, E);
	dw = inout(F32, E * out_ * in_);
	y = in(t, R * out_);
	x = in(t, R * in_);
	check(BOTH(k, experts_bwd_w, P(dw), P(y), P(x), at(P), R, out_, in_, E),
	      "%s experts_bwd_w %ld %ld", k.name, out_, in_);
}

static void test_expert_act(const struct kern &k, enum type t, int64_t F,
			    int act, bool gated)
{
	int64_t N = 150, R = 101, wide = R * F * (1 + gated);
	std::vector<int32_t> r = some_rows(N, R);
	struct arr *row = ints_of(r.data(), N), *y = out(t, R * F);
	struct arr *x = in(t, wide, 3), *prob = in(F32, N), *dx, *dprob;
	enum kern_act a = (enum kern_act)act;
	auto at = [&](auto P) {
		return P(row) == ref(row) ? r.data() : (int32_t *)P(row);
	};

	check(BOTH(k, expert_act_fwd, P(y), P(x), P(prob), at(P), N, F, a,
		   gated),
	      "%s expert_act_fwd %ld act %d gated %d", k.name, F, act, gated);
	row = ints_of(r.data(), N);
	dx = out(t, wide);
	dprob = out(F32, N);
	dprob->tol = 1e-5;
	y = in(t, R * F);
	x = in(t, wide, 3);
	prob = in(F32, N);
	check(BOTH(k, expert_act_bwd, P(dx), P(dprob), P(y), P(x), P(prob),
		   at(P), N, F, a, gated),
	      "%s expert_act_bwd %ld act %d gated %d", k.name, F, act, gated);
}

static void test_moe(const struct kern &k, enum type t)
{
	for (int i = 0; i < (int)routers.size(); i++)
		for (int biased = 0; biased < 2; biased++)
			if (!biased || routers[i].score != KERN_SOFTMAX)
				test_router(k, t, i, biased);
	test_balance(k, t);
	for (int i = 0; i < (int)routers.size(); i++)
		for (int probs = 0; probs < 2; probs++) {
			test_bias(k, t, i, 37, probs);
			test_bias(k, t, i, 200, probs);
		}
	for (int64_t C : {37, 64, 1000, 4096})
		test_rows(k, t, C);
	test_experts(k, t, 1, 1);
	test_experts(k, t, 65, 129);
	test_experts(k, t, 64, 128);
	test_experts(k, t, 200, 72);
	test_experts(k, t, 256, 392);
	for (int act = 0; act <= KERN_QUICK_GELU; act++)
		for (int gated = 0; gated < 2; gated++) {
			test_expert_act(k, t, 65, act, gated);
			test_expert_act(k, t, 1400, act, gated);
		}
}

int main(int argc, char **argv)
{
	if (!test_open(argc, argv))
		return 0;
	make_routers();
	test_moe(kern_cuda_f32, F32);
	test_moe(kern_cuda_bf16, BF16);
	test_moe(kern_cuda_fp16, FP16);
	return test_close();
}
