/* SPDX-License-Identifier: Apache-2.0 */
/* The attention half of a layer: softmax, latent, linear, or none. */
#include <string.h>

#include "lib/plan/place_rule.h"
#include "lib/plan/work_rule.h"

/* Softmax attention of H query and G key/value heads on this rank. */
struct heads {
	double H, G;
	double qk, v; /* widths of a head */
};

static bool names(const struct texts *list, int64_t layer, const char *word)
{
	int64_t n = list->count == 1 ? 0 : layer;

	return n < list->count && !strncmp(list->item[n], word, strlen(word));
}

/* What a context-parallel rank hears of the others' keys and values. */
static void add_context(struct works *w, const struct work_dims *d,
			int64_t layer, const struct heads *h)
{
	const struct place *p = &d->config->place;
	double kv = d->N * h->G * (h->qk + h->v) * d->elem;
	double all = d->N * (h->H + h->G) * (h->qk + h->v) * d->elem;

	if (d->cp == 1)
		return;
	if (names(&p->cp_comm_type, layer, "a2a")) {
		work_comm(w, WORK_EXCHANGE, GROUP_CP, all, 1, 1);
		return;
	}
	/* The gradients of keys and values go home as well. */
	work_comm(w, PROG_ALL_GATHER, GROUP_CP, kv, 1, 2);
	w->list[w->count - 1].hidden = names(&p->cp_comm_type, layer, "p2p");
}

/* Tokens that one attends to, on average: causal, within its window. */
static double context(const struct work_dims *d, int64_t layer)
{
	const struct shape *s = &d->config->shape;
	double t = d->T, w;

	if (s->experimental_attention_variant == VARIANT_DSA &&
	    IS_SET(s->dsa_indexer_topk) && (double)s->dsa_indexer_topk < t) {
		w = (double)s->dsa_indexer_topk;
		return w - w * w / (2 * t);
	}
	return shape_context(s, layer);
}

static void add_softmax(struct works *w, const struct work_dims *d,
			int64_t layer, const struct heads *h)
{
	double pairs = d->N * context(d, layer) * h->H;
	double out = d->N * h->H * h->v * d->elem;
	double in = d->N * (h->H * h->qk + h->G * (h->qk + h->v)) * d->elem;
	struct work *x = work_add(w, WORK_ATTN, MODULE_CORE);

	x->in = h->qk > h->v ? h->qk : h->v;
	/* Each step of a ring sees its part of them. */
	x->rows = 2 * context(d, layer) / d->cp;
	x->count = h->H / h->G;
	x->flops[0] = 2 * pairs * (h->qk + h->v);
	x->flops[1] = 2 * pairs * (3 * h->qk + 2 * h->v);
	x->bytes[0] = in + out;
	x->bytes[1] = 2 * in + 2 * out;
	x->keep = out + d->N * h->H * d->sum;
	x->part = d->N * h->H * d->sum;
	x->away_rest = AWAY_PROJ;
	x->grad = in + out;
	if (d->config->shape.softmax_type == SOFTMAX_LEARNABLE)
		x->params = h->H;
	add_context(w, d, layer, h);
}

/* Whether queries and keys of LAYER are rotated. */
static bool rotates(const struct shape *s, int64_t layer)
{
	const struct ints *skip = &s->no_rope_freq;

	if (s->position_embedding_type == POS_LEARNED ||
	    s->position_embedding_type == POS_NONE)
		return false;
	if (!skip->count)
		return true;
	if (skip->is_list)
		return layer >= skip->count || !skip->item[layer];
	return !skip->item[0] || (layer + 1) % skip->item[0] != 0;
}

static void works_grouped(struct works *w, const struct work_dims *d,
			  int64_t layer, int64_t groups)
{
	const struct shape *s = &d->config->shape;
	double width = (double)s->kv_channels;
	struct heads h = {
		.H = (double)s->num_attention_heads / d->tp,
		.G = groups < d->tp ? 1 : (double)groups / d->tp,
		.qk = width,
		.v = width,
	};
	double qkv = (h.H + 2 * h.G) * width;
	double gate = s->attention_output_gate ? h.H * width : 0;

	work_gemm(w, d, 0, d->N, qkv + gate, d->C,
		  s->add_bias_linear || s->add_qkv_bias, true)
		->away_rest = AWAY_CORE;
	if (s->qk_layernorm || s->qk_l2_norm)
		work_inner_norm(w, d, 0, d->N * (h.H + h.G), width,
				s->qk_layernorm ? 2 : 0);
	if (rotates(s, layer))
		work_bytes(w, 0, 2 * d->N * qkv * d->elem,
			   2 * d->N * qkv * d->elem, 0.7);
	add_softmax(w, d, layer, &h);
	if (gate > 0)
		work_bytes(w, 0, 3 * d->N * gate * d->elem,
			   5 * d->N * gate * d->elem, 0.7)
			->keep = d->N * gate * d->elem;
	work_gemm(w, d, 0, d->N, d->C, h.H * width, s->add_bias_linear, false);
}

