/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space of placements, best first: sizes in the order of a bound of
 * their time, each with the cuts of its pipeline, until the bound is above
 * what enough others take.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/place_rule.h"
#include "lib/plan/suggest_cut.h"
#include "lib/plan/suggest_rule.h"

/* One may be that much too high, the other too low. */
static const double margin = SUGGEST_CLOSE * SUGGEST_CLOSE;

/* Sizes, before the pipeline is cut. */
struct entry {
	struct placement place;
	double least; /* seconds, from below */
	double need;  /* bytes, from below */
};

/* The best time of a row. */
struct best {
	struct placement place;
	double step;
};

struct search {
	struct candidates *out;
	struct config c; /* the one that is looked at */
	const struct cluster *on;
	double room;
	struct machine machine;
	struct grid grid;
	struct estimator s;
	struct pipeline pipe;
	struct stages stages;
	struct stage_cost *cost;
	struct entry *entry;
	size_t entries, entry_cap;
	struct best *best;
	size_t bests, best_cap;
	double bar; /* time of the last row so far */
	bool served;
	int most; /* rows */
	struct arena *a;
};

/* PLACE's sizes into the config, and what follows from them. */
static void take_sizes(struct search *f, const struct placement *place)
{
	struct place *p = &f->c.place;
	struct err e;

	p->tensor_model_parallel_size = place->tp;
	p->context_parallel_size = place->cp;
	p->expert_model_parallel_size = place->ep;
	p->expert_tensor_parallel_size = place->etp;
	p->pipeline_model_parallel_size = place->pp;
	p->sequence_parallel = place->sp;
	f->c.run.micro_batch_size = place->micro;
	if (!grid_build(&f->grid, p, f->on->world, &e))
		machine_build(&f->machine, f->on, &f->grid);
}

/* Seconds of a micro-batch on all stages. */
static double whole_time(const struct estimator *s, int64_t mtp)
{
	const struct total *all = &s->before[s->layers];
	double t = all->time[0] + all->time[1] + s->embedding.time[0] +
		   s->embedding.time[1];

	return t + (double)(1 + mtp) * (s->head.time[0] + s->head.time[1]);
}

/* The most virtual stages of a rank. */
static int most_virtual(const struct search *f, int pp)
{
	int64_t most = pp > 1 ? f->c.shape.num_layers / pp : 1;

	return most < SUGGEST_VIRTUAL ? (int)most : SUGGEST_VIRTUAL;
}

/* Bytes of parameters, gradients and optimizer if all of it is shared out. */
static double least_state(struct search *f, int pp)
{
	const struct total *all = &f->s.before[f->s.layers];
	int64_t bytes[FAMILIES] = {0};
	double params[CLASSES], own;

	for (int i = 0; i < CLASSES; i++)
		params[i] = all->params[i] / pp;
	f->c.place.data_parallel_sharding_strategy = SHARD_OPTIM_GRADS_PARAMS;
	own = estimate_own(&f->c, &f->grid, params);
	estimate_state(&f->c, params[0] + params[1], own, bytes);
	return (double)(bytes[FAMILY_PARAM] + bytes[FAMILY_GRAD] +
			bytes[FAMILY_OPTIM]);
}

/* A pipeline for sizes whose works are added up in f->s. */
static void add_entry(struct search *f, const struct placement *place)
{
	int64_t m = f->c.run.global_batch_size / (place->micro * place->dp);
	double whole = whole_time(&f->s, f->c.shape.mtp_num_layers);
	int vp = most_virtual(f, place->pp);
	struct entry *x;

	if (vp < 1)
		return;
	vp = m % place->pp ? 1 : vp;
	f->entry = arena_grow(f->a, f->entry, f->entries, &f->entry_cap,
			      sizeof(*f->entry));
	x = &f->entry[f->entries++];
	x->place = *place;
	x->least = (double)m * whole / place->pp +
		   whole * (place->pp - 1) / place->pp / vp;
	/* At least what enters each layer is kept. */
	x->need = least_state(f, place->pp) +
		  f->s.stream * (double)f->c.shape.num_layers / place->pp;
}

