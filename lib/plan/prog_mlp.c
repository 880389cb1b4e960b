/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of a layer: x += mlp(norm(x)). */
#include "lib/plan/prog_build.h"

/* fc1's outputs on this rank. */
static int64_t fc1_width(const struct build *b)
{
	return b->F * (b->in->config->shape.gated_linear_unit ? 2 : 1);
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

void mlp_half(struct build *b, struct stream *s, struct layer_saved *v)
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

void mlp_half_backward(struct build *b, struct buf *dx, struct layer_saved *v)
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
