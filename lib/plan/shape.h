/* SPDX-License-Identifier: Apache-2.0 */
/* What the model is: the function it computes and its parameter set. */
#ifndef PLAN_SHAPE_H
#define PLAN_SHAPE_H

#include "lib/plan/field.h"

enum shape_act { ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_RELU2, ACT_QUICK_GELU };
enum shape_norm { NORM_LAYERNORM, NORM_RMSNORM };
enum shape_pos { POS_LEARNED, POS_ROPE, POS_MROPE, POS_YARN, POS_NONE };
enum shape_softmax { SOFTMAX_VANILLA, SOFTMAX_OFF_BY_ONE, SOFTMAX_LEARNABLE };
enum shape_rope { ROPE_PLAIN, ROPE_YARN };
enum shape_variant { VARIANT_NONE, VARIANT_GDN, VARIANT_GDN2, VARIANT_DSA };
enum shape_drop { DROP_PROBS, DROP_POSITION };
enum shape_score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SQRTSOFTPLUS };

struct shape {
	struct origin from[FIELDS_MAX];

	int64_t num_layers, hidden_size, ffn_hidden_size;
	int64_t num_attention_heads, num_query_groups, kv_channels;
	bool gated_linear_unit;
	int activation_func; /* enum shape_act */
	double glu_linear_offset;
	double activation_func_clamp_value; /* NAN: none */
	int normalization;		    /* enum shape_norm */
	double layernorm_epsilon;
	bool layernorm_zero_centered_gamma;
	bool apply_residual_connection_post_layernorm;
	bool enable_mhc_connections;
	int64_t mhc_num_residual_streams, mhc_sinkhorn_iterations;
	bool qk_layernorm, qk_l2_norm;
	bool add_bias_linear, add_qkv_bias;
	double softmax_scale; /* NAN: 1 / sqrt(kv_channels) */
	int softmax_type;     /* enum shape_softmax */
	bool attention_output_gate, apply_query_key_layer_scaling;
	struct ints window_size;	   /* left and right; unset: all */
	struct ints window_attn_skip_freq; /* unset: every layer */

	int64_t vocab_size; /* the true one, never padded */
	bool share_embeddings_and_output_weights;
	int64_t seq_length, max_position_embeddings;
	int position_embedding_type; /* enum shape_pos */
	double rotary_base, rotary_percent;
	bool rotary_interleaved;
	bool rope_scaling;
	double rope_scaling_factor;
	double seq_len_interpolation_factor; /* NAN: 1 */
	struct ints mrope_section;
	double yarn_rotary_scaling_factor;
	int64_t yarn_original_max_position_embeddings;
	double yarn_beta_fast, yarn_beta_slow;
	double yarn_mscale, yarn_mscale_all_dim;
	bool yarn_correction_range_round_to_int;
	struct ints no_rope_freq;

	int64_t mtp_num_layers; /* 0 and unset are the same */
	bool mtp_use_repeated_layer;
	int64_t num_moe_experts; /* 0: dense */
	struct ints moe_layer_freq;
	int64_t moe_ffn_hidden_size, moe_router_topk;
	int64_t moe_shared_expert_intermediate_size;
	bool moe_shared_expert_gate;
	int moe_router_score_function; /* enum shape_score */
	bool moe_router_pre_softmax;
	double moe_router_topk_scaling_factor; /* NAN: 1 */
	int64_t moe_router_num_groups, moe_router_group_topk;
	bool moe_router_enable_expert_bias;
	int64_t moe_latent_size;
	bool moe_apply_probs_on_input;
	double moe_expert_capacity_factor; /* NAN: dropless */
	int moe_token_drop_policy;	   /* enum shape_drop */
	bool multi_latent_attention;
	bool heterogeneous_block_specs;
	/* for each layer; 0: no such half, -1: a linear layer instead */
	struct ints heterogeneous_num_query_groups;
	struct ints heterogeneous_ffn_hidden_size;
	/* multi_latent_attention: ranks of the compressed q (0: none) and kv */
	int64_t q_lora_rank, kv_lora_rank;
	int64_t qk_head_dim, qk_pos_emb_head_dim, v_head_dim; /* per head */
	int rope_type; /* enum shape_rope */
	double rotary_scaling_factor;
	int64_t original_max_position_embeddings;
	double beta_fast, beta_slow, mscale, mscale_all_dim;

