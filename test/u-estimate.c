/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates against the plan, against counts, and against measured steps. */
#include "test/plan-test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "lib/plan/estimate_rule.h"
#include "lib/plan/gpu.h"
#include "lib/plan/sum.h"

/* |a / b - 1| */
static double off(double a, double b)
{
	return b > 0 ? fabs(a / b - 1) : fabs(a);
}

/* Activations of a tiny model may be off by this much; see visit_real. */
static double act_most;
static int planned;

static void compare_bytes(const struct plan_case *x, int pp, const int64_t *got,
			  const int64_t *want)
{
	for (int f = 0; f < FAMILIES; f++)
		if (off((double)got[f], (double)want[f]) >
		    (f == FAMILY_ACT ? act_most : 0))
			fail_msg("%s %s: pp rank %d has %" PRId64
				 " bytes of %s, not %" PRId64,
				 x->file, x->sets, pp, got[f], family_name(f),
				 want[f]);
}

static void compare_flops(const struct plan_case *x, int pp,
			  const struct estimate_rank *got,
			  const struct sum *want)
{
	double flops[2] = {0};

	for (int i = pp; i < want->stages.count; i += want->grid.pp) {
		flops[0] += want->stage[i].forward;
		flops[1] += want->stage[i].backward;
	}
	for (int k = 0; k < 2; k++)
		if (off(got->flops[k], flops[k]) > 1e-12)
			fail_msg("%s: pp rank %d has %.0f FLOPs, not %.0f",
				 x->sets, pp, got->flops[k], flops[k]);
}

/* Of a config that train-worker runs the plan knows everything. */
static void visit_planned(const struct plan_case *x, const struct config *c,
			  struct arena *a)
{
	const struct cluster cl = {.world = x->world};
	struct estimate t;
	struct sum s;
	struct err e;

	if (sum_build(&s, c, x->world, a, &e) ||
	    estimate_build(&t, c, &cl, a, &e))
		fail_msg("%s", e.text);
	assert_int_equal(t.pp, s.grid.pp);
	assert_true(s.planned);
	planned++;
	for (int pp = 0; pp < s.grid.pp; pp++) {
		compare_bytes(x, pp, t.rank[pp].bytes, s.rank[pp].bytes);
		compare_flops(x, pp, &t.rank[pp], &s);
		assert_true(estimate_bytes(&t.rank[pp]) <= t.memory);
	}
	assert_int_equal(estimate_bytes(&t.rank[t.worst]), t.memory);
}

static void test_planned(void **state)
{
	int cases;

	(void)state;
	act_most = 0.1;
	cases = plan_grid(8, "run.micro_batch_size=2 run.global_batch_size=48",
			  visit_planned);
	cases += plan_grid(4, LATENT, visit_planned);
	cases += plan_grid(4, LATENT_WHOLE, visit_planned);
	cases += plan_grid(8, OWN, visit_planned);
	cases += plan_grid(4, OWN " shape.mtp_num_layers=2", visit_planned);
	assert_int_equal(cases, planned);
	assert_true(planned > 400);
	act_most = 0.2; /* some of them have 30 KiB in all */
	plan_grid(4, "spec.device=cuda spec.params_dtype=bf16", visit_planned);
	plan_grid(4, OWN " spec.device=cuda spec.params_dtype=bf16",
		  visit_planned);
}

/* The heads of DeepSeek-V3, on CPUs. */
#define LATENT_LARGE                                                \
	"spec.device=cpu spec.params_dtype=fp32 "                   \
	"shape.multi_latent_attention=true shape.q_lora_rank=1536 " \
	"shape.kv_lora_rank=512 shape.qk_layernorm=true"

