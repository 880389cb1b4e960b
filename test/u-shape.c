/* SPDX-License-Identifier: Apache-2.0 */
/* What the model is: parameters of known models, derived sizes, the hash. */
#include "lib/plan/shape.h"

#include <xxhash.h>

#include "test/config-test.h"

/* The settings of a Llama beside its sizes. */
#define LLAMA                                                     \
	"normalization = \"RMSNorm\"; gated_linear_unit = true; " \
	"activation_func = \"silu\"; add_bias_linear = false; "   \
	"position_embedding_type = \"rope\"; "
#define GPT2                                                               \
	"vocab_size = 50257; share_embeddings_and_output_weights = true; " \
	"activation_func = \"gelu_tanh\"; "

static struct shape *shape_of(const char *settings)
{
	struct report r;
	struct config *c = config_of(
		arena_printf(&arena, "shape: { %s };", settings), NULL, &r);

	assert_non_null(c);
	assert_int_equal(r.count, 0);
	shape_finalize(&c->shape);
	return &c->shape;
}

static int64_t count(const char *settings)
{
	return shape_parameters(shape_of(settings));
}

static void test_gpt2(void **state)
{
	(void)state;
	assert_int_equal(count(GPT2 "num_layers = 12; hidden_size = 768; "
				    "num_attention_heads = 12;"),
			 124439808);
	assert_int_equal(count(GPT2 "num_layers = 24; hidden_size = 1024; "
				    "num_attention_heads = 16;"),
			 354823168);
	assert_int_equal(count(GPT2 "num_layers = 36; hidden_size = 1280; "
				    "num_attention_heads = 20;"),
			 774030080);
	assert_int_equal(count(GPT2 "num_layers = 48; hidden_size = 1600; "
				    "num_attention_heads = 25;"),
			 1557611200);
}

static void test_llama(void **state)
{
	(void)state;
	assert_int_equal(count(LLAMA
			       "num_layers = 32; hidden_size = 4096; "
			       "ffn_hidden_size = 11008; vocab_size = 32000; "
			       "num_attention_heads = 32;"),
			 6738415616);
	assert_int_equal(count(LLAMA
			       "num_layers = 40; hidden_size = 5120; "
			       "ffn_hidden_size = 13824; vocab_size = 32000; "
			       "num_attention_heads = 40;"),
			 13015864320);
	assert_int_equal(
		count(LLAMA "num_layers = 80; hidden_size = 8192; "
			    "ffn_hidden_size = 28672; vocab_size = 32000; "
			    "num_attention_heads = 64; num_query_groups = 8;"),
		68976648192);
	assert_int_equal(
		count(LLAMA "num_layers = 32; hidden_size = 4096; "
			    "ffn_hidden_size = 14336; vocab_size = 128256; "
			    "num_attention_heads = 32; num_query_groups = 8;"),
		8030261248);
	assert_int_equal(
		count(LLAMA "num_layers = 80; hidden_size = 8192; "
			    "ffn_hidden_size = 28672; vocab_size = 128256; "
			    "num_attention_heads = 64; num_query_groups = 8;"),
		70553706496);
}

static void test_experts(void **state)
{
	(void)state;
	/* Mixtral-8x7B */
	assert_int_equal(
		count(LLAMA "num_layers = 32; hidden_size = 4096; "
			    "ffn_hidden_size = 14336; vocab_size = 32000; "
			    "num_attention_heads = 32; num_query_groups = 8; "
			    "num_moe_experts = 8;"),
		46702792704);
	/* Qwen3-30B-A3B */
	assert_int_equal(
		count(LLAMA "num_layers = 48; hidden_size = 2048; "
			    "ffn_hidden_size = 6144; vocab_size = 151936; "
			    "num_attention_heads = 32; num_query_groups = 4; "
			    "kv_channels = 128; qk_layernorm = true; "
			    "num_moe_experts = 128; moe_router_topk = 8; "
			    "moe_ffn_hidden_size = 768;"),
		30532122624);
}

