/* SPDX-License-Identifier: Apache-2.0 */
/* Rank grids: worked examples, and what must hold for all small ones. */
#include "lib/plan/grid.h"

#include "lib/plan/stage.h"
#include "test/config-test.h"

struct sizes {
	int world, tp, cp, pp, ep, etp; /* etp 0: not given */
	bool pp_before_dp;
};

static int build(const struct sizes *z, struct grid *g, struct err *e)
{
	struct place *p = arena_alloc(&arena, 1, sizeof(*p));
	struct shape *s = arena_alloc(&arena, 1, sizeof(*s));

	field_defaults(&place_group, p, &arena);
	field_defaults(&shape_group, s, &arena);
	p->tensor_model_parallel_size = z->tp;
	p->context_parallel_size = z->cp;
	p->pipeline_model_parallel_size = z->pp;
	p->expert_model_parallel_size = z->ep;
	if (z->etp)
		p->expert_tensor_parallel_size = z->etp;
	p->use_tp_pp_dp_mapping = z->pp_before_dp;
	place_finalize(p, s);
	return grid_build(g, p, z->world, e);
}

static struct grid grid_of(struct sizes z)
{
	struct grid g;
	struct err e;

	assert_int_equal(build(&z, &g, &e), 0);
	return g;
}

/* "8,9": the group of RANK along AXES. */
static const char *group(const struct grid *g, int rank, unsigned axes)
{
	int *ranks = arena_alloc(&arena, (size_t)g->world, sizeof(*ranks));
	int me = -1, n = grid_group(g, rank, axes, ranks, &me);
	const char *out = "";

	assert_int_equal(ranks[me], rank);
	for (int i = 0; i < n; i++)
		out = arena_printf(&arena, "%s%s%d", out, i ? "," : "",
				   ranks[i]);
	return out;
}

#define GROUP(rank, axes, want) assert_string_equal(group(&g, rank, axes), want)

static void test_x19_tp_pp(void **state)
{
	struct grid g = grid_of((struct sizes){16, 2, 1, 4, 1, 0, false});

	(void)state;
	assert_int_equal(g.dp, 2);
	GROUP(0, AXES(AXIS_TP), "0,1");
	GROUP(0, AXES(AXIS_DP), "0,2");
	GROUP(3, AXES(AXIS_DP), "1,3");
	GROUP(4, AXES(AXIS_DP), "4,6");
	GROUP(0, AXES(AXIS_PP), "0,4,8,12");
	GROUP(9, AXES(AXIS_PP), "1,5,9,13");
}

static void test_x20_cp(void **state)
{
	struct grid g = grid_of((struct sizes){16, 2, 2, 2, 1, 0, false});
	struct coord at = grid_coord(&g, 13);

	(void)state;
	assert_int_equal(g.dp, 2);
	assert_int_equal(at.tp, 1);
	assert_int_equal(at.cp, 0);
	assert_int_equal(at.dp, 1);
	assert_int_equal(at.pp, 1);
	GROUP(13, AXES(AXIS_TP), "12,13");
	GROUP(13, AXES(AXIS_CP), "13,15");
	GROUP(13, AXES(AXIS_DP), "9,13");
	GROUP(13, AXES(AXIS_PP), "5,13");
	GROUP(13, AXES_DP_CP, "9,11,13,15");
	GROUP(13, AXES(AXIS_TP) | AXES(AXIS_CP), "12,13,14,15");
	GROUP(13, AXES(AXIS_TP) | AXES(AXIS_PP), "4,5,12,13");
}

static void test_x21_experts(void **state)
{
	struct grid g = grid_of((struct sizes){32, 4, 1, 2, 4, 1, false});
	struct coord at = grid_coord(&g, 21);

	(void)state;
	assert_int_equal(g.dp, 4);
	assert_int_equal(g.edp, 4);
	assert_int_equal(at.tp, 1);
	assert_int_equal(at.dp, 1);
	assert_int_equal(at.pp, 1);
	assert_int_equal(at.ep, 1);
	assert_int_equal(at.edp, 1);
	GROUP(21, AXES(AXIS_EP), "20,21,22,23");
	GROUP(21, AXES(AXIS_ETP), "21");
	GROUP(21, AXES(AXIS_EDP), "17,21,25,29");
	GROUP(21, AXES(AXIS_PP), "5,21");
}

static void refused(struct sizes z, const char *why)
{
	struct grid g;
	struct err e;

	assert_int_equal(build(&z, &g, &e), -1);
	assert_int_equal(e.code, CODE_CONFIG);
	if (!strstr(e.text, why))
		fail_msg("%s, wanted %s", e.text, why);
}

static void test_x22_pp_before_dp(void **state)
{
	struct grid g = grid_of((struct sizes){16, 2, 1, 2, 1, 0, true});
	struct coord at = grid_coord(&g, 5);

	(void)state;
	assert_int_equal(g.dp, 4);
	assert_int_equal(at.tp, 1);
	assert_int_equal(at.pp, 0);
	assert_int_equal(at.dp, 1);
	GROUP(5, AXES(AXIS_PP), "5,7");
	GROUP(5, AXES(AXIS_DP), "1,5,9,13");
	refused((struct sizes){16, 2, 1, 2, 2, 2, true},
		"dp 4 but expert dp 2");
	g = grid_of((struct sizes){16, 2, 1, 2, 2, 1, true});
	assert_int_equal(g.edp, 4);
}

