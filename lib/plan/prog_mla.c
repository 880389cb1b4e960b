/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latent attention's queries, keys and values: down to two ranks and the part
 * of the keys that has positions, each rank on its own rows and with a whole
 * copy of the weights; then, all rows, up to this rank's heads.  The gradient
 * of the part with positions is a sum over the heads of all tp ranks.
 */
#include "lib/plan/prog_build.h"
#include "lib/plan/prog_gen_build.h"

static const struct shape *shape_of(const struct build *b)
{
	return &b->in->config->shape;
}

/* Widths: what queries come from, the other rank, and the shared part. */
static int64_t query_rank(const struct build *b)
{
	return shape_of(b)->q_lora_rank;
}

static int64_t query_in(const struct build *b)
{
	return query_rank(b) ? query_rank(b) : b->C;
}

static int64_t kv_rank(const struct build *b)
{
	return shape_of(b)->kv_lora_rank;
}

static int64_t pos_width(const struct build *b)
{
	return shape_of(b)->qk_pos_emb_head_dim;
}

/* And of this rank's heads: queries, and keys without positions and values. */
static int64_t query_width(const struct build *b)
{
	return b->H * b->D;
}

static int64_t kv_width(const struct build *b)
{
	return b->H * (b->D - pos_width(b) + b->Dv);
}

static struct buf down(struct build *b, const struct buf *y, enum part w,
		       int64_t out)
{
	struct buf x = buf_new(b, FAMILY_ACT, b->rows * out);

	linear_forward_mine(b, buf_ref(&x), buf_ref(y), w, out, b->C);
	return x;
}

/* All rows of LATENT (rows, IN) to this rank's heads. */
static struct buf up(struct build *b, const struct buf *latent, enum part w,
		     int64_t out, int64_t in)
{
	struct buf all = gather_wide(b, *latent, in);
	struct buf x = buf_new(b, FAMILY_ACT, b->N * out);

	linear_forward(b, buf_ref(&x), buf_ref(&all), w, PARTS, out, in);
	gather_free(b, &all, latent);
	return x;
}

static struct buf latent_norm(struct build *b, struct buf x,
			      const struct kern_norm_dims *dims, enum part w,
			      struct norm_saved *v)
{
	return shape_of(b)->qk_layernorm ? inner_norm(b, x, dims, w, v) : x;
}

static struct buf query_forward(struct build *b, struct layer_saved *v)
{
	struct buf q;

	if (!query_rank(b))
		return up(b, &v->y1, PART_Q_UP_W, query_width(b), b->C);
	v->q_latent =
		latent_norm(b, down(b, &v->y1, PART_Q_DOWN_W, query_rank(b)),
			    b->qnorm, PART_Q_NORM_W, &v->q);
	q = up(b, &v->q_latent, PART_Q_UP_W, query_width(b), query_rank(b));
	forget(b, &v->q_latent);
	return q;
}

/* *POS: the shared part of the keys, this rank's rows. */
static struct buf kv_forward(struct build *b, struct layer_saved *v,
			     struct buf *pos)
{
	int64_t elem = (int64_t)b->out->elem, rank = kv_rank(b) * elem;
	int64_t step = rank + pos_width(b) * elem;
	struct buf x = down(b, &v->y1, PART_KV_DOWN_W, step / elem), kv;

	kv = columns(b, KIND_FORWARD, &x, b->rows, 0, rank, step);
	*pos = columns(b, KIND_FORWARD, &x, b->rows, rank, step - rank, step);
	buf_free(b, &x);
	v->kv_latent = latent_norm(b, kv, b->knorm, PART_K_NORM_W, &v->k);
	kv = up(b, &v->kv_latent, PART_KV_UP_W, kv_width(b), kv_rank(b));
	forget(b, &v->kv_latent);
	return kv;
}

void latent_forward(struct build *b, struct layer_saved *v)
{
	struct buf q = query_forward(b, v), pos, kv, all;

	kv = kv_forward(b, v, &pos);
	forget(b, &v->y1);
	all = gather_wide(b, pos, pos_width(b));
	v->qkv = buf_new(b, FAMILY_ACT, b->N * kern_attn_row(b->attn[0]));
	if (b->gen)
		gen_latent(b, &v->qkv, &q, &kv, &all, pos_width(b));
	else
		emit(b, OP_LATENT_FWD, KIND_FORWARD,
		     REFS(buf_ref(&v->qkv), buf_ref(&q), buf_ref(&kv),
			  buf_ref(&all), b->out->rope),
		     DIMS(pos_width(b), b->out->rope_half))
			->attn = b->attn[0];
	gather_free(b, &all, &pos);
	buf_free(b, &pos);
	buf_free(b, &kv);
	buf_free(b, &q);
}