/* Models of the sizes that people train: nothing is off by more than 5%. */
static void test_real_sizes(void **state)
{
	static const struct plan_case cases[] = {
		{"etc/gpt2-124M.cfg", "", 1},
		{"etc/gpt2-124M.cfg",
		 "spec.device=cuda spec.params_dtype=bf16 "
		 "run.micro_batch_size=64",
		 2},
		{"etc/gpt2-124M.cfg",
		 "spec.device=cuda spec.params_dtype=bf16 "
		 "place.tensor_model_parallel_size=4 "
		 "place.sequence_parallel=true",
		 8},
		{"etc/gpt2-124M.cfg",
		 "spec.device=cuda spec.params_dtype=bf16 "
		 "place.pipeline_model_parallel_size=4",
		 4},
		{"etc/llama3-8B.cfg", "", 4},
		{"etc/llama3-8B.cfg", "run.global_batch_size=64", 16},
		{"etc/llama3-8B.cfg",
		 "place.pipeline_model_parallel_size=8 "
		 "place.tensor_model_parallel_size=8 "
		 "run.global_batch_size=64",
		 64},
		{"etc/llama3-8B.cfg",
		 "place.pipeline_model_parallel_size=16 "
		 "place.num_virtual_stages_per_pipeline_rank=1 "
		 "run.global_batch_size=64",
		 32},
		{"etc/llama3-8B.cfg", LATENT_LARGE, 4},
		{"etc/llama3-8B.cfg",
		 LATENT_LARGE " shape.q_lora_rank=0 "
			      "place.tensor_model_parallel_size=8 "
			      "place.pipeline_model_parallel_size=1 "
			      "place.num_virtual_stages_per_pipeline_rank=1 "
			      "run.global_batch_size=64",
		 16},
	};

	(void)state;
	act_most = 0.05;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct config c;
		struct arena a;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		assert_true(plan_config(&c, cases[i].file, cases[i].sets,
					cases[i].world, &a));
		visit_planned(&cases[i], &c, &a);
		arena_close(&a);
	}
}

/* FILE of FORMAT with SETS on one rank, with a batch if it has none. */
static void load_one(struct config *c, enum config_format format,
		     const char *file, const char *sets, struct arena *a)
{
	char *text = arena_printf(a,
				  "run.micro_batch_size=1 "
				  "run.global_batch_size=8 "
				  "place.should_pad_vocab=false %s",
				  sets),
	     *one;
	struct report r = {.arena = a};
	const char *list[24];
	struct err e;
	int n = 0;

	while ((one = strsep(&text, " ")))
		if (*one)
			list[n++] = one;
	if (config_load_as(format, file, list, n, a, c, &r, &e))
		fail_msg("%s", e.text);
	config_finish(c, 1, &r);
	for (size_t i = 0; i < r.count; i++)
		if (r.list[i].severity == ERROR)
			fail_msg("%s %s: %s", file, sets, r.list[i].message);
}

static void count_one(enum config_format format, const char *file,
		      const char *sets)
{
	struct machine m = {.gpu = gpu_table, .per_node = 8};
	struct stage all = {.embedding = true, .output_head = true};
	struct stage_cost cost;
	struct estimator s;
	struct config c;
	struct arena a;
	struct err e;
	double n = 0;

	for (int i = 0; i < PROG_GROUPS; i++)
		m.span[i] = (struct span){1, 1};
	assert_int_equal(arena_open(&a, &e), 0);
	load_one(&c, format, file, sets, &a);
	estimator_open(&s, &c.shape, &a);
	estimator_build(&s, &c, &m);
	all.num_layers = c.shape.num_layers;
	all.mtp_layers = c.shape.mtp_num_layers;
	estimator_stage(&s, &c.place, &all, &cost);
	for (int i = 0; i < CLASSES; i++)
		n += cost.params[i];
	if ((int64_t)n != shape_parameters(&c.shape))
		fail_msg(
			"%s %s: works have %.0f parameters, the model %" PRId64,
			file, sets, n, shape_parameters(&c.shape));
	arena_close(&a);
}

