/* SPDX-License-Identifier: Apache-2.0 */
/* One pre-norm transformer layer: x += attn(norm(x)); x += mlp(norm(x)). */
#include "lib/plan/prog_build.h"

uint32_t dropout_site(const struct build *b, enum site which)
{
	return (uint32_t)(4 * b->drawn_for + which);
}

struct kern_drop dropout(const struct build *b, double p, uint32_t site)
{
	return (struct kern_drop){
		.p = b->train ? p : 0,
		.site = site,
		.row0 = b->row0 + b->first_row,
	};
}

void stream_branch(struct build *b, struct stream *s, struct buf branch,
		   enum part bias, enum site which)
{
	s->branch = branch;
	s->bias = param_ref(b, FAMILY_PARAM, bias, b->layer);
	s->site = dropout_site(b, which);
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

struct buf columns(struct build *b, int kind, const struct buf *x, int64_t rows,
		   int64_t at, int64_t bytes, int64_t step)
{
	struct buf y = buf_bytes(b, FAMILY_ACT, rows * bytes);

	emit(b, OP_CUT, kind, REFS(buf_ref(&y), buf_at(x, at)),
	     DIMS(rows, bytes, step));
	return y;
}

void forget(struct build *b, struct buf *buf)
{
	if (!b->train)
		buf_free(b, buf);
}

/* Of this rank's rows. */
static struct buf gradient_mine(struct build *b, const struct buf *dx,
				enum part bias, enum site which)
{
	struct ref db = param_ref(b, FAMILY_GRAD, bias, b->layer);
	struct buf mine = *dx;

	if (b->hidden_dropout > 0) {
		mine = buf_new(b, FAMILY_ACT, b->rows * b->C);
		emit(b, OP_DROP, KIND_BACKWARD,
		     REFS(buf_ref(&mine), buf_ref(dx)), DIMS(b->rows, b->C))
			->drop =
			dropout(b, b->hidden_dropout, dropout_site(b, which));
	}
	if (db.family >= 0)
		emit(b, OP_BIAS_BWD, KIND_WGRAD, REFS(db, buf_ref(&mine)),
		     DIMS(b->rows, b->C));
	return mine;
}

struct buf branch_gradient(struct build *b, const struct buf *dx,
			   enum part bias, enum site which, struct buf *mine)
{
	*mine = gradient_mine(b, dx, bias, which);
	return gather_rows(b, *mine);
}

void branch_free(struct build *b, struct buf *all, struct buf *mine,
		 const struct buf *dx)
{
	gather_free(b, all, mine);
	if (mine->at != dx->at)
		buf_free(b, mine);
}

void norm_input(struct build *b, const struct kern_norm_dims *dims,
		const struct buf *dx, struct ref dres, struct buf *dy,
		enum part w, enum part bias, struct norm_saved *v)
{
	emit(b, OP_NORM_BWD, KIND_BACKWARD,
	     REFS(buf_ref(dx), gain_ref(b, FAMILY_GRAD, w),
		  param_ref(b, FAMILY_GRAD, bias, b->layer), buf_ref(dy), dres,
		  buf_ref(&v->x), buf_ref(&v->stat),
		  gain_ref(b, FAMILY_PARAM, w)),
	     NULL, 0)
		->norm = dims;
	buf_free(b, dy);
	buf_free(b, &v->x);
	buf_free(b, &v->stat);
}

struct buf sum_of(struct build *b, struct buf *x, struct buf *y, int64_t rows,
		  int kind)
{
	struct buf sum = buf_new(b, FAMILY_ACT, rows * b->C);

	emit(b, OP_RESID, kind,
	     REFS(buf_ref(&sum), buf_ref(x), buf_ref(y), NO_REF),
	     DIMS(rows, b->C));
	buf_free(b, x);
	buf_free(b, y);
	return sum;
}

void replaced_forward(struct build *b, struct stream *s, enum part w,
		      enum site which, struct buf *y)
{
	struct buf branch = buf_new(b, FAMILY_ACT, b->rows * b->C);

	linear_forward_mine(b, buf_ref(&branch), buf_ref(y), w, b->C, b->C);
	forget(b, y);
	stream_branch(b, s, branch, w + 1, which);
}

struct buf replaced_backward(struct build *b, const struct buf *dx, enum part w,
			     enum site which, struct buf *y)
{
	struct buf mine = gradient_mine(b, dx, w + 1, which), dy;

	linear_weight_mine(b, buf_ref(&mine), buf_ref(y), w, b->C, b->C);
	buf_free(b, y);
	dy = linear_input_mine(b, buf_ref(&mine), w, b->C, b->C);
	branch_free(b, &mine, &mine, dx);
	return dy;
}

void layer_forward(struct build *b, struct stream *s, struct layer_saved *v)
{
	layer_dims(b);
	attention_half(b, s, v);
	mlp_half(b, s, v);
}

void layer_backward(struct build *b, struct buf *dx, struct layer_saved *v)
{
	layer_dims(b);
	mlp_half_backward(b, dx, v);
	attention_half_backward(b, dx, v);
}
