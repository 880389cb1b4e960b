/* SPDX-License-Identifier: Apache-2.0 */
/* One pre-norm transformer layer: x += attn(norm(x)); x += mlp(norm(x)). */
#include "lib/plan/prog_build.h"

/* Dropout's sites: 0 for the embedding, three a layer. */
enum { SITE_ATTENTION = 1, SITE_PROJ, SITE_MLP };

static uint32_t dropout_site(int64_t layer, int which)
{
	return (uint32_t)(4 * layer + which);
}

struct kern_drop dropout(const struct build *b, double p, uint32_t site)
{
	return (struct kern_drop){
		.p = b->train ? p : 0,
		.site = site,
		.row0 = b->row0 + b->first_row,
	};
}

static void stream_branch(struct build *b, struct stream *s, struct buf branch,
			  enum part bias, int which)
{
	s->branch = branch;
	s->bias = param_ref(b, FAMILY_PARAM, bias, b->layer);
	s->site = dropout_site(b->layer, which);
}

struct buf stream_norm(struct build *b, struct stream *s, enum part w,
		       enum part bias, struct buf *stat)
{
	struct buf y = buf_new(b, FAMILY_ACT, b->rows * b->C);
	struct buf sum = NO_BUF;
	struct op *op;

	*stat = buf_sums(b, FAMILY_ACT, 2 * b->rows);
	if (s->branch.family >= 0)
		sum = buf_new(b, FAMILY_ACT, b->rows * b->C);
	op = emit(b, OP_NORM_FWD, KIND_FORWARD,
		  REFS(buf_ref(&y), buf_ref(&sum), buf_ref(stat),
		       buf_ref(&s->x), buf_ref(&s->branch), s->bias,
		       param_ref(b, FAMILY_PARAM, w, b->layer),
		       param_ref(b, FAMILY_PARAM, bias, b->layer)),
		  NULL, 0);
	op->norm = b->norm;
	op->drop = dropout(b, b->hidden_dropout, s->site);
	if (s->branch.family < 0)
		return y;
	buf_free(b, &s->branch);
	if (s->owned)
		buf_free(b, &s->x);
	s->x = sum;
	s->bias = NO_REF;
	return y;
}

void stream_settle(struct build *b, struct stream *s)
{
	struct buf sum;
	struct op *op;

	if (s->branch.family < 0)
		return;
	sum = buf_new(b, FAMILY_ACT, b->rows * b->C);
	op = emit(b, OP_RESID, KIND_FORWARD,
		  REFS(buf_ref(&sum), buf_ref(&s->x), buf_ref(&s->branch),
		       s->bias),
		  DIMS(b->rows, b->C));
	op->drop = dropout(b, b->hidden_dropout, s->site);
	buf_free(b, &s->branch);
	if (s->owned)
		buf_free(b, &s->x);
	s->x = sum;
	s->owned = true;
	s->bias = NO_REF;
}

static int64_t qkv_width(const struct build *b)
{
	return (b->H + 2 * b->G) * b->D;
}

/* fc1's outputs on this rank. */
static int64_t fc1_width(const struct build *b)
{
	return b->F * (b->in->config->shape.gated_linear_unit ? 2 : 1);
}

static void emit_rope(struct build *b, struct ref qkv, bool backward)
{
	struct op *op;

	if (b->out->rope.family < 0)
		return;
	op = emit(b, OP_ROPE, backward ? KIND_BACKWARD : KIND_FORWARD,
		  REFS(qkv, b->out->rope),
		  DIMS(b->out->rope_half,
		       b->in->config->shape.rotary_interleaved));
	op->attn = b->attn;
	op->flag = backward;
}

/* Half of the products that causal attention needs: N * T * H * D. */
static double attn_flops(const struct build *b, double products)
{
	return products * (double)b->N * (double)b->T * (double)(b->H * b->D);
}

static void attention_forward(struct build *b, struct layer_saved *v)
{
	struct op *op;

	v->o = buf_new(b, FAMILY_ACT, b->N * b->H * b->D);
	v->lse = buf_sums(b, FAMILY_ACT, b->N * b->H);
	op = emit(b, OP_ATTN_FWD, KIND_FORWARD,
		  REFS(buf_ref(&v->o), buf_ref(&v->lse), buf_ref(&v->qkv),
		       buf_ref(&b->attn_scratch)),
		  NULL, 0);
	op->attn = b->attn;
	op->drop = dropout(b, b->attention_dropout,
			   dropout_site(b->layer, SITE_ATTENTION));
	op->drop.row0 = b->row0;
	op->flops = attn_flops(b, 2);
}

