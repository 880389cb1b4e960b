/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/import_megatron.h"

#define CLI "default of Megatron's command line"

/* A note on what the command line does without a word. */
static void corrected(struct import *im, const struct flag *flag,
		      const char *path, const char *what)
{
	struct import_source from = import_source(im, flag);

	report_add(im->report, "import-corrected", NOTE, path, &from.at,
		   "%s: %s", flag->name, what);
}

/* Megatron itself does not start with it. */
static void refused(struct import *im, const struct flag *flag,
		    const char *instead)
{
	struct import_source from = import_source(im, flag);

	report_add(im->report, "import-flag", ERROR, "", &from.at,
		   "Megatron refuses %s", flag->name);
	report_suggest(im->report, "%s", instead);
}

static void rule_groups(struct import *im, const struct flags *flags)
{
	const struct flag *groups = import_flag(flags, "--num-query-groups");

	if (import_flag(flags, "--group-query-attention")) {
		import_default(im, "num_query_groups", "1",
			       CLI " with --group-query-attention");
	} else if (groups) {
		corrected(im, groups, "shape.num_query_groups",
			  "Megatron ignores it without "
			  "--group-query-attention");
		import_drop(im, "num_query_groups");
	}
}

static void rule_positions(struct import *im, const struct flags *flags)
{
	const struct flag *rotary =
		import_flag(flags, "--use-rotary-position-embeddings");
	const struct flag *none = import_flag(flags, "--no-position-embedding");
	const struct flag *factor = import_flag(flags, "--rope-scaling-factor");

	if (rotary)
		import_say(im, "position_embedding_type", "rope",
			   import_source(im, rotary));
	if (none && !import_get(im, "position_embedding_type"))
		refused(im, none, "--position-embedding-type none");
	if (factor && import_flag(flags, "--use-rope-scaling"))
		corrected(im, factor, "shape.rope_scaling_factor",
			  "Megatron reads it and then uses 8.0 all the same");
}

/*
 * Its gelu with a bias is one fused kernel, which computes the tanh form,
 * unless --no-bias-gelu-fusion asks for the exact one.
 */
static void rule_gelu(struct import *im, const struct flags *flags)
{
	if (import_get(im, "activation_func") ||
	    import_flag(flags, "--no-bias-gelu-fusion") ||
	    import_is(im, "add_bias_linear", "false"))
		return;
	import_derive(im, "activation_func", "gelu_tanh",
		      "Megatron's bias-gelu fusion, on by default");
}

static void rule_sequence(struct import *im, const struct flags *flags)
{
	const struct flag *flag = import_flag(flags, "--sequence-parallel");

	if (!flag || import_int(im, "tensor_model_parallel_size", 1) != 1)
		return;
	corrected(im, flag, "place.sequence_parallel",
		  "Megatron turns it off with "
		  "--tensor-model-parallel-size 1");
	import_drop(im, "sequence_parallel");
}

static void rule_latent(struct import *im)
{
	if (!import_is(im, "multi_latent_attention", "true"))
		return;
	import_default(im, "q_lora_rank", "0", CLI ": no compressed query");
	import_default(im, "kv_lora_rank", "32", CLI);
	import_default(im, "rotary_scaling_factor", "1.0", CLI);
}

static void rule_experts(struct import *im, const struct flags *flags)
{
	const struct flag *flag = import_flag(flags, "--num-experts");

	if (!flag || import_int(im, "num_moe_experts", 1))
		return;
	corrected(im, flag, "shape.num_moe_experts",
		  "0 is the same as none: a dense model");
}

static void rule_pipeline(struct import *im, const struct flags *flags)
{
	bool chunks =
		import_get(im, "pipeline_model_parallel_layout") ||
		import_get(im, "num_layers_per_virtual_pipeline_stage") ||
		import_int(im, "num_virtual_stages_per_pipeline_rank", 1) > 1;
	const struct flag *no =
		import_flag(flags, "--no-overlap-p2p-communication");

	if (chunks && !no &&
	    import_int(im, "pipeline_model_parallel_size", 1) > 1)
		import_derive(im, "overlap_p2p_comm", "true",
			      CLI " with virtual stages");
	import_default(im, "deallocate_pipeline_outputs", "true", CLI);
}

/* Sharding: what the strategy says counts for FSDP only. */
static void rule_sharding(struct import *im, const struct flags *flags)
{
	const struct flag *strategy =
		import_flag(flags, "--data-parallel-sharding-strategy");

	if (import_flag(flags, "--use-megatron-fsdp")) {
		import_default(im, "data_parallel_sharding_strategy",
			       "optim_grads_params",
			       CLI " with --use-megatron-fsdp");
	} else if (strategy) {
		corrected(im, strategy, "place.data_parallel_sharding_strategy",
			  "Megatron ignores it without --use-megatron-fsdp");
		import_drop(im, "data_parallel_sharding_strategy");
	}
}

static void rule_precision(struct import *im, const struct flags *flags)
{
	if (import_is(im, "params_dtype", "bf16") &&
	    !import_flag(flags, "--grad-reduce-in-bf16"))
		import_default(im, "grad_reduce_in_fp32", "true",
			       "Megatron's --bf16");
	if (import_flag(flags, "--apply-query-key-layer-scaling"))
		import_default(im, "attention_softmax_in_fp32", "true",
			       "apply_query_key_layer_scaling");
	import_default(im, "attention_softmax_in_fp32", "false", CLI);
}

