/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lib/plan/shape.h"

bool shape_is_moe(const struct shape *s, int64_t layer)
{
	const struct ints *freq = &s->moe_layer_freq;

	if (!s->num_moe_experts || !freq->count)
		return false;
	if (freq->is_list)
		return layer < freq->count && freq->item[layer];
	return freq->item[0] && layer % freq->item[0] == 0;
}

int64_t shape_window(const struct shape *s, int64_t layer)
{
	const struct ints *skip = &s->window_attn_skip_freq;
	bool all = false;

	if (layer >= s->num_layers)
		layer = s->num_layers - 1;
	if (!s->window_size.count || s->window_size.item[0] < 0)
		return 0;
	if (skip->is_list)
		all = layer >= skip->count || !skip->item[layer];
	else if (skip->count)
		all = !skip->item[0] || (layer + 1) % skip->item[0] == 0;
	return all ? 0 : s->window_size.item[0] + 1;
}

double shape_context(const struct shape *s, int64_t layer)
{
	double t = (double)s->seq_length;
	double w = (double)shape_window(s, layer) - 1;

	return w >= 0 && w < t ? w - w * w / (2 * t) : t / 2;
}

bool shape_uses_ffn(const struct shape *s)
{
	if (s->heterogeneous_ffn_hidden_size.count)
		return false;
	for (int64_t n = 0; IS_SET(s->num_layers) && n < s->num_layers; n++)
		if (!shape_is_moe(s, n))
			return true;
	return !s->num_moe_experts;
}

bool shape_is_delta(const struct shape *s, int64_t layer)
{
	const struct ints *freq = &s->linear_attention_freq;

	if ((s->experimental_attention_variant != VARIANT_GDN &&
	     s->experimental_attention_variant != VARIANT_GDN2) ||
	    !freq->count)
		return false;
	if (freq->is_list)
		return layer < freq->count && freq->item[layer];
	return freq->item[0] && (layer + 1) % freq->item[0] != 0;
}

int64_t shape_layers(const struct shape *s)
{
	if (s->mtp_use_repeated_layer && s->mtp_num_layers)
		return s->num_layers + 1;
	return s->num_layers + s->mtp_num_layers;
}

int64_t shape_head_width(const struct shape *s)
{
	return s->multi_latent_attention
		       ? s->qk_head_dim + s->qk_pos_emb_head_dim
		       : s->kv_channels;
}

int64_t shape_value_width(const struct shape *s)
{
	return s->multi_latent_attention ? s->v_head_dim : s->kv_channels;
}

int64_t shape_groups(const struct shape *s)
{
	return s->multi_latent_attention ? s->num_attention_heads
					 : s->num_query_groups;
}

/* The entry of LAYER in a LIST of sizes of their own, or OTHERWISE. */
static int64_t own_size(const struct shape *s, const struct ints *list,
			int64_t layer, int64_t otherwise)
{
	if (layer >= s->num_layers)
		layer = s->num_layers - 1;
	return layer < list->count ? list->item[layer] : otherwise;
}

int64_t shape_layer_groups(const struct shape *s, int64_t layer)
{
	return own_size(s, &s->heterogeneous_num_query_groups, layer,
			shape_groups(s));
}

int64_t shape_layer_ffn(const struct shape *s, int64_t layer)
{
	return own_size(s, &s->heterogeneous_ffn_hidden_size, layer,
			s->ffn_hidden_size);
}

int64_t shape_qkv_rows(const struct shape *s, int64_t layer)
{
	return (s->num_attention_heads + 2 * shape_layer_groups(s, layer)) *
	       s->kv_channels;
}

/* Wide enough for any product of the field tables' bounds. */
typedef __int128 wide;

static wide norm_count(const struct shape *s, int64_t width)
{
	return s->normalization == NORM_LAYERNORM ? 2 * width : width;
}

static wide linear_count(int64_t out, int64_t in, bool bias)
{
	return (wide)out * in + (bias ? out : 0);
}

/* Of an mlp WIDTH wide between IN elements. */
static wide mlp_count(const struct shape *s, int64_t width, int64_t in)
{
	int64_t fc1 = s->gated_linear_unit ? 2 * width : width;

	return linear_count(fc1, in, s->add_bias_linear) +
	       linear_count(in, width, s->add_bias_linear);
}

