/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-token prediction.  Depth k joins the state of the depth before (0: the
 * decoder's, behind its final norm) and the embedding of the token k places
 * on, and runs one more layer: model-numerics 1.1, 1.2 and 1.5.
 */
#include "lib/plan/prog_build.h"

/* Whether the last decoder layer is on a stage before this one. */
bool stage_gets_states(const struct build *b)
{
	const struct stage *st = b->in->stages->stage;

	for (; st < b->stage; st++)
		if (st->final_norm)
			return true;
	return false;
}

/* States on the way to this stage, or past it. */
static int states(const struct build *b, const struct stage *end)
{
	const struct stage *st = b->in->stages->stage;
	int n = 1;

	for (; st < end && b->train; st++)
		n += (int)st->mtp_layers;
	return n;
}

int states_in(const struct build *b)
{
	return states(b, b->stage);
}

int states_out(const struct build *b)
{
	return states(b, b->stage + 1);
}

/* Its weights, and whose sites its dropout has. */
static void enter(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	int64_t n = b->depth - 1;

	b->drawn_for = s->num_layers + n;
	b->layer = s->num_layers + (s->mtp_use_repeated_layer ? 0 : n);
}

static int64_t row_bytes(const struct build *b)
{
	return b->C * (int64_t)b->out->elem;
}

/*
 * (rows, C) = z (rows, 2C) eh_proj^T, whose rows are cut over tp: each rank
 * has its columns, and the sum of all, each beside zeros, is the whole.
 */
static struct buf project(struct build *b, struct buf z)
{
	struct buf all = gather_wide(b, z, 2 * b->C), mine, x;
	int64_t part = row_bytes(b) / b->tp, left = b->in->slice->at.tp * part;

	mine = buf_new(b, FAMILY_ACT, b->N * b->C / b->tp);
	linear_forward(b, buf_ref(&mine), buf_ref(&all), PART_EH_PROJ_W, PARTS,
		       b->C / b->tp, 2 * b->C);
	gather_free(b, &all, &z);
	if (b->tp == 1)
		return mine;
	x = buf_new(b, FAMILY_ACT, b->N * b->C);
	emit(b, OP_JOIN, KIND_FORWARD,
	     REFS(buf_ref(&x), NO_REF, buf_ref(&mine), NO_REF),
	     DIMS(b->N, left, part, row_bytes(b) - left - part));
	buf_free(b, &mine);
	return reduce_rows(b, x);
}

static struct buf norm_of(struct build *b, struct buf x, enum part w,
			  enum part bias, struct buf *stat)
{
	struct stream s = {.x = x, .branch = NO_BUF, .bias = NO_REF};

	return stream_norm(b, &s, w, bias, stat);
}

/* z (rows, 2C): the embedding and the state before, each behind its norm. */
static struct buf joined(struct build *b, struct depth_saved *d, struct buf h)
{
	struct buf e, z;

	e = norm_of(b, d->enorm.x, PART_ENORM_W, PART_ENORM_B, &d->enorm.stat);
	h = norm_of(b, h, PART_HNORM_W, PART_HNORM_B, &d->hstat);
	z = buf_new(b, FAMILY_ACT, 2 * b->rows * b->C);
	emit(b, OP_JOIN, KIND_FORWARD,
	     REFS(buf_ref(&z), buf_ref(&e), buf_ref(&h), NO_REF),
	     DIMS(b->rows, row_bytes(b), row_bytes(b), 0));
	buf_free(b, &e);
	buf_free(b, &h);
	return z;
}

struct buf depth_state(struct build *b, struct depth_saved *d,
		       struct buf before)
{
	struct stream s = {.owned = true, .branch = NO_BUF, .bias = NO_REF};
	struct buf h;

	b->layer = -1;
	b->drawn_for = b->in->config->shape.num_layers + b->depth - 1;
	d->enorm.x = embed_forward(b);
	enter(b);
	d->z = joined(b, d, before);
	s.x = project(b, d->z);
	layer_forward(b, &s, &d->layer);
	h = stream_norm(b, &s, PART_FINAL_NORM_W, PART_FINAL_NORM_B,
			&d->last.stat);
	d->last.x = s.x;
	return h;
}

/* Whether depth DEPTH begins with a mix of all states before it. */
static bool mixes(const struct build *b, int depth)
{
	return b->in->config->run.mtp_hsm && depth > 1;
}

bool depth_keeps(const struct build *b)
{
	return b->depth < (int)b->stage->mtp_layers && !mixes(b, b->depth + 1);
}

/*
 * Y for the state X, all rows of it, that is SHIFT depths older than the
 * newest: its tokens have to be as many places on.
 */
static void emit_mix(struct build *b, int code, const struct buf *y,
		     const struct buf *x, int shift)
{
	int kind = code == OP_MIX_FWD ? KIND_FORWARD : KIND_BACKWARD;
	struct ref doc = documents(b);

	doc.at += 4 * b->first_row;
	emit(b, code, kind,
	     REFS(buf_ref(y), buf_part(b, x, b->first_row * b->C), doc),
	     DIMS(b->rows, row_bytes(b), b->T, shift, b->depth))
		->drop = (struct kern_drop){
		.site = (uint32_t)(SITES_MIX + b->depth),
		.row0 = b->row0 + b->first_row,
	};
}

/*
 * What hnorm gets: for each token the newest state or, of those before it,
 * the one that has seen as many tokens; where a sample or a document has no
 * more, the newest.
 */
static struct buf mix(struct build *b, const struct chunk_saved *v)
{
	const struct buf *h = &v->h[b->depth - 1];
	struct buf y = buf_new(b, FAMILY_ACT, b->rows * b->C);

	b->layer = -1;
	emit(b, OP_COPY, KIND_FORWARD, REFS(buf_ref(&y), buf_ref(h)),
	     DIMS(b->rows * row_bytes(b)));
	for (int shift = 1; shift < b->depth; shift++) {
		struct buf all = gather_rows(b, h[-shift]);

		emit_mix(b, OP_MIX_FWD, &y, &all, shift);
		gather_free(b, &all, &h[-shift]);
	}
	return y;
}

/* The states' gradients += what DY, that of their mix, gives each; frees DY. */
static void mix_backward(struct build *b, struct chunk_saved *v, struct buf *dy)
{
	int last = b->in->config->run.mtp_detach_heads ? 1 : 0;
	struct buf all = gather_rows(b, *dy);

	for (int depth = b->depth - 1; depth >= last; depth--) {
		struct buf part = buf_new(b, FAMILY_ACT, b->rows * b->C);

		emit_mix(b, OP_MIX_BWD, &part, &all, b->depth - 1 - depth);
		v->dh[depth] =
			sum_of(b, &v->dh[depth], &part, b->rows, KIND_BACKWARD);
	}
	gather_free(b, &all, dy);
	buf_free(b, dy);
}

void depth_forward(struct build *b, struct chunk_saved *v)
{
	struct depth_saved *d = &v->depth[b->depth - 1];
	struct buf before = v->h[b->depth - 1];

	if (mixes(b, b->depth))
		before = d->mixed = mix(b, v);
	v->h[b->depth] = depth_state(b, d, before);
}

/* The gradient of z for that of the projection, which is freed. */
static struct buf project_backward(struct build *b, struct buf *dx,
				   struct buf *z)
{
	struct buf all = gather_rows(b, *dx), mine = all, wide, dz;

	if (b->tp > 1) {
		int64_t part = row_bytes(b) / b->tp;

		mine = columns(b, KIND_BACKWARD, &all, b->N,
			       b->in->slice->at.tp * part, part, row_bytes(b));
	}
	wide = gather_wide(b, *z, 2 * b->C);
	linear_weight(b, buf_ref(&mine), buf_ref(&wide), PART_EH_PROJ_W, PARTS,
		      b->C / b->tp, 2 * b->C);
	gather_free(b, &wide, z);
	buf_free(b, z);
	dz = linear_input(b, buf_ref(&mine), PART_EH_PROJ_W, b->C / b->tp,
			  2 * b->C);
	gather_free(b, &mine, &all);
	gather_free(b, &all, dx);
	buf_free(b, dx);
	return reduce_wide(b, dz, 2 * b->C);
}

/* hnorm's input's for DY, its output's, which is freed. */
static void state_backward(struct build *b, struct chunk_saved *v,
			   struct buf *dy)
{
	struct depth_saved *d = &v->depth[b->depth - 1];
	struct buf *before = &v->dh[b->depth - 1], dx;
	bool mixed = mixes(b, b->depth);
	struct norm_saved x = {mixed ? d->mixed : v->h[b->depth - 1], d->hstat};

	if (!mixed && !(b->depth == 1 && b->in->config->run.mtp_detach_heads)) {
		norm_input(b, b->norm, before, buf_ref(before), dy,
			   PART_HNORM_W, PART_HNORM_B, &x);
		return;
	}
	dx = buf_new(b, FAMILY_ACT, b->rows * b->C);
	norm_input(b, b->norm, &dx, NO_REF, dy, PART_HNORM_W, PART_HNORM_B, &x);
	if (mixed)
		mix_backward(b, v, &dx);
	else
		buf_free(b, &dx);
}

/* Detached depths give nothing to the decoder, the embedding and the head. */
void depth_backward(struct build *b, struct chunk_saved *v)
{
	struct depth_saved *d = &v->depth[b->depth - 1];
	int64_t row = row_bytes(b);
	struct buf dx, dz, half, de;

	enter(b);
	dx = buf_new(b, FAMILY_ACT, b->rows * b->C);
	norm_input(b, b->norm, &dx, NO_REF, &v->dh[b->depth], PART_FINAL_NORM_W,
		   PART_FINAL_NORM_B, &d->last);
	layer_backward(b, &dx, &d->layer);
	dz = project_backward(b, &dx, &d->z);
	half = columns(b, KIND_BACKWARD, &dz, b->rows, row, row, 2 * row);
	state_backward(b, v, &half);
	half = columns(b, KIND_BACKWARD, &dz, b->rows, 0, row, 2 * row);
	buf_free(b, &dz);
	de = buf_new(b, FAMILY_ACT, b->rows * b->C);
	norm_input(b, b->norm, &de, NO_REF, &half, PART_ENORM_W, PART_ENORM_B,
		   &d->enorm);
	b->layer = -1;
	if (b->in->config->run.mtp_detach_heads)
		buf_free(b, &de);
	else
		embed_backward(b, &de);
}
