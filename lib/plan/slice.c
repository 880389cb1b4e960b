/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/slice.h"

#include <assert.h>

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
	const struct stages *stages;
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

int slice_kv_copies(const struct shape *s, const struct grid *g, int64_t layer)
{
	int64_t groups = shape_layer_groups(s, layer);

	return groups > 0 && g->tp > groups ? (int)(g->tp / groups) : 1;
}

static int kv_ranks(const struct shape *s, const struct grid *g)
{
	int all = 1, least;

	for (int64_t n = 0; n < s->num_layers; n++) {
		int copies = slice_kv_copies(s, g, n);

		for (least = all; least % copies; least += all)
			;
		all = least;
	}
	return all;
}

/*
 * By groups of (query heads, k, v).  With more ranks than groups each rank
 * takes some query heads of one group and a copy of its k and v.
 */
static void cut_qkv(struct builder *b, struct param *p, int weight)
{
	const struct weight *w = &b->w->list[weight];
	const struct shape *s = b->s;
	int64_t d = s->kv_channels, groups = shape_layer_groups(s, w->layer);
	int64_t per = s->num_attention_heads / groups, tp = b->g->tp;
	int copies = slice_kv_copies(s, b->g, w->layer), r = b->out->at.tp;
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
	p->kv_copies = copies;
	add_piece(b, p, weight, rows_of(w, group + per * d, 2 * d), r % copies);
}

/* Who cuts weights of this class, and which of them this rank is. */
static int parts_of(const struct builder *b, enum weight_class cls, int *me)
{
	*me = cls == CLASS_EXPERT ? b->out->at.etp : b->out->at.tp;
	return cls == CLASS_EXPERT ? b->g->etp : b->g->tp;
}

/* The experts of a stack that this rank has: those of its place in ep. */
static int64_t experts_of(const struct builder *b, const struct weight *w,
			  int64_t *first)
{
	int64_t n = w->experts / b->g->ep;

	*first = 0;
	if (w->cls == CLASS_DENSE)
		return 1;
	*first = b->out->at.ep * n;
	return n;
}

/* What this rank has of expert EXPERT (0 of a dense weight). */
static void cut_one(struct builder *b, struct param *p, int weight,
		    int64_t expert)
{
	const struct weight *w = &b->w->list[weight];
	int64_t rows = w->dim[0] / w->experts, cols = w->dim[1];
	int64_t first = expert * rows;
	int me, parts = parts_of(b, w->cls, &me);

	switch (w->split) {
	case SPLIT_NONE:
		add_piece(b, p, weight, rows_of(w, first, rows), me ? 1 : 0);
		break;
	case SPLIT_ROWS:
		rows /= parts;
		add_piece(b, p, weight, rows_of(w, first + rows * me, rows), 0);
		break;
	case SPLIT_COLS:
		cols /= parts;
		add_piece(b, p, weight,
			  (struct box){{first, cols * me}, {rows, cols}}, 0);
		break;
	case SPLIT_VOCAB: cut_vocab(b, p, weight, 0); break;
	case SPLIT_QKV: cut_qkv(b, p, weight); break;
	}
}

/*
 * The param PART of LAYER from weight FIRST, and in a gated layer (SECOND,
 * else -1) from the gate and up, one below the other in each expert.
 */
static struct param *add_cut(struct builder *b, enum part part, int64_t layer,
			     int first, int second)
{
	const struct weight *w = &b->w->list[first];
	int64_t cols = w->dim[1], expert, n = experts_of(b, w, &expert);
	bool tp = w->token_partial && b->p->sequence_parallel;
	int me, parts = parts_of(b, w->cls, &me);
	struct param *p;

	p = add_param(b, part, layer,
		      w->split == SPLIT_COLS ? cols / parts : cols);
	p->cls = w->cls;
	p->decay = w->decay;
	p->counts = w->counts;
	p->sum_tp = (tp || w->head_partial) && parts > 1;
	for (; n--; expert++) {
		cut_one(b, p, first, expert);
		if (second >= 0)
			cut_one(b, p, second, expert);
	}
	return p;
}

/* The param of PART, made of that weight, if the model has it. */
static struct param *add_part(struct builder *b, enum part part, int64_t layer)
{
	int weight = weights_find(b->w, part, layer);

	return weight < 0 ? NULL : add_cut(b, part, layer, weight, -1);
}

/* fc1 of a gated layer: the gate's rows, then up's, in one array. */
static void add_gated(struct builder *b, enum part part, enum part gate,
		      enum part up, int64_t layer)
{
	int first = weights_find(b->w, gate, layer);

	if (first >= 0)
		add_cut(b, part, layer, first, weights_find(b->w, up, layer));
}

/* FC1 and its bias, plain or gated, then FC2 and its bias. */
static void add_mlp(struct builder *b, enum part fc1, enum part gate,
		    enum part up, enum part fc2, int64_t layer)
{
	add_part(b, fc1, layer);
	add_part(b, fc1 + 1, layer);
	add_gated(b, fc1, gate, up, layer);
	add_gated(b, fc1 + 1, gate + 1, up + 1, layer);
	add_part(b, fc2, layer);
	add_part(b, fc2 + 1, layer);
}