/* DeepSeek-V3 without MTP: latent attention, three dense layers first. */
static void test_latent_attention(void **state)
{
	const char *freq = "[0, 0, 0";

	(void)state;
	for (int i = 3; i < 61; i++)
		freq = arena_printf(&arena, "%s, 1", freq);
	assert_int_equal(
		count(arena_printf(
			&arena,
			LLAMA "num_layers = 61; hidden_size = 7168; "
			      "ffn_hidden_size = 18432; vocab_size = 129280; "
			      "num_attention_heads = 128; "
			      "multi_latent_attention = true; "
			      "q_lora_rank = 1536; kv_lora_rank = 512; "
			      "qk_layernorm = true; num_moe_experts = 256; "
			      "moe_router_topk = 8; "
			      "moe_ffn_hidden_size = 2048; "
			      "moe_shared_expert_intermediate_size = 2048; "
			      "moe_layer_freq = %s];",
			freq)),
		671026404352);
}

#define SMALL                                                         \
	"num_layers = 4; hidden_size = 48; num_attention_heads = 4; " \
	"vocab_size = 100; "

/* What one more setting adds to a small Llama. */
static int64_t added(const char *settings)
{
	return count(arena_printf(&arena, LLAMA SMALL "%s", settings)) -
	       count(LLAMA SMALL);
}

static void test_what_each_setting_adds(void **state)
{
	const int64_t h = 48, d = 12, f = 128, rows = 12 * d;
	int64_t layer = rows * h + h * h + 3 * f * h + 2 * h;

	(void)state;
	assert_int_equal(added("share_embeddings_and_output_weights = true;"),
			 -100 * h);
	assert_int_equal(added("add_qkv_bias = true;"), 4 * rows);
	assert_int_equal(added("qk_layernorm = true;"), 4 * 2 * d);
	assert_int_equal(added("num_query_groups = 1;"), -4 * 6 * d * h);
	assert_int_equal(added("mtp_num_layers = 2;"),
			 2 * (3 * h + 2 * h * h + layer));
	assert_int_equal(added("mtp_num_layers = 2; "
			       "mtp_use_repeated_layer = true;"),
			 3 * h + 2 * h * h + layer);
	assert_int_equal(added("num_moe_experts = 2;"),
			 4 * (3 * f * h + 2 * h));
	assert_int_equal(added("num_moe_experts = 2; moe_layer_freq = 3;"),
			 2 * (3 * f * h + 2 * h));
	assert_int_equal(added("num_moe_experts = 2; "
			       "moe_layer_freq = [0, 0, 0, 1];"),
			 3 * f * h + 2 * h);
	assert_int_equal(added("num_moe_experts = 1; "
			       "moe_shared_expert_intermediate_size = 8;"),
			 4 * (h + 3 * 8 * h));
	assert_int_equal(added("num_moe_experts = 1; "
			       "moe_shared_expert_gate = true; "
			       "moe_shared_expert_intermediate_size = 8;"),
			 4 * (h + h + 3 * 8 * h));
	assert_int_equal(added("num_moe_experts = 2; moe_latent_size = 16;"),
			 4 * (2 * h + 2 * 16 * h + (2 * 16 - h) * 3 * f));
	assert_int_equal(added("softmax_type = \"learnable\";"), 4 * 4);
	assert_int_equal(added("softmax_type = \"off-by-one\";"), 0);
	assert_int_equal(added("attention_output_gate = true;"), 4 * h * h);
	assert_int_equal(added("enable_mhc_connections = true;"),
			 4 * 2 * (24 * (4 * h + 1) + 3));
	/* a router has a bias where linear layers have */
	assert_int_equal(count(SMALL "num_moe_experts = 1;") - count(SMALL),
			 4 * (h + 1));
	assert_int_equal(shape_parameters(shape_of(
				 SMALL "position_embedding_type = \"none\"; "
				       "normalization = \"RMSNorm\";")) +
				 9 * h,
			 shape_parameters(shape_of(
				 SMALL "position_embedding_type = \"none\";")));
}

