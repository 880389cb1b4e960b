/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/config_rule.h"

#include <inttypes.h>
#include <string.h>

#include "lib/plan/place_rule.h"
#include "lib/plan/shape_rule.h"
#include "lib/plan/spec_rule.h"

/* Modules that are computed again, and the code that would do it. */
static void check_recompute(const struct spec *s, const struct place *p,
			    struct report *r)
{
	const struct texts *modules = &p->recompute_modules;

	if (p->recompute_granularity != RECOMPUTE_SELECTIVE)
		return;
	if (place_names(modules, "moe_act") && !s->moe_grouped_gemm)
		report_add(r, "place-recompute-code", ERROR,
			   PLACE_AT(recompute_modules),
			   "\"moe_act\" is computed again by "
			   "moe_grouped_gemm only, which is false");
	if (place_names(modules, "shared_experts") &&
	    s->moe_shared_expert_overlap)
		report_add(r, "place-recompute-code", ERROR,
			   PLACE_AT(recompute_modules),
			   "\"shared_experts\" is not computed again where "
			   "moe_shared_expert_overlap runs it");
	if (s->fp8 != FP8_NONE && s->fp8_recipe == FP8_DELAYED &&
	    (place_names(modules, "moe_act") ||
	     place_names(modules, "layernorm")))
		report_add(r, "place-recompute-code", ERROR,
			   PLACE_AT(recompute_modules),
			   "\"moe_act\" and \"layernorm\" would enter the "
			   "history of fp8_recipe \"delayed\" twice");
}

static void check_expert_overlap(const struct spec *s, const struct place *p,
				 struct report *r)
{
	bool half =
		s->params_dtype == DTYPE_BF16 || s->params_dtype == DTYPE_FP16;

	if (!p->overlap_moe_expert_parallel_comm)
		return;
	if (s->moe_token_dispatcher_type == DISPATCH_ALLGATHER || !half ||
	    s->moe_shared_expert_overlap)
		report_add(r, "place-expert-overlap", ERROR,
			   PLACE_AT(overlap_moe_expert_parallel_comm),
			   "overlap_moe_expert_parallel_comm needs "
			   "moe_token_dispatcher_type \"alltoall\" or "
			   "\"flex\", params_dtype \"bf16\" or \"fp16\", and "
			   "moe_shared_expert_overlap = false");
}

/* Several residual streams, and what has room for one. */
static void check_streams(const struct config *c, struct report *r)
{
	const struct shape *s = &c->shape;
	const struct place *p = &c->place;

	if (!s->enable_mhc_connections)
		return;
	if (p->pipeline_model_parallel_size > 1 ||
	    p->recompute_granularity == RECOMPUTE_FULL ||
	    p->fine_grained_activation_offloading ||
	    c->spec.fp32_residual_connection)
		report_add(r, "place-streams", ERROR,
			   SHAPE_AT(enable_mhc_connections),
			   "hyper-connections carry %" PRId64
			   " streams and need pp 1, no full recompute, no "
			   "fine_grained_activation_offloading and no "
			   "fp32_residual_connection",
			   s->mhc_num_residual_streams);
	if (place_names(&p->recompute_modules, "mhc") &&
	    place_names(&p->recompute_modules, "mlp"))
		report_add(r, "place-recompute-code", ERROR,
			   PLACE_AT(recompute_modules),
			   "\"mhc\" and \"mlp\" would compute the same "
			   "things again");
}

/* Placements that only some code can do. */
static void check_placed_code(const struct config *c, struct report *r)
{
	const struct spec *s = &c->spec;
	const struct place *p = &c->place;

	if (p->defer_embedding_wgrad_compute &&
	    !s->gradient_accumulation_fusion)
		report_add(r, "place-defer", ERROR,
			   PLACE_AT(defer_embedding_wgrad_compute),
			   "weight gradients that are put off are added up by "
			   "gradient_accumulation_fusion, which is false");
	if (p->use_torch_fsdp2 &&
	    (s->params_dtype == DTYPE_FP16 || s->gradient_accumulation_fusion))
		report_add(r, "place-fsdp", ERROR, PLACE_AT(use_torch_fsdp2),
			   "use_torch_fsdp2 has neither params_dtype \"fp16\" "
			   "nor gradient_accumulation_fusion");
	if (p->variable_seq_lengths && c->shape.num_moe_experts &&
	    s->moe_token_dispatcher_type == DISPATCH_ALLGATHER)
		report_add(r, "place-lengths", ERROR,
			   PLACE_AT(variable_seq_lengths),
			   "moe_token_dispatcher_type \"allgather\" wants "
			   "sequences of one length; \"alltoall\" does not");
	check_recompute(s, p, r);
	check_expert_overlap(s, p, r);
}

