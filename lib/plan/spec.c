/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/spec.h"

#include <string.h>

#include "lib/plan/override.h"
#include "lib/plan/shape.h"

static void derive(struct spec *s, int *at, int value, const char *why)
{
	*at = value;
	field_derived(&spec_group, s, at, why);
}

static void derive_flag(struct spec *s, bool *at, const char *why)
{
	if (!*at) {
		*at = true;
		field_derived(&spec_group, s, at, why);
	}
}

void spec_finalize(struct spec *s, const struct shape *shape)
{
	bool half =
		s->params_dtype == DTYPE_BF16 || s->params_dtype == DTYPE_FP16;

	if (s->device == DEVICE_AUTO && half)
		derive(s, &s->device, DEVICE_CUDA,
		       "params_dtype has 16 bits, which CPUs only emulate");
	if (s->pipeline_dtype == DTYPE_AUTO && s->fp32_residual_connection)
		derive(s, &s->pipeline_dtype, DTYPE_NAMED + DTYPE_FP32,
		       "fp32_residual_connection");
	else if (s->pipeline_dtype == DTYPE_AUTO)
		derive(s, &s->pipeline_dtype, DTYPE_NAMED + s->params_dtype,
		       "params_dtype");
	if (shape->apply_query_key_layer_scaling)
		derive_flag(s, &s->attention_softmax_in_fp32,
			    "apply_query_key_layer_scaling");
	if (s->cuda_graph_impl != GRAPH_NONE)
		derive_flag(s, &s->use_te_rng_tracker, "cuda_graph_impl");
}

const char *spec_backend_text(const struct spec *s)
{
	int row = field_find(&spec_group, "attention_backend");

	return spec_group.fields[row].names[s->attention_backend];
}

/* A plugin's name in the place of what it computes. */
static void put_overrides(struct spec_row *row, const struct spec *s,
			  const struct shape *shape, int64_t layer)
{
	const struct {
		int ops;
		const char **at;
	} places[] = {
		{OVERRIDE_NORM, &row->norm},
		{OVERRIDE_ATTENTION, &row->attention},
		{shape_is_moe(shape, layer) ? OVERRIDE_EXPERTS : OVERRIDE_ACT,
		 &row->mlp},
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		const char *name =
			override_name(s, shape, layer, places[i].ops);

		if (name && strcmp(name, "local") != 0)
			*places[i].at = name;
	}
}

/* Megatron's default_layer_spec: the first condition that holds decides. */
struct spec_row spec_layer(const struct spec *s, const struct shape *shape,
			   int64_t layer)
{
	bool rms = shape->normalization == NORM_RMSNORM;
	bool moe = shape_is_moe(shape, layer);
	bool delta = shape_is_delta(shape, layer);
	struct spec_row row = {
		.norm = rms ? "rmsnorm" : "layernorm",
		.attention = delta ? "delta" : spec_backend_text(s),
		.mlp = moe ? "experts" : "dense",
	};

	if (s->transformer_impl == IMPL_INFERENCE && !shape->num_moe_experts) {
		row.name = "inference";
		row.reason = "transformer_impl is inference_optimized";
	} else if (shape->experimental_attention_variant) {
		row.name = "variant";
		row.reason = "experimental_attention_variant is set";
	} else if (moe) {
		row.name = "moe";
		row.reason = "num_moe_experts is set and moe_layer_freq marks "
			     "this layer";
	} else if (shape->heterogeneous_block_specs) {
		row.name = "heterogeneous";
		row.reason = "heterogeneous_block_specs is set";
	} else if (s->transformer_impl == IMPL_TRANSFORMER_ENGINE) {
		row.name = "fused";
		row.norm = rms ? "residual+rmsnorm" : "residual+layernorm";
		row.reason = "transformer_impl is transformer_engine";
	} else {
		row.name = "local";
		row.reason = s->transformer_impl == IMPL_LOCAL
				     ? "transformer_impl is local"
				     : "inference_optimized has no experts";
	}
	put_overrides(&row, s, shape, layer);
	return row;
}

size_t spec_param_bytes(const struct spec *s)
{
	static const size_t bytes[] = {4, 8, 2, 2};

	return bytes[s->params_dtype];
}

size_t spec_sum_bytes(const struct spec *s)
{
	return s->params_dtype == DTYPE_FP64 ? sizeof(double) : sizeof(float);
}

bool spec_uses_cudnn(const struct spec *s)
{
	return s->attention_backend == BACKEND_AUTO ||
	       s->attention_backend == BACKEND_FUSED;
}