/* Every cut of the world into data and pipeline parallel ranks. */
static void add_pipelines(struct search *f, struct placement *place)
{
	int64_t rest = f->on->world / (place->tp * place->cp);
	int64_t batch = f->c.run.global_batch_size;
	int64_t experts = (int64_t)place->ep * place->etp;
	bool built = false;

	for (int pp = 1; pp <= rest && pp <= f->c.shape.num_layers; pp++) {
		if (rest % pp || f->on->world % (experts * pp) ||
		    batch % (rest / pp * place->micro))
			continue;
		place->pp = pp;
		place->dp = (int)(rest / pp);
		take_sizes(f, place);
		if (!built)
			estimator_build(&f->s, &f->c, &f->machine);
		built = true;
		add_entry(f, place);
	}
}

static void add_micros(struct search *f, struct placement *place)
{
	int64_t batch = f->c.run.global_batch_size;

	for (int64_t micro = 1; micro <= SUGGEST_MICRO && micro <= batch;
	     micro++) {
		if (batch % micro)
			continue;
		place->micro = micro;
		add_pipelines(f, place);
	}
}

/* Dealing out experts: whole ones, or each cut. */
static void add_experts(struct search *f, struct placement *place)
{
	const struct shape *s = &f->c.shape;
	int64_t experts = s->num_moe_experts;

	if (!experts) {
		place->ep = 1;
		place->etp = place->tp;
		add_micros(f, place);
		return;
	}
	for (int ep = 1; ep <= experts && ep <= f->on->world; ep++)
		for (int etp = 1; etp <= place->tp; etp++) {
			if (experts % ep || place->tp % etp ||
			    s->moe_ffn_hidden_size % etp ||
			    (etp > 1 && s->add_bias_linear))
				continue;
			if (ep > 1 && place->tp > 1 && !place->sp)
				continue; /* place-expert-sequence warns */
			place->ep = ep;
			place->etp = etp;
			add_micros(f, place);
		}
}

static void add_entries(struct search *f)
{
	const struct shape *s = &f->c.shape;
	int per = f->machine.per_node;

	for (int tp = 1; tp <= per && tp <= f->on->world; tp++)
		for (int cp = 1; cp <= (f->served ? 1 : f->on->world / tp);
		     cp++)
			for (int sp = 0; sp < (tp > 1 ? 2 : 1); sp++) {
				struct placement place = {
					.tp = tp, .cp = cp, .sp = sp};

				if (f->on->world % ((int64_t)tp * cp) ||
				    !place_tp_fits(s, tp) ||
				    (cp > 1 && s->seq_length % (2 * cp)) ||
				    (sp && s->seq_length / cp % tp))
					continue;
				add_experts(f, &place);
			}
}

/* Note that PLACE fits in STEP seconds; the bar follows. */
static void note(struct search *f, const struct placement *place, double step)
{
	double times[SUGGEST_ROWS] = {0};
	int n = 0;
	size_t i = 0;

	while (i < f->bests && !placement_alike(&f->best[i].place, place))
		i++;
	if (i == f->bests) {
		f->best = arena_grow(f->a, f->best, f->bests, &f->best_cap,
				     sizeof(*f->best));
		f->best[f->bests++] = (struct best){*place, step};
	}
	f->best[i].step = fmin(f->best[i].step, step);
	for (i = 0; i < f->bests; i++) {
		double t = f->best[i].step;
		int at = n < f->most ? n++ : n - 1;

		if (i >= (size_t)f->most && t >= times[at])
			continue;
		for (; at && times[at - 1] > t; at--)
			times[at] = times[at - 1];
		times[at] = t;
	}
	f->bar = n == f->most ? times[n - 1] : INFINITY;
}

/* Above this a placement like PLACE is of no interest. */
static double most_time(const struct search *f, const struct placement *place)
{
	double most = f->bar;

	for (size_t i = 0; i < f->bests; i++)
		if (placement_alike(&f->best[i].place, place))
			most = fmin(most, f->best[i].step);
	return most * margin;
}

static void set_again(struct search *f, struct placement *place, int again,
		      int64_t layers)
{
	struct place *p = &f->c.place;
	static const int granularity[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE,
					  RECOMPUTE_FULL};

	place->again = again;
	place->layers = layers;
	p->recompute_granularity = granularity[again];
	p->recompute_method =
		again == AGAIN_LAYERS ? METHOD_BLOCK : METHOD_NONE;
	p->recompute_num_layers = layers;
}

