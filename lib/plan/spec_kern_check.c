/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "lib/plan/shape.h"
#include "lib/plan/spec_rule.h"

#define AT SPEC_AT

static void check_fp8(const struct spec *s, struct report *r)
{
	bool fp8 = s->fp8 != FP8_NONE;

	if (s->fp8_param && !fp8)
		report_add(r, "spec-low-mode", ERROR, AT(fp8_param),
			   "weights in 8 bits need fp8");
	if (s->fp8_output_proj && (!fp8 || s->fp8_recipe != FP8_MXFP8))
		report_add(r, "spec-low-head", ERROR, AT(fp8_output_proj),
			   "an output head in 8 bits needs fp8 with fp8_recipe "
			   "\"mxfp8\"");
	if (fp8 && s->fp8_recipe == FP8_CUSTOM && !s->fp8_quantizer_factory)
		report_add(r, "spec-low-factory", ERROR, AT(fp8_recipe),
			   "fp8_recipe \"custom\" needs "
			   "fp8_quantizer_factory: package.module.function");
	if (fp8 && s->first_last_layers_bf16 && s->fp8_recipe == FP8_DELAYED) {
		report_add(r, "spec-low-ends", ERROR,
			   AT(first_last_layers_bf16),
			   "fp8_recipe \"delayed\" has one history for all "
			   "layers, so none can stay in bf16");
		report_suggest(r, "fp8_recipe = \"tensorwise\"");
	}
}

static void check_fp4(const struct spec *s, struct report *r)
{
	if (s->fp4 != FP4_NONE && s->fp8 != FP8_NONE)
		report_add(r, "spec-low-one", ERROR, AT(fp4),
			   "fp4 and fp8 exclude each other");
	if (s->fp4_param && s->fp4 == FP4_NONE)
		report_add(r, "spec-low-mode", ERROR, AT(fp4_param),
			   "weights in 4 bits need fp4");
	if (s->fp4 != FP4_NONE && s->fp4_recipe == FP4_CUSTOM &&
	    !s->fp4_quantizer_factory)
		report_add(r, "spec-low-factory", ERROR, AT(fp4_recipe),
			   "fp4_recipe \"custom\" needs "
			   "fp4_quantizer_factory: package.module.function");
}

void spec_check_low(const struct spec *s, const struct shape *shape,
		    struct report *r)
{
	int64_t first = s->num_layers_at_start_in_bf16;
	int64_t last = s->num_layers_at_end_in_bf16;

	check_fp8(s, r);
	check_fp4(s, r);
	if (s->fp8 == FP8_NONE || !s->first_last_layers_bf16 ||
	    !IS_SET(shape->num_layers) || first + last <= shape->num_layers)
		return;
	report_add(r, "spec-low-ends", ERROR, AT(num_layers_at_start_in_bf16),
		   "%" PRId64 " first and %" PRId64
		   " last layers in bf16 are more than num_layers %" PRId64,
		   first, last, shape->num_layers);
}

static bool is_allgather(const struct spec *s)
{
	return s->moe_token_dispatcher_type == DISPATCH_ALLGATHER;
}

static void check_dispatcher(const struct spec *s, const struct shape *shape,
			     struct report *r)
{
	bool flex = s->moe_token_dispatcher_type == DISPATCH_FLEX;

	if (s->moe_shared_expert_overlap && is_allgather(s) &&
	    IS_SET(shape->moe_shared_expert_intermediate_size)) {
		report_add(r, "spec-shared-overlap", ERROR,
			   AT(moe_shared_expert_overlap),
			   "shared experts run beside alltoall and flex, not "
			   "beside moe_token_dispatcher_type \"allgather\"");
		report_suggest(r, "moe_token_dispatcher_type = \"alltoall\"");
	}
	if (s->moe_router_padding_for_quantization &&
	    (is_allgather(s) || (s->fp8 == FP8_NONE && s->fp4 == FP4_NONE)))
		report_add(r, "spec-moe-padding", ERROR,
			   AT(moe_router_padding_for_quantization),
			   "padding for quantisation needs fp8 or fp4, and "
			   "moe_token_dispatcher_type \"alltoall\" or "
			   "\"flex\"");
	if (flex && s->moe_flex_dispatcher_backend == FLEX_DEEPEP &&
	    s->moe_pad_expert_input_to_capacity)
		report_add(r, "spec-flex", ERROR,
			   AT(moe_pad_expert_input_to_capacity),
			   "moe_flex_dispatcher_backend \"deepep\" has no "
			   "moe_pad_expert_input_to_capacity");
	if (!flex && s->moe_flex_dispatcher_backend == FLEX_NCCLEP)
		report_add(r, "spec-flex", ERROR,
			   AT(moe_flex_dispatcher_backend),
			   "\"ncclep\" needs moe_token_dispatcher_type "
			   "\"flex\"");
}

