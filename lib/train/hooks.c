/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/hooks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/half.h"
#include "lib/base/log.h"
#include "lib/plan/hook.h"
#include "lib/train/init.h"

/* What the hooks of one phase are called on. */
struct wrap {
	struct trainer *t;
	const char *phase;
	char *params;
	size_t size; /* bytes of an element */
	int64_t (*shard)[2];
	int shards;
};

static const struct weight *weight_of(const struct wrap *w, int piece)
{
	return &w->t->plan.weights.list[w->t->plan.slice.piece[piece].weight];
}

static void draw(struct wrap *w, const struct hook *h)
{
	const struct slice *s = &w->t->plan.slice;
	struct init_how how = {
		.normal = h->kind == HOOK_INIT_STD,
		.value = h->value,
	};

	for (int i = 0; i < s->pieces; i++)
		if (hook_matches(h, weight_of(w, i)->name))
			init_piece(&s->piece[i], weight_of(w, i), &how,
				   (uint64_t)w->t->plan.config->run.seed,
				   w->size, w->params);
}

static double element(const struct wrap *w, int64_t i)
{
	const void *at = w->params + (size_t)i * w->size;

	if (w->size == sizeof(double))
		return *(const double *)at;
	if (w->size == sizeof(float))
		return *(const float *)at;
	return w->t->exec.dtype == DTYPE_BF16
		       ? bf16_widen(*(const uint16_t *)at)
		       : fp16_widen(*(const uint16_t *)at);
}

/* The squares of what of a piece this rank answers for. */
static double squares(const struct wrap *w, const struct piece *p)
{
	int64_t end = p->at + box_elements(&p->box);
	double sum = 0;

	for (int k = 0; k < w->shards && !p->replica; k++) {
		int64_t lo = w->shard[k][0] > p->at ? w->shard[k][0] : p->at;
		int64_t hi = w->shard[k][1] < end ? w->shard[k][1] : end;

		for (int64_t i = lo; i < hi; i++)
			sum += element(w, i) * element(w, i);
	}
	return sum;
}

/* Weights whose norms are gathered together. */
enum { LOG_BLOCK = 256 };

static void log_weight(const struct wrap *w, int i, double norm)
{
	const struct plan *p = &w->t->plan;
	const struct weight *x = &p->weights.list[i];
	char dims[48];

	if (x->ndim == 1)
		snprintf(dims, sizeof(dims), "%" PRId64, x->dim[0]);
	else
		snprintf(dims, sizeof(dims), "%" PRId64 " x %" PRId64,
			 x->dim[0], x->dim[1]);
	log_info("%s  %-32s  %-14s  norm %.6g%s", w->phase, x->name, dims, norm,
		 hook_freezes(&p->config->spec, x->name) ? "  frozen" : "");
}

/* Of the weights FIRST .. FIRST + N; ALL has room for every rank's block. */
static int log_block(struct wrap *w, const struct hook *h, int first, int n,
		     double *all, struct err *e)
{
	const struct plan *p = &w->t->plan;
	double mine[LOG_BLOCK] = {0};

	for (int i = 0; i < p->slice.pieces; i++) {
		int at = p->slice.piece[i].weight - first;

		if (at >= 0 && at < n && hook_matches(h, weight_of(w, i)->name))
			mine[at] += squares(w, &p->slice.piece[i]);
	}
	if (comm_gather(w->t->group[GROUP_WORLD], mine, sizeof(mine), all, e))
		return -1;
	for (int i = 0; i < n && p->rank == 0; i++) {
		double sum = 0;

		for (int r = 0; r < p->grid.world; r++)
			sum += all[r * LOG_BLOCK + i];
		if (hook_matches(h, p->weights.list[first + i].name))
			log_weight(w, first + i, sqrt(sum));
	}
	return 0;
}

