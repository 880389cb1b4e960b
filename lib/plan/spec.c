/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/spec.h"

#include "lib/plan/shape.h"

static const char *const impls[] = {"local", "transformer_engine",
				    "inference_optimized", NULL};
static const char *const backends[] = {"auto",	  "flash", "fused",
				       "unfused", "local", NULL};
static const char *const dtypes[] = {"fp32", "fp64", "bf16", "fp16", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};

#define ROW(name, type, ...)                                                  \
	{                                                                     \
#name, FIELD_##type, offsetof(struct spec, name), __VA_ARGS__ \
	}
/* clang-format off */
static const struct field fields[] = {
ROW(transformer_impl, ENUM, "transformer_engine", 0, 0, impls,
	"transformer_engine: fused ops; local: one op per module"),
ROW(attention_backend, ENUM, "auto", 0, 0, backends,
	"which attention kernel; auto: the best one that is there"),
ROW(params_dtype, ENUM, "fp32", 0, 0, dtypes,
	"precision of parameters and activations"),
ROW(device, ENUM, "auto", 0, 0, devices,
	"whose kernels; auto: a GPU if the program has one, else the CPU"),
};
/* clang-format on */

const struct group spec_group = {
	.name = "spec",
	.fields = fields,
	.count = sizeof(fields) / sizeof(*fields),
	.size = sizeof(struct spec),
};

#define SPEC(m) "spec." #m, field_from(&spec_group, s, &s->m)

void spec_finalize(struct spec *s)
{
	bool half =
		s->params_dtype == DTYPE_BF16 || s->params_dtype == DTYPE_FP16;

	if (s->device != DEVICE_AUTO || !half)
		return;
	s->device = DEVICE_CUDA;
	field_derived(&spec_group, s, &s->device,
		      "params_dtype has 16 bits, which only GPUs have");
}

void spec_check(const struct spec *s, const struct shape *shape,
		struct report *r)
{
	if (s->device != DEVICE_CUDA && s->attention_backend != BACKEND_AUTO &&
	    s->attention_backend != BACKEND_LOCAL)
		report_add(r, "spec-backend", NOTE, SPEC(attention_backend),
			   "attention_backend \"%s\": the CPU has one "
			   "attention, its own (\"local\")",
			   backends[s->attention_backend]);
	if (s->transformer_impl != IMPL_INFERENCE)
		return;
	if (shape->normalization != NORM_RMSNORM || shape->add_bias_linear ||
	    shape->layernorm_zero_centered_gamma)
		report_add(r, "spec-inference", ERROR, SPEC(transformer_impl),
			   "inference_optimized needs normalization "
			   "\"RMSNorm\", add_bias_linear = false and "
			   "layernorm_zero_centered_gamma = false");
}

/* Megatron's default_layer_spec: the first condition that holds decides. */
struct spec_row spec_layer(const struct spec *s, const struct shape *shape,
			   int64_t layer)
{
	bool rms = shape->normalization == NORM_RMSNORM;
	bool moe = shape_is_moe(shape, layer);
	struct spec_row row = {
		.norm = rms ? "rmsnorm" : "layernorm",
		.attention = backends[s->attention_backend],
		.mlp = moe ? "experts" : "dense",
	};

	if (s->transformer_impl == IMPL_INFERENCE && !shape->num_moe_experts) {
		row.name = "inference";
		row.reason = "transformer_impl is inference_optimized";
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