static void add_layer(struct builder *b, int64_t layer)
{
	b->out->layer_first[layer] = b->out->params;
	for (enum part part = PART_ENORM_W; part <= PART_MLP_LINEAR_B; part++)
		add_part(b, part, layer);
	add_mlp(b, PART_FC1_W, PART_GATE_W, PART_UP_W, PART_FC2_W, layer);
	add_part(b, PART_ROUTER_W, layer);
	add_part(b, PART_ROUTER_B, layer);
	add_part(b, PART_EXPERT_BIAS, layer);
	add_mlp(b, PART_EXPERT_FC1_W, PART_EXPERT_GATE_W, PART_EXPERT_UP_W,
		PART_EXPERT_FC2_W, layer);
	add_mlp(b, PART_SHARED_FC1_W, PART_SHARED_GATE_W, PART_SHARED_UP_W,
		PART_SHARED_FC2_W, layer);
	add_part(b, PART_SHARED_ROUTER_W, layer);
	if (layer < b->s->num_layers)
		return;
	add_part(b, PART_FINAL_NORM_W, layer);
	add_part(b, PART_FINAL_NORM_B, layer);
}

/* What looks tokens up: on the first stage, or a copy of it. */
static void add_embedding(struct builder *b, bool copy)
{
	bool tied = b->s->share_embeddings_and_output_weights;
	int first = b->out->pieces;
	struct param *p;

	p = add_part(b, PART_EMBED_TOK, -1);
	p->sum_embedding = stages_embeddings(b->stages, tied) > 1;
	p = add_part(b, PART_EMBED_POS, -1);
	if (p)
		p->sum_positions = stages_embeddings(b->stages, false) > 1;
	for (int i = first; copy && i < b->out->pieces; i++)
		b->out->piece[i].replica = 1;
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
	int64_t mtp = st->mtp_layers ? b->s->num_layers : b->w->layers;

	if (st->embedding)
		add_embedding(b, st != b->stages->stage);
	for (int64_t n = 0; n < st->num_layers; n++)
		add_layer(b, st->first_layer + n);
	for (; mtp < b->w->layers; mtp++)
		add_layer(b, mtp);
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

/* The params of one class in its part of the flat buffer. */
static void lay_out(struct builder *b, enum weight_class cls)
{
	struct slice *s = b->out;
	struct flat *flat = &s->flat[cls];
	size_t room = (size_t)s->params + 1;
	int64_t *size = arena_alloc(b->a, room, sizeof(*size));
	bool *alone = arena_alloc(b->a, room, sizeof(*alone));
	int n = 0;

	for (int i = 0; i < s->params; i++) {
		const struct param *p = &s->param[i];

		if (p->cls != cls)
			continue;
		size[n] = p->rows * p->cols;
		alone[n++] = p->sum_embedding && slice_shards_optim(s);
	}
	buckets_build(&flat->buckets, s->elements, size, alone, n,
		      bucket_size(b->p, flat->dp), flat->dp, b->a);
	n = 0;
	for (int i = 0; i < s->params; i++) {
		struct param *p = &s->param[i];

		if (p->cls != cls)
			continue;
		p->at = flat->buckets.offset[n++];
		for (int k = 0; k < p->pieces; k++)
			s->piece[p->first_piece + k].at += p->at;
	}
	s->elements += flat->buckets.elements;
	s->own += flat->buckets.elements / flat->dp;
}

void slice_build(struct slice *out, const struct shape *s,
		 const struct place *p, const struct grid *g,
		 const struct stages *stages, const struct weights *w,
		 struct coord at, struct arena *a)
{
	struct builder b = {.out = out,
			    .s = s,
			    .p = p,
			    .g = g,
			    .stages = stages,
			    .w = w,
			    .a = a};

	*out = (struct slice){
		.at = at,
		.flat = {[CLASS_DENSE] = {.dp = g->dp * g->cp,
					  .d = at.dp * g->cp + at.cp},
			 [CLASS_EXPERT] = {.dp = g->edp, .d = at.edp}},
		.kv_ranks = kv_ranks(s, g),
		.sharding = p->data_parallel_sharding_strategy,
	};
	out->layer_first =
		arena_alloc(a, (size_t)w->layers, sizeof(*out->layer_first));
	for (int64_t i = 0; i < w->layers; i++)
		out->layer_first[i] = -1;
	for (b.chunk = 0; b.chunk < stages->vp; b.chunk++)
		add_stage(&b, &stages->stage[b.chunk * stages->pp + at.pp]);
	for (int cls = 0; cls < CLASSES; cls++)
		lay_out(&b, (enum weight_class)cls);
}

bool slice_shards_optim(const struct slice *s)
{
	return s->sharding >= SHARD_OPTIM;
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

int slice_shards(const struct slice *s, int64_t (**interval)[2],
		 struct arena *a)
{
	int n = 0, room = 0;

	for (int cls = 0; cls < CLASSES; cls++)
		room += s->flat[cls].buckets.count;
	*interval = arena_alloc(a, (size_t)room + 1, sizeof(**interval));
	for (int cls = 0; cls < CLASSES; cls++) {
		const struct flat *f = &s->flat[cls];

		for (int i = 0; i < f->buckets.count; i++, n++)
			bucket_shard(&f->buckets, i, f->d, f->dp,
				     &(*interval)[n][0], &(*interval)[n][1]);
	}
	return n;
}
