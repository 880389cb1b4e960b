/* SPDX-License-Identifier: Apache-2.0 */
/* Which code computes a layer: the first rule that holds, by global layer. */
#include "lib/plan/spec.h"

#include "test/config-test.h"

/* The row of LAYER under SETTINGS of shape and IMPL. */
static struct spec_row row(const char *settings, const char *impl, int layer)
{
	struct report r;
	struct config *c =
		config_of(arena_printf(&arena,
				       "shape: { num_layers = 4; %s };\n"
				       "spec: { transformer_impl = \"%s\"; };",
				       settings, impl),
			  NULL, &r);

	assert_non_null(c);
	assert_int_equal(r.count, 0);
	shape_finalize(&c->shape);
	return spec_layer(&c->spec, &c->shape, layer);
}

static void test_rows(void **state)
{
	struct spec_row r = row("", "transformer_engine", 0);

	(void)state;
	assert_string_equal(r.name, "fused");
	assert_string_equal(r.norm, "residual+layernorm");
	assert_string_equal(r.mlp, "dense");
	assert_string_equal(r.reason, "transformer_impl is transformer_engine");
	r = row("normalization = \"RMSNorm\";", "local", 3);
	assert_string_equal(r.name, "local");
	assert_string_equal(r.norm, "rmsnorm");
	assert_string_equal(row("", "inference_optimized", 0).name,
			    "inference");
	assert_string_equal(
		row("heterogeneous_block_specs = true;", "local", 0).name,
		"heterogeneous");
}

/* By the model's layer, whatever the stage. */
static void test_experts_by_layer(void **state)
{
	static const char moe[] = "num_moe_experts = 4; "
				  "moe_layer_freq = [0, 1, 0, 1];";

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_string_equal(row(moe, "transformer_engine", i).name,
				    i % 2 ? "moe" : "fused");
		assert_string_equal(row(moe, "transformer_engine", i).mlp,
				    i % 2 ? "experts" : "dense");
		assert_string_equal(row(moe, "inference_optimized", i).name,
				    i % 2 ? "moe" : "local");
	}
}

/* The variant comes before experts, which are its other half. */
static void test_variants_by_layer(void **state)
{
	static const char gdn[] = "experimental_attention_variant = \"gdn\"; "
				  "linear_attention_freq = 2; "
				  "num_moe_experts = 4;";

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct spec_row r = row(gdn, "transformer_engine", i);

		assert_string_equal(r.name, "variant");
		assert_string_equal(r.attention, i % 2 ? "auto" : "delta");
		assert_string_equal(r.mlp, "experts");
	}
}

static struct spec *spec_of(const char *settings)
{
	struct report r;
	struct config *c = config_of(settings, NULL, &r);

	assert_non_null(c);
	assert_int_equal(r.count, 0);
	spec_finalize(&c->spec, &c->shape);
	return &c->spec;
}

static void test_derived(void **state)
{
	struct spec *s = spec_of("spec: { params_dtype = \"bf16\"; };");

	(void)state;
	assert_int_equal(s->device, DEVICE_CUDA);
	assert_int_equal(s->pipeline_dtype, DTYPE_NAMED + DTYPE_BF16);
	assert_false(s->use_te_rng_tracker);
	s = spec_of("spec: { params_dtype = \"bf16\"; "
		    "fp32_residual_connection = true; "
		    "cuda_graph_impl = \"local\"; "
		    "attention_softmax_in_fp32 = false; };");
	assert_int_equal(s->pipeline_dtype, DTYPE_NAMED + DTYPE_FP32);
	assert_true(s->use_te_rng_tracker);
	assert_false(s->attention_softmax_in_fp32);
	assert_int_equal(spec_captures(s), CAPTURE_ALL);
	s = spec_of("shape: { apply_query_key_layer_scaling = true; }; "
		    "spec: { attention_softmax_in_fp32 = false; "
		    "cuda_graph_modules = [\"moe_router\", \"attn\"]; };");
	assert_true(s->attention_softmax_in_fp32);
	assert_int_equal(spec_captures(s), CAPTURE_ROUTER | CAPTURE_ATTN);
	assert_int_equal(s->device, DEVICE_AUTO);
}

static void test_bytes(void **state)
{
	struct spec s = {.params_dtype = DTYPE_FP64};

	(void)state;
	assert_int_equal(spec_param_bytes(&s), 8);
	s.params_dtype = DTYPE_FP32;
	assert_int_equal(spec_param_bytes(&s), 4);
	s.params_dtype = DTYPE_BF16;
	assert_int_equal(spec_param_bytes(&s), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_rows),
		TEST(test_experts_by_layer),
		TEST(test_variants_by_layer),
		TEST(test_derived),
		TEST(test_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