/* What chooses the tokens of sparse attention. */
static void add_indexer(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	double heads, width, pairs = d->N * d->T / 2;
	struct work *x;

	if (s->experimental_attention_variant != VARIANT_DSA ||
	    !IS_SET(s->dsa_indexer_n_heads) || !IS_SET(s->dsa_indexer_head_dim))
		return;
	heads = (double)s->dsa_indexer_n_heads;
	width = (double)s->dsa_indexer_head_dim;
	work_gemm(w, d, 0, d->N, heads * width, (double)s->q_lora_rank, false,
		  true);
	work_gemm(w, d, 0, d->N, width + heads, d->C, false, true);
	x = work_add(w, WORK_ATTN, 0);
	x->in = width;
	x->rows = d->T;
	x->flops[0] = 2 * pairs * heads * width;
	x->flops[1] = 2 * x->flops[0];
	x->params = 2 * width; /* of its norm */
}

/*
 * Latent attention: down to the ranks on this rank's rows, up to its heads.
 * The down projections and what they give are whole on every tp rank.
 */
static void works_latent(struct works *w, const struct work_dims *d,
			 int64_t layer)
{
	const struct shape *s = &d->config->shape;
	double q_rank = (double)s->q_lora_rank, kv = (double)s->kv_lora_rank;
	double pos = (double)s->qk_pos_emb_head_dim;
	struct heads h = {
		.H = (double)s->num_attention_heads / d->tp,
		.qk = (double)(s->qk_head_dim + s->qk_pos_emb_head_dim),
		.v = (double)s->v_head_dim,
	};
	bool up = q_rank > 0;

	h.G = h.H;
	if (up)
		work_gemm(w, d, 0, d->rows, q_rank, d->C, false, true);
	work_gemm(w, d, 0, d->rows, kv + pos, d->C, false, true);
	if (s->qk_layernorm && up)
		work_inner_norm(w, d, 0, d->rows, q_rank, 1);
	if (s->qk_layernorm)
		work_inner_norm(w, d, 0, d->rows, kv, 1);
	if (d->sp)
		work_comm(w, PROG_ALL_GATHER, GROUP_TP,
			  d->rows * ((up ? q_rank : d->C) + kv + pos) * d->elem,
			  1, 2);
	for (int i = 0; i < 2; i++) {
		double in = i ? kv : up ? q_rank : d->C;
		double out = h.H * (i ? (double)s->qk_head_dim + h.v : h.qk);
		struct work *x = work_gemm(w, d, MODULE_MLA_UP, d->N, out, in,
					   false, true);

		x->part = x->keep;
	}
	work_bytes(w, MODULE_MLA_UP, 4 * d->N * h.H * h.qk * d->elem,
		   4 * d->N * h.H * h.qk * d->elem, 0.6)
		->keep = d->N * h.H * pos * d->elem;
	add_indexer(w, d);
	add_softmax(w, d, layer, &h);
	work_gemm(w, d, 0, d->N, d->C, h.H * h.v, s->add_bias_linear, false);
}

/* The gated delta rule, in chunks of tokens. */
static void works_delta(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	double key = (double)s->linear_key_head_dim;
	double value = (double)s->linear_value_head_dim, chunk = 64;
	double kh = (double)s->linear_num_key_heads / d->tp;
	double vh = (double)s->linear_num_value_heads / d->tp;
	bool second = s->experimental_attention_variant == VARIANT_GDN2;
	double keys = kh * key, values = vh * value, mixed = 2 * keys + values;
	double extra = second ? 2 * keys + values : 2 * vh;
	struct work *x;

	work_gemm(w, d, 0, d->N, mixed + values + extra, d->C, false, true);
	x = work_bytes(w, 0, 2 * d->N * mixed * d->elem,
		       3 * d->N * mixed * d->elem, 0.6);
	x->keep = d->N * mixed * d->elem;
	x->params = mixed * (double)s->linear_conv_kernel_dim +
		    (second ? keys + kh : 2 * vh);
	x = work_add(w, WORK_ATTN, MODULE_CORE);
	x->in = key;
	x->rows = chunk;
	x->flops[0] = 2 * d->N * vh *
		      (2 * key * value + chunk * (key + value) + chunk * key);
	x->flops[1] = 2.5 * x->flops[0];
	x->keep = d->N * (values + vh) * d->elem;
	x = work_bytes(w, MODULE_DELTA_NORM, 3 * d->N * values * d->elem,
		       5 * d->N * values * d->elem, 0.6);
	x->keep = x->part = d->N * values * d->elem;
	x->params = s->normalization == NORM_LAYERNORM ? 2 * value : value;
	work_gemm(w, d, 0, d->N, d->C, values, false, false);
}

void works_attention(struct works *w, const struct work_dims *d, int64_t layer)
{
	const struct shape *s = &d->config->shape;
	int64_t groups = shape_layer_groups(s, layer);
	struct work *norm;

	if (!groups)
		return;
	norm = work_norm(w, d, 0, d->rows, d->C);
	norm->away_rest = AWAY_ATTN_NORM;
	norm->away_part = AWAY_QKV;
	if (groups < 0) { /* a linear layer in its place, whole everywhere */
		work_gemm(w, d, 0, d->rows, d->C, d->C, s->add_bias_linear,
			  false);
		return;
	}
	if (!s->multi_latent_attention || shape_is_delta(s, layer))
		work_gather(w, d);
	if (shape_is_delta(s, layer))
		works_delta(w, d);
	else if (s->multi_latent_attention)
		works_latent(w, d, layer);
	else
		works_grouped(w, d, layer, groups);
	work_reduce(w, d);
}
