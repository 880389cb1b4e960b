/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of a layer: x += mlp(norm(x)), x += linear(norm(x)), none. */
#include "lib/plan/prog_build.h"

/* fc1's outputs on this rank. */
static int64_t fc1_width(const struct build *b, const struct mlp *m)
{
	return m->width * (b->in->config->shape.gated_linear_unit ? 2 : 1);
}

/* The names of shape.h are the kernels' too. */
_Static_assert((int)ACT_GELU == (int)KERN_GELU &&
		       (int)ACT_GELU_TANH == (int)KERN_GELU_TANH &&
		       (int)ACT_SILU == (int)KERN_SILU &&
		       (int)ACT_RELU2 == (int)KERN_RELU2 &&
		       (int)ACT_QUICK_GELU == (int)KERN_QUICK_GELU,
	       "activation_func and enum kern_act differ");

static void emit_act(struct build *b, int code, const struct mlp *m,
		     const struct ref *refs, int count)
{
	const struct shape *s = &b->in->config->shape;
	bool forward = code == OP_ACT_FWD || code == OP_EXPERT_ACT_FWD;

	emit(b, code, forward ? KIND_FORWARD : KIND_BACKWARD, refs, count,
	     DIMS(b->N, m->width, s->activation_func, s->gated_linear_unit))
		->moe = m->gate;
}

struct buf mlp_forward(struct build *b, const struct mlp *m, struct ref y,
		       struct buf *fc1, struct buf *act)
{
	struct buf out;

	*fc1 = buf_new(b, FAMILY_ACT, b->N * fc1_width(b, m));
	linear_forward(b, buf_ref(fc1), y, m->fc1, m->fc1 + 1, fc1_width(b, m),
		       b->C);
	*act = buf_new(b, FAMILY_ACT, b->N * m->width);
	if (m->gate)
		emit_act(b, OP_EXPERT_ACT_FWD, m,
			 REFS(buf_ref(act), buf_ref(fc1), m->prob, m->row));
	else
		emit_act(b, OP_ACT_FWD, m, REFS(buf_ref(act), buf_ref(fc1)));
	forget(b, fc1);
	out = buf_new(b, FAMILY_ACT, b->N * b->C);
	linear_forward(b, buf_ref(&out), buf_ref(act), m->fc2,
		       b->in->slice->at.tp ? PARTS : m->fc2_bias, b->C,
		       m->width);
	forget(b, act);
	return out;
}

struct buf mlp_output(struct build *b, const struct mlp *m, struct ref dy,
		      struct buf *act)
{
	int64_t row = b->C * (int64_t)b->out->elem;
	struct ref db = NO_REF, mine = dy;

	linear_weight(b, dy, buf_ref(act), m->fc2, PARTS, b->C, m->width);
	if (m->fc2_bias != PARTS)
		db = param_ref(b, FAMILY_GRAD, m->fc2_bias, b->layer);
	mine.at += b->first_row * row;
	if (db.family >= 0)
		emit(b, OP_BIAS_BWD, KIND_WGRAD, REFS(db, mine),
		     DIMS(b->rows, b->C));
	buf_free(b, act);
	return linear_input(b, dy, m->fc2, b->C, m->width);
}

struct buf mlp_act(struct build *b, const struct mlp *m, struct buf *dact,
		   struct buf *fc1)
{
	struct buf dfc1 = buf_new(b, FAMILY_ACT, b->N * fc1_width(b, m));

	if (m->gate)
		emit_act(b, OP_EXPERT_ACT_BWD, m,
			 REFS(buf_ref(&dfc1), m->dprob, buf_ref(dact),
			      buf_ref(fc1), m->prob, m->row));
	else
		emit_act(b, OP_ACT_BWD, m,
			 REFS(buf_ref(&dfc1), buf_ref(dact), buf_ref(fc1)));
	buf_free(b, dact);
	buf_free(b, fc1);
	return dfc1;
}

void mlp_weight(struct build *b, const struct mlp *m, struct ref dfc1,
		struct ref y)
{
	linear_weight(b, dfc1, y, m->fc1, m->fc1 + 1, fc1_width(b, m), b->C);
}

struct buf mlp_input(struct build *b, const struct mlp *m, struct buf *dfc1)
{
	struct buf dy =
		linear_input(b, buf_ref(dfc1), m->fc1, fc1_width(b, m), b->C);

	buf_free(b, dfc1);
	return dy;
}

static struct mlp dense(const struct build *b)
{
	return (struct mlp){.fc1 = PART_FC1_W,
			    .fc2 = PART_FC2_W,
			    .fc2_bias = PARTS,
			    .width = b->F};
}

/* The mlp's branch, or the mixture's, for y2. */
static void feed(struct build *b, struct stream *s, struct layer_saved *v)
{
	const struct mlp m = dense(b);
	struct buf y = gather_rows(b, v->y2), branch;

	if (moe_has(b))
		branch = moe_forward(b, y, v);
	else
		branch = mlp_forward(b, &m, buf_ref(&y), &v->fc1, &v->act);
	gather_free(b, &y, &v->y2);
	forget(b, &v->y2);
	stream_branch(b, s, reduce_rows(b, branch), PART_FC2_B, SITE_MLP);
}

/* The width of the layer's mlp; of experts any above 0. */
static int64_t width_of(const struct build *b)
{
	return moe_has(b) ? 1
			  : shape_layer_ffn(&b->in->config->shape, b->layer);
}

void mlp_half(struct build *b, struct stream *s, struct layer_saved *v)
{
	int64_t width = width_of(b);

	if (!width)
		return;
	v->y2 = stream_norm(b, s, PART_MLP_NORM_W, PART_MLP_NORM_B, &v->stat2);
	v->x2 = s->x;
	s->owned = !b->train;
	forget(b, &v->stat2);
	if (width < 0)
		replaced_forward(b, s, PART_MLP_LINEAR_W, SITE_MLP, &v->y2);
	else
		feed(b, s, v);
}

static struct buf dense_backward(struct build *b, struct buf *dx,
				 struct layer_saved *v)
{
	const struct mlp m = dense(b);
	struct buf mine, all, dact, dfc1, y, dy;

	all = branch_gradient(b, dx, PART_FC2_B, SITE_MLP, &mine);
	dact = mlp_output(b, &m, buf_ref(&all), &v->act);
	branch_free(b, &all, &mine, dx);
	dfc1 = mlp_act(b, &m, &dact, &v->fc1);
	y = gather_rows(b, v->y2);
	mlp_weight(b, &m, buf_ref(&dfc1), buf_ref(&y));
	gather_free(b, &y, &v->y2);
	buf_free(b, &v->y2);
	dy = mlp_input(b, &m, &dfc1);
	return reduce_rows(b, dy);
}

void mlp_half_backward(struct build *b, struct buf *dx, struct layer_saved *v)
{
	struct norm_saved norm = {v->x2, v->stat2};
	int64_t width = width_of(b);
	struct buf mine, all, dy;

	if (!width)
		return;
	if (moe_has(b)) {
		all = branch_gradient(b, dx, PARTS, SITE_MLP, &mine);
		dy = moe_backward(b, all, v);
		branch_free(b, &all, &mine, dx);
	} else if (width < 0) {
		dy = replaced_backward(b, dx, PART_MLP_LINEAR_W, SITE_MLP,
				       &v->y2);
	} else {
		dy = dense_backward(b, dx, v);
	}
	norm_input(b, b->norm, dx, buf_ref(dx), &dy, PART_MLP_NORM_W,
		   PART_MLP_NORM_B, &norm);
}