/* What the works of all layers compute with is the model, no more, no less. */
static void test_parameters(void **state)
{
	static const char *const hf[] = {
		"gpt2",	      "llama-3-70b",	  "mixtral-8x7b",
		"qwen2-7b",   "qwen3-30b-a3b",	  "qwen1.5-moe-a2.7b",
		"qwen3-8b",   "deepseek-v2-lite", "deepseek-v3",
		"mistral-7b", "nemotron-nas",
	};
	static const char *const sets[] = {
		OWN,
		OWN " shape.mtp_num_layers=2 shape.add_bias_linear=true",
		"shape.attention_output_gate=true",
		"shape.softmax_type=learnable",
		"shape.qk_layernorm=true shape.add_bias_linear=true",
		"shape.mtp_num_layers=2",
		"shape.mtp_num_layers=3 shape.mtp_use_repeated_layer=true",
		"shape.enable_mhc_connections=true",
		"shape.num_moe_experts=4 shape.moe_latent_size=16 "
		"shape.moe_ffn_hidden_size=64",
		"shape.num_moe_experts=4 shape.moe_ffn_hidden_size=64 "
		"shape.moe_shared_expert_intermediate_size=32 "
		"shape.moe_shared_expert_gate=true shape.moe_layer_freq=2",
		"shape.experimental_attention_variant=gdn "
		"shape.linear_attention_freq=4 "
		"shape.linear_conv_kernel_dim=4 shape.linear_key_head_dim=8 "
		"shape.linear_value_head_dim=8 shape.linear_num_key_heads=4 "
		"shape.linear_num_value_heads=8",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(hf) / sizeof(*hf); i++) {
		char file[80];

		snprintf(file, sizeof(file), "test/data/hf/%s.json", hf[i]);
		count_one(CONFIG_HF, file, "");
	}
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		count_one(CONFIG_OWN, LLAMA, sets[i]);
	count_one(CONFIG_OWN, GPT2, "");
}

static void test_flops(void **state)
{
	static const char *const files[] = {LLAMA, GPT2, "etc/llama3-8B.cfg"};
	struct config c;
	struct arena a;
	struct err e;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(arena_open(&a, &e), 0);
		load_one(&c, CONFIG_OWN, files[i],
			 "place.tensor_model_parallel_size=1 "
			 "place.pipeline_model_parallel_size=1 "
			 "place.num_virtual_stages_per_pipeline_rank=1 "
			 "place.sequence_parallel=false",
			 &a);
		assert_true(off(estimate_flops(&c),
				flops_model(&c.shape, c.shape.vocab_size, 8)) <
			    1e-12);
		arena_close(&a);
	}
}

/* The closed form is near the simulation, whatever the stages take. */
static void test_pipeline(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (int n = 0; n < 400; n++) {
		struct pipeline p = {.pp = 1 << n % 4,
				     .vp = n % 4 ? 1 + n / 4 % 3 : 1,
				     .m = 8 << n / 12 % 3};
		int count = p.pp * p.vp;
		struct stage_cost cost[24] = {0};
		struct sched sched[8];
		struct sched_sim sim;
		double time[48], quick;
		struct arena a;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		p.group = p.pp;
		for (int i = 0; i < count; i++)
			for (int k = 0; k < 2; k++) {
				seed = seed * 1664525 + 1013904223;
				time[k * count + i] = cost[i].time[k] =
					(1 + k) *
					(1 + (double)(seed >> 16) / 65536 / 4);
			}
		for (int r = 0; r < p.pp; r++)
			sched_build(&sched[r], p.pp, r, p.vp, p.m, p.group, &a);
		sched_simulate(&sim, sched, p.pp, p.vp, time, time + count, 0,
			       &a);
		quick = estimate_pipeline(&p, cost);
		if (off(quick, sim.step) > 0.1)
			fail_msg("pp %d vp %d m %d: %.3f, simulated %.3f", p.pp,
				 p.vp, p.m, quick, sim.step);
		arena_close(&a);
	}
}

/* Memory and seconds of FILE with SETS. */
static struct estimate estimate_of(const char *file, const char *sets,
				   int world, int per_node)
{
	const struct cluster cl = {.world = world, .gpus_per_node = per_node};
	struct estimate t;
	struct config c;
	struct arena a;
	struct err e;

	assert_int_equal(arena_open(&a, &e), 0);
	if (!plan_config(&c, file, sets, world, &a))
		fail_msg("%s is not valid for %d", sets, world);
	if (estimate_build(&t, &c, &cl, &a, &e))
		fail_msg("%s", e.text);
	arena_close(&a);
	return t;
}

