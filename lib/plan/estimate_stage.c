/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and ends added up, and cut into stages. */
#include <math.h>
#include <string.h>

#include "lib/plan/estimate_rule.h"
#include "lib/plan/place_rule.h"

static void total_add(struct total *sum, const struct total *x)
{
	for (int i = 0; i < 2; i++) {
		sum->flops[i] += x->flops[i];
		sum->time[i] += x->time[i];
		sum->params[i] += x->params[i];
	}
	sum->keep += x->keep;
	sum->again += x->again;
	sum->again_keep += x->again_keep;
	sum->arrays += x->arrays;
}

/* What lies between sums A and B. */
static struct total total_between(const struct total *a, const struct total *b)
{
	struct total x = *b;

	for (int i = 0; i < 2; i++) {
		x.flops[i] -= a->flops[i];
		x.time[i] -= a->time[i];
		x.params[i] -= a->params[i];
	}
	x.keep -= a->keep;
	x.again -= a->again;
	x.again_keep -= a->again_keep;
	x.arrays -= a->arrays;
	return x;
}

/* What stays of X's time beside the work before it, which took BEFORE. */
static double exposed(const struct work *x, double t, double before)
{
	if (!x->hidden)
		return t;
	return t > before ? t - before : 0;
}

static void add_flops(struct total *out, const struct work *x)
{
	if (x->at_once) {
		out->flops[0] += x->flops[0] + x->flops[1];
		return;
	}
	out->flops[0] += x->flops[0];
	out->flops[1] += x->flops[1];
}

/* Bytes that wait on the host. */
static double sent_away(const struct work *x, unsigned away)
{
	return (x->away_part & away ? x->part : 0) +
	       (x->away_rest & away ? x->keep - x->part : 0);
}

/* Add works up; MASK: the modules that are computed again. */
static void fold(struct total *out, const struct works *w,
		 const struct work_dims *d, const struct machine *m,
		 unsigned mask, double *grad)
{
	unsigned away = work_away(&d->config->place);
	double before[2] = {0}, t;

	memset(out, 0, sizeof(*out));
	*grad = 0;
	for (int i = 0; i < w->count; i++) {
		const struct work *x = &w->list[i];
		bool again = x->modules & mask;

		add_flops(out, x);
		for (int b = 0; b < 2; b++) {
			t = exposed(x, cost_work(m, x, d, b), before[b]);
			out->time[b] += t;
			before[b] = t;
			if (again && !b)
				out->again += t;
		}
		out->keep += x->keep - sent_away(x, away);
		out->again_keep +=
			again && !(x->away_part & away) ? x->part : 0;
		out->params[x->cls] += x->params;
		out->arrays += x->arrays;
		if (x->grad > *grad)
			*grad = x->grad;
	}
}

static void add_layers(struct estimator *s, unsigned mask)
{
	const struct shape *shape = &s->dims.config->shape;
	struct works w;
	struct total layer = {0};
	int64_t kind, last = 0;
	double grad = 0;

	for (int64_t n = 0; n < s->layers; n++) {
		kind = work_layer_kind(shape, n);
		if (!n || kind != last) {
			works_layer(&w, &s->dims, n);
			fold(&layer, &w, &s->dims, s->machine, mask, &grad);
		}
		last = kind;
		s->grad[n] = grad;
		s->before[n + 1] = s->before[n];
		total_add(&s->before[n + 1], &layer);
		for (int c = 0; c < CLASSES; c++)
			s->largest[c] = fmax(s->largest[c], layer.params[c]);
	}
}

void estimator_open(struct estimator *out, const struct shape *s,
		    struct arena *a)
{
	*out = (struct estimator){
		.layers = s->num_layers + (s->mtp_num_layers > 0),
	};
	out->before =
		arena_alloc(a, (size_t)out->layers + 1, sizeof(*out->before));
	out->grad = arena_alloc(a, (size_t)out->layers, sizeof(*out->grad));
}

void estimator_build(struct estimator *out, const struct config *c,
		     const struct machine *m)
{
	bool own = !c->shape.share_embeddings_and_output_weights;
	struct work_dims high;
	struct works w;
	double grad; /* a stage's end has its own rule */

	out->machine = m;
	memset(out->largest, 0, sizeof(out->largest));
	work_dims(&out->dims, c);
	out->stream = out->dims.rows * out->dims.C * out->dims.elem;
	add_layers(out, work_modules(&c->place));
	works_embedding(&w, &out->dims);
	fold(&out->embedding, &w, &out->dims, m, 0, &grad);
	high = out->dims;
	high.low &= c->spec.fp8_output_proj;
	works_head(&w, &high, own);
	fold(&out->head, &w, &high, m, 0, &grad);
}

static void stage_add(struct stage_cost *out, const struct total *x)
{
	for (int i = 0; i < 2; i++) {
		out->flops[i] += x->flops[i];
		out->time[i] += x->time[i];
		out->params[i] += x->params[i];
	}
	out->keep += x->keep;
	out->arrays += x->arrays;
}

/*
 * X, N layers of units of UNIT, of which only what enters each unit is kept;
 * one unit at a time comes back.
 */
static void compute_again(const struct estimator *s, const struct place *p,
			  struct stage_cost *out, struct total *x, int64_t n,
			  int64_t unit)
{
	double units = ceil((double)n / (double)unit);
	double entry =
		s->stream / (p->distribute_saved_activations ? s->dims.tp : 1);
	double all = x->keep / (double)n;

	if (!n)
		return;
	x->time[1] += x->time[0];
	x->keep = units * entry;
	out->extra[1] = fmax(out->extra[1], all * (double)unit - entry);
}