static void rule_fusions(struct import *im)
{
	bool bias = !import_is(im, "add_bias_linear", "false");
	bool gelu = import_is(im, "activation_func", "gelu_tanh");
	bool silu = import_is(im, "activation_func", "silu");

	import_default(im, "masked_softmax_fusion", "true", CLI);
	import_default(im, "bias_dropout_fusion", "true", CLI);
	import_default(im, "persist_layer_norm", "true", CLI);
	import_default(im, "gradient_accumulation_fusion", "true", CLI);
	if ((gelu && bias) || silu)
		import_default(im, "bias_activation_fusion", "true", CLI);
	if (import_is(im, "position_embedding_type", "rope"))
		import_default(im, "apply_rope_fusion", "true", CLI);
}

/* The sharded state of optimizers like Muon is whole layers. */
static void rule_optimizer(struct import *im, const struct flags *flags)
{
	static const char whole[] = "use_layer_wise_distributed_optimizer";
	const struct flag *flag =
		import_flag(flags, "--use-distributed-optimizer");
	int group, row;

	if (import_is(im, "optimizer", "muon"))
		import_default(im, "muon_momentum", "0.9", CLI);
	if (import_flag(flags, "--optimizer-cpu-offload"))
		import_default(im, "optimizer_offload_fraction", "1.0", CLI);
	if (!flag || !import_get(im, "optimizer") ||
	    import_is(im, "optimizer", "adam") ||
	    import_is(im, "optimizer", "sgd") ||
	    !import_field(whole, &group, &row))
		return;
	corrected(im, flag, "place.use_distributed_optimizer",
		  "Megatron shards whole layers with this optimizer");
	import_drop(im, "use_distributed_optimizer");
	import_say(im, whole, "true", import_source(im, flag));
}

/* No evaluation is no eval_interval here. */
static void rule_evaluation(struct import *im)
{
	if (import_int(im, "eval_iters", 1))
		return;
	import_drop(im, "eval_iters");
	import_drop(im, "eval_interval");
}

/* What was renamed long ago: Megatron itself refuses it. */
static void rule_removed(struct import *im, const struct flags *flags)
{
	static const char *const removed[][2] = {
		{"--model-parallel-size", "--tensor-model-parallel-size"},
		{"--batch-size", "--micro-batch-size"},
		{"--warmup", "--lr-warmup-fraction"},
		{"--checkpoint-activations", "--recompute-activations"},
	};

	for (size_t i = 0; i < sizeof(removed) / sizeof(*removed); i++) {
		const struct flag *flag = import_flag(flags, removed[i][0]);

		if (flag)
			refused(im, flag, removed[i][1]);
	}
}

/* Weights are cut into as many shards as tp has ranks, or it is not ours. */
static void rule_shards(struct import *im, const struct flags *flags)
{
	static const char *const shards[][2] = {
		{"--tensor-parallel-num-weight-shards",
		 "tensor_model_parallel_size"},
		{"--expert-tensor-parallel-num-weight-shards",
		 "expert_tensor_parallel_size"},
	};
	int64_t tp = import_int(im, "tensor_model_parallel_size", 1);

	for (size_t i = 0; i < sizeof(shards) / sizeof(*shards); i++) {
		const struct flag *flag = import_flag(flags, shards[i][0]);
		int64_t ranks = import_int(im, shards[i][1], tp);
		struct import_source from;

		if (!flag || (flag->values == 1 &&
			      strtoll(flag->value[0], NULL, 10) == ranks))
			continue;
		from = import_source(im, flag);
		report_add(im->report, "import-flag", ERROR, "", &from.at,
			   "%s is not %s, %" PRId64
			   ": weights are cut no further here",
			   flag->name, shards[i][1], ranks);
		report_suggest(im->report,
			       "--use-megatron-fsdp, which shards them over "
			       "data parallel ranks");
	}
}

/* Flags that exclude each other, which Megatron finds out at its start. */
static void rule_exclusive(struct import *im, const struct flags *flags)
{
	static const char *const sets[][6] = {
		{"--fp16", "--bf16"},
		{"--swiglu", "--squared-relu"},
		{"--swiglu", "--quick-geglu"},
		{"--mock-data", "--data-path", "--data-args-path",
		 "--per-split-data-args-path", "--train-data-path"},
	};

	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		const struct flag *first = NULL;

		for (int k = 0; k < 6 && sets[i][k]; k++) {
			const struct flag *flag =
				import_flag(flags, sets[i][k]);
			struct import_source from;

			if (flag && first) {
				from = import_source(im, flag);
				report_add(im->report, "import-exclusive",
					   ERROR, "", &from.at,
					   "%s stands beside %s on line %d: "
					   "Megatron takes one of them",
					   flag->name, first->name,
					   first->line);
			}
			first = first ? first : flag;
		}
	}
}

void import_rules(struct import *im, const struct flags *flags)
{
	const struct flag *blocks = import_flag(
		flags, "--heterogeneous-layers-config-encoded-json");

	rule_removed(im, flags);
	rule_groups(im, flags);
	rule_positions(im, flags);
	rule_gelu(im, flags);
	rule_sequence(im, flags);
	rule_latent(im);
	rule_experts(im, flags);
	rule_pipeline(im, flags);
	rule_sharding(im, flags);
	rule_precision(im, flags);
	rule_fusions(im);
	rule_evaluation(im);
	rule_optimizer(im, flags);
	rule_shards(im, flags);
	rule_exclusive(im, flags);
	import_default(im, "share_embeddings_and_output_weights", "true",
		       CLI ": tied");
	if (blocks)
		import_blocks(im, blocks);
}
