/* SPDX-License-Identifier: Apache-2.0 */
/* The first half of a layer: x += attn(norm(x)), x += linear(norm(x)), none. */
#include "lib/plan/prog_gen_build.h"
#include "lib/plan/rope.h"

static int64_t qkv_width(const struct build *b)
{
	return kern_attn_row(b->attn[0]);
}

static const struct shape *shape_of(const struct build *b)
{
	return &b->in->config->shape;
}

static const struct kern_attn_dims *attn_dims(const struct build *b)
{
	return b->attn[shape_window(shape_of(b), b->layer) > 0];
}

static bool turns(const struct build *b)
{
	return b->out->rope.family >= 0 && rope_turns(shape_of(b), b->layer);
}

static void emit_rope(struct build *b, struct ref qkv, bool backward)
{
	struct op *op;

	if (!turns(b))
		return;
	op = emit(b, OP_ROPE, backward ? KIND_BACKWARD : KIND_FORWARD,
		  REFS(qkv, b->out->rope),
		  DIMS(b->out->rope_half, shape_of(b)->rotary_interleaved));
	op->attn = attn_dims(b);
	op->flag = backward;
}

/*
 * So many products of two FLOPs for each pair of tokens and each element of a
 * head's query, and of its value.
 */
static double attn_flops(const struct build *b, int64_t query, int64_t value)
{
	int64_t each = query * b->D + value * b->Dv;

	return 2 * (double)b->N * shape_context(shape_of(b), b->layer) *
	       (double)(b->H * each);
}

struct ref documents(const struct build *b)
{
	struct ref doc = b->out->doc;

	doc.at += 4 * b->mb * b->N;
	return doc.family < 0 ? NO_REF : doc;
}

static void attention_forward(struct build *b, struct layer_saved *v)
{
	struct op *op;

	v->o = buf_new(b, FAMILY_ACT, b->N * b->H * b->Dv);
	v->lse = buf_sums(b, FAMILY_ACT, b->N * b->H);
	op = emit(b, OP_ATTN_FWD, KIND_FORWARD,
		  REFS(buf_ref(&v->o), buf_ref(&v->lse), buf_ref(&v->qkv),
		       param_ref(b, FAMILY_PARAM, PART_SINK, b->layer),
		       documents(b), buf_ref(&b->attn_scratch)),
		  NULL, 0);
	op->attn = attn_dims(b);
	op->drop = dropout(b, b->attention_dropout,
			   dropout_site(b, SITE_ATTENTION));
	op->drop.row0 = b->row0;
	op->flops = attn_flops(b, 1, 1);
}

static struct buf attention_backward(struct build *b, struct buf *dout,
				     struct layer_saved *v)
{
	struct buf dqkv = buf_new(b, FAMILY_ACT, b->N * qkv_width(b));
	struct op *op;

	op = emit(b, OP_ATTN_BWD, KIND_BACKWARD,
		  REFS(buf_ref(&dqkv),
		       param_ref(b, FAMILY_GRAD, PART_SINK, b->layer),
		       buf_ref(dout), buf_ref(&v->o), buf_ref(&v->lse),
		       buf_ref(&v->qkv),
		       param_ref(b, FAMILY_PARAM, PART_SINK, b->layer),
		       documents(b), buf_ref(&b->attn_scratch)),
		  NULL, 0);
	op->attn = attn_dims(b);
	op->drop = dropout(b, b->attention_dropout,
			   dropout_site(b, SITE_ATTENTION));
	op->drop.row0 = b->row0;
	op->flops = attn_flops(b, 3, 2);
	buf_free(b, dout);
	buf_free(b, &v->o);
	buf_free(b, &v->lse);
	buf_free(b, &v->qkv);
	return dqkv;
}

/* qkv's parts, each by itself: q (N H, D), k and v (N G, D). */
struct parts {
	struct buf q, k, v;
};

/* A row for each token and group: its query heads, k, v. */
static void part_bytes(const struct build *b, int64_t bytes[3])
{
	bytes[1] = bytes[2] = b->D * (int64_t)b->out->elem;
	bytes[0] = b->H / b->G * bytes[1];
}