static wide latent_count(const struct shape *s)
{
	int64_t h = s->hidden_size, heads = s->num_attention_heads;
	int64_t q = heads * shape_head_width(s);
	int64_t kv = heads * (s->qk_head_dim + s->v_head_dim);
	int64_t q_rank = s->q_lora_rank, kv_rank = s->kv_lora_rank;
	wide n = 0;

	if (q_rank)
		n += linear_count(q_rank, h, false) +
		     linear_count(q, q_rank, false);
	else
		n += linear_count(q, h, false);
	n += linear_count(kv_rank + s->qk_pos_emb_head_dim, h, false);
	n += linear_count(kv, kv_rank, false);
	n += linear_count(h, heads * s->v_head_dim, s->add_bias_linear);
	if (s->qk_layernorm)
		n += (q_rank ? norm_count(s, q_rank) : 0) +
		     norm_count(s, kv_rank);
	return n;
}

/* What chooses the tokens of sparse attention. */
static wide indexer_count(const struct shape *s)
{
	int64_t heads = s->dsa_indexer_n_heads, d = s->dsa_indexer_head_dim;

	if (s->experimental_attention_variant != VARIANT_DSA ||
	    !IS_SET(heads) || !IS_SET(d))
		return 0;
	return linear_count(heads * d, s->q_lora_rank, false) +
	       linear_count(d + heads, s->hidden_size, false) + 2 * d;
}

/* The gated delta rule: projections, convolution, decay, gated norm. */
static wide delta_count(const struct shape *s)
{
	int64_t keys = s->linear_num_key_heads * s->linear_key_head_dim;
	int64_t values = s->linear_num_value_heads * s->linear_value_head_dim;
	bool second = s->experimental_attention_variant == VARIANT_GDN2;
	int64_t extra =
		second ? 2 * keys + values : 2 * s->linear_num_value_heads;
	wide n = linear_count(2 * keys + 2 * values + extra, s->hidden_size,
			      false);

	n += (wide)(2 * keys + values) * s->linear_conv_kernel_dim;
	n += second ? keys + s->linear_num_key_heads
		    : 2 * s->linear_num_value_heads;
	n += norm_count(s, s->linear_value_head_dim);
	return n + linear_count(s->hidden_size, values, false);
}

/* Softmax attention with GROUPS key/value heads. */
static wide softmax_count(const struct shape *s, int64_t groups)
{
	int64_t heads = s->num_attention_heads, d = s->kv_channels;
	int64_t rows = (heads + 2 * groups) * d;
	wide n;

	if (s->attention_output_gate)
		rows += heads * d;
	n = linear_count(rows, s->hidden_size,
			 s->add_bias_linear || s->add_qkv_bias);
	n += linear_count(s->hidden_size, heads * d, s->add_bias_linear);
	if (s->qk_layernorm)
		n += 2 * norm_count(s, d);
	return n + (s->softmax_type == SOFTMAX_LEARNABLE ? heads : 0);
}

/* A half of a layer that is none, or a linear layer: 0 or -1 as a size. */
static wide replaced_count(const struct shape *s, int64_t size)
{
	if (!size)
		return 0;
	return norm_count(s, s->hidden_size) +
	       linear_count(s->hidden_size, s->hidden_size, s->add_bias_linear);
}

static wide attention_count(const struct shape *s, int64_t layer)
{
	int64_t groups = shape_layer_groups(s, layer);
	wide norm = norm_count(s, s->hidden_size);

	if (groups < 1)
		return replaced_count(s, groups);
	if (shape_is_delta(s, layer))
		return norm + delta_count(s);
	if (s->multi_latent_attention)
		return norm + latent_count(s) + indexer_count(s);
	return norm + softmax_count(s, groups);
}