static void test_x23_both_grids_tile(void **state)
{
	struct grid g = grid_of((struct sizes){32, 2, 4, 2, 8, 0, false});

	(void)state;
	assert_int_equal(g.dp, 2);
	assert_int_equal(g.edp, 1);
	refused((struct sizes){24, 2, 1, 3, 8, 0, false},
		"etp 2 x ep 8 x pp 3 = 48");
	refused((struct sizes){16, 3, 1, 1, 1, 0, false},
		"world 16 is not a multiple of tp 3");
	refused((struct sizes){0, 1, 1, 1, 1, 0, false}, "world 0");
	refused((struct sizes){4, 65536, 65536, 65536, 1, 0, false},
		"not a multiple");
}

/* Ranks of the pipeline of rank 1 that hold the embedding or a copy. */
static const char *holders(bool tied, int mtp, const char *layout)
{
	struct grid g = grid_of((struct sizes){16, 2, 1, 4, 1, 0, false});
	struct place *p = arena_alloc(&arena, 1, sizeof(*p));
	struct shape *s = arena_alloc(&arena, 1, sizeof(*s));
	struct stages st;
	const char *out = "";
	int ranks[16], me;
	struct err e;

	field_defaults(&place_group, p, &arena);
	field_defaults(&shape_group, s, &arena);
	s->num_layers = 4;
	s->mtp_num_layers = mtp;
	p->pipeline_model_parallel_size = 4;
	p->pipeline_model_parallel_layout = layout;
	place_finalize(p, s);
	assert_int_equal(stages_build(&st, p, s, &arena, &e), 0);
	grid_group(&g, 1, AXES(AXIS_PP), ranks, &me);
	for (int i = 0; i < 4; i++)
		if (st.stage[i].embedding || (tied && st.stage[i].output_head))
			out = arena_printf(&arena, "%s%s%d", out,
					   *out ? "," : "", ranks[i]);
	return out;
}

static void test_x24_embedding(void **state)
{
	(void)state;
	assert_string_equal(holders(true, 0, NULL), "1,13");
	assert_string_equal(holders(false, 1, NULL), "1,13");
	assert_string_equal(holders(false, 1, "Ett|tt|m|L"), "1,9");
	assert_string_equal(holders(true, 1, "Ett|tt|m|L"), "1,9,13");
	assert_string_equal(holders(false, 0, NULL), "1");
}

/* Every rank is in exactly one group of each kind, and knows its place. */
static void check_partition(const struct grid *g, unsigned axes)
{
	int ranks[64], again[64], me, me2, seen[64] = {0};

	for (int r = 0; r < g->world; r++) {
		int n = grid_group(g, r, axes, ranks, &me);

		assert_int_equal(ranks[me], r);
		for (int i = 1; i < n; i++)
			assert_true(ranks[i] > ranks[i - 1]);
		seen[r] += ranks[0] == r ? n : 0;
		assert_int_equal(grid_group(g, ranks[0], axes, again, &me2), n);
		assert_memory_equal(ranks, again, (size_t)n * sizeof(int));
	}
	for (int r = 1; r < g->world; r++)
		seen[0] += seen[r];
	assert_int_equal(seen[0], g->world);
}

static void check_grid(const struct grid *g)
{
	static const unsigned axes[] = {
		AXES(AXIS_TP),	AXES(AXIS_CP), AXES(AXIS_DP),
		AXES(AXIS_PP),	AXES(AXIS_EP), AXES(AXIS_ETP),
		AXES(AXIS_EDP), AXES_DP_CP,    AXES(AXIS_TP) | AXES(AXIS_PP),
	};

	for (int r = 0; r < g->world; r++)
		assert_int_equal(grid_rank(g, grid_coord(g, r)), r);
	for (size_t i = 0; i < sizeof(axes) / sizeof(*axes); i++)
		check_partition(g, axes[i]);
}

static void test_all_small_grids(void **state)
{
	static const int sizes[] = {1, 2, 3, 4};
	int built = 0;
	struct grid g;
	struct err e;

	(void)state;
	for (int n = 0; n < 4 * 4 * 4 * 4 * 2 * 3; n++) {
		struct sizes z = {
			.tp = sizes[n % 4],
			.cp = sizes[n / 4 % 4],
			.pp = sizes[n / 16 % 4],
			.ep = sizes[n / 64 % 4],
			.pp_before_dp = n / 256 % 2,
			.world = 12 << (n / 512),
		};

		if (build(&z, &g, &e))
			continue;
		check_grid(&g);
		built++;
	}
	assert_true(built > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_x19_tp_pp),		TEST(test_x20_cp),
		TEST(test_x21_experts),		TEST(test_x22_pp_before_dp),
		TEST(test_x23_both_grids_tile), TEST(test_x24_embedding),
		TEST(test_all_small_grids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
