/* SPDX-License-Identifier: Apache-2.0 */
/* Sums: one program for each pp rank stands for all; totals fit the model. */
#include "test/plan-test.h"

#include <math.h>
#include <sys/resource.h>
#include <time.h>

#include "lib/plan/show.h"

/* Elements of the pieces of P that count, of no other rank, by stage. */
static void count_pieces(const struct plan *p, int64_t *stage)
{
	for (int i = 0; i < p->slice.params; i++) {
		const struct param *x = &p->slice.param[i];
		int s = x->chunk * p->stages.pp + p->slice.at.pp;

		if (p->slice.flat[x->cls].d || x->counts)
			continue;
		for (int k = 0; k < x->pieces; k++) {
			const struct piece *y =
				&p->slice.piece[x->first_piece + k];

			if (y->replica == 0)
				stage[s] += box_elements(&y->box);
		}
	}
}

/* FLOPs of a step on P by stage, from all its micro-batches. */
static void count_flops(const struct plan *p, double *stage)
{
	const struct prog_list *l = &p->prog.train;

	for (int i = 0; i < l->count; i++)
		if (l->op[i].flops > 0)
			stage[l->op[i].chunk * p->stages.pp + p->slice.at.pp] +=
				l->op[i].flops;
}

/* The shortcut gives what building every rank gives. */
static void check_every_rank(const struct plan_case *x, const struct config *c,
			     struct arena *a)
{
	int64_t parameters[64] = {0};
	double flops[64] = {0};
	struct sum s;
	struct err e;

	assert_int_equal(sum_build(&s, c, x->world, a, &e), 0);
	assert_true(s.counted && s.planned);
	for (int r = 0; r < x->world; r++) {
		const struct sum_rank *want;
		struct sum_rank got;
		struct plan p;

		assert_int_equal(plan_build(&p, c, x->world, r, a, &e), 0);
		sum_plan(&got, &p);
		want = &s.rank[p.slice.at.pp];
		assert_int_equal(got.parameters, want->parameters);
		assert_memory_equal(got.bytes, want->bytes, sizeof(got.bytes));
		assert_memory_equal(got.flops, want->flops, sizeof(got.flops));
		assert_memory_equal(got.comm, want->comm, sizeof(got.comm));
		count_pieces(&p, parameters);
		if (p.slice.at.dp == 0)
			count_flops(&p, flops);
	}
	for (int i = 0; i < s.stages.count; i++) {
		const struct sum_stage *st = &s.stage[i];

		assert_int_equal(st->parameters, parameters[i]);
		assert_true((st->forward + st->backward) * s.microbatches *
				    s.grid.tp ==
			    flops[i]);
	}
}

static void test_one_rank_stands_for_all(void **state)
{
	(void)state;
	assert_true(plan_grid(8, "", check_every_rank) > 300);
	assert_true(plan_grid(8, "shape.mtp_num_layers=2", check_every_rank) >
		    150);
	assert_true(plan_grid(8, DEPTHS_ALONE, check_every_rank) > 10);
	assert_true(plan_grid(8, EXPERTS_SHARED, check_every_rank) > 100);
	assert_true(plan_grid(8, EXPERTS_APART, check_every_rank) > 30);
	assert_true(plan_grid(8, LATENT, check_every_rank) > 100);
	assert_true(plan_grid(8, OWN " shape.mtp_num_layers=2",
			      check_every_rank) > 100);
}

/*
 * Megatron's count, the scores that attention's backward computes again,
 * routers, and k and v of the ranks that hold copies of their weights.
 */
static double model_flops(const struct sum *s)
{
	const struct shape *x = &s->config->shape;
	int64_t samples = s->config->run.micro_batch_size;
	int64_t rows = place_padded_vocab(&s->config->place, x->vocab_size);
	double t = (double)x->seq_length, d = (double)shape_head_width(x);
	double scores = t * t * (double)x->num_attention_heads * d;
	double copies = 0, routers = 0, all = 2, own = 4, whole = 0;

	for (int64_t n = 0; n < x->num_layers; n++)
		if (shape_layer_groups(x, n) > 0 &&
		    s->grid.tp > shape_layer_groups(x, n))
			copies +=
				(double)(s->grid.tp - shape_layer_groups(x, n));
	/* every tp rank routes all rows, and without sp backwards, too */
	if (s->config->place.sequence_parallel && s->grid.tp > 1)
		own /= s->grid.tp;
	/* and so it is with other products of all rows */
	else
		whole = 6 * t * whole_products(x) * (s->grid.tp - 1);
	for (int64_t n = 0; n < x->num_layers; n++)
		routers += shape_is_moe(x, n);
	routers *= (all + own) * s->grid.tp * t *
		   (double)(samples * x->num_moe_experts * x->hidden_size);
	return flops_model(x, rows, samples) + routers +
	       (double)samples *
		       (attentions(x) * scores + whole +
			6 * t * 2 * d * copies * (double)x->hidden_size);
}

