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

/*
 * Edits (insert, delete, change, swap) from A to B, whatever their case; more
 * than MOST are MOST + 1.
 */
static int distance(const char *a, const char *b, int most)
{
	int la = (int)strlen(a), lb = (int)strlen(b);
	int row[3][NAME_MAX_LEN + 2], *now = row[0], *last = row[1],
				      *before = row[2], *spare;

	if (la > NAME_MAX_LEN || lb > NAME_MAX_LEN || la - lb > most ||
	    lb - la > most)
		return most + 1;
	for (int j = 0; j <= lb; j++)
		last[j] = before[j] = j;
	for (int i = 1; i <= la; i++) {
		int from = i > most ? i - most : 1, to = least(lb, i + most);
		int nearest = most + 1;

		/* far from the diagonal there are too many edits */
		now[from - 1] = from == 1 ? i : most + 1;
		if (to < lb)
			now[to + 1] = most + 1;
		for (int j = from; j <= to; j++) {
			now[j] = least(last[j], now[j - 1]) + 1;
			now[j] = least(now[j],
				       last[j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
			    same(a[i - 2], b[j - 1]))
				now[j] = least(now[j], before[j - 2] + 1);
			nearest = least(nearest, now[j]);
		}
		if (nearest > most)
			return most + 1;
		spare = before;
		before = last;
		last = now;
		now = spare;
	}
	return least(last[lb], most + 1);
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
	int most = tolerance(name);

	if (suggest_alias(c, name))
		return;
	for (int t = 0; t < c->targets; t++)
		if (distance(name, c->target[t].group->name, most) <= most)
			report_suggest(c->report, "%s",
				       c->target[t].group->name);
}

/* Suggest the rows of all groups that are BEST edits off. */
static void suggest_rows(struct conf *c, const char *name, int best)
{
	for (int t = 0; t < c->targets; t++) {
		const struct group *g = c->target[t].group;

		for (int i = 0; i < g->count; i++)
			if (distance(name, g->fields[i].name, best) == best)
				report_suggest(c->report, "%s.%s", g->name,
					       g->fields[i].name);
	}
}

void conf_suggest_name(struct conf *c, const char *name)
{
	int best = tolerance(name) + 1;

	if (suggest_alias(c, name))
		return;
	for (int t = 0; t < c->targets; t++) {
		const struct group *g = c->target[t].group;

		for (int i = 0; i < g->count && best; i++)
			best = least(best, distance(name, g->fields[i].name,
						    best - 1));
	}
	if (best <= tolerance(name))
		suggest_rows(c, name, best);
}

bool conf_is_near(const char *name, const char *other)
{
	int most = tolerance(name);

	return distance(name, other, most) <= most;
}

void conf_suggest_choice(struct report *r, const char *name,
			 const char *const *names)
{
	int most = tolerance(name), best = most + 1;

	for (int i = 0; names[i] && best; i++)
		best = least(best, distance(name, names[i], best - 1));
	for (int i = 0; names[i]; i++)
		if (best > most || distance(name, names[i], best) == best)
			report_suggest(r, "\"%s\"", names[i]);
}
