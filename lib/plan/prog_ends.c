/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of the model: embedding and head with its loss. */
#include "lib/plan/place.h"
#include "lib/plan/prog_gen_build.h"

/* Logits exist for so many bytes of rows at a time: a CPU's caches, or what
 * keeps a GPU busy. */
#define HEAD_BYTES	  ((int64_t)32 << 20)
#define HEAD_BYTES_DEVICE ((int64_t)1 << 30)

static struct ref host_row(const struct build *b, struct ref base, int64_t row)
{
	int64_t slot = (int64_t)b->depth * b->list->microbatches + b->mb;

	return (struct ref){base.at + 4 * (slot * b->N + row), base.family};
}

/* The micro-batch's number in row ROW of BASE. */
static struct ref host_double(const struct build *b, struct ref base, int row)
{
	int64_t slot = (int64_t)row * b->list->microbatches + b->mb;

	return row < 0 ? NO_REF : (struct ref){base.at + 8 * slot, base.family};
}

/* Rows of the padded vocabulary on each tp rank. */
static int64_t vocab_rows(const struct build *b)
{
	const struct config *c = b->in->config;

	return place_padded_vocab(&c->place, c->shape.vocab_size) / b->tp;
}

static int64_t first_vocab_row(const struct build *b)
{
	return b->in->slice->at.tp * vocab_rows(b);
}

static void embed_dropout(struct build *b, struct ref x, int kind)
{
	if (!b->train || b->hidden_dropout <= 0)
		return;
	emit(b, OP_DROP, kind, REFS(x, x), DIMS(b->rows, b->C))->drop =
		dropout(b, b->hidden_dropout,
			b->depth ? dropout_site(b, SITE_EMBEDDING) : 0);
}

struct buf embed_forward(struct build *b)
{
	struct buf x = buf_new(b, FAMILY_ACT, b->N * b->C);
	struct ref tok = param_ref(b, FAMILY_PARAM, PART_EMBED_TOK, -1);
	struct ref pos = param_ref(b, FAMILY_PARAM, PART_EMBED_POS, -1);

	emit(b, OP_EMBED_FWD, KIND_FORWARD,
	     REFS(buf_ref(&x), host_row(b, b->out->ids, 0), tok),
	     DIMS(b->N, b->C, first_vocab_row(b), vocab_rows(b)));
	x = reduce_rows(b, x);
	if (pos.family >= 0 && b->gen)
		gen_positions(b, buf_ref(&x), pos);
	else if (pos.family >= 0)
		emit(b, OP_POS_FWD, KIND_FORWARD, REFS(buf_ref(&x), pos),
		     DIMS(b->rows, b->C, b->T, b->first_row, b->depth));
	embed_dropout(b, buf_ref(&x), KIND_FORWARD);
	return x;
}

void embed_backward(struct build *b, struct buf *dx)
{
	struct ref tok = param_ref(b, FAMILY_GRAD, PART_EMBED_TOK, -1);
	struct ref pos = param_ref(b, FAMILY_GRAD, PART_EMBED_POS, -1);
	struct buf all;

	embed_dropout(b, buf_ref(dx), KIND_BACKWARD);
	if (pos.family >= 0)
		emit(b, OP_POS_BWD, KIND_WGRAD, REFS(pos, buf_ref(dx)),
		     DIMS(b->rows, b->C, b->T, b->first_row, b->depth));
	all = gather_rows(b, *dx);
	emit(b, OP_EMBED_BWD, KIND_WGRAD,
	     REFS(tok, buf_ref(&all), host_row(b, b->out->ids, 0)),
	     DIMS(b->N, b->C, first_vocab_row(b), vocab_rows(b)));
	gather_free(b, &all, dx);
	buf_free(b, dx);
}

static enum part head_part(const struct build *b)
{
	if (b->in->config->shape.share_embeddings_and_output_weights &&
	    b->stage->embedding)
		return PART_EMBED_TOK;
	return PART_HEAD_W;
}

struct ref head_weight(const struct build *b)
{
	return param_ref(b, FAMILY_PARAM, head_part(b), -1);
}

/* One piece of the rows: logits, loss and their gradient. */
struct head_rows {
	int64_t first, rows;
	struct buf y, dy, logits, max, sums;
};

