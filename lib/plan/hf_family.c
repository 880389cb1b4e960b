/* SPDX-License-Identifier: Apache-2.0 */
/* What Hugging Face's keys mean, family by family. */
#include <math.h>
#include <string.h>

#include "lib/plan/config.h"
#include "lib/plan/hf.h"

#define COMMON                                                                \
	{"num_hidden_layers", "num_layers", NULL},                            \
		{"hidden_size", "hidden_size", NULL},                         \
		{"num_attention_heads", "num_attention_heads", NULL},         \
		{"vocab_size", "vocab_size", NULL},                           \
		{"max_position_embeddings", "max_position_embeddings", NULL}, \
		{"initializer_range", "init_method_std", "0.02"},             \
	{                                                                     \
		"attention_dropout", "attention_dropout", "0.0"               \
	}

#define GROUPED                                              \
	{"num_key_value_heads", "num_query_groups", NULL},   \
		{"head_dim", "kv_channels", NULL},           \
	{                                                    \
		"intermediate_size", "ffn_hidden_size", NULL \
	}

#define ROWS(name, ...) \
	static const struct hf_row name[] = {__VA_ARGS__, {NULL, NULL, NULL}}

#define TIED(yes)                                                             \
	{                                                                     \
		"tie_word_embeddings", "share_embeddings_and_output_weights", \
			yes                                                   \
	}

#define EPSILON(x)                                     \
	{                                              \
		"rms_norm_eps", "layernorm_epsilon", x \
	}

ROWS(gpt2, {"n_layer", "num_layers", NULL}, {"n_embd", "hidden_size", NULL},
     {"n_head", "num_attention_heads", NULL},
     {"n_inner", "ffn_hidden_size", NULL}, {"vocab_size", "vocab_size", NULL},
     {"n_positions", "max_position_embeddings", "1024"},
     {"layer_norm_epsilon", "layernorm_epsilon", "1e-05"},
     {"initializer_range", "init_method_std", "0.02"},
     {"resid_pdrop", "hidden_dropout", "0.1"},
     {"attn_pdrop", "attention_dropout", "0.1"}, TIED("true"));

ROWS(llama, COMMON, GROUPED, TIED("false"), EPSILON("1e-06"));

ROWS(mixtral, COMMON, GROUPED, TIED("false"), EPSILON("1e-05"),
     {"num_local_experts", "num_moe_experts", "8"},
     {"num_experts_per_tok", "moe_router_topk", "2"});

ROWS(qwen_moe, COMMON, GROUPED, TIED("false"), EPSILON("1e-06"),
     {"num_experts", "num_moe_experts", NULL},
     {"num_local_experts", "num_moe_experts", NULL},
     {"num_experts_per_tok", "moe_router_topk", NULL},
     {"moe_intermediate_size", "moe_ffn_hidden_size", NULL});

ROWS(deepseek, COMMON, {"intermediate_size", "ffn_hidden_size", NULL},
     TIED("false"), EPSILON("1e-06"),
     {"n_routed_experts", "num_moe_experts", NULL},
     {"num_experts_per_tok", "moe_router_topk", NULL},
     {"moe_intermediate_size", "moe_ffn_hidden_size", NULL},
     {"q_lora_rank", "q_lora_rank", "0"},
     {"kv_lora_rank", "kv_lora_rank", "512"},
     {"qk_nope_head_dim", "qk_head_dim", "128"},
     {"qk_rope_head_dim", "qk_pos_emb_head_dim", "64"},
     {"v_head_dim", "v_head_dim", "128"});

ROWS(nemotron, COMMON, {"head_dim", "kv_channels", NULL}, TIED("false"),
     EPSILON("1e-05"));

static const struct hf_constant gpt2_constants[] = {
	{"position_embedding_type", "learned_absolute"},
	{"normalization", "LayerNorm"},
	{"add_bias_linear", "true"},
	{NULL, NULL}};