static void check_totals(const struct plan_case *x, const struct config *c,
			 struct arena *a)
{
	double flops = 0, busy = 0, idle;
	int64_t parameters = 0;
	struct sum s;
	struct err e;

	assert_int_equal(sum_build(&s, c, x->world, a, &e), 0);
	for (int i = 0; i < s.stages.count; i++) {
		parameters += s.stage[i].parameters;
		flops += (s.stage[i].forward + s.stage[i].backward) * s.grid.tp;
	}
	assert_int_equal(parameters, shape_parameters(&c->shape));
	assert_true(flops == model_flops(&s));
	for (int pp = 0; pp < s.grid.pp; pp++)
		for (int k = 0; k < KINDS; k++)
			busy += s.rank[pp].flops[k];
	idle = s.grid.pp * s.sim.step - busy;
	assert_true(fabs(s.sim.bubble * s.grid.pp * s.sim.step - idle) <
		    1e-9 * busy);
	assert_true(s.sim.bubble >= 0 && s.sim.bubble < 1);
	assert_true(s.grid.pp > 1 || s.sim.bubble < 1e-12);
}

static void test_totals_are_the_model(void **state)
{
	(void)state;
	assert_true(plan_grid(24, "", check_totals) > 900);
	assert_true(plan_grid(8, EXPERTS_SHARED, check_totals) > 100);
	assert_true(plan_grid(8, LATENT, check_totals) > 100);
	assert_true(plan_grid(4, LATENT_WHOLE, check_totals) > 60);
	assert_true(plan_grid(8, OWN, check_totals) > 100);
}

/* What is not served yet leaves out what is not known. */
static void test_unserved(void **state)
{
	struct config c;
	struct arena a;
	struct sum s;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_true(plan_config(
		&c, LLAMA, "place.recompute_granularity=\"selective\"", 1, &a));
	assert_int_equal(sum_build(&s, &c, 1, &a, &e), 0);
	assert_true(s.counted && !s.planned);
	assert_int_equal(s.stage[0].parameters, shape_parameters(&c.shape));
	assert_true(sum_knows(&s, FAMILY_OPTIM) && !sum_knows(&s, FAMILY_ACT));
	assert_true(s.rank[0].bytes[FAMILY_PARAM] > 0);
	assert_true(plan_config(&c, LLAMA, "shape.attention_output_gate=true",
				1, &a));
	assert_int_equal(sum_build(&s, &c, 1, &a, &e), 0);
	assert_true(!s.counted && !s.planned && !sum_knows(&s, FAMILY_PARAM));
	arena_close(&a);
}

/* "0,1 2,3 ": all groups of one kind. */
static const char *groups_text(const struct sum *s, int group, struct arena *a)
{
	const char *text = "";
	int ranks[64];

	for (int r = 0; r < s->grid.world; r++) {
		int n = sum_group_first(s, group, r)
				? sum_group(s, group, r, ranks)
				: 0;

		for (int i = 0; i < n; i++)
			text = arena_printf(a, "%s%d%s", text, ranks[i],
					    i < n - 1 ? "," : " ");
	}
	return text;
}