static struct parts take_apart(struct build *b, int kind, struct buf *qkv)
{
	int64_t n = b->N * b->G, x[3], row;
	struct parts p;

	part_bytes(b, x);
	row = x[0] + x[1] + x[2];
	p.q = columns(b, kind, qkv, n, 0, x[0], row);
	p.k = columns(b, kind, qkv, n, x[0], x[1], row);
	p.v = columns(b, kind, qkv, n, x[0] + x[1], x[2], row);
	buf_free(b, qkv);
	return p;
}

static struct buf put_together(struct build *b, int kind, struct parts *p)
{
	struct buf qkv = buf_new(b, FAMILY_ACT, b->N * qkv_width(b));
	int64_t x[3];

	part_bytes(b, x);
	emit(b, OP_JOIN, kind,
	     REFS(buf_ref(&qkv), buf_ref(&p->q), buf_ref(&p->k),
		  buf_ref(&p->v)),
	     DIMS(b->N * b->G, x[0], x[1], x[2]));
	buf_free(b, &p->q);
	buf_free(b, &p->k);
	buf_free(b, &p->v);
	return qkv;
}

struct buf inner_norm(struct build *b, struct buf x,
		      const struct kern_norm_dims *dims, enum part w,
		      struct norm_saved *v)
{
	struct buf y = buf_new(b, FAMILY_ACT, dims->N * dims->C);

	v->x = x;
	v->stat = buf_sums(b, FAMILY_ACT, 2 * dims->N);
	emit(b, OP_NORM_FWD, KIND_FORWARD,
	     REFS(buf_ref(&y), NO_REF, buf_ref(&v->stat), buf_ref(&x), NO_REF,
		  NO_REF, gain_ref(b, FAMILY_PARAM, w),
		  param_ref(b, FAMILY_PARAM, w + 1, b->layer)),
	     NULL, 0)
		->norm = dims;
	forget(b, &v->x);
	forget(b, &v->stat);
	return y;
}

static bool has_norms(const struct build *b)
{
	return shape_of(b)->qk_layernorm || shape_of(b)->qk_l2_norm;
}

/* That of the norm's gain, if it has one. */
static enum part norm_part(const struct build *b, enum part w)
{
	return shape_of(b)->qk_layernorm ? w : PARTS;
}

/* The norms of q's and k's heads, before their rotation. */
static void heads_forward(struct build *b, struct layer_saved *v)
{
	struct parts p;

	if (!has_norms(b))
		return;
	p = take_apart(b, KIND_FORWARD, &v->qkv);
	p.q = inner_norm(b, p.q, b->qnorm, norm_part(b, PART_Q_NORM_W), &v->q);
	p.k = inner_norm(b, p.k, b->knorm, norm_part(b, PART_K_NORM_W), &v->k);
	v->qkv = put_together(b, KIND_FORWARD, &p);
}

struct buf inner_norm_backward(struct build *b, struct buf dy,
			       const struct kern_norm_dims *dims, enum part w,
			       struct norm_saved *v)
{
	struct buf dx = buf_new(b, FAMILY_ACT, dims->N * dims->C);

	norm_input(b, dims, &dx, NO_REF, &dy, w, w + 1, v);
	return dx;
}

static void heads_backward(struct build *b, struct buf *dqkv,
			   struct layer_saved *v)
{
	struct parts p;

	if (!has_norms(b))
		return;
	p = take_apart(b, KIND_BACKWARD, dqkv);
	p.q = inner_norm_backward(b, p.q, b->qnorm, norm_part(b, PART_Q_NORM_W),
				  &v->q);
	p.k = inner_norm_backward(b, p.k, b->knorm, norm_part(b, PART_K_NORM_W),
				  &v->k);
	*dqkv = put_together(b, KIND_BACKWARD, &p);
}

