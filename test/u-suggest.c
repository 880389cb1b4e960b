/* SPDX-License-Identifier: Apache-2.0 */
/* Proposals against a search of everything, one config after the other. */
#include "test/plan-test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "lib/plan/gpu.h"
#include "lib/plan/suggest_cut.h"
#include "lib/plan/suggest_rule.h"
#include "lib/plan/sum.h"

/* The whole space, as suggest.h describes it. */
struct brute {
	const struct config *loaded;
	struct cluster on;
	struct suggestion best[4096]; /* one for each of placement_alike */
	int count;
	int64_t fitting;
};

static void load(struct config *c, const char *file, const char *sets,
		 struct arena *a)
{
	char *text = arena_strdup(a, sets), *one;
	struct report r = {.arena = a};
	const char *list[24];
	struct err e;
	int n = 0;

	while ((one = strsep(&text, " ")))
		if (*one)
			list[n++] = one;
	if (config_load(file, list, n, a, c, &r, &e))
		fail_msg("%s", e.text);
	assert_int_equal(report_count(&r, ERROR), 0);
}

/* C made of P; false if it is not valid. */
static bool make(const struct brute *b, const struct placement *p,
		 struct config *c, struct arena *a)
{
	struct report r = {.arena = a};
	const char *set[SUGGEST_SETS];

	placement_config(c, b->loaded, set,
			 placement_sets(p, b->loaded, set, a), b->on.world, &r);
	return report_count(&r, ERROR) == 0;
}

/* P's time and memory; whether it is valid and fits. */
static bool try_one(struct brute *b, const struct placement *p)
{
	struct suggestion s = {.place = *p};
	int64_t family[FAMILIES];
	struct estimate t;
	struct config c;
	struct arena a;
	struct err e;
	bool fits = false;
	int pp, i = 0;

	assert_int_equal(arena_open(&a, &e), 0);
	if (make(b, p, &c, &a)) {
		s.memory =
			cluster_memory(&b->on, &c, family, &pp, &s.planned, &e);
		fits = s.memory >= 0 &&
		       (double)s.memory <=
			       CLUSTER_SHARE * (double)b->on.gpu_memory;
		if (estimate_build(&t, &c, &b->on, &a, &e))
			fail_msg("%s", e.text);
		s.step = t.step;
	}
	arena_close(&a);
	if (!fits)
		return false;
	b->fitting++;
	while (i < b->count && !placement_alike(&b->best[i].place, p))
		i++;
	if (i == b->count || s.step < b->best[i].step)
		b->best[i] = s;
	b->count += i == b->count;
	return true;
}

static void try_memory(struct brute *b, struct placement *p)
{
	static const int sharding[] = {SHARD_NONE, SHARD_OPTIM,
				       SHARD_OPTIM_GRADS_PARAMS};

	for (int i = 0; i < (p->dp * p->cp > 1 ? 3 : 1); i++) {
		p->sharding = sharding[i];
		p->again = AGAIN_NONE;
		p->layers = UNSET;
		if (try_one(b, p))
			continue;
		p->again = AGAIN_MODULES;
		try_one(b, p);
		p->again = AGAIN_LAYERS;
		for (p->layers = 1; p->layers <= b->loaded->shape.num_layers;
		     p->layers++)
			if (try_one(b, p))
				break;
	}
}

/* Stages of the balanced cut of P, as a layout; NULL if there is none. */
static const char *balanced(const struct brute *b, const struct placement *p,
			    struct arena *a)
{
	struct placement even = *p;
	struct stage stage[64];
	struct stages st = {.stage = stage};
	struct estimator s;
	struct machine m;
	struct config c;
	struct grid g;
	struct err e;

	even.vp = 1;
	even.sharding = SHARD_NONE;
	even.again = AGAIN_NONE;
	make(b, &even, &c, a);
	if (grid_build(&g, &c.place, b->on.world, &e))
		return NULL;
	machine_build(&m, &b->on, &g);
	estimator_open(&s, &c.shape, a);
	estimator_build(&s, &c, &m);
	return cut_stages(&st, &s, p->pp, p->vp, true) ? cut_layout_text(&st, a)
						       : NULL;
}

static void try_cuts(struct brute *b, struct placement *p)
{
	int64_t layers = b->loaded->shape.num_layers;
	struct arena a;
	struct err e;

	for (p->vp = 1; p->vp <= (p->pp > 1 ? layers / p->pp : 1); p->vp++) {
		assert_int_equal(arena_open(&a, &e), 0);
		p->layout = NULL;
		p->balanced = false;
		try_memory(b, p);
		p->layout = balanced(b, p, &a);
		p->balanced = true;
		if (p->layout)
			try_memory(b, p);
		arena_close(&a);
	}
}