static const struct {
	const char *sets;
	int world, group;
	const char *want; /* how it begins */
} groups[] = {
	{"place.tensor_model_parallel_size=2 "
	 "place.pipeline_model_parallel_size=4",
	 16, SUM_DP, "0,2 1,3 4,6 "},
	{"place.tensor_model_parallel_size=2 "
	 "place.pipeline_model_parallel_size=4",
	 16, SUM_PP, "0,4,8,12 1,5,9,13 "},
	{"place.tensor_model_parallel_size=2 place.context_parallel_size=2 "
	 "place.pipeline_model_parallel_size=2",
	 16, SUM_DP_CP, "0,2,4,6 1,3,5,7 8,10,12,14 9,11,13,15 "},
	{"place.tensor_model_parallel_size=4 "
	 "place.pipeline_model_parallel_size=2 shape.num_moe_experts=8 "
	 "place.expert_model_parallel_size=4 "
	 "place.expert_tensor_parallel_size=1 place.sequence_parallel=true",
	 32, SUM_EDP, "0,4,8,12 1,5,9,13 2,6,10,14 3,7,11,15 16,20,24,28 "},
	{"place.tensor_model_parallel_size=2 "
	 "place.pipeline_model_parallel_size=2",
	 8, SUM_EMBEDDING, "0 1 2 3 "},
	{"place.tensor_model_parallel_size=2 "
	 "place.pipeline_model_parallel_size=2 "
	 "shape.share_embeddings_and_output_weights=true",
	 8, SUM_EMBEDDING, "0,4 1,5 2,6 3,7 "},
	{"place.pipeline_model_parallel_size=4 shape.mtp_num_layers=1 "
	 "shape.share_embeddings_and_output_weights=true "
	 "place.pipeline_model_parallel_layout=\"Et*4|t*4|m|L\"",
	 4, SUM_EMBEDDING, "0,2,3 "},
	{"place.pipeline_model_parallel_size=4 shape.mtp_num_layers=1 "
	 "place.pipeline_model_parallel_layout=\"Et*4|t*4|m|L\"",
	 4, SUM_EMBEDDING, "0,2 "},
};

/* As Megatron makes them. */
static void test_groups(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		char batch[64];
		struct config c;
		struct arena a;
		struct sum s;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		snprintf(batch, sizeof(batch), " run.global_batch_size=%d",
			 groups[i].world);
		plan_config(&c, LLAMA,
			    arena_printf(&a, "%s%s", groups[i].sets, batch),
			    groups[i].world, &a);
		assert_int_equal(sum_build(&s, &c, groups[i].world, &a, &e), 0);
		if (strncmp(groups_text(&s, groups[i].group, &a),
			    groups[i].want, strlen(groups[i].want)) != 0)
			fail_msg("%s: %s", groups[i].sets,
				 groups_text(&s, groups[i].group, &a));
		arena_close(&a);
	}
}

/* A large world costs little: seconds of a processor, and memory. */
static void test_large_world(void **state)
{
	struct cluster cl = {.world = 16384, .gpus_per_node = 8};
	struct estimate estimate;
	struct show show = {.file = "large",
			    .world_from = "",
			    .cluster = &cl,
			    .estimate = &estimate};
	struct config c;
	struct rusage use;
	struct arena a;
	clock_t from = clock();
	struct sum s;
	struct err e;
	FILE *f = tmpfile();

	(void)state;
	assert_non_null(f);
	assert_int_equal(arena_open(&a, &e), 0);
	assert_true(plan_config(
		&c, LLAMA,
		"shape.num_layers=128 place.tensor_model_parallel_size=8 "
		"place.pipeline_model_parallel_size=16 "
		"place.virtual_pipeline_model_parallel_size=4 "
		"run.global_batch_size=4096",
		16384, &a));
	assert_int_equal(sum_build(&s, &c, 16384, &a, &e), 0);
	assert_int_equal(cluster_gpu(&cl, NULL, &e), 0);
	assert_int_equal(estimate_build(&estimate, &c, &cl, &a, &e), 0);
	show.sum = &s;
	show.a = &a;
	show_json(f, &show, -1);
	show_svg(f, &show);
	show_table(f, &show);
	assert_true(ftell(f) > 4 << 20);
	fclose(f);
	assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
#ifndef __SANITIZE_ADDRESS__
	assert_true(use.ru_maxrss < 256 << 10);
	assert_true(clock() - from < 8 * CLOCKS_PER_SEC);
#else
	(void)from;
#endif
	arena_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_large_world),
		cmocka_unit_test(test_one_rank_stands_for_all),
		cmocka_unit_test(test_totals_are_the_model),
		cmocka_unit_test(test_unserved),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