/* Layers with sizes of their own: no half, or a linear one instead. */
static void test_own_layers(void **state)
{
	const int64_t h = 48, d = 12, f = 128;

	(void)state;
	assert_int_equal(
		added("heterogeneous_num_query_groups = [4, 1, 0, -1];"),
		-6 * d * h - (12 * d * h + h * h + h) - 12 * d * h);
	assert_int_equal(
		added("heterogeneous_ffn_hidden_size = [128, 64, 0, -1];"),
		-3 * 64 * h - (3 * f * h + h) - 3 * f * h + h * h);
}

/* The gated delta rule in three of four layers. */
static void test_delta_rule(void **state)
{
	const int64_t h = 48, keys = 2 * 8, values = 4 * 6;
	int64_t softmax = 12 * 12 * h + h * h, conv = (2 * keys + values) * 3;
	int64_t gdn = (2 * keys + 2 * values + 2 * 4) * h + conv + 2 * 4 + 6 +
		      h * values;
	int64_t gdn2 =
		(4 * keys + 3 * values) * h + conv + keys + 2 + 6 + h * values;
	const char *sizes =
		"linear_attention_freq = 4; linear_conv_kernel_dim = 3; "
		"linear_num_key_heads = 2; linear_key_head_dim = 8; "
		"linear_num_value_heads = 4; linear_value_head_dim = 6; "
		"experimental_attention_variant = ";

	(void)state;
	assert_int_equal(added(arena_printf(&arena, "%s\"gdn\";", sizes)),
			 3 * (gdn - softmax));
	assert_int_equal(added(arena_printf(&arena, "%s\"gdn2\";", sizes)),
			 3 * (gdn2 - softmax));
}

static void test_derived(void **state)
{
	/* h and 64 * floor(h / 24) */
	static const int64_t gated[][2] = {{768, 2048},	  {1024, 2688},
					   {2048, 5440},  {4096, 10880},
					   {5120, 13632}, {8192, 21824}};
	struct shape *s = shape_of(SMALL);

	(void)state;
	assert_int_equal(s->ffn_hidden_size, 192);
	assert_int_equal(s->num_query_groups, 4);
	assert_int_equal(s->kv_channels, 12);
	assert_int_equal(s->max_position_embeddings, 1024);
	assert_true(s->add_qkv_bias);
	assert_false(IS_SET(s->moe_ffn_hidden_size));
	assert_int_equal(shape_qkv_rows(s, 0), 144);
	for (size_t i = 0; i < sizeof(gated) / sizeof(*gated); i++) {
		s = shape_of(arena_printf(&arena,
					  LLAMA "num_layers = 1; "
						"hidden_size = %d; "
						"num_attention_heads = 1; "
						"vocab_size = 1;",
					  (int)gated[i][0]));
		assert_int_equal(s->ffn_hidden_size, gated[i][1]);
	}
}

/* muP follows from the widths; capacities below 0 are none. */
static void test_derived_scales(void **state)
{
	struct shape *s = shape_of(SMALL "use_mup = true; "
					 "mup_base_hidden_size = 24; "
					 "mup_base_head_dim = 4;");

	(void)state;
	assert_true(s->mup_width_mult == 2);
	assert_true(s->mup_output_mult == 0.5);
	assert_true(s->softmax_scale == 2.0 / 12);
	s = shape_of(SMALL "use_mup = true; mup_output_mult = 3.0; "
			   "softmax_scale = 0.25;");
	assert_int_equal(s->mup_base_hidden_size, 48);
	assert_true(s->mup_width_mult == 1);
	assert_true(s->mup_output_mult == 3);
	assert_true(s->softmax_scale == 0.25);
	s = shape_of(SMALL);
	assert_true(isnan(s->softmax_scale));
	s = shape_of(SMALL "moe_expert_capacity_factor = -1.0;");
	assert_true(isnan(s->moe_expert_capacity_factor));
	assert_string_equal(shape_text(s, &arena),
			    shape_text(shape_of(SMALL), &arena));
	s = shape_of(SMALL "heterogeneous_num_query_groups = [1, 2, 4, 4];");
	assert_true(s->heterogeneous_block_specs);
}

