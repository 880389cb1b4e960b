/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/hook.h"
#include "lib/plan/override.h"
#include "lib/plan/shape.h"
#include "lib/plan/spec_rule.h"

#define AT SPEC_AT

static void check_inference(const struct spec *s, const struct shape *shape,
			    struct report *r)
{
	if (s->transformer_impl != IMPL_INFERENCE)
		return;
	if (shape->normalization != NORM_RMSNORM || shape->add_bias_linear ||
	    shape->add_qkv_bias || shape->layernorm_zero_centered_gamma)
		report_add(r, "spec-inference", ERROR, AT(transformer_impl),
			   "inference_optimized needs normalization "
			   "\"RMSNorm\", add_bias_linear = false, add_qkv_bias "
			   "= false and layernorm_zero_centered_gamma = false");
	if (shape->num_moe_experts &&
	    (!isnan(shape->moe_expert_capacity_factor) ||
	     s->moe_router_dtype != ROUTER_FP32 ||
	     s->moe_router_padding_for_quantization))
		report_add(r, "spec-inference-experts", ERROR,
			   AT(transformer_impl),
			   "experts in inference_optimized need "
			   "moe_router_dtype \"fp32\", no "
			   "moe_expert_capacity_factor and no "
			   "moe_router_padding_for_quantization");
}

static bool half(const struct spec *s)
{
	return s->params_dtype == DTYPE_BF16 || s->params_dtype == DTYPE_FP16;
}

static void check_precision(const struct spec *s, struct report *r)
{
	if (s->fp16_lm_cross_entropy && s->params_dtype != DTYPE_FP16) {
		report_add(r, "spec-half-loss", ERROR,
			   AT(fp16_lm_cross_entropy),
			   "a loss in fp16 needs params_dtype \"fp16\"");
		report_suggest(r, "fp16_lm_cross_entropy = false");
	}
	if (s->fp32_residual_connection && !half(s)) {
		report_add(r, "spec-residual", ERROR,
			   AT(fp32_residual_connection),
			   "a residual stream in fp32 is apart from "
			   "params_dtype only if that is bf16 or fp16");
		report_suggest(r, "fp32_residual_connection = false");
	}
	if (s->batch_invariant_mode && (s->params_dtype != DTYPE_BF16 ||
					s->attention_backend != BACKEND_FLASH ||
					!IS_SET(s->flash_attention_version) ||
					s->flash_attention_version < 3))
		report_add(r, "spec-invariant", ERROR, AT(batch_invariant_mode),
			   "batch_invariant_mode needs params_dtype \"bf16\", "
			   "attention_backend \"flash\" and "
			   "flash_attention_version 3 or 4");
}

static void check_fusion(const struct spec *s, const struct shape *shape,
			 struct report *r)
{
	bool swiglu =
		shape->activation_func == ACT_SILU && shape->gated_linear_unit;

	if (s->fused_residual_rmsnorm && shape->normalization != NORM_RMSNORM)
		report_add(r, "spec-fused-norm", ERROR,
			   AT(fused_residual_rmsnorm),
			   "fused_residual_rmsnorm needs normalization "
			   "\"RMSNorm\"");
	if (s->activation_func_fp8_input_store && !swiglu)
		report_add(r, "spec-low-store", ERROR,
			   AT(activation_func_fp8_input_store),
			   "only SwiGLU (activation_func \"silu\" with "
			   "gated_linear_unit) keeps its input in 8 bits");
	if (s->cross_entropy_loss_fusion &&
	    s->cross_entropy_fusion_impl == CE_TE) {
		report_add(r, "spec-loss-fusion", ERROR,
			   AT(cross_entropy_fusion_impl),
			   "Transformer Engine's fused loss is not stable; "
			   "Megatron-LM refuses it, too");
		report_suggest(r, "cross_entropy_fusion_impl = \"native\"");
	}
	if (s->mla_down_proj_fusion && !shape->multi_latent_attention)
		report_add(r, "spec-latent-fusion", ERROR,
			   AT(mla_down_proj_fusion),
			   "mla_down_proj_fusion needs "
			   "multi_latent_attention");
	if (s->fused_single_qkv_rope && shape->attention_output_gate)
		report_add(r, "spec-rope-fusion", ERROR,
			   AT(fused_single_qkv_rope),
			   "the packed qkv of attention_output_gate has a gate "
			   "too, which fused_single_qkv_rope does not know");
	if (s->apply_rope_fusion &&
	    shape->experimental_attention_variant == VARIANT_DSA)
		report_add(r, "spec-rope-fusion", ERROR, AT(apply_rope_fusion),
			   "experimental_attention_variant \"dsa\" has no "
			   "apply_rope_fusion");
}

/* What bias and activation in one kernel can be. */
static const char *unfusable(const struct spec *s, const struct shape *shape)
{
	switch (shape->activation_func) {
	case ACT_GELU:
	case ACT_GELU_TANH:
		if (!shape->gated_linear_unit && !shape->add_bias_linear)
			return "gelu without a gate needs add_bias_linear";
		break;
	case ACT_SILU: break;
	case ACT_QUICK_GELU:
		if (!shape->gated_linear_unit)
			return "quick_gelu needs gated_linear_unit";
		break;
	default: return "activation_func must be gelu, silu or quick_gelu";
	}
	if (shape->glu_linear_offset != 0 &&
	    shape->activation_func != ACT_QUICK_GELU)
		return "a glu_linear_offset needs quick_gelu";
	if (s->use_te_activation_func)
		return "use_te_activation_func is another way of the same";
	return NULL;
}

static void check_activation(const struct spec *s, const struct shape *shape,
			     struct report *r)
{
	const char *why = unfusable(s, shape);

	if (s->bias_activation_fusion && why) {
		report_add(r, "spec-bias-activation", ERROR,
			   AT(bias_activation_fusion),
			   "bias and activation do not go in one kernel: %s",
			   why);
		report_suggest(r, "bias_activation_fusion = false");
	}
	if (s->use_te_activation_func &&
	    (shape->activation_func == ACT_RELU2 ||
	     shape->activation_func == ACT_QUICK_GELU))
		report_add(r, "spec-te-activation", ERROR,
			   AT(use_te_activation_func),
			   "Transformer Engine has gelu and silu, not this "
			   "activation_func");
}

void spec_check(const struct spec *s, const struct shape *shape,
		struct report *r)
{
	if (s->device != DEVICE_CUDA && s->attention_backend != BACKEND_AUTO &&
	    s->attention_backend != BACKEND_LOCAL)
		report_add(r, "spec-backend", NOTE, AT(attention_backend),
			   "attention_backend \"%s\": the CPU has one "
			   "attention, its own (\"local\")",
			   spec_backend_text(s));
	check_inference(s, shape, r);
	check_precision(s, r);
	check_fusion(s, shape, r);
	check_activation(s, shape, r);
	spec_check_low(s, shape, r);
	spec_check_experts(s, shape, r);
	spec_check_graphs(s, shape, r);
	plugin_check(s, r);
	override_check(s, shape, r);
	hook_check(s, shape, r);
}