/* The layers that stay in bf16 as Megatron-LM bounds them. */
static void check_low_ends(const struct config *c, struct report *r)
{
	const struct spec *s = &c->spec;
	int64_t layers = c->shape.num_layers;
	int64_t pp = c->place.pipeline_model_parallel_size;

	if (s->fp8 == FP8_NONE || !s->first_last_layers_bf16 || !IS_SET(layers))
		return;
	if (s->num_layers_at_start_in_bf16 > layers / pp ||
	    s->num_layers_at_end_in_bf16 > layers / pp)
		report_add(r, "spec-low-stage", NOTE,
			   SPEC_AT(num_layers_at_start_in_bf16),
			   "Megatron-LM wants at most floor(num_layers %" PRId64
			   " / pp %" PRId64 ") = %" PRId64
			   " layers at either end in bf16; here they may reach "
			   "over stages",
			   layers, pp, layers / pp);
}

static void check_code(const struct config *c, struct report *r)
{
	const struct spec *s = &c->spec;
	const struct place *p = &c->place;

	if (s->transformer_impl == IMPL_INFERENCE && c->shape.num_moe_experts &&
	    p->expert_tensor_parallel_size > 1)
		report_add(r, "spec-inference-experts", ERROR,
			   SPEC_AT(transformer_impl),
			   "experts in inference_optimized need "
			   "expert_tensor_parallel_size 1, not %" PRId64,
			   p->expert_tensor_parallel_size);
	if (s->batch_invariant_mode &&
	    (p->context_parallel_size > 1 || c->run.attention_dropout > 0))
		report_add(r, "spec-invariant", ERROR,
			   SPEC_AT(batch_invariant_mode),
			   "batch_invariant_mode needs context_parallel_size 1 "
			   "(it is %" PRId64
			   ") and attention_dropout 0 (it is %g)",
			   p->context_parallel_size, c->run.attention_dropout);
	check_low_ends(c, r);
}

/* Random numbers inside of what is captured and computed again. */
static const char *captured_twice(const struct config *c, unsigned bits)
{
	const struct texts *modules = &c->place.recompute_modules;
	const struct run *run = &c->run;

	if (run->attention_dropout > 0 && (bits & CAPTURE_ATTN) &&
	    place_names(modules, "core_attn"))
		return "core_attn with attention_dropout";
	if (run->hidden_dropout > 0 && (bits & CAPTURE_MLP) &&
	    place_names(modules, "mlp"))
		return "mlp with hidden_dropout";
	if (run->hidden_dropout > 0 && (bits & CAPTURE_MOE) &&
	    place_names(modules, "moe"))
		return "moe with hidden_dropout";
	if (!isnan(run->moe_input_jitter_eps) && (bits & CAPTURE_MOE) &&
	    place_names(modules, "moe"))
		return "moe with moe_input_jitter_eps";
	return NULL;
}

static void check_graphs(const struct config *c, struct report *r)
{
	const struct spec *s = &c->spec;
	const struct place *p = &c->place;
	bool whole = s->cuda_graph_impl == GRAPH_ITERATION;
	unsigned bits = spec_captures(s);
	const char *twice = captured_twice(c, bits);

	if (s->cuda_graph_impl == GRAPH_NONE)
		return;
	if (p->cpu_offloading && !whole)
		report_add(r, "spec-graph-offload", ERROR,
			   SPEC_AT(cuda_graph_impl),
			   "cpu_offloading goes with cuda_graph_impl "
			   "\"full_iteration\" only");
	if (p->recompute_granularity == RECOMPUTE_FULL && !whole)
		report_add(r, "spec-graph-recompute", ERROR,
			   SPEC_AT(cuda_graph_impl),
			   "full recompute goes with cuda_graph_impl "
			   "\"full_iteration\" only");
	if (p->recompute_granularity != RECOMPUTE_SELECTIVE)
		return;
	if (s->cuda_graph_impl == GRAPH_TE && s->cuda_graph_modules.count &&
	    (bits & CAPTURE_ROUTER) &&
	    place_names(&p->recompute_modules, "moe"))
		report_add(r, "spec-graph-recompute", ERROR,
			   SPEC_AT(cuda_graph_impl),
			   "moe cannot be computed again around a captured "
			   "moe_router");
	if (twice)
		report_add(r, "spec-graph-recompute", ERROR,
			   SPEC_AT(cuda_graph_impl),
			   "%s would draw other numbers when a graph computes "
			   "it again",
			   twice);
}

void config_check(const struct config *c, struct report *r)
{
	check_placed_code(c, r);
	check_code(c, r);
	check_streams(c, r);
	check_graphs(c, r);
	config_check_run(c, r);
}