static struct buf attention_backward(struct build *b, struct buf *dout,
				     struct layer_saved *v)
{
	struct buf dqkv = buf_new(b, FAMILY_ACT, b->N * qkv_width(b));
	struct op *op;

	op = emit(b, OP_ATTN_BWD, KIND_BACKWARD,
		  REFS(buf_ref(&dqkv), buf_ref(dout), buf_ref(&v->o),
		       buf_ref(&v->lse), buf_ref(&v->qkv),
		       buf_ref(&b->attn_scratch)),
		  NULL, 0);
	op->attn = b->attn;
	op->drop = dropout(b, b->attention_dropout,
			   dropout_site(b->layer, SITE_ATTENTION));
	op->drop.row0 = b->row0;
	op->flops = attn_flops(b, 5);
	buf_free(b, dout);
	buf_free(b, &v->o);
	buf_free(b, &v->lse);
	buf_free(b, &v->qkv);
	return dqkv;
}

/* In evaluation nothing is kept for a backward. */
static void forget(struct build *b, struct buf *buf)
{
	if (!b->train)
		buf_free(b, buf);
}

static void attention_half(struct build *b, struct stream *s,
			   struct layer_saved *v)
{
	struct buf y, branch;

	v->y1 = stream_norm(b, s, PART_ATTN_NORM_W, PART_ATTN_NORM_B,
			    &v->stat1);
	v->x1 = s->x;
	s->owned = !b->train;
	y = gather_rows(b, v->y1);
	v->qkv = buf_new(b, FAMILY_ACT, b->N * qkv_width(b));
	linear_forward(b, buf_ref(&v->qkv), buf_ref(&y), PART_QKV_W, PART_QKV_B,
		       qkv_width(b), b->C);
	gather_free(b, &y, &v->y1);
	forget(b, &v->y1);
	forget(b, &v->stat1);
	emit_rope(b, buf_ref(&v->qkv), false);
	attention_forward(b, v);
	forget(b, &v->qkv);
	forget(b, &v->lse);
	branch = buf_new(b, FAMILY_ACT, b->N * b->C);
	linear_forward(b, buf_ref(&branch), buf_ref(&v->o), PART_PROJ_W, PARTS,
		       b->C, b->H * b->D);
	forget(b, &v->o);
	stream_branch(b, s, reduce_rows(b, branch), PART_PROJ_B, SITE_PROJ);
}

/* The names of shape.h are the kernels' too. */
_Static_assert((int)ACT_GELU == (int)KERN_GELU &&
		       (int)ACT_GELU_TANH == (int)KERN_GELU_TANH &&
		       (int)ACT_SILU == (int)KERN_SILU &&
		       (int)ACT_RELU2 == (int)KERN_RELU2 &&
		       (int)ACT_QUICK_GELU == (int)KERN_QUICK_GELU,
	       "activation_func and enum kern_act differ");

static void emit_act(struct build *b, int code, const struct ref *refs,
		     int count)
{
	const struct shape *s = &b->in->config->shape;

	emit(b, code, code == OP_ACT_FWD ? KIND_FORWARD : KIND_BACKWARD, refs,
	     count, DIMS(b->N, b->F, s->activation_func, s->gated_linear_unit));
}

static void mlp_half(struct build *b, struct stream *s, struct layer_saved *v)
{
	struct buf y, branch;

	v->y2 = stream_norm(b, s, PART_MLP_NORM_W, PART_MLP_NORM_B, &v->stat2);
	v->x2 = s->x;
	s->owned = !b->train;
	y = gather_rows(b, v->y2);
	v->fc1 = buf_new(b, FAMILY_ACT, b->N * fc1_width(b));
	linear_forward(b, buf_ref(&v->fc1), buf_ref(&y), PART_FC1_W, PART_FC1_B,
		       fc1_width(b), b->C);
	gather_free(b, &y, &v->y2);
	forget(b, &v->y2);
	forget(b, &v->stat2);
	v->act = buf_new(b, FAMILY_ACT, b->N * b->F);
	emit_act(b, OP_ACT_FWD, REFS(buf_ref(&v->act), buf_ref(&v->fc1)));
	forget(b, &v->fc1);
	branch = buf_new(b, FAMILY_ACT, b->N * b->C);
	linear_forward(b, buf_ref(&branch), buf_ref(&v->act), PART_FC2_W, PARTS,
		       b->C, b->F);
	forget(b, &v->act);
	stream_branch(b, s, reduce_rows(b, branch), PART_FC2_B, SITE_MLP);
}

void layer_forward(struct build *b, struct stream *s, struct layer_saved *v)
{
	attention_half(b, s, v);
	mlp_half(b, s, v);
}

/*
 * The gradient of a branch's output, all rows: DX through the branch's
 * dropout, its bias's gradient on the way.  *made must be freed if not none.
 */