/* The gradient of what UP read, this rank's rows; frees DX. */
static struct buf up_backward(struct build *b, struct buf *dx,
			      const struct buf *latent, enum part w,
			      int64_t out, int64_t in)
{
	struct buf all = gather_wide(b, *latent, in), dlatent;

	linear_weight(b, buf_ref(dx), buf_ref(&all), w, PARTS, out, in);
	gather_free(b, &all, latent);
	dlatent = linear_input(b, buf_ref(dx), w, out, in);
	buf_free(b, dx);
	return reduce_wide(b, dlatent, in);
}

static struct buf latent_norm_backward(struct build *b, struct buf dy,
				       const struct kern_norm_dims *dims,
				       enum part w, struct norm_saved *v)
{
	return shape_of(b)->qk_layernorm
		       ? inner_norm_backward(b, dy, dims, w, v)
		       : dy;
}

/* The gradient of y1 through a down projection's output; frees DX. */
static struct buf down_backward(struct build *b, struct buf *dx,
				const struct buf *y, enum part w, int64_t out)
{
	struct buf dy;

	linear_weight_mine(b, buf_ref(dx), buf_ref(y), w, out, b->C);
	dy = linear_input_mine(b, buf_ref(dx), w, out, b->C);
	buf_free(b, dx);
	return dy;
}

static struct buf query_backward(struct build *b, struct buf *dq,
				 struct layer_saved *v)
{
	struct buf *from = query_rank(b) ? &v->q_latent : &v->y1;
	struct buf dx = up_backward(b, dq, from, PART_Q_UP_W, query_width(b),
				    query_in(b));

	if (!query_rank(b))
		return dx;
	buf_free(b, &v->q_latent);
	dx = latent_norm_backward(b, dx, b->qnorm, PART_Q_NORM_W, &v->q);
	return down_backward(b, &dx, &v->y1, PART_Q_DOWN_W, query_rank(b));
}

static struct buf kv_backward(struct build *b, struct buf *dkv,
			      struct buf *dpos, struct layer_saved *v)
{
	int64_t elem = (int64_t)b->out->elem, width = kv_rank(b) + pos_width(b);
	struct buf dx, both;

	dx = up_backward(b, dkv, &v->kv_latent, PART_KV_UP_W, kv_width(b),
			 kv_rank(b));
	buf_free(b, &v->kv_latent);
	dx = latent_norm_backward(b, dx, b->knorm, PART_K_NORM_W, &v->k);
	*dpos = reduce_wide(b, *dpos, pos_width(b));
	both = buf_new(b, FAMILY_ACT, b->rows * width);
	emit(b, OP_JOIN, KIND_BACKWARD,
	     REFS(buf_ref(&both), buf_ref(&dx), buf_ref(dpos), NO_REF),
	     DIMS(b->rows, kv_rank(b) * elem, pos_width(b) * elem, 0));
	buf_free(b, &dx);
	buf_free(b, dpos);
	return down_backward(b, &both, &v->y1, PART_KV_DOWN_W, width);
}

struct buf latent_backward(struct build *b, struct buf *dqkv,
			   struct layer_saved *v)
{
	struct buf dq = buf_new(b, FAMILY_ACT, b->N * query_width(b));
	struct buf dkv = buf_new(b, FAMILY_ACT, b->N * kv_width(b));
	struct buf dpos = buf_new(b, FAMILY_ACT, b->N * pos_width(b)), dy,
		   other;

	emit(b, OP_LATENT_BWD, KIND_BACKWARD,
	     REFS(buf_ref(&dq), buf_ref(&dkv), buf_ref(&dpos), buf_ref(dqkv),
		  b->out->rope),
	     DIMS(pos_width(b), b->out->rope_half))
		->attn = b->attn[0];
	buf_free(b, dqkv);
	dy = query_backward(b, &dq, v);
	other = kv_backward(b, &dkv, &dpos, v);
	buf_free(b, &v->y1);
	return sum_of(b, &dy, &other, b->rows, KIND_BACKWARD);
}
