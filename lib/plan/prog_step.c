/* SPDX-License-Identifier: Apache-2.0 */
/* From gradients to updated parameters: sums, norm, clip, AdamW. */
#include <stddef.h>

#include "lib/plan/hook.h"
#include "lib/plan/prog_build.h"

/* Where kern_scalars are. */
#define SCALARS ((struct ref){0, FAMILY_HOST})

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
 * Not all ranks of a group for k and v hold copies of the same, if layers
 * differ: each set of those that do has a slot of its own.
 */
static int slots_of(const struct slice *s, const struct param *p, int group,
		    int *mine)
{
	*mine = 0;
	if (group == GROUP_TP)
		return 1;
	*mine = s->at.tp % s->kv_ranks / p->kv_copies;
	return s->kv_ranks / p->kv_copies;
}

static int64_t packed_size(const struct slice *s, int group, bool *apart)
{
	int64_t total = 0, first;
	int mine;

	*apart = false;
	for (int i = 0; i < s->params; i++) {
		const struct param *p = &s->param[i];
		int64_t rows = summed_rows(p, group, &first);

		if (!rows)
			continue;
		total += rows * p->cols * slots_of(s, p, group, &mine);
		*apart |= slots_of(s, p, group, &mine) > 1;
	}
	return total;
}

/*
 * Sum small gradients over GROUP with one collective: copy them into one
 * buffer, sum, copy back.
 */
static void sum_copies(struct build *b, int group)
{
	const struct slice *s = b->in->slice;
	int64_t first, n, sum = (int64_t)b->out->sum;
	bool apart;
	int64_t total = packed_size(s, group, &apart);
	struct buf packed;

	if (!total)
		return;
	packed = buf_sums(b, FAMILY_COMM, total);
	if (apart)
		emit(b, OP_ZERO, KIND_COMM, REFS(buf_ref(&packed)),
		     DIMS(total * sum));
	for (int back = 0; back < 2; back++) {
		int64_t at = 0;

		for (int i = 0; i < s->params; i++) {
			const struct param *p = &s->param[i];
			struct ref grad, slot;
			int mine, slots;

			n = summed_rows(p, group, &first) * p->cols * sum;
			if (!n)
				continue;
			slots = slots_of(s, p, group, &mine);
			slot = buf_at(&packed, at + mine * n);
			grad = flat_ref(b, FAMILY_GRAD,
					p->at + first * p->cols);
			emit(b, OP_COPY, KIND_COMM,
			     REFS(back ? grad : slot, back ? slot : grad),
			     DIMS(n));
			at += slots * n;
		}
		if (!back)
			emit_collective(b, PROG_SUM, group, TYPE_SUM,
					buf_ref(&packed), buf_ref(&packed),
					total);
	}
	buf_free(b, &packed);
}

static void sum_embeddings(struct build *b)
{
	const struct slice *s = b->in->slice;

	for (int i = 0; i < s->params; i++) {
		const struct param *p = &s->param[i];
		struct ref grad = flat_ref(b, FAMILY_GRAD, p->at);

		if (p->sum_embedding || p->sum_positions)
			emit_collective(
				b, PROG_SUM,
				p->sum_positions ? GROUP_LOOKUP : GROUP_EMBED,
				TYPE_SUM, grad, grad, p->rows * p->cols);
	}
}

/* Gradients to their owners; parameters back to everyone. */
static void over_buckets(struct build *b, enum weight_class cls, int comm,
			 int family)
{
	const struct flat *f = &b->in->slice->flat[cls];
	int group = cls == CLASS_EXPERT ? GROUP_EDP : GROUP_DP_CP;
	int type = family == FAMILY_GRAD ? TYPE_SUM : TYPE_ELEM;
	int64_t first, end;

	for (int i = 0; i < f->buckets.count && f->dp > 1; i++) {
		const struct bucket *k = &f->buckets.list[i];
		struct ref all = flat_ref(b, family, k->first), own;

		bucket_shard(&f->buckets, i, f->d, f->dp, &first, &end);
		own = flat_ref(b, family, first);
		if (comm == PROG_SUM)
			emit_collective(b, comm, group, type, all, all,
					k->end - k->first);
		else if (comm == PROG_REDUCE_SCATTER)
			emit_collective(b, comm, group, type, all, own,
					end - first);
		else
			emit_collective(b, comm, group, type, own, all,
					end - first);
	}
}

/* Which norm the gradients of a weight of LAYER (-1: of none) belong to. */
static enum kern_grads grads_of(const struct build *b, int64_t layer)
{
	const struct config *c = b->in->config;

	return c->run.mtp_detach_heads && layer >= c->shape.num_layers
		       ? GRADS_MTP
		       : GRADS_MAIN;
}

static bool freezes(const struct build *b, const struct weight *w)
{
	return hook_freezes(&b->in->config->spec, w->name);
}

/*
 * Squares of this rank's share of what counts.  The shares are the same with
 * and without ZeRO-1, so the norm has the same bits.
 */
