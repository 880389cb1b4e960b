/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/slice.h"

#include <assert.h>
#include <string.h>

#include "lib/plan/place.h"
#include "lib/plan/shape.h"

int64_t box_elements(const struct box *b)
{
	return b->cnt[0] * b->cnt[1];
}

/* Where slice_build stands. */
struct builder {
	struct slice *out;
	const struct shape *s;
	const struct place *p;
	const struct grid *g;
	const struct weights *w;
	struct arena *a;
	size_t param_cap, piece_cap;
	int chunk;
};

static struct param *add_param(struct builder *b, enum part part, int64_t layer,
			       int64_t cols)
{
	struct slice *s = b->out;
	struct param *new;

	s->param = arena_grow(b->a, s->param, (size_t)s->params, &b->param_cap,
			      sizeof(*s->param));
	new = &s->param[s->params++];
	*new = (struct param){
		.part = part,
		.layer = layer,
		.chunk = b->chunk,
		.cols = cols,
		.first_piece = s->pieces,
	};
	return new;
}

/* Rows FIRST .. FIRST + ROWS of weight WEIGHT become P's next rows. */
static void add_piece(struct builder *b, struct param *p, int weight,
		      struct box box, int replica)
{
	struct slice *s = b->out;

	assert(box.cnt[1] == p->cols);
	if (box.cnt[0] == 0)
		return;
	s->piece = arena_grow(b->a, s->piece, (size_t)s->pieces, &b->piece_cap,
			      sizeof(*s->piece));
	/* AT is relative to the parameter until the buckets are known. */
	s->piece[s->pieces++] = (struct piece){
		.weight = weight,
		.box = box,
		.at = p->rows * p->cols,
		.replica = replica,
	};
	p->pieces++;
	p->rows += box.cnt[0];
}

static struct box rows_of(const struct weight *w, int64_t first, int64_t rows)
{
	return (struct box){{first, 0}, {rows, w->dim[1]}};
}

/* Equal shares of the padded vocabulary; the last ones hold the padding. */
static void cut_vocab(struct builder *b, struct param *p, int weight,
		      int replica)
{
	const struct weight *w = &b->w->list[weight];
	int64_t rows = place_padded_vocab(b->p, w->dim[0]) / b->g->tp;
	int64_t first = b->out->at.tp * rows, left = w->dim[0] - first;

	if (left > rows)
		left = rows;
	if (left > 0)
		add_piece(b, p, weight, rows_of(w, first, left), replica);
	p->rows = rows;
}

/*
 * By groups of (query heads, k, v).  With more ranks than groups each rank
 * takes some query heads of one group and a copy of its k and v.
 */
static void cut_qkv(struct builder *b, struct param *p, int weight)
{
	const struct weight *w = &b->w->list[weight];
	const struct shape *s = b->s;
	int64_t d = s->kv_channels, groups = s->num_query_groups;
	int64_t per = s->num_attention_heads / groups, tp = b->g->tp;
	int copies = b->out->kv_copies, r = b->out->at.tp;
	int64_t group, mine;

	if (copies == 1) {
		add_piece(b, p, weight,
			  rows_of(w, w->dim[0] / tp * r, w->dim[0] / tp), 0);
		return;
	}
	group = r / copies * (per + 2) * d;
	mine = per / copies * d;
	add_piece(b, p, weight, rows_of(w, group + r % copies * mine, mine), 0);
	p->kv_row = p->rows;
	p->sum_kv = true;
	add_piece(b, p, weight, rows_of(w, group + per * d, 2 * d), r % copies);
}

static void cut(struct builder *b, struct param *p, int weight)
{
	const struct weight *w = &b->w->list[weight];
	int64_t tp = b->g->tp, r = b->out->at.tp;
	int64_t rows = w->dim[0], cols = w->dim[1];

	switch (w->split) {
	case SPLIT_NONE:
		add_piece(b, p, weight, rows_of(w, 0, rows), r ? 1 : 0);
		break;
	case SPLIT_ROWS:
		add_piece(b, p, weight, rows_of(w, rows / tp * r, rows / tp),
			  0);
		break;
	case SPLIT_COLS:
		add_piece(b, p, weight,
			  (struct box){{0, cols / tp * r}, {rows, cols / tp}},
			  0);
		break;
	case SPLIT_VOCAB: cut_vocab(b, p, weight, 0); break;
	case SPLIT_QKV: cut_qkv(b, p, weight); break;
	}
	p->decay = w->decay;
	p->sum_tp = w->token_partial && b->p->sequence_parallel && tp > 1;
}

/* The param of PART, made of that weight, if the model has it. */
static struct param *add_part(struct builder *b, enum part part, int64_t layer)
{
	int weight = weights_find(b->w, part, layer);
	struct param *p;
	int64_t cols;

	if (weight < 0)
		return NULL;
	cols = b->w->list[weight].dim[1];
	if (b->w->list[weight].split == SPLIT_COLS)
		cols /= b->g->tp;
	p = add_param(b, part, layer, cols);
	cut(b, p, weight);
	return p;
}

/* fc1 of a gated layer: the gate's rows, then up's, in one array. */
static void add_gated(struct builder *b, enum part part, enum part gate,
		      enum part up, int64_t layer)
{
	int first = weights_find(b->w, gate, layer);
	struct param *p;