static int log_parameters(struct wrap *w, const struct hook *h, struct err *e)
{
	int count = w->t->plan.weights.count, bad = 0;
	double *all =
		calloc((size_t)w->t->plan.grid.world * LOG_BLOCK, sizeof(*all));

	if (!all)
		return err_set(e, CODE_LAUNCH, "out of memory");
	for (int i = 0; i < count && !bad; i += LOG_BLOCK)
		bad = log_block(w, h, i,
				count - i < LOG_BLOCK ? count - i : LOG_BLOCK,
				all, e);
	free(all);
	return bad;
}

static void show_piece(const struct wrap *w, int piece, int chunk,
		       struct plugin_weight *out)
{
	const struct weight *x = weight_of(w, piece);
	const struct piece *p = &w->t->plan.slice.piece[piece];

	*out = (struct plugin_weight){
		.name = x->name,
		.dim = {x->dim[0], x->dim[1]},
		.off = {p->box.off[0], p->box.off[1]},
		.cnt = {p->box.cnt[0], p->box.cnt[1]},
		.chunk = chunk,
		.frozen = hook_freezes(&w->t->plan.config->spec, x->name),
		.data = w->params + (size_t)p->at * w->size,
		.size = w->size,
	};
}

/* A plugin's, on this rank's pieces, chunk by chunk as they lie. */
static int call_plugin(struct wrap *w, const struct hook *h, struct err *e)
{
	const struct plan *p = &w->t->plan;
	const struct slice *s = &p->slice;
	const struct plugin_hook *hook =
		plugins_hook(&w->t->plugins, h->text, e);
	struct plugin_model m = {.chunks = p->grid.vp};

	if (!hook)
		return -1;
	m.weight = calloc((size_t)s->pieces + 1, sizeof(*m.weight));
	if (!m.weight)
		return err_set(e, CODE_LAUNCH, "out of memory");
	for (int i = 0; i < s->params; i++) {
		const struct param *x = &s->param[i];

		for (int k = 0; k < x->pieces; k++)
			show_piece(w, x->first_piece + k, x->chunk,
				   &m.weight[m.weights++]);
	}
	if (hook->call(&m, h->pattern) != &m)
		err_set(e, CODE_FINDINGS,
			"it has failed, by not returning "
			"the model");
	else
		hook = NULL;
	free(m.weight);
	return hook ? -1 : 0;
}

static int call(struct wrap *w, const struct hook *h, struct err *e)
{
	switch (h->kind) {
	case HOOK_INIT_CONSTANT:
	case HOOK_INIT_STD: draw(w, h); return 0;
	case HOOK_LOG: return log_parameters(w, h, e);
	case HOOK_PLUGIN: return call_plugin(w, h, e);
	default: return 0; /* the plan has no updates of what is frozen */
	}
}

static int call_all(struct wrap *w, const struct texts *list, struct err *e)
{
	struct arena a;
	struct hook h;
	int bad = 0;

	if (!list->count)
		return 0;
	if (arena_open(&a, e))
		return -1;
	w->shards = slice_shards(&w->t->plan.slice, &w->shard, &a);
	for (int i = 0; i < list->count && !bad; i++) {
		bad = hook_parse(&h, list->item[i], e) || call(w, &h, e);
		if (bad)
			err_wrap(e, "%s hook '%.100s': ", w->phase,
				 list->item[i]);
	}
	arena_close(&a);
	return bad ? -1 : 0;
}

int hooks_pre_wrap(struct trainer *t, void *params, size_t size, struct err *e)
{
	struct wrap w = {
		.t = t, .phase = "pre-wrap", .params = params, .size = size};

	return call_all(&w, &t->plan.config->spec.pre_wrap_hooks, e);
}

int hooks_post_wrap(struct trainer *t, struct err *e)
{
	struct wrap w = {
		.t = t, .phase = "post-wrap", .size = t->plan.prog.elem};
	const struct texts *list = &t->plan.config->spec.post_wrap_hooks;
	struct err late;
	int bad;

	if (!list->count)
		return 0;
	w.params = exec_map(&t->exec, FAMILY_PARAM, true, e);
	if (!w.params)
		return -1;
	bad = call_all(&w, list, e);
	if (exec_unmap(&t->exec, FAMILY_PARAM, w.params, false,
		       bad ? &late : e))
		bad = -1;
	return bad;
}