void spec_check_experts(const struct spec *s, const struct shape *shape,
			struct report *r)
{
	if (!shape->num_moe_experts)
		return;
	check_dispatcher(s, shape, r);
	if (s->moe_pad_expert_input_to_capacity &&
	    isnan(shape->moe_expert_capacity_factor)) {
		report_add(r, "spec-moe-capacity", ERROR,
			   AT(moe_pad_expert_input_to_capacity),
			   "dropless experts have no capacity to pad to");
		report_suggest(r, "moe_expert_capacity_factor = 1.0");
	}
	if (shape->num_moe_experts >= 32 &&
	    s->moe_router_dtype == ROUTER_SAME &&
	    s->params_dtype != DTYPE_FP32 && s->params_dtype != DTYPE_FP64) {
		report_add(r, "spec-router", WARNING, AT(moe_router_dtype),
			   "scores of num_moe_experts %" PRId64
			   " in 16 bits are close together: the choice is "
			   "unstable from about 32 experts on",
			   shape->num_moe_experts);
		report_suggest(r, "moe_router_dtype = \"fp32\"");
	}
}

unsigned spec_captures(const struct spec *s)
{
	const struct texts *list = &s->cuda_graph_modules;
	int row = field_find(&spec_group, "cuda_graph_modules");
	unsigned bits = 0;

	if (!list->count)
		return CAPTURE_ALL;
	for (int i = 0; i < list->count; i++)
		for (int k = 0; spec_group.fields[row].names[k]; k++)
			if (!strcmp(list->item[i],
				    spec_group.fields[row].names[k]))
				bits |= 1U << k;
	return bits;
}

/* Why the modules of BITS cannot be captured, or NULL. */
static const char *uncapturable(const struct spec *s, const struct shape *shape,
				unsigned bits)
{
	bool padded = !isnan(shape->moe_expert_capacity_factor) &&
		      s->moe_pad_expert_input_to_capacity;

	if ((bits & CAPTURE_MOE) && (bits & CAPTURE_ROUTER))
		return "moe has the router in it: not both";
	if ((bits & CAPTURE_PREPROCESS) && !(bits & CAPTURE_ROUTER) &&
	    s->cuda_graph_impl == GRAPH_TE)
		return "moe_preprocess follows moe_router: name both";
	if (!shape->num_moe_experts)
		return bits & (CAPTURE_MOE | CAPTURE_ROUTER)
			       ? "moe and moe_router need num_moe_experts"
			       : NULL;
	if ((bits & CAPTURE_MLP) && !shape_uses_ffn(shape))
		return "mlp is the dense layers', and there is none";
	if ((bits & CAPTURE_MOE) && !padded)
		return "moe has a fixed size only with "
		       "moe_expert_capacity_factor and "
		       "moe_pad_expert_input_to_capacity";
	if ((bits & CAPTURE_PREPROCESS) && !padded &&
	    s->moe_token_dispatcher_type == DISPATCH_ALLTOALL &&
	    !isnan(shape->moe_expert_capacity_factor))
		return "moe_preprocess reads counts on the host when "
		       "moe_token_dispatcher_type alltoall drops tokens "
		       "without padding";
	return NULL;
}

void spec_check_graphs(const struct spec *s, const struct shape *shape,
		       struct report *r)
{
	const char *why;

	if (s->cuda_graph_impl == GRAPH_NONE || !s->cuda_graph_modules.count)
		return;
	if (s->cuda_graph_impl == GRAPH_ITERATION)
		why = "full_iteration captures everything: it has no list of "
		      "modules";
	else
		why = uncapturable(s, shape, spec_captures(s));
	if (why)
		report_add(r, "spec-graph-modules", ERROR,
			   AT(cuda_graph_modules), "%s", why);
}