static void emit_sumsq(struct build *b)
{
	const struct slice *s = b->in->slice;
	struct ref acc = {.family = FAMILY_HOST};
	int64_t(*shard)[2], lo, hi;
	int shards = slice_shards(s, &shard, b->a);

	for (int i = 0; i < s->pieces; i++) {
		const struct piece *p = &s->piece[i];
		const struct weight *w = &b->in->weights->list[p->weight];
		int64_t end = p->at + box_elements(&p->box);
		int metric = METRIC_SUMSQ + (int)grads_of(b, w->layer);
		bool skip = p->replica || w->counts || freezes(b, w);

		acc.at =
			(int64_t)offsetof(struct kern_scalars, metrics[metric]);

		for (int k = 0; k < shards && !skip; k++) {
			lo = shard[k][0] < p->at ? p->at : shard[k][0];
			hi = shard[k][1] > end ? end : shard[k][1];
			if (lo < hi)
				emit(b, OP_SUMSQ, KIND_OPTIM,
				     REFS(acc, flat_ref(b, FAMILY_GRAD, lo)),
				     DIMS(hi - lo));
		}
	}
}

void step_metrics(struct build *b)
{
	const struct slice *s = b->in->slice;
	const struct grid *g = b->in->grid;
	struct ref metrics = {offsetof(struct kern_scalars, metrics),
			      FAMILY_HOST};
	bool counts = s->at.tp == 0 && s->at.pp == g->pp - 1;
	int depths = b->train ? b->out->depths : 0;

	emit(b, OP_METRICS, KIND_OPTIM,
	     REFS(SCALARS, b->out->loss, b->out->coef, b->out->share,
		  b->out->right),
	     DIMS(b->list->microbatches, depths, counts));
	if (g->world > 1)
		emit_collective(b, PROG_SUM, GROUP_WORLD, TYPE_F64, metrics,
				metrics, METRIC_MTP + depths * MTP_METRICS);
}

/* Element OWN of a part of the optimizer's state that begins at byte AT. */
static struct ref state_ref(const struct build *b, int64_t at, int64_t own)
{
	return at < 0 ? NO_REF
		      : (struct ref){at + own * (int64_t)b->out->sum,
				     FAMILY_OPTIM};
}

/* Update elements LO .. HI of P; OWN is where LO lies in the state. */
static void emit_update(struct build *b, const struct param *p, int64_t lo,
			int64_t hi, int64_t own)
{
	const struct prog *x = b->out;
	struct ref to = flat_ref(b, FAMILY_PARAM, lo);
	struct ref master = state_ref(b, x->master, own);
	struct ref grad = flat_ref(b, FAMILY_GRAD, lo);

	if (p->counts) {
		moe_balance(b, p->layer, to, master, grad, hi - lo);
		return;
	}
	emit(b, OP_ADAMW, KIND_OPTIM,
	     REFS(to, master, state_ref(b, x->m, own), state_ref(b, x->v, own),
		  grad),
	     DIMS(hi - lo, grads_of(b, p->layer)))
		->flag = p->decay;
}

/* The same for what of them is not frozen. */
static void emit_thawed(struct build *b, const struct param *p, int64_t lo,
			int64_t hi, int64_t own)
{
	const struct slice *s = b->in->slice;

	for (int i = 0; i < p->pieces; i++) {
		const struct piece *x = &s->piece[p->first_piece + i];
		int64_t end = x->at + box_elements(&x->box);

		if (x->at >= hi || end <= lo ||
		    !freezes(b, &b->in->weights->list[x->weight]))
			continue;
		if (lo < x->at)
			emit_update(b, p, lo, x->at, own);
		own += end - lo;
		lo = end;
	}
	if (lo < hi)
		emit_update(b, p, lo, hi, own);
}

/* What this rank updates of one class; its moments lie from OWN on. */
static int64_t emit_updates(struct build *b, enum weight_class cls, int64_t own)
{
	const struct slice *s = b->in->slice;
	const struct flat *f = &s->flat[cls];
	int64_t lo, hi;

	for (int k = 0; k < f->buckets.count; k++) {
		lo = f->buckets.list[k].first;
		hi = f->buckets.list[k].end;
		if (slice_shards_optim(s))
			bucket_shard(&f->buckets, k, f->d, f->dp, &lo, &hi);
		for (int i = s->params - 1; i >= 0; i--) {
			const struct param *p = &s->param[i];
			int64_t from = p->at > lo ? p->at : lo;
			int64_t to = p->at + p->rows * p->cols;

			to = to < hi ? to : hi;
			if (from < to)
				emit_thawed(b, p, from, to, own + from - lo);
		}
		own += hi - lo;
	}
	return own;
}

void step_finish(struct build *b)
{
	bool zero = slice_shards_optim(b->in->slice);
	int64_t own = 0;

	b->mb = b->chunk = -1;
	b->layer = -1;
	sum_copies(b, GROUP_TP);
	sum_copies(b, GROUP_KV);
	sum_embeddings(b);
	for (int cls = 0; cls < CLASSES; cls++)
		over_buckets(b, (enum weight_class)cls,
			     zero ? PROG_REDUCE_SCATTER : PROG_SUM,
			     FAMILY_GRAD);
	emit_sumsq(b);
	step_metrics(b);
	emit(b, OP_CLIP, KIND_OPTIM, REFS(SCALARS), NULL, 0);
	for (int cls = 0; cls < CLASSES; cls++)
		own = emit_updates(b, (enum weight_class)cls, own);
	for (int cls = 0; cls < CLASSES && zero; cls++)
		over_buckets(b, (enum weight_class)cls, PROG_ALL_GATHER,
			     FAMILY_PARAM);
}
