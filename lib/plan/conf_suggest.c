/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "lib/plan/conf.h"

enum { NAME_MAX_LEN = 63 };

/* Names of the same thing elsewhere: Megatron's command line, short forms. */
static const struct {
	const char *name, *use;
} aliases[] = {
	{"accumulate_allreduce_grads_in_fp32", "place.grad_reduce_in_fp32"},
	{"apply_layernorm_1p", "shape.layernorm_zero_centered_gamma"},
	{"bf16", "spec.params_dtype = \"bf16\""},
	{"cp", "place.context_parallel_size"},
	{"cuda_graph_scope", "spec.cuda_graph_modules"},
	{"data_parallel_size", "--world N, from which it follows"},
	{"decoder_first_pipeline_num_layers",
	 "place.num_layers_in_first_pipeline_stage"},
	{"decoder_last_pipeline_num_layers",
	 "place.num_layers_in_last_pipeline_stage"},
	{"disable_bias_linear", "shape.add_bias_linear = false"},
	{"dp", "--world N, from which it follows"},
	{"enable_cuda_graph", "spec.cuda_graph_impl = \"local\""},
	{"ep", "place.expert_model_parallel_size"},
	{"etp", "place.expert_tensor_parallel_size"},
	{"external_cuda_graph",
	 "spec.cuda_graph_impl = \"transformer_engine\""},
	{"fp16", "spec.params_dtype = \"fp16\""},
	{"fp4_format", "spec.fp4"},
	{"fp4_param_gather", "spec.fp4_param"},
	{"fp8_format", "spec.fp8"},
	{"fp8_param_gather", "spec.fp8_param"},
	{"group_query_attention", "shape.num_query_groups"},
	{"heads", "shape.num_attention_heads"},
	{"heterogeneous_layers_config_encoded_json",
	 "shape.heterogeneous_num_query_groups and "
	 "shape.heterogeneous_ffn_hidden_size"},
	{"heterogeneous_layers_config_path",
	 "shape.heterogeneous_num_query_groups and "
	 "shape.heterogeneous_ffn_hidden_size"},
	{"impl", "spec"},
	{"layers", "shape.num_layers"},
	{"model", "shape"},
	{"moe_enable_deepep", "spec.moe_flex_dispatcher_backend = \"deepep\""},
	{"moe_layer_recompute",
	 "place.recompute_granularity = \"selective\" with "
	 "place.recompute_modules = \"moe\""},
	{"moe_router_padding_for_fp8",
	 "spec.moe_router_padding_for_quantization"},
	{"moe_router_topk_limited_devices",
	 "shape.moe_router_group_topk with shape.moe_router_num_groups, which "
	 "do not depend on the cluster"},
	{"no_initialization", "run.perform_initialization = false"},
	{"no_overlap_p2p_communication", "place.overlap_p2p_comm = false"},
	{"norm_epsilon", "shape.layernorm_epsilon"},
	{"num_experts", "shape.num_moe_experts"},
	{"output_logit_dtype", "spec.logit_dtype"},
	{"pad_vocab_size", "place.should_pad_vocab"},
	{"padded_vocab_size", "shape.vocab_size (the true one) with "
			      "place.make_vocab_size_divisible_by"},
	{"parallel", "place"},
	{"placement", "place"},
	{"pp", "place.pipeline_model_parallel_size"},
	{"quick_geglu", "shape.gated_linear_unit = true with "
			"shape.activation_func = \"quick_gelu\""},
	{"rampup_batch_size", "run.step_batch_size_schedule"},
	{"save", "run.dir"},
	{"squared_relu", "shape.activation_func = \"relu2\""},
	{"swiglu", "shape.gated_linear_unit = true with "
		   "shape.activation_func = \"silu\""},
	{"te_rng_tracker", "spec.use_te_rng_tracker"},
	{"tp", "place.tensor_model_parallel_size"},
	{"train", "run"},
	{"training", "run"},
	{"untie_embeddings_and_output_weights",
	 "shape.share_embeddings_and_output_weights"},
	{"use_rope_scaling", "shape.rope_scaling"},
	{"use_rotary_position_embeddings",
	 "shape.position_embedding_type = \"rope\""},
	{"vocab", "shape.vocab_size"},
	{"vp", "place.virtual_pipeline_model_parallel_size"},
	{"world_size", "--world N"},
};

static int least(int a, int b)
{
	return a < b ? a : b;
}

static bool same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edits (insert, delete, change, swap) from A to B, whatever their case. */
static int distance(const char *a, const char *b)
{
	int la = (int)strlen(a), lb = (int)strlen(b);
	int row[3][NAME_MAX_LEN + 2], *now = row[0], *last = row[1],
				      *before = row[2], *spare;

	if (la > NAME_MAX_LEN || lb > NAME_MAX_LEN)
		return NAME_MAX_LEN;
	for (int j = 0; j <= lb; j++)
		last[j] = j;
	for (int i = 1; i <= la; i++) {
		now[0] = i;
		for (int j = 1; j <= lb; j++) {
			now[j] = least(last[j], now[j - 1]) + 1;
			now[j] = least(now[j],
				       last[j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
			    same(a[i - 2], b[j - 1]))
				now[j] = least(now[j], before[j - 2] + 1);
		}
		spare = before;
		before = last;
		last = now;
		now = spare;
	}
	return last[lb];
}

/* How far a name may be off and still be meant. */
static int tolerance(const char *name)
{
	int third = (int)strlen(name) / 3;

	return third < 1 ? 1 : least(third, 6);
}

static bool suggest_alias(struct conf *c, const char *name)
{
	for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++)
		if (!strcmp(aliases[i].name, name)) {
			report_suggest(c->report, "%s", aliases[i].use);
			return true;
		}
	return false;
}

void conf_suggest_group(struct conf *c, const char *name)
{
	if (suggest_alias(c, name))
		return;
	for (int t = 0; t < c->targets; t++)
		if (distance(name, c->target[t].group->name) <= tolerance(name))
			report_suggest(c->report, "%s",
				       c->target[t].group->name);
}

void conf_suggest_name(struct conf *c, const char *name)
{
	int best = tolerance(name) + 1;

	if (suggest_alias(c, name))
		return;
	for (int t = 0; t < c->targets; t++)
		for (int i = 0; i < c->target[t].group->count; i++)
			best = least(
				best,
				distance(name,
					 c->target[t].group->fields[i].name));
	if (best > tolerance(name))
		return;
	for (int t = 0; t < c->targets; t++) {
		const struct group *g = c->target[t].group;

		for (int i = 0; i < g->count; i++)
			if (distance(name, g->fields[i].name) == best)
				report_suggest(c->report, "%s.%s", g->name,
					       g->fields[i].name);
	}
}

bool conf_is_near(const char *name, const char *other)
{
	return distance(name, other) <= tolerance(name);
}

void conf_suggest_choice(struct report *r, const char *name,
			 const char *const *names)
{
	int best = tolerance(name) + 1;

	for (int i = 0; names[i]; i++)
		best = least(best, distance(name, names[i]));
	for (int i = 0; names[i]; i++)
		if (best > tolerance(name) || distance(name, names[i]) == best)
			report_suggest(r, "\"%s\"", names[i]);
}