#define LLAMA_LIKE                                                   \
	{"normalization", "RMSNorm"}, {"gated_linear_unit", "true"}, \
		{"position_embedding_type", "rope"},                 \
		{"add_bias_linear", "false"},                        \
	{                                                            \
		"hidden_dropout", "0.0"                              \
	}

static const struct hf_constant llama_constants[] = {LLAMA_LIKE, {NULL, NULL}};
static const struct hf_constant qwen2_constants[] = {
	LLAMA_LIKE, {"add_qkv_bias", "true"}, {NULL, NULL}};
static const struct hf_constant qwen2_moe_constants[] = {
	LLAMA_LIKE,
	{"add_qkv_bias", "true"},
	{"moe_shared_expert_gate", "true"},
	{NULL, NULL}};
static const struct hf_constant qwen3_constants[] = {
	LLAMA_LIKE, {"qk_layernorm", "true"}, {NULL, NULL}};
static const struct hf_constant deepseek_constants[] = {
	LLAMA_LIKE,
	{"multi_latent_attention", "true"},
	{"qk_layernorm", "true"},
	{NULL, NULL}};

static const struct hf_family families[] = {
	{"gpt2", gpt2, gpt2_constants, hf_gpt2},
	{"llama", llama, llama_constants, hf_llama},
	{"mistral", llama, llama_constants, hf_mistral},
	{"mixtral", mixtral, llama_constants, hf_mixtral},
	{"qwen2", llama, qwen2_constants, hf_qwen},
	{"qwen2_moe", qwen_moe, qwen2_moe_constants, hf_qwen_moe},
	{"qwen3", llama, qwen3_constants, hf_qwen},
	{"qwen3_moe", qwen_moe, qwen3_constants, hf_qwen_moe},
	{"deepseek_v2", deepseek, deepseek_constants, hf_deepseek},
	{"deepseek_v3", deepseek, deepseek_constants, hf_deepseek},
	{"nemotron-nas", nemotron, llama_constants, hf_nemotron},
};

enum { FAMILIES = sizeof(families) / sizeof(*families) };

const struct hf_family *hf_family(const char *type)
{
	for (int i = 0; i < FAMILIES; i++)
		if (!strcmp(families[i].type, type))
			return &families[i];
	return NULL;
}

const char *hf_families(struct arena *a)
{
	const char *all = families[0].type;

	for (int i = 1; i < FAMILIES; i++)
		all = arena_printf(a, "%s, %s", all, families[i].type);
	return all;
}

/* hidden_act, of a gated feed-forward layer or a plain one. */
static void put_activation(struct hf *h, const char *key, const char *missing)
{
	static const char *const names[][2] = {
		{"silu", "silu"},	    {"swish", "silu"},
		{"gelu", "gelu"},	    {"gelu_new", "gelu_tanh"},
		{"gelu_fast", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
		{"relu2", "relu2"},	    {"quick_gelu", "quick_gelu"},
	};
	const char *act = hf_text(h, key, missing);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i][0], act)) {
			hf_say(h, key, "activation_func", names[i][1]);
			return;
		}
	hf_cannot(h, key, act);
}

/* NAME must not be anything but NEUTRAL. */
static void only(struct hf *h, const char *name, bool neutral)
{
	if (hf_true(h, name, neutral) != neutral)
		hf_cannot(h, name, neutral ? "false" : "true");
}

void hf_gpt2(struct hf *h)
{
	struct import_setting *positions =
		import_get(h->im, "max_position_embeddings");

	put_activation(h, "activation_function", "gelu_new");
	only(h, "scale_attn_weights", true);
	only(h, "scale_attn_by_inverse_layer_idx", false);
	only(h, "reorder_and_upcast_attn", false);
	only(h, "add_cross_attention", false);
	hf_real(h, "embd_pdrop", 0.1);
	if (positions)
		import_default(h->im, "seq_length", positions->text,
			       "max_position_embeddings");
}