/* qkv for v->y1, its heads normalised and rotated. */
static void grouped_forward(struct build *b, struct layer_saved *v)
{
	struct buf y = gather_rows(b, v->y1);

	v->qkv = buf_new(b, FAMILY_ACT, b->N * qkv_width(b));
	linear_forward(b, buf_ref(&v->qkv), buf_ref(&y), PART_QKV_W, PART_QKV_B,
		       qkv_width(b), b->C);
	gather_free(b, &y, &v->y1);
	forget(b, &v->y1);
	heads_forward(b, v);
	if (!b->gen)
		emit_rope(b, buf_ref(&v->qkv), false);
}

/* The gradient of y1, this rank's rows; frees DQKV. */
static struct buf grouped_backward(struct build *b, struct buf *dqkv,
				   struct layer_saved *v)
{
	struct buf y, dy;

	emit_rope(b, buf_ref(dqkv), true);
	heads_backward(b, dqkv, v);
	y = gather_rows(b, v->y1);
	linear_weight(b, buf_ref(dqkv), buf_ref(&y), PART_QKV_W, PART_QKV_B,
		      qkv_width(b), b->C);
	gather_free(b, &y, &v->y1);
	buf_free(b, &v->y1);
	dy = linear_input(b, buf_ref(dqkv), PART_QKV_W, qkv_width(b), b->C);
	buf_free(b, dqkv);
	return reduce_rows(b, dy);
}

/* Attention to y1, whose output is the stream's branch. */
static void attend(struct build *b, struct stream *s, struct layer_saved *v)
{
	struct buf branch;

	if (shape_of(b)->multi_latent_attention)
		latent_forward(b, v);
	else
		grouped_forward(b, v);
	if (b->gen)
		gen_attention(b, attn_dims(b),
			      turns(b) && !shape_of(b)->multi_latent_attention,
			      v);
	else
		attention_forward(b, v);
	forget(b, &v->qkv);
	forget(b, &v->lse);
	branch = buf_new(b, FAMILY_ACT, b->N * b->C);
	linear_forward(b, buf_ref(&branch), buf_ref(&v->o), PART_PROJ_W, PARTS,
		       b->C, b->H * b->Dv);
	forget(b, &v->o);
	stream_branch(b, s, reduce_rows(b, branch), PART_PROJ_B, SITE_PROJ);
}

void attention_half(struct build *b, struct stream *s, struct layer_saved *v)
{
	int64_t groups = shape_layer_groups(shape_of(b), b->layer);

	if (!groups)
		return;
	v->y1 = stream_norm(b, s, PART_ATTN_NORM_W, PART_ATTN_NORM_B,
			    &v->stat1);
	v->x1 = s->x;
	s->owned = !b->train;
	forget(b, &v->stat1);
	if (groups < 0)
		replaced_forward(b, s, PART_ATTN_LINEAR_W, SITE_PROJ, &v->y1);
	else
		attend(b, s, v);
}

/* The gradient of y1, this rank's rows. */
static struct buf attend_backward(struct build *b, const struct buf *dx,
				  struct layer_saved *v)
{
	struct buf mine, all, dout, dqkv;

	all = branch_gradient(b, dx, PART_PROJ_B, SITE_PROJ, &mine);
	linear_weight(b, buf_ref(&all), buf_ref(&v->o), PART_PROJ_W, PARTS,
		      b->C, b->H * b->Dv);
	dout = linear_input(b, buf_ref(&all), PART_PROJ_W, b->C, b->H * b->Dv);
	branch_free(b, &all, &mine, dx);
	dqkv = attention_backward(b, &dout, v);
	if (shape_of(b)->multi_latent_attention)
		return latent_backward(b, &dqkv, v);
	return grouped_backward(b, &dqkv, v);
}

void attention_half_backward(struct build *b, struct buf *dx,
			     struct layer_saved *v)
{
	int64_t groups = shape_layer_groups(shape_of(b), b->layer);
	struct norm_saved norm = {v->x1, v->stat1};
	struct buf dy;

	if (!groups)
		return;
	if (groups < 0)
		dy = replaced_backward(b, dx, PART_ATTN_LINEAR_W, SITE_PROJ,
				       &v->y1);
	else
		dy = attend_backward(b, dx, v);
	norm_input(b, b->norm, dx, buf_ref(dx), &dy, PART_ATTN_NORM_W,
		   PART_ATTN_NORM_B, &norm);
}