/* Parameters of pipeline rank R. */
static void params_of(const struct search *f, int r, double params[CLASSES],
		      double *arrays)
{
	params[CLASS_DENSE] = params[CLASS_EXPERT] = *arrays = 0;
	for (int i = r; i < f->stages.count; i += f->stages.pp) {
		params[CLASS_DENSE] += f->cost[i].params[CLASS_DENSE];
		params[CLASS_EXPERT] += f->cost[i].params[CLASS_EXPERT];
		*arrays += f->cost[i].arrays;
	}
}

/*
 * Bytes of the rank that needs most, or, once something fits, of the first
 * that has no room.
 */
static double memory_of(const struct search *f)
{
	double most = 0, params[CLASSES], arrays;

	for (int r = 0; r < f->stages.pp; r++) {
		int64_t state[FAMILIES] = {0};
		double bytes;

		params_of(f, r, params, &arrays);
		estimate_state(&f->c, params[0] + params[1],
			       estimate_own(&f->c, &f->grid, params), state);
		bytes = (double)(state[FAMILY_PARAM] + state[FAMILY_GRAD] +
				 state[FAMILY_OPTIM]) +
			estimate_peak(&f->s, &f->pipe, f->cost, r) +
			estimate_buffers(&f->s) +
			(double)estimate_host(&f->s, f->pipe.m);
		most = fmax(most, bytes);
		if (most > f->room && f->out->count)
			break;
	}
	return most;
}

static double time_of(const struct search *f)
{
	double finish = 0, params[CLASSES], arrays;

	for (int r = 0; r < f->stages.pp; r++) {
		params_of(f, r, params, &arrays);
		finish = fmax(finish,
			      estimate_finish(&f->s, &f->grid, params, arrays));
	}
	return finish + estimate_pipeline(&f->pipe, f->cost);
}

static void cost_stages(struct search *f)
{
	for (int i = 0; i < f->stages.count; i++)
		estimator_stage(&f->s, &f->c.place, &f->stages.stage[i],
				&f->cost[i]);
}

/*
 * What PLACE, all of it set, takes and needs; kept if it is worth it.
 * Returns the bytes, 0 if others are better whether it fits or not.
 */
static double look(struct search *f, const struct placement *place)
{
	struct candidates *out = f->out;
	double step, memory;

	cost_stages(f);
	out->looked_at++;
	step = time_of(f);
	if (step > most_time(f, place))
		return 0;
	memory = memory_of(f);
	if (memory < out->nearest) {
		out->nearest = memory;
		out->least = *place;
	}
	if (memory > f->room)
		return memory;
	out->list = arena_grow(f->a, out->list, out->count, &out->cap,
			       sizeof(*out->list));
	out->list[out->count++] = (struct candidate){*place, step, memory};
	note(f, place, step);
	return memory;
}

/* Layers of the largest stage. */
static int64_t largest_stage(const struct stages *st)
{
	int64_t most = 0;

	for (int i = 0; i < st->count; i++)
		if (st->stage[i].num_layers > most)
			most = st->stage[i].num_layers;
	return most;
}

/* The fewest layers whose recompute makes it fit, and one more. */
static void look_layers(struct search *f, struct placement *place)
{
	int64_t lo = 0, most = largest_stage(&f->stages), hi = most;

	set_again(f, place, AGAIN_LAYERS, hi);
	if (look(f, place) > f->room)
		return;
	while (hi - lo > 1) {
		int64_t n = (lo + hi) / 2;

		set_again(f, place, AGAIN_LAYERS, n);
		*(look(f, place) > f->room ? &lo : &hi) = n;
	}
	if (hi + 1 >= most)
		return;
	set_again(f, place, AGAIN_LAYERS, hi + 1);
	look(f, place);
}

/* What fits by formula alone may not fit with all padding. */
static const double surely = 0.98;