static void try_all(struct brute *b)
{
	int w = (int)b->on.world;
	int experts = (int)b->loaded->shape.num_moe_experts;

	for (int tp = 1; tp <= w && tp <= b->on.gpus_per_node; tp++)
		for (int cp = 1; tp * cp <= w; cp++)
			for (int pp = 1; tp * cp * pp <= w; pp++) {
				struct placement p = {
					.tp = tp, .cp = cp, .pp = pp};

				if (w % (tp * cp * pp))
					continue;
				p.dp = w / (tp * cp * pp);
				for (int k = 0; k < 2 * 8 * 8 * 5; k++) {
					p.sp = k % 2;
					p.ep = k / 2 % 8 + 1;
					p.etp = k / 16 % 8 + 1;
					p.micro = 1 << k / 128;
					if ((p.sp && tp == 1) ||
					    p.ep > (experts ? experts : 1) ||
					    (!experts && p.etp != tp) ||
					    tp % p.etp ||
					    (p.ep > 1 && tp > 1 && !p.sp))
						continue;
					try_cuts(b, &p);
				}
			}
}

static int by_step(const void *a, const void *b)
{
	const struct suggestion *x = a, *y = b;

	return x->step < y->step ? -1 : x->step > y->step;
}

/* Every row is valid and says of itself what is true. */
static void check_rows(const struct suggest *s, struct arena *a)
{
	for (int i = 0; i < s->rows; i++) {
		const struct suggestion *x = &s->row[i];
		struct report r = {.arena = a};
		struct config c;
		struct sum sum;
		struct err e;
		int64_t most = 0;

		placement_config(&c, s->loaded, x->set, x->sets, s->on.world,
				 &r);
		assert_int_equal(report_count(&r, ERROR), 0);
		assert_true((double)x->memory <=
			    CLUSTER_SHARE * (double)s->on.gpu_memory);
		assert_true(i == 0 || i == s->best ||
			    x->step >= s->row[i - 1].step);
		assert_true(i < s->best || x->planned);
		if (sum_build(&sum, &c, (int)s->on.world, a, &e))
			fail_msg("%s", e.text);
		assert_int_equal(sum.planned, x->planned);
		for (int pp = 0; pp < sum.grid.pp && sum.planned; pp++)
			if (sum_bytes(&sum.rank[pp]) > most)
				most = sum_bytes(&sum.rank[pp]);
		if (sum.planned)
			assert_int_equal(most, x->memory);
	}
}

static void compare(const char *file, const char *sets, int world,
		    int64_t memory)
{
	struct brute *b = calloc(1, sizeof(*b));
	struct suggest s;
	struct config c;
	struct arena a;
	struct err e;

	assert_non_null(b);
	assert_int_equal(arena_open(&a, &e), 0);
	load(&c, file, sets, &a);
	b->loaded = &c;
	b->on = (struct cluster){.world = world,
				 .gpus_per_node = 8,
				 .gpu_memory = memory,
				 .gpu = gpu_table};
	try_all(b);
	qsort(b->best, (size_t)b->count, sizeof(*b->best), by_step);
	if (suggest_build(&s, &c, &b->on, &a, &e))
		fail_msg("%s", e.text);
	check_rows(&s, &a);
	print_message("# world %d, %" PRId64 " MiB: %d rows of %" PRId64
		      " that fit\n",
		      world, memory >> 20, s.best, b->fitting);
	assert_int_equal(s.best,
			 b->count < SUGGEST_ROWS ? b->count : SUGGEST_ROWS);
	for (int i = 0; i < s.best; i++)
		if (fabs(s.row[i].step / b->best[i].step - 1) > 1e-9)
			fail_msg("%s, world %d: row %d takes %.9g, the best "
				 "%.9g: tp %d pp %d vp %d cp %d ep %d micro "
				 "%d again %d zero %d %s",
				 sets, world, i, s.row[i].step, b->best[i].step,
				 b->best[i].place.tp, b->best[i].place.pp,
				 b->best[i].place.vp, b->best[i].place.cp,
				 b->best[i].place.ep,
				 (int)b->best[i].place.micro,
				 b->best[i].place.again,
				 b->best[i].place.sharding,
				 b->best[i].place.balanced ? "balanced" : "");
	arena_close(&a);
	free(b);
}

#define BF16 "spec.device=cuda spec.params_dtype=bf16 "

static void test_nothing_missed(void **state)
{
	const char *small =
		BF16 "shape.num_layers=5 shape.hidden_size=512 "
		     "shape.ffn_hidden_size=1024 shape.seq_length=512 "
		     "shape.vocab_size=8192 run.global_batch_size=8";
	const char *experts =
		BF16 "shape.num_layers=4 shape.hidden_size=256 "
		     "shape.seq_length=256 shape.num_moe_experts=4 "
		     "shape.moe_ffn_hidden_size=256 run.global_batch_size=4";

	(void)state;
	compare(LLAMA, small, 8, (int64_t)80 << 30);
	compare(LLAMA, small, 8, (int64_t)200 << 20);
	compare(LLAMA, small, 8, (int64_t)100 << 20);
	compare(LLAMA, small, 16, (int64_t)150 << 20);
	compare(LLAMA, experts, 8, (int64_t)80 << 30);
	compare(LLAMA, experts, 4, (int64_t)40 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
