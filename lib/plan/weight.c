/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/weight.h"

#include <stdarg.h>
#include <string.h>

#include "lib/plan/shape.h"

/* Where weights_build stands. */
struct builder {
	struct weights *out;
	struct arena *a;
	size_t cap;
	int64_t layer;
};

/* Facts that most weights share, to be changed by the caller. */
static struct weight *add(struct builder *b, enum part part, const char *tail,
			  int64_t rows, int64_t cols)
{
	struct weights *w = b->out;
	struct weight *new;

	w->list = arena_grow(b->a, w->list, (size_t)w->count, &b->cap,
			     sizeof(*w->list));
	new = &w->list[w->count++];
	*new = (struct weight){
		.name = b->layer < 0 ? tail
				     : arena_printf(b->a, "layers/%04d/%s",
						    (int)b->layer, tail),
		.part = part,
		.layer = b->layer,
		.dim = {rows, cols ? cols : 1},
		.ndim = cols ? 2 : 1,
		.init = cols ? INIT_NORMAL : INIT_ZERO,
		.decay = cols != 0,
	};
	return new;
}

static void add_norm(struct builder *b, const struct shape *s, enum part w,
		     enum part bias, const char *name)
{
	struct weight *new;

	new = add(b, w, arena_printf(b->a, "%s/w", name), s->hidden_size, 0);
	new->init = INIT_ONE;
	new->token_partial = true;
	if (s->normalization != NORM_LAYERNORM)
		return;
	new = add(b, bias, arena_printf(b->a, "%s/b", name), s->hidden_size, 0);
	new->token_partial = true;
}

/* A matrix that gives ROWS outputs from COLS inputs, and its bias. */
static void add_linear(struct builder *b, enum part w, enum part bias,
		       const char *name, int64_t rows, int64_t cols,
		       enum split split, bool with_bias)
{
	struct weight *new;

	new = add(b, w, arena_printf(b->a, "%s/w", name), rows, cols);
	new->split = split;
	if (split == SPLIT_COLS)
		new->init = INIT_NORMAL_OUT;
	if (!with_bias)
		return;
	new = add(b, bias, arena_printf(b->a, "%s/b", name), rows, 0);
	/* An output that is summed over ranks gets its bias afterwards. */
	new->split = split == SPLIT_COLS ? SPLIT_NONE : split;
	new->token_partial = split == SPLIT_COLS;
}

static void add_layer(struct builder *b, const struct shape *s)
{
	int64_t h = s->hidden_size, f = s->ffn_hidden_size;
	bool bias = s->add_bias_linear;

	add_norm(b, s, PART_ATTN_NORM_W, PART_ATTN_NORM_B, "attn_norm");
	add_linear(b, PART_QKV_W, PART_QKV_B, "attn/qkv", shape_qkv_rows(s), h,
		   SPLIT_QKV, bias || s->add_qkv_bias);
	add_linear(b, PART_PROJ_W, PART_PROJ_B, "attn/proj", h,
		   s->num_attention_heads * s->kv_channels, SPLIT_COLS, bias);
	add_norm(b, s, PART_MLP_NORM_W, PART_MLP_NORM_B, "mlp_norm");
	if (s->gated_linear_unit) {
		add_linear(b, PART_GATE_W, PART_GATE_B, "mlp/gate", f, h,
			   SPLIT_ROWS, bias);
		add_linear(b, PART_UP_W, PART_UP_B, "mlp/up", f, h, SPLIT_ROWS,
			   bias);
	} else {
		add_linear(b, PART_FC1_W, PART_FC1_B, "mlp/fc1", f, h,
			   SPLIT_ROWS, bias);
	}
	add_linear(b, PART_FC2_W, PART_FC2_B, "mlp/fc2", h, f, SPLIT_COLS,
		   bias);
}

void weights_build(struct weights *out, const struct shape *s, struct arena *a)
{
	struct builder b = {.out = out, .a = a, .layer = -1};
	struct weight *new;

	memset(out, 0, sizeof(*out));
	new = add(&b, PART_EMBED_TOK, "embed/tok", s->vocab_size,
		  s->hidden_size);
	new->split = SPLIT_VOCAB;
	new->init = INIT_NORMAL_EMBED;
	if (s->position_embedding_type == POS_LEARNED) {
		new = add(&b, PART_EMBED_POS, "embed/pos",
			  s->max_position_embeddings, s->hidden_size);
		new->init = INIT_NORMAL_EMBED;
		new->token_partial = true;
	}
	out->layer_first = arena_alloc(a, (size_t)s->num_layers,
				       sizeof(*out->layer_first));
	for (b.layer = 0; b.layer < s->num_layers; b.layer++) {
		out->layer_first[b.layer] = out->count;
		add_layer(&b, s);
	}
	b.layer = -1;
	add_norm(&b, s, PART_FINAL_NORM_W, PART_FINAL_NORM_B, "final_norm");
	if (!s->share_embeddings_and_output_weights) {
		new = add(&b, PART_HEAD_W, "head/out", s->vocab_size,
			  s->hidden_size);
		new->split = SPLIT_VOCAB;
	}
}

int weights_find(const struct weights *w, enum part part, int64_t layer)
{
	bool any = layer < 0;

	/* The weights of a layer lie together. */
	for (int i = any ? 0 : w->layer_first[layer];
	     i < w->count && (any || w->list[i].layer == layer); i++)
		if (w->list[i].part == part && w->list[i].layer == layer)
			return i;
	return -1;
}

int64_t weight_elements(const struct weight *w)
{
	return w->dim[0] * w->dim[1];
}