	int experimental_attention_variant; /* enum shape_variant */
	struct ints linear_attention_freq;
	int64_t linear_conv_kernel_dim;
	int64_t linear_key_head_dim, linear_value_head_dim;
	int64_t linear_num_key_heads, linear_num_value_heads;
	int64_t dsa_indexer_n_heads, dsa_indexer_head_dim, dsa_indexer_topk;

	bool use_mup;
	int64_t mup_base_hidden_size;
	double mup_width_mult, mup_output_mult, mup_embedding_mult;
	double mup_attn_scale_power;
	double mup_base_head_dim; /* NAN: 1 */
};

extern const struct group shape_group;

/* Fill what was not given (ffn, groups, head width, ...) from what was. */
void shape_finalize(struct shape *s);

/* Report everything wrong with S by itself. */
void shape_check(const struct shape *s, struct report *r);

/* Whether all sizes are there, so that parameters can be counted. */
bool shape_is_complete(const struct shape *s);

/* Whether decoder LAYER (global, from 0) is a mixture of experts. */
bool shape_is_moe(const struct shape *s, int64_t layer);

/*
 * Keys that a query of LAYER sees, its own included; 0: all before it.  Layers
 * of multi-token prediction are like the last.
 */
int64_t shape_window(const struct shape *s, int64_t layer);

/*
 * Keys that a query of LAYER sees on average, its own left out: half of the
 * sequence, less within a window.  What FLOPs are counted by.
 */
double shape_context(const struct shape *s, int64_t layer);

/* Whether LAYER has the gated delta rule instead of softmax attention. */
bool shape_is_delta(const struct shape *s, int64_t layer);

/* Whether some layer is a dense one, ffn_hidden_size wide. */
bool shape_uses_ffn(const struct shape *s);

/*
 * Layers with weights of their own: the decoder's, then those of multi-token
 * prediction, which come one a depth, or one for all if they repeat it.
 */
int64_t shape_layers(const struct shape *s);

/*
 * The halves of LAYER (num_layers and beyond: of multi-token prediction, which
 * are like the last): the key/value heads of its attention, or the width of
 * its mlp, if it is a dense one; 0: no such half, -1: a linear layer instead.
 */
int64_t shape_layer_groups(const struct shape *s, int64_t layer);
int64_t shape_layer_ffn(const struct shape *s, int64_t layer);

/* Rows of LAYER's fused qkv projection: (heads + 2 groups) * head width. */
int64_t shape_qkv_rows(const struct shape *s, int64_t layer);

/* Widths of a head's query and key, and of its value; its rotated part. */
int64_t shape_head_width(const struct shape *s);
int64_t shape_value_width(const struct shape *s);

/* Heads of keys and values; latent attention's are as many as its queries. */
int64_t shape_groups(const struct shape *s);

/* The parameters of the whole model: true vocabulary, tied weights once. */
int64_t shape_parameters(const struct shape *s);

/*
 * Those that one token's forward pass visits, as papers count them: of every
 * mixture moe_router_topk experts, and all else whole: the router, shared
 * experts, the embedding too.  Formula: parameters - layers with experts *
 * (num_moe_experts - moe_router_topk) * parameters of one expert.
 */
int64_t shape_parameters_active(const struct shape *s);

/*
 * XXH3-128 of the sorted canonical text of the fields that differ from their
 * default (seq_length only with learned positions), 32 hex digits and a 0.
 */
void shape_hash(const struct shape *s, char hex[33]);

/* That text: "hidden_size=64\n" ... sorted by name. */
const char *shape_text(const struct shape *s, struct arena *a);

#endif