static struct buf branch_gradient(struct build *b, const struct buf *dx,
				  enum part bias, int which, struct buf *mine)
{
	struct ref db = param_ref(b, FAMILY_GRAD, bias, b->layer);

	*mine = *dx;
	if (b->hidden_dropout > 0) {
		*mine = buf_new(b, FAMILY_ACT, b->rows * b->C);
		emit(b, OP_DROP, KIND_BACKWARD,
		     REFS(buf_ref(mine), buf_ref(dx)), DIMS(b->rows, b->C))
			->drop = dropout(b, b->hidden_dropout,
					 dropout_site(b->layer, which));
	}
	if (db.family >= 0)
		emit(b, OP_BIAS_BWD, KIND_WGRAD, REFS(db, buf_ref(mine)),
		     DIMS(b->rows, b->C));
	return gather_rows(b, *mine);
}

static void branch_free(struct build *b, struct buf *all, struct buf *mine,
			const struct buf *dx)
{
	gather_free(b, all, mine);
	if (mine->at != dx->at)
		buf_free(b, mine);
}

/* dx += the norm's input gradient for DY, whose rows are summed over tp. */
static void norm_backward(struct build *b, struct buf *dx, struct buf dy,
			  enum part w, enum part bias, struct buf *x,
			  struct buf *stat)
{
	dy = reduce_rows(b, dy);
	emit(b, OP_NORM_BWD, KIND_BACKWARD,
	     REFS(buf_ref(dx), param_ref(b, FAMILY_GRAD, w, b->layer),
		  param_ref(b, FAMILY_GRAD, bias, b->layer), buf_ref(&dy),
		  buf_ref(dx), buf_ref(x), buf_ref(stat),
		  param_ref(b, FAMILY_PARAM, w, b->layer)),
	     NULL, 0)
		->norm = b->norm;
	buf_free(b, &dy);
	buf_free(b, x);
	buf_free(b, stat);
}

static void mlp_backward(struct build *b, struct buf *dx, struct layer_saved *v)
{
	struct buf mine, all, dact, dfc1, y, dy;

	all = branch_gradient(b, dx, PART_FC2_B, SITE_MLP, &mine);
	linear_weight(b, buf_ref(&all), buf_ref(&v->act), PART_FC2_W, PARTS,
		      b->C, b->F);
	buf_free(b, &v->act);
	dact = linear_input(b, buf_ref(&all), PART_FC2_W, b->C, b->F);
	branch_free(b, &all, &mine, dx);
	dfc1 = buf_new(b, FAMILY_ACT, b->N * fc1_width(b));
	emit_act(b, OP_ACT_BWD,
		 REFS(buf_ref(&dfc1), buf_ref(&dact), buf_ref(&v->fc1)));
	buf_free(b, &dact);
	buf_free(b, &v->fc1);
	y = gather_rows(b, v->y2);
	linear_weight(b, buf_ref(&dfc1), buf_ref(&y), PART_FC1_W, PART_FC1_B,
		      fc1_width(b), b->C);
	gather_free(b, &y, &v->y2);
	buf_free(b, &v->y2);
	dy = linear_input(b, buf_ref(&dfc1), PART_FC1_W, fc1_width(b), b->C);
	buf_free(b, &dfc1);
	norm_backward(b, dx, dy, PART_MLP_NORM_W, PART_MLP_NORM_B, &v->x2,
		      &v->stat2);
}

void layer_backward(struct build *b, struct buf *dx, struct layer_saved *v)
{
	struct buf mine, all, dout, dqkv, y, dy;

	mlp_backward(b, dx, v);
	all = branch_gradient(b, dx, PART_PROJ_B, SITE_PROJ, &mine);
	linear_weight(b, buf_ref(&all), buf_ref(&v->o), PART_PROJ_W, PARTS,
		      b->C, b->H * b->D);
	dout = linear_input(b, buf_ref(&all), PART_PROJ_W, b->C, b->H * b->D);
	branch_free(b, &all, &mine, dx);
	dqkv = attention_backward(b, &dout, v);
	emit_rope(b, buf_ref(&dqkv), true);
	y = gather_rows(b, v->y1);
	linear_weight(b, buf_ref(&dqkv), buf_ref(&y), PART_QKV_W, PART_QKV_B,
		      qkv_width(b), b->C);
	gather_free(b, &y, &v->y1);
	buf_free(b, &v->y1);
	dy = linear_input(b, buf_ref(&dqkv), PART_QKV_W, qkv_width(b), b->C);
	buf_free(b, &dqkv);
	norm_backward(b, dx, dy, PART_ATTN_NORM_W, PART_ATTN_NORM_B, &v->x1,
		      &v->stat1);
}
