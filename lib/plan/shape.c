/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/shape.h"

static const char *const acts[] = {"gelu",  "gelu_tanh",  "silu",
				   "relu2", "quick_gelu", NULL};
static const char *const norms[] = {"LayerNorm", "RMSNorm", NULL};
static const char *const positions[] = {
	"learned_absolute", "rope", "mrope", "yarn", "none", NULL};
static const char *const scores[] = {"softmax", "sigmoid", "sqrtsoftplus",
				     NULL};

#define ROW(name, type, ...)                                                   \
	{                                                                      \
#name, FIELD_##type, offsetof(struct shape, name), __VA_ARGS__ \
	}
/* clang-format off */
static const struct field fields[] = {
ROW(num_layers, INT, NULL, 1, 16384, NULL,
	"decoder layers, MTP excluded; required"),
ROW(hidden_size, INT, NULL, 1, 1 << 20, NULL,
	"width of the residual stream, elements; required"),
ROW(ffn_hidden_size, INT, NULL, 1, 1 << 22, NULL,
	"width of the feed-forward layer, elements; derived: 4 * hidden_size, "
	"or 64 * floor(hidden_size / 24) with gated_linear_unit"),
ROW(num_attention_heads, INT, NULL, 1, 65536, NULL,
	"query heads; required"),
ROW(num_query_groups, INT, NULL, 1, 65536, NULL,
	"key/value heads; derived: num_attention_heads"),
ROW(kv_channels, INT, NULL, 1, 65536, NULL,
	"width of a head, elements; derived: hidden_size / "
	"num_attention_heads"),
ROW(gated_linear_unit, BOOL, "false", 0, 0, NULL,
	"act(gate) * up, as in SwiGLU"),
ROW(activation_func, ENUM, "gelu", 0, 0, acts,
	"gelu is exact (erf); with gated_linear_unit silu makes SwiGLU"),
ROW(normalization, ENUM, "LayerNorm", 0, 0, norms,
	"RMSNorm has no bias"),
ROW(layernorm_epsilon, FLOAT, "1e-05", 1e-30, 1, NULL,
	"added to the variance"),
ROW(layernorm_zero_centered_gamma, BOOL, "false", 0, 0, NULL,
	"the stored gain is gain - 1"),
ROW(qk_layernorm, BOOL, "false", 0, 0, NULL,
	"norm on the queries and keys of each head"),
ROW(add_bias_linear, BOOL, "true", 0, 0, NULL,
	"biases in qkv, projection, fc1 and fc2"),
ROW(add_qkv_bias, BOOL, "false", 0, 0, NULL,
	"biases in qkv; derived: true with add_bias_linear"),
ROW(softmax_scale, FLOAT, NULL, 1e-30, 1e30, NULL,
	"of the attention logits; unset: 1 / sqrt(kv_channels)"),
ROW(vocab_size, INT, NULL, 1, INT32_MAX, NULL,
	"true vocabulary, tokens, never padded; required"),
ROW(share_embeddings_and_output_weights, BOOL, "false", 0, 0, NULL,
	"the output head is the embedding (tied)"),
ROW(seq_length, INT, "1024", 1, 1 << 30, NULL,
	"tokens of a training sample"),
ROW(max_position_embeddings, INT, NULL, 1, 1 << 30, NULL,
	"rows of a learned position table; derived: seq_length"),
ROW(position_embedding_type, ENUM, "learned_absolute", 0, 0, positions,
	"how a token knows its position"),
ROW(rotary_base, FLOAT, "10000", 1, 1e15, NULL,
	"theta of rope"),
ROW(rotary_percent, FLOAT, "1.0", 1e-6, 1, NULL,
	"fraction of a head's width that is rotated"),
ROW(rotary_interleaved, BOOL, "false", 0, 0, NULL,
	"rope pairs even and odd elements instead of halves"),
ROW(no_rope_freq, INTS, NULL, 0, 16384, NULL,
	"N: every Nth layer has no rope (the period ends with it); a list of "
	"num_layers: 1 has none"),
ROW(mtp_num_layers, INT, "0", 0, 64, NULL,
	"multi-token prediction depths"),
ROW(mtp_use_repeated_layer, BOOL, "false", 0, 0, NULL,
	"one physical MTP layer used at every depth"),
ROW(num_moe_experts, INT, "0", 0, 65536, NULL,
	"experts of a layer; 0: dense"),
ROW(moe_layer_freq, INTS, "1", 0, 16384, NULL,
	"N: every Nth layer has experts (the period begins with it); a list "
	"of num_layers: 1 has experts"),
ROW(moe_ffn_hidden_size, INT, NULL, 1, 1 << 22, NULL,
	"feed-forward width of an expert; derived: ffn_hidden_size"),
ROW(moe_router_topk, INT, "2", 1, 65536, NULL,
	"experts that a token goes to"),
ROW(moe_shared_expert_intermediate_size, INT, NULL, 1, 1 << 22, NULL,
	"feed-forward width of all shared experts together; unset: none"),
ROW(moe_router_score_function, ENUM, "softmax", 0, 0, scores,
	"of the router's logits"),
ROW(multi_latent_attention, BOOL, "false", 0, 0, NULL,
	"attention with compressed queries, keys and values"),
ROW(heterogeneous_block_specs, BOOL, "false", 0, 0, NULL,
	"layers with sizes of their own"),
ROW(q_lora_rank, INT, "512", 0, 1 << 20, NULL,
	"multi_latent_attention: width of the compressed query; 0: none"),
ROW(kv_lora_rank, INT, "512", 1, 1 << 20, NULL,
	"multi_latent_attention: width of the compressed key and value"),
ROW(qk_head_dim, INT, "128", 1, 65536, NULL,
	"multi_latent_attention: unrotated width of a query head"),
ROW(qk_pos_emb_head_dim, INT, "64", 1, 65536, NULL,
	"multi_latent_attention: rotated width of a query head"),
ROW(v_head_dim, INT, "128", 1, 65536, NULL,
	"multi_latent_attention: width of a value head"),
};
/* clang-format on */

