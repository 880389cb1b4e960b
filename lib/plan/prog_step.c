/* SPDX-License-Identifier: Apache-2.0 */
/* From gradients to updated parameters: sums, norm, clip, AdamW. */
#include <stddef.h>

#include "lib/plan/prog_build.h"

static struct ref flat(const struct build *b, int family, int64_t element)
{
	return (struct ref){element * (int64_t)b->out->elem, family};
}

/* Which rows of P are summed over GROUP; returns their number. */
static int64_t summed_rows(const struct param *p, int group, int64_t *first)
{
	*first = 0;
	if (group == GROUP_TP)
		return p->sum_tp ? p->rows : 0;
	*first = p->kv_row;
	return p->sum_kv ? p->rows - p->kv_row : 0;
}

/*
 * Sum small gradients over GROUP with one collective: copy them into one
 * buffer, sum, copy back.
 */
static void sum_copies(struct build *b, int group)
{
	const struct slice *s = b->in->slice;
	int64_t total = 0, first, n;
	struct buf packed;

	for (int i = 0; i < s->params; i++)
		total += summed_rows(&s->param[i], group, &first) *
			 s->param[i].cols;
	if (!total)
		return;
	packed = buf_new(b, FAMILY_COMM, total);
	for (int back = 0; back < 2; back++) {
		int64_t at = 0;

		for (int i = 0; i < s->params; i++) {
			const struct param *p = &s->param[i];
			struct ref grad, slot = buf_part(b, &packed, at);

			n = summed_rows(p, group, &first) * p->cols;
			grad = flat(b, FAMILY_GRAD, p->at + first * p->cols);
			if (n)
				emit(b, OP_COPY, KIND_COMM,
				     REFS(back ? grad : slot,
					  back ? slot : grad),
				     DIMS(n));
			at += n;
		}
		if (!back)
			emit_collective(b, PROG_SUM, group, buf_ref(&packed),
					buf_ref(&packed), total);
	}
	buf_free(b, &packed);
}

static void sum_embedding(struct build *b)
{
	const struct slice *s = b->in->slice;

	for (int i = 0; i < s->params; i++) {
		const struct param *p = &s->param[i];
		struct ref grad = flat(b, FAMILY_GRAD, p->at);

		if (p->sum_embedding)
			emit_collective(b, PROG_SUM, GROUP_EMBED, grad, grad,
					p->rows * p->cols);
	}
}

/* Gradients to their owners; parameters back to everyone. */
static void over_buckets(struct build *b, int comm, int family)
{
	const struct slice *s = b->in->slice;
	int64_t first, end;

	for (int i = 0; i < s->buckets.count && s->dp > 1; i++) {
		const struct bucket *k = &s->buckets.list[i];
		struct ref all = flat(b, family, k->first), own;

		bucket_shard(&s->buckets, i, s->d, s->dp, &first, &end);
		own = flat(b, family, first);
		if (comm == PROG_SUM)
			emit_collective(b, comm, GROUP_DP_CP, all, all,
					k->end - k->first);
		else if (comm == PROG_REDUCE_SCATTER)
			emit_collective(b, comm, GROUP_DP_CP, all, own,
					end - first);
		else
			emit_collective(b, comm, GROUP_DP_CP, own, all,
					end - first);
	}
}

/*
 * Squares of this rank's share of what counts.  The shares are the same with
 * and without ZeRO-1, so the norm has the same bits.
 */
static void emit_sumsq(struct build *b)
{
	const struct slice *s = b->in->slice;
	struct ref acc = {offsetof(struct prog_scalars, metrics), FAMILY_HOST};

	for (int i = 0; i < s->pieces; i++) {
		const struct piece *p = &s->piece[i];
		int64_t end = p->at + box_elements(&p->box), lo, hi;

		for (int k = 0; k < s->buckets.count && !p->replica; k++) {
			bucket_shard(&s->buckets, k, s->d, s->dp, &lo, &hi);
			lo = lo < p->at ? p->at : lo;
			hi = hi > end ? end : hi;
			if (lo < hi)
				emit(b, OP_SUMSQ, KIND_OPTIM,
				     REFS(acc, flat(b, FAMILY_GRAD, lo)),
				     DIMS(hi - lo));
		}
	}
}

void step_metrics(struct build *b)
{
	const struct slice *s = b->in->slice;
	const struct grid *g = b->in->grid;
	struct ref metrics = {offsetof(struct prog_scalars, metrics),
			      FAMILY_HOST};
	bool counts = s->at.tp == 0 && s->at.pp == g->pp - 1;
	struct op *op;

	emit(b, OP_METRICS, KIND_OPTIM, REFS(b->out->loss, b->out->coef),
	     DIMS(b->list->microbatches, counts));
	if (g->world == 1)
		return;
	op = &b->list->op[emit_comm(b, PROG_SUM, GROUP_WORLD, metrics, metrics,
				    METRICS)];
	op->host_f64 = true;
	op->bytes = 2 * METRICS * 8 * (g->world - 1) / g->world;
	emit_wait(b, b->list->count - 1);
}

/* Update elements LO .. HI of P; OWN is where LO lies in the moments. */
static void emit_update(struct build *b, const struct param *p, int64_t lo,
			int64_t hi, int64_t own)
{
	struct ref m = {b->out->m + own * (int64_t)b->out->elem, FAMILY_OPTIM};
	struct ref v = {b->out->v + own * (int64_t)b->out->elem, FAMILY_OPTIM};

	emit(b, OP_ADAMW, KIND_OPTIM,
	     REFS(flat(b, FAMILY_PARAM, lo), m, v, flat(b, FAMILY_GRAD, lo)),
	     DIMS(hi - lo))
		->flag = p->decay;
}

static void emit_updates(struct build *b)
{
	const struct slice *s = b->in->slice;
	int64_t lo, hi, own = 0;

	for (int k = 0; k < s->buckets.count; k++) {
		lo = s->buckets.list[k].first;
		hi = s->buckets.list[k].end;
		if (s->zero)
			bucket_shard(&s->buckets, k, s->d, s->dp, &lo, &hi);
		for (int i = s->params - 1; i >= 0; i--) {
			const struct param *p = &s->param[i];
			int64_t from = p->at > lo ? p->at : lo;
			int64_t to = p->at + p->rows * p->cols;

			to = to < hi ? to : hi;
			if (from < to)
				emit_update(b, p, from, to, own + from - lo);
		}
		own += hi - lo;
	}
}

void step_finish(struct build *b)
{
	b->mb = b->chunk = -1;
	b->layer = -1;
	sum_copies(b, GROUP_TP);
	sum_copies(b, GROUP_KV);
	sum_embedding(b);
	over_buckets(b, b->in->slice->zero ? PROG_REDUCE_SCATTER : PROG_SUM,
		     FAMILY_GRAD);
	emit_sumsq(b);
	step_metrics(b);
	emit(b, OP_CLIP, KIND_OPTIM, NULL, 0, NULL, 0);
	emit_updates(b);
	if (b->in->slice->zero)
		over_buckets(b, PROG_ALL_GATHER, FAMILY_PARAM);
}