/* Periods begin with experts; lists say it layer by layer. */
static void test_moe_pattern(void **state)
{
	struct shape *every3 = shape_of(
		LLAMA SMALL "num_moe_experts = 2; moe_layer_freq = 3;");
	struct shape *list =
		shape_of(LLAMA SMALL "num_moe_experts = 2; "
				     "moe_layer_freq = [0, 1, 1, 0];");
	struct shape *dense = shape_of(LLAMA SMALL);

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(shape_is_moe(every3, i), i % 3 == 0);
		assert_int_equal(shape_is_moe(list, i), i == 1 || i == 2);
		assert_false(shape_is_moe(dense, i));
	}
}

static void test_text(void **state)
{
	struct shape *s = shape_of(LLAMA SMALL "seq_length = 77;");

	(void)state;
	assert_string_equal(shape_text(s, &arena),
			    "activation_func=\"silu\"\n"
			    "add_bias_linear=false\n"
			    "ffn_hidden_size=128\n"
			    "gated_linear_unit=true\n"
			    "hidden_size=48\n"
			    "kv_channels=12\n"
			    "normalization=\"RMSNorm\"\n"
			    "num_attention_heads=4\n"
			    "num_layers=4\n"
			    "num_query_groups=4\n"
			    "position_embedding_type=\"rope\"\n"
			    "vocab_size=100\n");
	s = shape_of(SMALL "seq_length = 77;");
	assert_non_null(
		strstr(shape_text(s, &arena), "max_position_embeddings=77\n"));
	assert_non_null(strstr(shape_text(s, &arena), "seq_length=77\n"));
}

static const char *hash(const char *settings)
{
	char *hex = arena_alloc(&arena, 33, 1);

	shape_hash(shape_of(settings), hex);
	assert_int_equal(strlen(hex), 32);
	return hex;
}

static void test_hash(void **state)
{
	const char *text = shape_text(shape_of(LLAMA SMALL), &arena), *h;
	XXH128_canonical_t want;

	(void)state;
	h = hash(LLAMA SMALL);
	XXH128_canonicalFromHash(&want, XXH3_128bits(text, strlen(text)));
	for (int i = 0; i < 16; i++)
		assert_int_equal(
			strtol(arena_strndup(&arena, h + 2 * i, 2), NULL, 16),
			want.digest[i]);
	/* the same model, said otherwise */
	assert_string_equal(h, hash(LLAMA SMALL "ffn_hidden_size = 128;"));
	assert_string_equal(h, hash(LLAMA SMALL "mtp_num_layers = 0;"));
	assert_string_equal(h, hash(LLAMA SMALL "seq_length = 9;"));
	/* another model */
	assert_string_not_equal(h, hash(LLAMA SMALL "rotary_base = 5e5;"));
	assert_string_not_equal(h, hash(LLAMA SMALL "num_query_groups = 2;"));
	assert_string_not_equal(h, hash(LLAMA SMALL "mtp_num_layers = 1;"));
	assert_string_not_equal(hash(SMALL), hash(SMALL "seq_length = 9;"));
}

/* Sizes at their bounds count without wrapping. */
static void test_saturates(void **state)
{
	struct shape *s =
		shape_of("num_layers = 16384; hidden_size = 1048576; "
			 "num_attention_heads = 65536; kv_channels = 65536; "
			 "ffn_hidden_size = 4194304; vocab_size = 2147483647; "
			 "num_moe_experts = 65536;");
	struct report r = {.arena = &arena};

	(void)state;
	assert_int_equal(shape_parameters(s), INT64_MAX);
	shape_check(s, &r);
	assert_int_equal(r.count, 1);
	assert_string_equal(r.list[0].id, "shape-size");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_gpt2),
		TEST(test_llama),
		TEST(test_experts),
		TEST(test_latent_attention),
		TEST(test_what_each_setting_adds),
		TEST(test_own_layers),
		TEST(test_delta_rule),
		TEST(test_derived),
		TEST(test_derived_scales),
		TEST(test_moe_pattern),
		TEST(test_text),
		TEST(test_hash),
		TEST(test_saturates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