/* Each of these needs less memory than the one before, and more time. */
static void test_trades(void **state)
{
	static const char *const sets[] = {
		"",
		"place.recompute_granularity=full "
		"place.recompute_method=block place.recompute_num_layers=3",
		"place.recompute_granularity=full "
		"place.recompute_method=block place.recompute_num_layers=6",
		"place.recompute_granularity=full "
		"place.recompute_method=uniform place.recompute_num_layers=1",
	};
	static const char away[] =
		"place.fine_grained_activation_offloading=true "
		"place.offload_modules=[\"qkv_linear\",\"core_attn\"]";
	static const char modules[] =
		"place.recompute_granularity=selective "
		"place.recompute_modules=[\"layernorm\",\"mlp\"]";
	struct estimate before = {.memory = INT64_MAX}, one;

	(void)state;
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		struct estimate t =
			estimate_of("etc/llama3-8B.cfg", sets[i], 4, 8);

		assert_true(t.memory < before.memory);
		assert_true(t.step > before.step);
		before = t;
	}
	before = estimate_of("etc/llama3-8B.cfg", sets[0], 4, 8);
	one = estimate_of("etc/llama3-8B.cfg", modules, 4, 8);
	assert_true(one.memory < before.memory && one.step > before.step);
	one = estimate_of("etc/llama3-8B.cfg", away, 4, 8);
	assert_true(one.memory < before.memory);
	one = estimate_of("etc/llama3-8B.cfg", "spec.fp8=hybrid", 4, 8);
	assert_true(one.step < before.step / 1.1);
}

static void test_sharding(void **state)
{
	static const char *const names[] = {"no_shard", "optim", "optim_grads",
					    "optim_grads_params"};
	int64_t before = INT64_MAX;

	(void)state;
	for (int i = 0; i < 4; i++) {
		char sets[200];
		struct estimate t;

		snprintf(sets, sizeof(sets),
			 "run.global_batch_size=64 "
			 "place.use_distributed_optimizer=%s "
			 "place.data_parallel_sharding_strategy=%s",
			 i ? "true" : "false", names[i]);
		t = estimate_of("etc/llama3-8B.cfg", sets, 16, 8);
		assert_true(t.memory < before);
		before = t.memory;
	}
}

/* The same ranks take longer where their groups leave a node. */
static void test_nodes(void **state)
{
	const char *sets = "run.global_batch_size=64 "
			   "place.tensor_model_parallel_size=4";
	struct estimate wide = estimate_of("etc/llama3-8B.cfg", sets, 16, 8);
	struct estimate thin = estimate_of("etc/llama3-8B.cfg", sets, 16, 2);

	(void)state;
	assert_true(thin.step > 1.2 * wide.step);
	assert_int_equal(thin.memory, wide.memory);
}

/* A measured step and what is said of it. */
struct measured {
	char model[256];
	int world;
	double want, got;
};

/* Of the same work the one that was faster is also said to be. */
static void check_order(struct measured *all, int n)
{
	const struct measured *x = &all[n];

	for (int i = 0; i < n; i++) {
		const struct measured *y = &all[i];

		if (x->world > 1 && x->world == y->world &&
		    !strcmp(x->model, y->model) &&
		    (x->want < y->want) != (x->got < y->got))
			fail_msg("%s: %.1f and %.1f ms, measured %.1f and "
				 "%.1f",
				 x->model, x->got, y->got, x->want, y->want);
	}
}

static void check_step(char *line, struct measured *out)
{
	double want = strtod(strsep(&line, "\t"), NULL);
	int world = atoi(strsep(&line, "\t"));
	const char *file = strsep(&line, "\t");
	struct estimate t = estimate_of(file, line, world, 8);

	print_message("# %s: %.1f ms, measured %.1f (%+.1f%%)\n", line,
		      1e3 * t.step, want, 100 * (1e3 * t.step / want - 1));
	if (off(1e3 * t.step, want) > 0.15)
		fail_msg("%s: %.1f ms, measured %.1f", line, 1e3 * t.step,
			 want);
	*out = (struct measured){
		.world = world, .want = want, .got = 1e3 * t.step};
	/* What comes before the placement is the model. */
	snprintf(out->model, sizeof(out->model), "%s", line);
	if (strstr(out->model, " place."))
		*strstr(out->model, " place.") = 0;
}

static void test_measured(void **state)
{
	FILE *f = fopen("test/data/h200-steps.tsv", "r");
	struct measured all[64];
	char line[1024];
	int n = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (*line == '#')
			continue;
		assert_true(n < 64);
		check_step(line, &all[n]);
		check_order(all, n++);
	}
	fclose(f);
	assert_true(n >= 21);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planned),
		cmocka_unit_test(test_real_sizes),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_flops),
		cmocka_unit_test(test_pipeline),
		cmocka_unit_test(test_trades),
		cmocka_unit_test(test_sharding),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