/* The router of all experts, MANY of them, and what every token visits. */
static wide experts_count(const struct shape *s, int64_t many)
{
	int64_t h = s->hidden_size, latent = s->moe_latent_size;
	int64_t shared = s->moe_shared_expert_intermediate_size;
	bool bias = s->add_bias_linear;
	wide n = linear_count(s->num_moe_experts, h, bias);

	n += many *
	     mlp_count(s, s->moe_ffn_hidden_size, IS_SET(latent) ? latent : h);
	if (IS_SET(latent))
		n += linear_count(latent, h, bias) +
		     linear_count(h, latent, bias);
	if (IS_SET(shared))
		n += mlp_count(s, shared, h) +
		     (s->moe_shared_expert_gate ? h : 0);
	return n;
}

/* What mixes N residual streams at both halves of a layer. */
static wide streams_count(const struct shape *s)
{
	int64_t n = s->mhc_num_residual_streams, maps = n * n + 2 * n;

	if (!s->enable_mhc_connections)
		return 0;
	return 2 * (linear_count(maps, n * s->hidden_size, true) + 3);
}

/* With MANY of the experts, if it has any. */
static wide layer_count(const struct shape *s, int64_t layer, int64_t many)
{
	int64_t h = s->hidden_size;
	int64_t width = shape_layer_ffn(s, layer);
	wide n = attention_count(s, layer) + streams_count(s);

	if (shape_is_moe(s, layer))
		return n + norm_count(s, h) + experts_count(s, many);
	if (width < 1)
		return n + replaced_count(s, width);
	return n + norm_count(s, h) + mlp_count(s, width, h);
}

/* The physical MTP layers: two norms, a 2h -> h projection, a layer, a norm. */
static wide mtp_count(const struct shape *s, int64_t many)
{
	int64_t h = s->hidden_size;
	int64_t layers = shape_layers(s) - s->num_layers;

	return layers * (3 * norm_count(s, h) + linear_count(h, 2 * h, false) +
			 layer_count(s, s->num_layers - 1, many));
}

/* The whole model with MANY experts a layer. */
static int64_t model_count(const struct shape *s, int64_t many)
{
	int64_t h = s->hidden_size;
	wide n = (wide)s->vocab_size * h;

	if (!s->share_embeddings_and_output_weights)
		n *= 2;
	if (s->position_embedding_type == POS_LEARNED)
		n += (wide)s->max_position_embeddings * h;
	for (int64_t i = 0; i < s->num_layers; i++)
		n += layer_count(s, i, many);
	n += norm_count(s, h) + mtp_count(s, many);
	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

int64_t shape_parameters(const struct shape *s)
{
	return model_count(s, s->num_moe_experts);
}

int64_t shape_parameters_active(const struct shape *s)
{
	bool all = s->moe_router_topk > s->num_moe_experts;

	return model_count(s, all ? s->num_moe_experts : s->moe_router_topk);
}

/* Without a position table the trained length is not part of the model. */
static bool hashed(const struct shape *s, const struct field *f)
{
	if (s->position_embedding_type == POS_LEARNED)
		return true;
	return f->offset != offsetof(struct shape, seq_length) &&
	       f->offset != offsetof(struct shape, max_position_embeddings);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *shape_text(const struct shape *s, struct arena *a)
{
	struct shape *initial = arena_alloc(a, 1, sizeof(*initial));
	const char *line[FIELDS_MAX] = {0};
	size_t lines = 0, room = 1;
	char *text, *t;

	field_defaults(&shape_group, initial, a);
	for (int i = 0; i < shape_group.count; i++) {
		const struct field *f = &shape_group.fields[i];
		const char *value = field_canonical(f, s, a);

		if (!hashed(s, f) ||
		    !strcmp(value, field_canonical(f, initial, a)))
			continue;
		line[lines] = arena_printf(a, "%s=%s\n", f->name, value);
		room += strlen(line[lines++]);
	}
	qsort(line, lines, sizeof(*line), by_text);
	t = text = arena_alloc(a, room, 1);
	for (size_t i = 0; i < lines; i++)
		t = stpcpy(t, line[i]);
	return text;
}

void shape_hash(const struct shape *s, char hex[33])
{
	struct arena a = {0};
	XXH128_canonical_t out;
	struct err e;
	const char *text;

	if (arena_open(&a, &e))
		arena_exhausted();
	text = shape_text(s, &a);
	XXH128_canonicalFromHash(&out, XXH3_128bits(text, strlen(text)));
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", out.digest[i]);
	arena_close(&a);
}
