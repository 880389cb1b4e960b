/* SPDX-License-Identifier: Apache-2.0 */
/* Products with their tensor-parallel communication. */
#include "lib/plan/prog_build.h"

static void forward(struct build *b, int64_t rows, struct ref y, struct ref x,
		    enum part w, enum part bias, int64_t out, int64_t in)
{
	struct ref wref = param_ref(b, FAMILY_PARAM, w, b->layer);
	struct ref bref = NO_REF;

	if (bias != PARTS)
		bref = param_ref(b, FAMILY_PARAM, bias, b->layer);
	emit(b, OP_LINEAR_FWD, KIND_FORWARD, REFS(y, x, wref, bref),
	     DIMS(rows, out, in))
		->flops = 2.0 * (double)rows * (double)out * (double)in;
}

static void weight(struct build *b, int64_t rows, struct ref dy, struct ref x,
		   enum part w, enum part bias, int64_t out, int64_t in)
{
	struct ref dw = param_ref(b, FAMILY_GRAD, w, b->layer);
	struct ref db = NO_REF;

	emit(b, OP_LINEAR_BWD_W, KIND_WGRAD, REFS(dw, dy, x),
	     DIMS(rows, out, in))
		->flops = 2.0 * (double)rows * (double)out * (double)in;
	if (bias != PARTS)
		db = param_ref(b, FAMILY_GRAD, bias, b->layer);
	if (db.family >= 0)
		emit(b, OP_BIAS_BWD, KIND_WGRAD, REFS(db, dy), DIMS(rows, out));
}

static struct buf input(struct build *b, int64_t rows, struct ref dy,
			enum part w, int64_t out, int64_t in)
{
	struct buf dx = buf_new(b, FAMILY_ACT, rows * in);

	emit(b, OP_LINEAR_BWD_X, KIND_BACKWARD,
	     REFS(buf_ref(&dx), dy, param_ref(b, FAMILY_PARAM, w, b->layer)),
	     DIMS(rows, out, in))
		->flops = 2.0 * (double)rows * (double)out * (double)in;
	return dx;
}

void linear_forward(struct build *b, struct ref y, struct ref x, enum part w,
		    enum part bias, int64_t out, int64_t in)
{
	forward(b, b->N, y, x, w, bias, out, in);
}

void linear_weight(struct build *b, struct ref dy, struct ref x, enum part w,
		   enum part bias, int64_t out, int64_t in)
{
	weight(b, b->N, dy, x, w, bias, out, in);
}

struct buf linear_input(struct build *b, struct ref dy, enum part w,
			int64_t out, int64_t in)
{
	return input(b, b->N, dy, w, out, in);
}

void linear_forward_mine(struct build *b, struct ref y, struct ref x,
			 enum part w, int64_t out, int64_t in)
{
	forward(b, b->rows, y, x, w, PARTS, out, in);
}

void linear_weight_mine(struct build *b, struct ref dy, struct ref x,
			enum part w, int64_t out, int64_t in)
{
	weight(b, b->rows, dy, x, w, PARTS, out, in);
}

struct buf linear_input_mine(struct build *b, struct ref dy, enum part w,
			     int64_t out, int64_t in)
{
	return input(b, b->rows, dy, w, out, in);
}

struct buf gather_wide(struct build *b, struct buf x, int64_t width)
{
	struct buf all;

	if (!b->sp)
		return x;
	all = buf_new(b, FAMILY_COMM, b->N * width);
	emit_collective(b, PROG_ALL_GATHER, GROUP_TP, TYPE_ELEM, buf_ref(&x),
			buf_ref(&all), b->rows * width);
	return all;
}

struct buf gather_rows(struct build *b, struct buf x)
{
	return gather_wide(b, x, b->C);
}

void gather_free(struct build *b, struct buf *gathered, const struct buf *x)
{
	if (gathered->family != x->family || gathered->at != x->at)
		buf_free(b, gathered);
}

struct buf reduce_rows(struct build *b, struct buf x)
{
	return reduce_wide(b, x, b->C);
}

struct buf reduce_wide(struct build *b, struct buf x, int64_t width)
{
	struct buf mine;

	if (b->tp == 1)
		return x;
	if (!b->sp) {
		emit_collective(b, PROG_SUM, GROUP_TP, TYPE_ELEM, buf_ref(&x),
				buf_ref(&x), b->N * width);
		return x;
	}
	mine = buf_new(b, FAMILY_ACT, b->rows * width);
	emit_collective(b, PROG_REDUCE_SCATTER, GROUP_TP, TYPE_ELEM,
			buf_ref(&x), buf_ref(&mine), b->rows * width);
	buf_free(b, &x);
	return mine;
}