/* Llama 3's scaling: Megatron knows one set of its other numbers. */
static void scale_llama3(struct hf *h, const char *in)
{
	struct arena *a = h->im->arena;
	const char *factor = arena_printf(a, "%s.factor", in);
	const char *low = arena_printf(a, "%s.low_freq_factor", in);
	const char *high = arena_printf(a, "%s.high_freq_factor", in);
	const char *length =
		arena_printf(a, "%s.original_max_position_embeddings", in);

	hf_say(h, in, "rope_scaling", "true");
	hf_put(h, factor, "rope_scaling_factor");
	if (fabs(hf_real(h, low, 1) - 1) > 0)
		hf_cannot(h, low, "a factor other than 1");
	if (fabs(hf_real(h, high, 4) - 4) > 0)
		hf_cannot(h, high, "a factor other than 4");
	if (hf_int(h, length, 8192) != 8192)
		hf_cannot(h, length, "a length other than 8192");
}

/* The numbers of yarn, under the names of MLA or of plain attention. */
static void scale_yarn(struct hf *h, const char *in, bool latent)
{
	static const char *const names[][3] = {
		{"factor", "rotary_scaling_factor",
		 "yarn_rotary_scaling_factor"},
		{"original_max_position_embeddings",
		 "original_max_position_embeddings",
		 "yarn_original_max_position_embeddings"},
		{"beta_fast", "beta_fast", "yarn_beta_fast"},
		{"beta_slow", "beta_slow", "yarn_beta_slow"},
		{"mscale", "mscale", "yarn_mscale"},
		{"mscale_all_dim", "mscale_all_dim", "yarn_mscale_all_dim"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		hf_put(h, arena_printf(h->im->arena, "%s.%s", in, names[i][0]),
		       names[i][latent ? 1 : 2]);
	if (latent)
		hf_say(h, in, "rope_type", "yarn");
	else
		hf_say(h, in, "position_embedding_type", "yarn");
}

/* rope_theta and rope_scaling, which newer files call rope_parameters. */
static void put_rope(struct hf *h, const char *theta, bool latent)
{
	struct arena *a = h->im->arena;
	const char *in = hf_get(h, "rope_parameters") ? "rope_parameters"
						      : "rope_scaling";
	const char *kind = arena_printf(a, "%s.rope_type", in);
	const char *inner = arena_printf(a, "%s.rope_theta", in);
	json_t *there = hf_get(h, in);

	hf_put(h, hf_get(h, inner) ? inner : "rope_theta", "rotary_base");
	import_default(h->im, "rotary_base", theta,
		       arena_printf(a, "model_type %s", h->type));
	hf_put(h, "partial_rotary_factor", "rotary_percent");
	if (!hf_get(h, kind))
		kind = arena_printf(a, "%s.type", in);
	else
		hf_get(h, arena_printf(a, "%s.type", in));
	kind = there ? hf_text(h, kind, "default") : "default";
	if (!strcmp(kind, "llama3") && !latent)
		scale_llama3(h, in);
	else if (!strcmp(kind, "yarn"))
		scale_yarn(h, in, latent);
	else if (!strcmp(kind, "linear") && !latent)
		hf_put(h, arena_printf(a, "%s.factor", in),
		       "seq_len_interpolation_factor");
	else if (strcmp(kind, "default"))
		hf_cannot(h, in, kind);
	else if (latent)
		import_default(h->im, "rope_type", "rope", "no rope_scaling");
}

/* A window that no sequence leaves is none. */
static void put_window(struct hf *h)
{
	struct import_setting *s = import_get(h->im, "max_position_embeddings");
	int64_t window = hf_int(h, "sliding_window", 0), pair[2];
	int64_t length = import_int(h->im, "max_position_embeddings", 0);

	if (!window || (s && window >= length))
		return;
	pair[0] = window - 1; /* the token itself is in Hugging Face's count */
	pair[1] = 0;
	hf_say(h, "sliding_window", "window_size", hf_ints(h, pair, 2));
}

/* attention_bias and mlp_bias: both, or none. */
static void put_biases(struct hf *h)
{
	bool attention = hf_true(h, "attention_bias", false);
	bool mlp = hf_true(h, "mlp_bias", false);

	if (attention && mlp)
		hf_say(h, "mlp_bias", "add_bias_linear", "true");
	else if (attention)
		hf_cannot(h, "attention_bias",
			  "a bias in all of attention and nowhere else");
	else if (mlp)
		hf_cannot(h, "mlp_bias", "a bias in the feed-forward alone");
}

void hf_llama(struct hf *h)
{
	put_activation(h, "hidden_act", "silu");
	put_rope(h, "10000", false);
	put_biases(h);
}

void hf_mistral(struct hf *h)
{
	put_activation(h, "hidden_act", "silu");
	put_rope(h, "10000", false);
	put_window(h);
}

static void put_auxiliary(struct hf *h, const char *key)
{
	json_t *value = hf_get(h, key);

	if (value && hf_real(h, key, 0) > 0)
		hf_say_run(h, key, "moe_aux_loss_coeff",
			   arena_printf(h->im->arena, "%.17g",
					hf_real(h, key, 0)));
}

void hf_mixtral(struct hf *h)
{
	put_activation(h, "hidden_act", "silu");
	put_rope(h, "1000000", false);
	put_window(h);
	put_auxiliary(h, "router_aux_loss_coef");
	if (hf_real(h, "router_jitter_noise", 0) > 0)
		hf_say_run(h, "router_jitter_noise", "moe_input_jitter_eps",
			   arena_printf(h->im->arena, "%.17g",
					hf_real(h, "router_jitter_noise", 0)));
}

/* Qwen has a window only if it says so, and then not in all layers. */
static void put_qwen_window(struct hf *h)
{
	static const char *const unused[] = {
		"sliding_window", "max_window_layers", "layer_types", NULL};

	if (!hf_true(h, "use_sliding_window", false))
		hf_skip(h, unused);
	else
		hf_cannot(h, "use_sliding_window",
			  "a window in the last layers alone");
}

void hf_qwen(struct hf *h)
{
	put_activation(h, "hidden_act", "silu");
	put_rope(h, "10000", false);
	put_qwen_window(h);
	only(h, "attention_bias", false);
}

/* The layers in the list NAME are plain ones. */
static void clear_listed(struct hf *h, const char *name, int64_t *item,
			 int64_t layers)
{
	json_t *list = hf_get(h, name), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		int64_t layer = json_integer_value(one);

		if (json_is_integer(one) && layer >= 0 && layer < layers)
			item[layer] = 0;
	}
}

/*
 * Which layers have experts: from FIRST on, every STEP-th by (layer + SHIFT),
 * without those of mlp_only_layers.
 */
static void put_layers(struct hf *h, const char *key, int64_t first,
		       int64_t step, int64_t shift)
{
	int64_t layers = import_int(h->im, "num_layers", 0), count = 0;
	int64_t *item;

	if (layers < 1 || layers > IMPORT_ITEMS_MAX || step < 1)
		return;
	item = arena_alloc(h->im->arena, (size_t)layers, sizeof(*item));
	for (int64_t i = 0; i < layers; i++)
		item[i] = i >= first && (i + shift) % step == 0;
	clear_listed(h, "mlp_only_layers", item, layers);
	for (int64_t i = 0; i < layers; i++)
		count += item[i];
	if (count < layers)
		hf_say(h, key, "moe_layer_freq", hf_ints(h, item, (int)layers));
}

void hf_qwen_moe(struct hf *h)
{
	hf_qwen(h);
	hf_put(h, "shared_expert_intermediate_size",
	       "moe_shared_expert_intermediate_size");
	if (!hf_true(h, "norm_topk_prob", false))
		hf_say(h, "norm_topk_prob", "moe_router_pre_softmax", "true");
	put_auxiliary(h, "router_aux_loss_coef");
	put_layers(h, "decoder_sparse_step", 0,
		   hf_int(h, "decoder_sparse_step", 1), 1);
}

/* Experts in groups of which a token sees some. */
static void put_expert_groups(struct hf *h)
{
	const char *method = hf_text(h, "topk_method", "noaux_tc");
	int64_t groups = hf_int(h, "n_group", 1);

	hf_int(h, "topk_group", 1);
	if (!strcmp(method, "greedy") || groups <= 1)
		return;
	hf_put(h, "n_group", "moe_router_num_groups");
	hf_put(h, "topk_group", "moe_router_group_topk");
	/* V2's groups are known by one expert, V3's by two */
	if (hf_int(h, "num_experts_per_tok", 8) / hf_int(h, "topk_group", 1) !=
	    (strcmp(h->type, "deepseek_v3") ? 1 : 2))
		hf_cannot(h, "topk_group",
			  "groups that are not known by their best "
			  "num_experts_per_tok / topk_group experts");
}

/* softmax before the choice, or a sigmoid that is normalised after it. */
static void put_scores(struct hf *h)
{
	bool third = !strcmp(h->type, "deepseek_v3");
	const char *score =
		hf_text(h, "scoring_func", third ? "sigmoid" : "softmax");
	bool normal = hf_true(h, "norm_topk_prob", third);
	double scale = hf_real(h, "routed_scaling_factor", 1);

	hf_say(h, "scoring_func", "moe_router_score_function", score);
	if (!strcmp(score, "softmax") && !normal)
		hf_say(h, "norm_topk_prob", "moe_router_pre_softmax", "true");
	else if (strcmp(score, "softmax") && !normal)
		hf_cannot(h, "norm_topk_prob",
			  "a sigmoid that is not normalised");
	if (third)
		hf_say(h, "model_type", "moe_router_enable_expert_bias",
		       "true");
	if (fabs(scale - 1) > 0)
		hf_put(h, "routed_scaling_factor",
		       "moe_router_topk_scaling_factor");
}

static void put_shared(struct hf *h)
{
	int64_t shared = hf_int(h, "n_shared_experts", 0);
	int64_t width = import_int(h->im, "moe_ffn_hidden_size", 0);

	if (shared > 0 && shared < 1 << 20 && width)
		hf_say(h, "n_shared_experts",
		       "moe_shared_expert_intermediate_size",
		       arena_printf(h->im->arena, "%lld",
				    (long long)(shared * width)));
}

static void check_epsilon(struct hf *h)
{
	double epsilon = hf_real(h, "rms_norm_eps", 1e-6);
	struct import_source from = hf_source(h, "rms_norm_eps");

	if (fabs(epsilon - 1e-6) > 1e-12)
		report_add(h->im->report, "import-run", WARNING, "", &from.at,
			   "rms_norm_eps %g: transformers keeps 1e-06 in the "
			   "norms of the latents, here they have it, too",
			   epsilon);
}

void hf_deepseek(struct hf *h)
{
	static const char *const read[] = {"num_key_value_heads", "head_dim",
					   "qk_head_dim", NULL};

	put_activation(h, "hidden_act", "silu");
	put_rope(h, "10000", true);
	only(h, "attention_bias", false);
	only(h, "mlp_bias", false);
	only(h, "rope_interleave", true);
	check_epsilon(h);
	put_expert_groups(h);
	put_scores(h);
	put_shared(h);
	put_layers(h, "first_k_dense_replace",
		   hf_int(h, "first_k_dense_replace", 0),
		   hf_int(h, "moe_layer_freq", 1), 0);
	hf_put(h, "num_nextn_predict_layers", "mtp_num_layers");
	put_auxiliary(h, "aux_loss_alpha");
	if (hf_true(h, "seq_aux", false) && hf_get(h, "aux_loss_alpha"))
		hf_say_run(h, "seq_aux", "moe_router_load_balancing_type",
			   "seq_aux_loss");
	hf_skip(h, read);
	import_default(h->im, "moe_router_dtype", "fp32",
		       "these models route in fp32");
}
