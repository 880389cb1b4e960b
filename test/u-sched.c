/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: Megatron's orders, no deadlock, the bubble formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "lib/plan/sched.h"

static int64_t integer(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

static void check_golden(json_t *g, struct arena *a)
{
	json_t *order = json_object_get(g, "order");
	int pp = (int)integer(g, "pp"), vp = (int)integer(g, "vpp");
	int m = (int)integer(g, "microbatches");
	int n = (int)integer(g, "microbatch_group_size_per_vp_stage");

	for (int r = 0; r < pp; r++) {
		struct sched s;

		sched_build(&s, pp, r, vp, m, n, a);
		assert_string_equal(
			sched_text(&s, a),
			json_string_value(json_array_get(order, (size_t)r)));
		assert_int_equal(s.warmup, json_integer_value(json_array_get(
						   json_object_get(g, "warmup"),
						   (size_t)r)));
	}
}

static void test_golden_orders(void **state)
{
	json_t *all = json_load_file("test/data/golden/plan.json", 0, NULL);
	json_t *cases = json_object_get(all, "pipeline");
	struct arena a;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(json_array_size(cases), 7);
	for (size_t i = 0; i < json_array_size(cases); i++)
		check_golden(json_array_get(cases, i), &a);
	arena_close(&a);
	json_decref(all);
}

/* Every (micro-batch, chunk) once forward, then once backward. */
static void check_complete(const struct sched *s, int m, int vp)
{
	char seen[64 * 8] = {0};

	assert_int_equal(s->count, 2 * m * vp);
	for (int i = 0; i < s->count; i++) {
		const struct sched_slot *x = &s->slot[i];
		char *at = &seen[x->mb * vp + x->chunk];

		assert_int_equal(*at, x->backward);
		(*at)++;
	}
}

static void check_grid(int pp, int vp, int m, int group, struct arena *a)
{
	struct sched s[8];
	struct sched_sim sim;
	double fwd[64], bwd[64], ideal = 3.0 * m * vp;

	for (int r = 0; r < pp; r++) {
		sched_build(&s[r], pp, r, vp, m, group, a);
		check_complete(&s[r], m, vp);
	}
	for (int i = 0; i < pp * vp; i++) {
		fwd[i] = 1;
		bwd[i] = 2;
	}
	sched_simulate(&sim, s, pp, vp, fwd, bwd, 0, a);
	assert_false(sim.deadlock);
	assert_true(sim.step >= ideal);
	assert_true(fabs(sim.bubble - (1 - ideal / sim.step)) < 1e-12);
	/* The formula holds where every group of micro-batches is full. */
	if (group == pp && m % pp == 0)
		assert_true(fabs(sim.step / ideal - 1 -
				 (pp - 1) / ((double)m * vp)) < 1e-9);
}

static void test_every_small_schedule(void **state)
{
	struct arena a;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	for (int pp = 1; pp <= 6; pp++)
		for (int vp = 1; vp <= (pp > 1 ? 4 : 1); vp++)
			for (int m = 1; m <= 13; m++)
				for (int n = pp; n <= pp + 3; n++)
					if (vp == 1 ||
					    (n <= m &&
					     (m % n == 0 || m % n >= pp)))
						check_grid(pp, vp, m, n, &a);
	arena_close(&a);
}

static void test_transfers_cost_time(void **state)
{
	double fwd[2] = {1, 1}, bwd[2] = {2, 2};
	struct sched s[2];
	struct sched_sim sim;
	struct arena a;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	for (int r = 0; r < 2; r++)
		sched_build(&s[r], 2, r, 1, 1, 2, &a);
	sched_simulate(&sim, s, 2, 1, fwd, bwd, 0.5, &a);
	assert_true(fabs(sim.step - 7) < 1e-12);
	arena_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_orders),
		cmocka_unit_test(test_every_small_schedule),
		cmocka_unit_test(test_transfers_cost_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