const struct group shape_group = {
	.name = "shape",
	.fields = fields,
	.count = sizeof(fields) / sizeof(*fields),
	.size = sizeof(struct shape),
};

static void derive(struct shape *s, int64_t *at, int64_t value, const char *why)
{
	*at = value;
	field_derived(&shape_group, s, at, why);
}

static void derive_sizes(struct shape *s)
{
	int64_t h = s->hidden_size, heads = s->num_attention_heads;

	if (!IS_SET(s->ffn_hidden_size) && IS_SET(h)) {
		if (s->gated_linear_unit && h >= 24)
			derive(s, &s->ffn_hidden_size, h / 24 * 64,
			       "64 * floor(hidden_size / 24), gated");
		else if (!s->gated_linear_unit)
			derive(s, &s->ffn_hidden_size, 4 * h,
			       "4 * hidden_size");
	}
	if (!IS_SET(s->num_query_groups) && IS_SET(heads))
		derive(s, &s->num_query_groups, heads, "num_attention_heads");
	if (!IS_SET(s->kv_channels) && IS_SET(h) && IS_SET(heads) && h >= heads)
		derive(s, &s->kv_channels, h / heads,
		       "hidden_size / num_attention_heads");
}

void shape_finalize(struct shape *s)
{
	derive_sizes(s);
	if (!IS_SET(s->max_position_embeddings))
		derive(s, &s->max_position_embeddings, s->seq_length,
		       "seq_length");
	if (s->num_moe_experts && !IS_SET(s->moe_ffn_hidden_size) &&
	    IS_SET(s->ffn_hidden_size))
		derive(s, &s->moe_ffn_hidden_size, s->ffn_hidden_size,
		       "ffn_hidden_size");
	if (s->add_bias_linear && !s->add_qkv_bias) {
		s->add_qkv_bias = true;
		field_derived(&shape_group, s, &s->add_qkv_bias,
			      "add_bias_linear");
	}
}
