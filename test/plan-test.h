/* SPDX-License-Identifier: Apache-2.0 */
/* Small configs and a grid of layouts, for tests of plans. */
#ifndef TEST_PLAN_TEST_H
#define TEST_PLAN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/plan/place.h"
#include "lib/plan/plan.h"

#define LLAMA "test/data/stage/llama.cfg"
#define GPT2  "test/data/stage/gpt2.cfg"

/*
 * FILE with SETS ("place.x=1 run.y=2"), finished for WORLD.  Returns whether
 * it is valid.
 */
static inline bool plan_config(struct config *c, const char *file,
			       const char *sets, int world, struct arena *a)
{
	char *text = arena_strdup(a, sets), *at = text, *one;
	struct report r = {.arena = a};
	const char *list[24];
	struct err e;
	int n = 0;

	while ((one = strsep(&at, " ")))
		if (*one)
			list[n++] = one;
	if (config_load(file, list, n, a, c, &r, &e))
		fail_msg("%s", e.text);
	config_finish(c, world, &r);
	return report_count(&r, ERROR) == 0;
}

/* Multi-token prediction on a stage of its own: with 4 stages. */
#define DEPTHS_ALONE                                   \
	"shape.mtp_num_layers=2 place.pipeline_model_" \
	"parallel_layout=\"Etttt|tttt|mm|L\""

/* Mixtures of experts; and with a shared one, in every second layer. */
#define EXPERTS                                                \
	"shape.num_moe_experts=4 shape.add_bias_linear=false " \
	"run.moe_aux_loss_coeff=0.01"
#define EXPERTS_SHARED                                           \
	EXPERTS " shape.moe_shared_expert_intermediate_size=48 " \
		"shape.moe_layer_freq=2"

/* Experts on two ranks, with room for less than what comes. */
#define EXPERTS_APART                                             \
	EXPERTS_SHARED                                            \
	" place.expert_model_parallel_size=2 "                    \
	"shape.moe_router_score_function=\"sigmoid\" "            \
	"shape.moe_router_enable_expert_bias=true "               \
	"shape.moe_shared_expert_gate=true "                      \
	"run.moe_router_load_balancing_type=\"global_aux_loss\" " \
	"shape.moe_expert_capacity_factor=0.75"

/* Width of the feed-forward halves that a token goes through, all layers. */
static inline double ffn_width(const struct shape *s)
{
	double shared = 0, width = 0;

	if (IS_SET(s->moe_shared_expert_intermediate_size))
		shared = (double)s->moe_shared_expert_intermediate_size;
	for (int64_t n = 0; n < s->num_layers; n++)
		width += shape_is_moe(s, n) ? (double)(s->moe_router_topk *
						       s->moe_ffn_hidden_size) +
						      shared
					    : (double)s->ffn_hidden_size;
	return width;
}

/*
 * FLOPs of forward and backward on SAMPLES samples, by Megatron's formula
 * (num_floating_point_operations): products only, causal attention halved,
 * the head over PADDED_VOCAB columns, no routers, no recompute.
 */
static inline double flops_model(const struct shape *s, int64_t padded_vocab,
				 int64_t samples)
{
	double h = (double)s->hidden_size, t = (double)s->seq_length;
	double q = (double)(s->num_attention_heads * s->kv_channels);
	double qkv = (double)shape_qkv_rows(s);
	double gate = s->gated_linear_unit ? 3 : 2;
	double token = gate * h * ffn_width(s) +
		       (double)s->num_layers * (h * qkv + q * h) +
		       h * (double)padded_vocab;
	double sample = 6 * t * token + 6 * t * t * q * (double)s->num_layers;

	return sample * (double)samples;
}

/* One layout of the grid. */
struct plan_case {
	const char *file, *sets;
	int world;
};

/* How a pipeline is cut, beside the even ways. */
static const char *const plan_cuts[] = {
	"",
	"place.virtual_pipeline_model_parallel_size=2",
	"place.num_layers_in_first_pipeline_stage=1",
	"place.num_layers_in_first_pipeline_stage=1 "
	"place.num_layers_in_last_pipeline_stage=3",
	"place.account_for_embedding_in_pipeline_split=true "
	"place.account_for_loss_in_pipeline_split=true",
	"place.pipeline_model_parallel_layout=\"E|ttt|tttt|tL\"",
	"place.pipeline_model_parallel_layout=\"Et|(tt|)*3t|||L\"",
};

/*
 * Call VISIT for every valid layout of both models, with SETS besides, with
 * tp, pp, dp up to 8
 * and at most MOST ranks, sequence parallelism and ZeRO-1 on and off; returns
 * how many there were.
 */
static inline int plan_grid(int most, const char *sets,
			    void (*visit)(const struct plan_case *,
					  const struct config *,
					  struct arena *))
{
	int cuts = sizeof(plan_cuts) / sizeof(*plan_cuts), cases = 0;

	for (int k = 0; k < 2 * 4 * 8 * 3 * 4 * cuts; k++) {
		int cut = k % cuts, flags = k / cuts % 4;
		int dp = k / cuts / 4 % 3 + 1, pp = k / cuts / 12 % 8 + 1;
		int tp = 1 << k / cuts / 96 % 4;
		struct plan_case x = {
			.file = k / cuts / 384 ? GPT2 : LLAMA,
			.world = tp * pp * dp,
		};
		struct config c;
		struct arena a;
		struct err e;

		if (x.world > most)
			continue;
		assert_int_equal(arena_open(&a, &e), 0);
		x.sets = arena_printf(
			&a,
			"place.tensor_model_parallel_size=%d "
			"place.pipeline_model_parallel_size=%d "
			"place.sequence_parallel=%s "
			"place.use_distributed_optimizer=%s %s %s",
			tp, pp, flags & 1 ? "true" : "false",
			flags & 2 ? "true" : "false", plan_cuts[cut], sets);
		if (plan_config(&c, x.file, x.sets, x.world, &a)) {
			visit(&x, &c, &a);
			cases++;
		}
		arena_close(&a);
	}
	return cases;
}

#endif