/* Activations of the first layers may wait on the host. */
static void offload(const struct place *p, struct total *x, int64_t n)
{
	int64_t away = p->cpu_offloading_num_layers;

	if (!p->cpu_offloading || !p->cpu_offloading_activations ||
	    !IS_SET(away) || !n)
		return;
	away = away < n ? away : n;
	/* Two layers are on their way. */
	x->keep -= x->keep / (double)n * (double)(away > 2 ? away - 2 : 0);
}

static void add_layers_of(const struct estimator *s, const struct place *p,
			  int64_t first, int64_t n, struct stage_cost *out)
{
	const struct total *b = &s->before[first];
	bool block = p->recompute_method == METHOD_BLOCK;
	int64_t unit = p->recompute_num_layers, again = 0;
	struct total x;

	if (p->recompute_granularity == RECOMPUTE_FULL)
		again = block && unit < n ? unit : n;
	x = total_between(b, b + again);
	compute_again(s, p, out, &x, again, block || unit > n ? 1 : unit);
	stage_add(out, &x);
	x = total_between(b + again, b + n);
	if (p->recompute_granularity == RECOMPUTE_SELECTIVE && n) {
		x.keep -= x.again_keep;
		x.time[1] += x.again;
		out->extra[1] = fmax(out->extra[1], x.again_keep / (double)n);
	}
	offload(p, &x, n);
	stage_add(out, &x);
}

/* Logits of so many rows at a time, their sums, and the head's gradient. */
static double head_extra(const struct estimator *s)
{
	const struct work_dims *d = &s->dims;
	const struct config *c = d->config;
	int64_t row = place_padded_vocab(&c->place, c->shape.vocab_size) /
		      d->tp * (int64_t)d->elem;
	double rows = (double)prog_head_rows((int64_t)d->N, row,
					     c->spec.device == DEVICE_CUDA);

	return d->N * d->C * d->elem + rows * ((double)row + 3 * d->sum);
}

/* Layers of multi-token prediction, each with a head that others own. */
static void add_mtp(const struct estimator *s, const struct place *p,
		    int64_t depths, struct stage_cost *out)
{
	int64_t physical =
		s->dims.config->shape.mtp_use_repeated_layer ? 1 : depths;
	struct total head = s->head;

	head.params[CLASS_DENSE] = 0;
	for (int64_t n = 0; n < depths; n++) {
		struct stage_cost one = {
			.extra = {out->extra[0], out->extra[1]}};

		add_layers_of(s, p, s->layers - 1, 1, &one);
		if (n >= physical)
			memset(one.params, 0, sizeof(one.params));
		for (int i = 0; i < 2; i++) {
			out->flops[i] += one.flops[i];
			out->time[i] += one.time[i];
			out->params[i] += one.params[i];
			out->extra[i] = fmax(out->extra[i], one.extra[i]);
		}
		out->keep += one.keep;
		stage_add(out, &head);
	}
}

/*
 * Sharded parameters are gathered, and gradients scattered, meanwhile; the
 * collectives take this share of their time from the computation.
 */
static const double contention = 0.2;

static void add_sharded(const struct estimator *s, const struct place *p,
			struct stage_cost *out)
{
	static const int groups[CLASSES] = {GROUP_DP_CP, GROUP_EDP};
	double gather = 0, scatter = 0;

	for (int i = 0; i < CLASSES; i++) {
		struct span span = s->machine->span[groups[i]];
		double share = out->params[i] / span.size;

		gather += cost_comm(s->machine, PROG_ALL_GATHER, span,
				    share * s->dims.elem);
		scatter += cost_comm(s->machine, PROG_REDUCE_SCATTER, span,
				     share * s->dims.sum);
	}
	if (p->data_parallel_sharding_strategy < SHARD_OPTIM_GRADS_PARAMS)
		gather = 0;
	out->time[0] = fmax(out->time[0] + contention * gather, gather);
	out->time[1] = fmax(out->time[1] + contention * (gather + scatter),
			    gather + scatter);
}

/*
 * A stage waits for what it receives: the transfer begins when it asks for
 * it.
 */
static void add_messages(const struct estimator *s, const struct stage *st,
			 struct stage_cost *out)
{
	double t = cost_comm(s->machine, PROG_SEND, s->machine->span[GROUP_PP],
			     s->stream);

	if (st->pp || st->vp)
		out->time[0] += t;
	if (!st->loss)
		out->time[1] += t;
}

void estimator_stage(const struct estimator *s, const struct place *p,
		     const struct stage *st, struct stage_cost *out)
{
	double all = s->dims.N * s->dims.C * s->dims.elem, grad = 0;

	memset(out, 0, sizeof(*out));
	add_layers_of(s, p, st->first_layer, st->num_layers, out);
	for (int64_t n = 0; n < st->num_layers; n++)
		grad = fmax(grad, s->grad[st->first_layer + n]);
	out->extra[1] += s->stream + grad;
	out->extra[0] = s->stream + (s->dims.sp && st->embedding ? all : 0);
	if (st->num_layers)
		out->extra[0] =
			fmax(2 * s->stream, all + (s->dims.sp ? s->stream : 0));
	if (st->embedding)
		stage_add(out, &s->embedding);
	if (st->mtp_layers)
		add_mtp(s, p, st->mtp_layers, out);
	if (st->output_head)
		stage_add(out, &s->head);
	if (st->output_head || st->mtp_layers)
		out->extra[0] = fmax(out->extra[0], head_extra(s));
	if (p->data_parallel_sharding_strategy > SHARD_OPTIM)
		add_sharded(s, p, out);
	add_messages(s, st, out);
}