static void emit_loss(struct build *b, const struct head_rows *h)
{
	int64_t V = vocab_rows(b), first = first_vocab_row(b);
	int64_t valid = b->in->config->shape.vocab_size - first;
	struct ref labels = host_row(b, b->out->labels, h->first);
	struct ref logits = buf_ref(&h->logits), max = buf_ref(&h->max);
	struct ref sums = buf_ref(&h->sums);

	valid = valid < 0 ? 0 : valid > V ? V : valid;
	emit(b, OP_CE_MAX, KIND_FORWARD, REFS(max, logits),
	     DIMS(h->rows, V, valid));
	if (b->tp > 1)
		emit_collective(b, PROG_MAX, GROUP_TP, TYPE_SUM, max, max,
				h->rows);
	emit(b, OP_CE_SUMS, KIND_FORWARD, REFS(sums, logits, max, labels),
	     DIMS(h->rows, V, valid, first));
	if (b->tp > 1)
		emit_collective(b, PROG_SUM, GROUP_TP, TYPE_SUM, sums, sums,
				2 * h->rows);
	emit(b, OP_CE_GRAD, KIND_FORWARD,
	     REFS(host_double(b, b->out->loss, b->depth),
		  host_double(b, b->out->right, b->depth - 1), logits, max,
		  sums, labels, host_double(b, b->out->coef, b->depth)),
	     DIMS(h->rows, V, valid, first));
}

static void head_rows(struct build *b, const struct head_rows *h)
{
	int64_t V = vocab_rows(b);
	double flops = 2.0 * (double)h->rows * (double)V * (double)b->C;
	struct ref w = head_weight(b);
	struct ref dw = param_ref(b, FAMILY_GRAD, head_part(b), -1);
	struct ref y = buf_part(b, &h->y, h->first * b->C);
	struct ref logits = buf_ref(&h->logits);

	emit(b, OP_LINEAR_FWD, KIND_FORWARD, REFS(logits, y, w, NO_REF),
	     DIMS(h->rows, V, b->C))
		->flops = flops;
	emit_loss(b, h);
	if (!b->train)
		return;
	emit(b, OP_LINEAR_BWD_X, KIND_BACKWARD,
	     REFS(buf_part(b, &h->dy, h->first * b->C), logits, w),
	     DIMS(h->rows, V, b->C))
		->flops = flops;
	if (b->depth && b->in->config->run.mtp_detach_heads)
		return;
	emit(b, OP_LINEAR_BWD_W, KIND_WGRAD, REFS(dw, logits, y),
	     DIMS(h->rows, V, b->C))
		->flops = flops;
}

int64_t prog_head_rows(int64_t tokens, int64_t row_bytes, bool device)
{
	int64_t most = device ? HEAD_BYTES_DEVICE : HEAD_BYTES;
	int64_t rows = most / row_bytes, pieces;

	if (rows < 64)
		rows = 64;
	pieces = (tokens + rows - 1) / rows;
	return (tokens + pieces - 1) / pieces;
}

/*
 * The loss's gradient is computed with the loss, so that logits never
 * outlive their rows; only the head's input gradient waits for the backward.
 */
struct buf head_loss(struct build *b, struct buf h)
{
	int64_t V = vocab_rows(b);
	int64_t most =
		prog_head_rows(b->N, V * (int64_t)b->out->elem, b->device);
	struct head_rows r = {.dy = NO_BUF};

	b->layer = -1;
	r.y = gather_rows(b, h);
	if (b->train)
		r.dy = buf_new(b, FAMILY_ACT, b->N * b->C);
	r.logits = buf_new(b, FAMILY_ACT, most * V);
	r.max = buf_sums(b, FAMILY_ACT, most);
	r.sums = buf_sums(b, FAMILY_ACT, 2 * most);
	for (r.first = 0; r.first < b->N; r.first += r.rows) {
		r.rows = b->N - r.first < most ? b->N - r.first : most;
		head_rows(b, &r);
	}
	buf_free(b, &r.sums);
	buf_free(b, &r.max);
	buf_free(b, &r.logits);
	gather_free(b, &r.y, &h);
	return b->train ? reduce_rows(b, r.dy) : NO_BUF;
}
