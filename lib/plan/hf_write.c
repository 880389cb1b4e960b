/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/hf_write.h"

#include <string.h>

#include "lib/plan/hf.h"

static void put_text(json_t *o, const char *key, const char *text)
{
	json_object_set_new(o, key, json_string(text));
}

static void put_int(json_t *o, const char *key, int64_t value)
{
	json_object_set_new(o, key, json_integer(value));
}

static void put_real(json_t *o, const char *key, double value)
{
	json_object_set_new(o, key, json_real(value));
}

static void put_true(json_t *o, const char *key, bool value)
{
	json_object_set_new(o, key, json_boolean(value));
}

/* The settings of the shape that are keys of the family. */
static void put_rows(json_t *o, const struct hf_family *family,
		     const struct shape *s)
{
	for (const struct hf_row *row = family->rows; row->key; row++) {
		int i = field_find(&shape_group, row->field);
		const struct field *f = &shape_group.fields[i];
		const char *at = (const char *)s + (i < 0 ? 0 : f->offset);

		if (i < 0 || !field_is_set(f, s))
			continue;
		if (f->type == FIELD_INT)
			put_int(o, row->key,
				*(const int64_t *)(const void *)at);
		else if (f->type == FIELD_FLOAT)
			put_real(o, row->key,
				 *(const double *)(const void *)at);
		else if (f->type == FIELD_BOOL)
			put_true(o, row->key, *(const bool *)(const void *)at);
	}
}

static void put_activation(json_t *o, const char *key, const struct shape *s)
{
	static const char *const names[] = {
		[ACT_GELU] = "gelu",
		[ACT_GELU_TANH] = "gelu_new",
		[ACT_SILU] = "silu",
		[ACT_RELU2] = "relu2",
		[ACT_QUICK_GELU] = "quick_gelu",
	};

	put_text(o, key, names[s->activation_func]);
}

/* Llama 3's numbers are those that Megatron knows alone. */
static json_t *scale_llama3(const struct shape *s)
{
	json_t *o = json_object();

	put_text(o, "rope_type", "llama3");
	put_real(o, "factor", s->rope_scaling_factor);
	put_real(o, "low_freq_factor", 1);
	put_real(o, "high_freq_factor", 4);
	put_int(o, "original_max_position_embeddings", 8192);
	return o;
}

static json_t *scale_latent(const struct shape *s)
{
	json_t *o = json_object();

	put_text(o, "rope_type", "yarn");
	put_real(o, "factor", s->rotary_scaling_factor);
	put_int(o, "original_max_position_embeddings",
		s->original_max_position_embeddings);
	put_real(o, "beta_fast", s->beta_fast);
	put_real(o, "beta_slow", s->beta_slow);
	put_real(o, "mscale", s->mscale);
	put_real(o, "mscale_all_dim", s->mscale_all_dim);
	return o;
}

static json_t *scale_yarn(const struct shape *s)
{
	json_t *o = json_object();

	put_text(o, "rope_type", "yarn");
	put_real(o, "factor", s->yarn_rotary_scaling_factor);
	put_int(o, "original_max_position_embeddings",
		s->yarn_original_max_position_embeddings);
	put_real(o, "beta_fast", s->yarn_beta_fast);
	put_real(o, "beta_slow", s->yarn_beta_slow);
	put_real(o, "mscale", s->yarn_mscale);
	put_real(o, "mscale_all_dim", s->yarn_mscale_all_dim);
	return o;
}

static json_t *scale_linear(const struct shape *s)
{
	json_t *o = json_object();

	put_text(o, "rope_type", "linear");
	put_real(o, "factor", s->seq_len_interpolation_factor);
	return o;
}

static void put_rope(json_t *o, const struct shape *s)
{
	json_t *scaling = NULL;

	put_real(o, "rope_theta", s->rotary_base);
	if (s->multi_latent_attention)
		scaling = s->rope_type == ROPE_YARN ? scale_latent(s) : NULL;
	else if (s->position_embedding_type == POS_YARN)
		scaling = scale_yarn(s);
	else if (s->rope_scaling)
		scaling = scale_llama3(s);
	else if (!isnan(s->seq_len_interpolation_factor))
		scaling = scale_linear(s);
	if (scaling)
		json_object_set_new(o, "rope_scaling", scaling);
}

/* The token itself is in Hugging Face's count of the window. */
static void put_window(json_t *o, const struct shape *s)
{
	if (s->window_size.count)
		put_int(o, "sliding_window", s->window_size.item[0] + 1);
	else
		json_object_set_new(o, "sliding_window", json_null());
}

static void put_plain_layers(json_t *o, const struct shape *s)
{
	json_t *plain = json_array();

	for (int64_t i = 0; i < s->num_layers; i++)
		if (!shape_is_moe(s, i))
			json_array_append_new(plain, json_integer(i));
	json_object_set_new(o, "mlp_only_layers", plain);
	put_int(o, "decoder_sparse_step", 1);
}

/* The first layers that have no experts, and how many are chosen from. */
static void put_deepseek(json_t *o, const struct shape *s, bool third)
{
	bool groups = IS_SET(s->moe_router_group_topk);
	int64_t plain = 0, shared = s->moe_shared_expert_intermediate_size;

	while (plain < s->num_layers && !shape_is_moe(s, plain))
		plain++;
	if (!s->q_lora_rank)
		json_object_set_new(o, "q_lora_rank", json_null());
	put_int(o, "num_key_value_heads", s->num_attention_heads);
	put_int(o, "first_k_dense_replace", plain);
	put_int(o, "moe_layer_freq", 1);
	put_int(o, "n_group", groups ? s->moe_router_num_groups : 1);
	put_int(o, "topk_group", groups ? s->moe_router_group_topk : 1);
	put_text(o, "topk_method",
		 third	  ? "noaux_tc"
		 : groups ? "group_limited_greedy"
			  : "greedy");
	put_text(o, "scoring_func", third ? "sigmoid" : "softmax");
	put_true(o, "norm_topk_prob", third);
	put_real(o, "routed_scaling_factor",
		 isnan(s->moe_router_topk_scaling_factor)
			 ? 1
			 : s->moe_router_topk_scaling_factor);
	put_int(o, "n_shared_experts",
		IS_SET(shared) ? shared / s->moe_ffn_hidden_size : 0);
	if (third)
		put_int(o, "num_nextn_predict_layers", s->mtp_num_layers);
}

/* What hf_family's functions read beside their tables. */
static void put_more(json_t *o, const char *type, const struct shape *s)
{
	bool windows = !strcmp(type, "mistral") || !strcmp(type, "mixtral");
	bool qwen = !strncmp(type, "qwen", 4);

	if (!strcmp(type, "gpt2")) {
		put_activation(o, "activation_function", s);
		return;
	}
	put_activation(o, "hidden_act", s);
	put_rope(o, s);
	if (windows)
		put_window(o, s);
	if (qwen)
		put_true(o, "use_sliding_window", false);
	if (!strcmp(type, "llama") && s->add_bias_linear) {
		put_true(o, "attention_bias", true);
		put_true(o, "mlp_bias", true);
	}
	if (!strncmp(type, "deepseek", 8))
		put_deepseek(o, s, !strcmp(type, "deepseek_v3"));
	if (!strcmp(type, "qwen3_moe")) {
		put_true(o, "norm_topk_prob", !s->moe_router_pre_softmax);
		put_plain_layers(o, s);
	}
}

json_t *hf_write(const char *type, const struct shape *s)
{
	json_t *o = json_object();

	put_text(o, "model_type", type);
	put_rows(o, hf_family(type), s);
	put_more(o, type, s);
	return o;
}