	if (first < 0)
		return;
	p = add_param(b, part, layer, b->w->list[first].dim[1]);
	cut(b, p, first);
	cut(b, p, weights_find(b->w, up, layer));
}

static void add_layer(struct builder *b, int64_t layer)
{
	static const enum part parts[] = {
		PART_ATTN_NORM_W, PART_ATTN_NORM_B, PART_QKV_W,
		PART_QKV_B,	  PART_PROJ_W,	    PART_PROJ_B,
		PART_MLP_NORM_W,  PART_MLP_NORM_B,  PART_FC1_W,
		PART_FC1_B,
	};

	b->out->layer_first[layer] = b->out->params;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		add_part(b, parts[i], layer);
	add_gated(b, PART_FC1_W, PART_GATE_W, PART_UP_W, layer);
	add_gated(b, PART_FC1_B, PART_GATE_B, PART_UP_B, layer);
	add_part(b, PART_FC2_W, layer);
	add_part(b, PART_FC2_B, layer);
}

/* The head: its own weight, or on another rank a copy of the embedding. */
static void add_head(struct builder *b, const struct stage *st)
{
	int tok = weights_find(b->w, PART_EMBED_TOK, -1);
	struct param *p;

	if (!b->s->share_embeddings_and_output_weights) {
		add_part(b, PART_HEAD_W, -1);
		return;
	}
	if (st->embedding)
		return;
	p = add_param(b, PART_HEAD_W, -1, b->w->list[tok].dim[1]);
	cut_vocab(b, p, tok, 1);
	p->decay = true;
	p->sum_embedding = true;
}

static void add_stage(struct builder *b, const struct stage *st)
{
	struct param *p;

	if (st->embedding) {
		p = add_part(b, PART_EMBED_TOK, -1);
		p->sum_embedding = b->s->share_embeddings_and_output_weights &&
				   !st->output_head;
		add_part(b, PART_EMBED_POS, -1);
	}
	for (int64_t n = 0; n < st->num_layers; n++)
		add_layer(b, st->first_layer + n);
	if (st->final_norm) {
		add_part(b, PART_FINAL_NORM_W, -1);
		add_part(b, PART_FINAL_NORM_B, -1);
	}
	if (st->output_head)
		add_head(b, st);
}

/* Parameters of a bucket; 0: one bucket for all, where nothing overlaps. */
static int64_t bucket_size(const struct place *p, int dp)
{
	int64_t least = (int64_t)1000000 * dp;

	if (!p->overlap_grad_reduce)
		return 0;
	if (IS_SET(p->bucket_size))
		return p->bucket_size;
	return least > 40000000 ? least : 40000000;
}

/* Lay the params out in the flat buffer. */
static void lay_out(struct builder *b)
{
	struct slice *s = b->out;
	int64_t *size = arena_alloc(b->a, (size_t)s->params + 1, sizeof(*size));

	for (int i = 0; i < s->params; i++)
		size[i] = s->param[i].rows * s->param[i].cols;
	buckets_build(&s->buckets, size, NULL, s->params,
		      bucket_size(b->p, s->dp), s->dp, b->a);
	for (int i = 0; i < s->params; i++) {
		struct param *p = &s->param[i];

		p->at = s->buckets.offset[i];
		for (int k = 0; k < p->pieces; k++)
			s->piece[p->first_piece + k].at += p->at;
	}
	s->elements = s->buckets.elements;
}

void slice_build(struct slice *out, const struct shape *s,
		 const struct place *p, const struct grid *g,
		 const struct stages *stages, const struct weights *w,
		 struct coord at, struct arena *a)
{
	struct builder b = {.out = out, .s = s, .p = p, .g = g, .w = w, .a = a};

	memset(out, 0, sizeof(*out));
	out->at = at;
	out->kv_copies = 1;
	if (g->tp > s->num_query_groups)
		out->kv_copies = (int)(g->tp / s->num_query_groups);
	out->dp = g->dp * g->cp;
	out->d = at.dp * g->cp + at.cp;
	out->zero = p->use_distributed_optimizer;
	out->layer_first = arena_alloc(a, (size_t)s->num_layers,
				       sizeof(*out->layer_first));
	for (int64_t i = 0; i < s->num_layers; i++)
		out->layer_first[i] = -1;
	for (b.chunk = 0; b.chunk < stages->vp; b.chunk++)
		add_stage(&b, &stages->stage[b.chunk * stages->pp + at.pp]);
	lay_out(&b);
}

const struct param *slice_find(const struct slice *s, enum part part,
			       int64_t layer, int chunk)
{
	bool any = layer < 0;
	int first = any ? 0 : s->layer_first[layer];

	/* The params of a layer lie together. */
	for (int i = first; i >= 0 && i < s->params; i++) {
		const struct param *p = &s->param[i];

		if (!any && p->layer != layer)
			break;
		if (p->part == part && p->layer == layer && p->chunk == chunk)
			return p;
	}
	return NULL;
}

int slice_shards(const struct slice *s, int d, int64_t (**interval)[2],
		 struct arena *a)
{
	int n = s->buckets.count;

	*interval = arena_alloc(a, (size_t)n + 1, sizeof(**interval));
	for (int i = 0; i < n; i++)
		bucket_shard(&s->buckets, i, d, s->dp, &(*interval)[i][0],
			     &(*interval)[i][1]);
	return n;
}
