/* SPDX-License-Identifier: Apache-2.0 */
/* What the model is: the function it computes and its parameter set. */
#ifndef PLAN_SHAPE_H
#define PLAN_SHAPE_H

#include "lib/plan/field.h"

enum shape_act { ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_RELU2, ACT_QUICK_GELU };
enum shape_norm { NORM_LAYERNORM, NORM_RMSNORM };
enum shape_pos { POS_LEARNED, POS_ROPE, POS_MROPE, POS_YARN, POS_NONE };
enum shape_score { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SQRTSOFTPLUS };

struct shape {
	struct origin from[FIELDS_MAX];

	int64_t num_layers, hidden_size, ffn_hidden_size;
	int64_t num_attention_heads, num_query_groups, kv_channels;
	bool gated_linear_unit;
	int activation_func; /* enum shape_act */
	int normalization;   /* enum shape_norm */
	double layernorm_epsilon;
	bool layernorm_zero_centered_gamma;
	bool qk_layernorm;
	bool add_bias_linear, add_qkv_bias;
	double softmax_scale; /* NAN: 1 / sqrt(kv_channels) */

	int64_t vocab_size; /* the true one, never padded */
	bool share_embeddings_and_output_weights;
	int64_t seq_length, max_position_embeddings;
	int position_embedding_type; /* enum shape_pos */
	double rotary_base, rotary_percent;
	bool rotary_interleaved;
	struct ints no_rope_freq;

	int64_t mtp_num_layers; /* 0 and unset are the same */
	bool mtp_use_repeated_layer;
	int64_t num_moe_experts; /* 0: dense */
	struct ints moe_layer_freq;
	int64_t moe_ffn_hidden_size, moe_router_topk;
	int64_t moe_shared_expert_intermediate_size;
	int moe_router_score_function; /* enum shape_score */
	bool multi_latent_attention;
	bool heterogeneous_block_specs;
	/* multi_latent_attention: ranks of the compressed q (0: none) and kv */
	int64_t q_lora_rank, kv_lora_rank;
	int64_t qk_head_dim, qk_pos_emb_head_dim, v_head_dim; /* per head */
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
 * Layers with weights of their own: the decoder's, then those of multi-token
 * prediction, which come one a depth, or one for all if they repeat it.
 */
int64_t shape_layers(const struct shape *s);

/* Rows of the fused qkv projection: (heads + 2 groups) * head width. */
int64_t shape_qkv_rows(const struct shape *s);

/* The parameters of the whole model: true vocabulary, tied weights once. */
int64_t shape_parameters(const struct shape *s);

/*
 * XXH3-128 of the sorted canonical text of the fields that differ from their
 * default (seq_length only with learned positions), 32 hex digits and a 0.
 */
void shape_hash(const struct shape *s, char hex[33]);

/* That text: "hidden_size=64\n" ... sorted by name. */
const char *shape_text(const struct shape *s, struct arena *a);

#endif
