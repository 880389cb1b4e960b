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

/* Latent attention; and with whole queries, without norms of the latents. */
#define LATENT_WHOLE                                                          \
	"shape.multi_latent_attention=true shape.position_embedding_type="    \
	"\"rope\" shape.q_lora_rank=0 shape.kv_lora_rank=8 "                  \
	"shape.qk_head_dim=3 shape.qk_pos_emb_head_dim=4 shape.v_head_dim=5 " \
	"shape.rotary_scaling_factor=4.0"
#define LATENT LATENT_WHOLE " shape.q_lora_rank=12 shape.qk_layernorm=true"

/* Layers of all kinds; tp above the groups of some, and not of others. */
#define OWN                                                        \
	"shape.heterogeneous_num_query_groups=[8,2,0,-1,4,1,2,0] " \
	"shape.heterogeneous_ffn_hidden_size=[48,0,24,-1,64,16,-1,48]"

/* Layers that have attention. */
static inline double attentions(const struct shape *s)
{
	int n = 0;

	for (int64_t i = 0; i < s->num_layers; i++)
		n += shape_layer_groups(s, i) > 0;
	return n;
}

/* Linear layers in the place of halves. */
static inline double linears(const struct shape *s)
{
	int n = 0;

	for (int64_t i = 0; i < s->num_layers; i++)
		n += (shape_layer_groups(s, i) < 0) +
		     (shape_layer_ffn(s, i) < 0);
	return n;
}

/* Width of the feed-forward halves that a token goes through, all layers. */
static inline double ffn_width(const struct shape *s)
{
	double shared = 0, width = 0, own;

	if (IS_SET(s->moe_shared_expert_intermediate_size))
		shared = (double)s->moe_shared_expert_intermediate_size;
	for (int64_t n = 0; n < s->num_layers; n++) {
		own = (double)shape_layer_ffn(s, n);
		width += shape_is_moe(s, n) ? (double)(s->moe_router_topk *
						       s->moe_ffn_hidden_size) +
						      shared
			 : own > 0 ? own
				   : 0;
	}
	return width;
}

/* Latent attention's down projections. */
static inline double down_products(const struct shape *s)
{
	int64_t out = s->kv_lora_rank + s->qk_pos_emb_head_dim + s->q_lora_rank;

	return s->multi_latent_attention ? (double)(s->hidden_size * out) : 0;
}

/* Products of a token that each tp rank does by itself, all layers. */
static inline double whole_products(const struct shape *s)
{
	return attentions(s) * down_products(s) +
	       linears(s) * (double)(s->hidden_size * s->hidden_size);
}

/* Products of a token on the way to queries, keys and values. */
static inline double qkv_products(const struct shape *s, int64_t layer)
{
	int64_t rank = s->q_lora_rank ? s->q_lora_rank : s->hidden_size;
	int64_t q = s->qk_head_dim + s->qk_pos_emb_head_dim;
	int64_t kv = s->qk_head_dim + s->v_head_dim;

	if (!s->multi_latent_attention)
		return (double)(s->hidden_size * shape_qkv_rows(s, layer));
	return down_products(s) + (double)(s->num_attention_heads *
					   (rank * q + s->kv_lora_rank * kv));
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
	double heads = (double)s->num_attention_heads;
	double q = heads * (double)shape_head_width(s);
	double v = heads * (double)shape_value_width(s);
	double gate = s->gated_linear_unit ? 3 : 2;
	double token = gate * h * ffn_width(s) + linears(s) * h * h +
		       h * (double)padded_vocab;

	for (int64_t n = 0; n < s->num_layers; n++)
		if (shape_layer_groups(s, n) > 0)
			token += qkv_products(s, n) + v * h;
	return (6 * t * token + 3 * t * t * (q + v) * attentions(s)) *
	       (double)samples;
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