static void look_again(struct search *f, struct placement *place)
{
	static const int sharding[] = {SHARD_OPTIM, SHARD_NONE,
				       SHARD_OPTIM_GRADS_PARAMS};
	bool alone = f->grid.dp * f->grid.cp == 1;

	for (int i = alone; i < (alone || f->served ? 2 : 3); i++) {
		place->sharding = sharding[i];
		f->c.place.data_parallel_sharding_strategy = sharding[i];
		set_again(f, place, AGAIN_NONE, UNSET);
		if (look(f, place) < surely * f->room || f->served)
			continue;
		set_again(f, place, AGAIN_MODULES, UNSET);
		look(f, place);
		look_layers(f, place);
	}
}

static void look_cuts(struct search *f, const struct entry *x)
{
	double whole = whole_time(&f->s, f->c.shape.mtp_num_layers);
	int pp = x->place.pp, most = most_virtual(f, pp);

	f->pipe = (struct pipeline){
		.pp = pp,
		.m = f->c.run.global_batch_size /
		     (x->place.micro * x->place.dp),
		.group = pp,
	};
	for (int vp = most; vp >= 1; vp--) {
		double bubble = whole * (pp - 1) / pp / vp;
		double least = (double)f->pipe.m * whole / pp + bubble;
		struct placement place = x->place;

		if ((vp > 1 && f->pipe.m % pp) || least > most_time(f, &place))
			continue;
		f->pipe.vp = place.vp = vp;
		for (int balanced = 0; balanced < 2; balanced++) {
			place.balanced = balanced;
			if (cut_stages(&f->stages, &f->s, pp, vp, balanced))
				look_again(f, &place);
		}
	}
}

static int by_time(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->least < y->least || x->least > y->least)
		return x->least < y->least ? -1 : 1;
	return memcmp(&x->place, &y->place, sizeof(x->place));
}

static int by_need(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->need < y->need || x->need > y->need)
		return x->need < y->need ? -1 : 1;
	return by_time(a, b);
}

static void open_search(struct search *f, struct candidates *out,
			const struct config *base, const struct cluster *on,
			struct arena *a)
{
	size_t most = (size_t)base->shape.num_layers + 1;
	static const char *const dense[] = {"layernorm", "mlp"};
	static const char *const moe[] = {"layernorm", "moe_act"};

	*out = (struct candidates){.nearest = INFINITY};
	*f = (struct search){
		.out = out,
		.c = *base,
		.on = on,
		.room = CLUSTER_SHARE * (double)on->gpu_memory,
		.bar = INFINITY,
		.a = a,
	};
	f->c.place.recompute_granularity = RECOMPUTE_SELECTIVE;
	f->c.place.recompute_modules =
		(struct texts){base->shape.num_moe_experts ? moe : dense, 2};
	f->machine.per_node =
		on->gpus_per_node ? (int)on->gpus_per_node : CLUSTER_PER_NODE;
	f->cost = arena_alloc(a, most, sizeof(*f->cost));
	f->stages.stage = arena_alloc(a, most, sizeof(*f->stages.stage));
	estimator_open(&f->s, &base->shape, a);
}

void candidates_find(struct candidates *out, const struct config *base,
		     const struct cluster *on, bool served, int most,
		     struct arena *a)
{
	/* Without one that fits, so many are looked at for the nearest. */
	enum { NEAREST = 256 };
	struct search *f = arena_alloc(a, 1, sizeof(*f));
	size_t looked = 0;

	open_search(f, out, base, on, a);
	f->served = served;
	f->most = most;
	add_entries(f);
	if (!f->entries)
		return;
	qsort(f->entry, f->entries, sizeof(*f->entry), by_time);
	for (size_t i = 0; i < f->entries; i++) {
		const struct entry *x = &f->entry[i];

		if (x->least > f->bar * margin)
			break;
		if (x->need > f->room)
			continue;
		f->c.place.recompute_granularity = RECOMPUTE_SELECTIVE;
		take_sizes(f, &x->place);
		estimator_build(&f->s, &f->c, &f->machine);
		look_cuts(f, x);
		looked++;
	}
	if (out->count || looked)
		return;
	qsort(f->entry, f->entries, sizeof(*f->entry), by_need);
	for (size_t i = 0; i < f->entries && i < NEAREST; i++) {
		f->c.place.recompute_granularity = RECOMPUTE_SELECTIVE;
		take_sizes(f, &f->entry[i].place);
		estimator_build(&f->s, &f->c, &f->machine);
		look_cuts(f, &f->entry[i]);
	}
}
