/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/gpu.h"
#include "lib/plan/suggest_cut.h"
#include "lib/plan/suggest_rule.h"

static int by_step(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->step < y->step || x->step > y->step)
		return x->step < y->step ? -1 : 1;
	if (x->memory < y->memory || x->memory > y->memory)
		return x->memory < y->memory ? -1 : 1;
	return 0;
}

/* The settings that every placement has of its own, at one rank. */
static struct config *one_rank(const struct config *loaded, struct arena *a,
			       struct err *e)
{
	static const struct placement alone = {1, 1, 1, 1, 1, 1, 1, .micro = 1};
	struct config *c = arena_alloc(a, 1, sizeof(*c));
	struct report r = {.arena = a};
	const char *set[SUGGEST_SETS];

	if (!IS_SET(loaded->run.global_batch_size)) {
		err_set(e, CODE_CONFIG,
			"run.global_batch_size is not given: every placement "
			"shares it out (--set run.global_batch_size=N)");
		return NULL;
	}
	placement_config(c, loaded, set, placement_sets(&alone, loaded, set, a),
			 1, &r);
	for (size_t i = 0; i < r.count; i++)
		if (r.list[i].severity == ERROR &&
		    strncmp(r.list[i].path, "place.", 6)) {
			err_set(e, CODE_CONFIG,
				"no placement makes it valid: %s: %s",
				r.list[i].path, r.list[i].message);
			return NULL;
		}
	if (!shape_is_complete(&c->shape)) {
		err_set(e, CODE_CONFIG,
			"the vocabulary is not known, and embedding and head "
			"take memory and time: --vocab-size N");
		return NULL;
	}
	return c;
}

/*
 * The numbers of C, which is valid, into ROW; false if it takes MOST seconds
 * or more, or is too big.
 */
static bool measure(struct suggestion *row, const struct config *c,
		    const struct cluster *on, double most, struct arena *a)
{
	int64_t family[FAMILIES];
	struct estimate t;
	struct err e;
	int pp;

	if (estimate_build(&t, c, on, a, &e))
		return false;
	row->step = t.step;
	row->bubble = t.bubble;
	row->tokens_per_second = t.tokens_per_second;
	row->flops_share = t.flops_share;
	if (row->step >= most)
		return false;
	row->memory = cluster_memory(on, c, family, &pp, &row->planned, &e);
	return row->memory >= 0 &&
	       (double)row->memory <= CLUSTER_SHARE * (double)on->gpu_memory;
}

/* The layout of a balanced cut, which only its estimator knows. */
static void add_layout(struct placement *p, const struct config *base,
		       const struct cluster *on, struct arena *a)
{
	struct config *c = arena_alloc(a, 1, sizeof(*c));
	struct stages st = {.stage = arena_alloc(a, (size_t)(p->pp * p->vp),
						 sizeof(*st.stage))};
	struct estimator s;
	struct machine m;
	struct grid g;
	struct err e;

	*c = *base;
	c->place.tensor_model_parallel_size = p->tp;
	c->place.context_parallel_size = p->cp;
	c->place.expert_model_parallel_size = p->ep;
	c->place.expert_tensor_parallel_size = p->etp;
	c->place.pipeline_model_parallel_size = p->pp;
	c->place.sequence_parallel = p->sp;
	c->run.micro_batch_size = p->micro;
	if (!p->balanced || grid_build(&g, &c->place, on->world, &e))
		return;
	machine_build(&m, on, &g);
	estimator_open(&s, &c->shape, a);
	estimator_build(&s, c, &m);
	cut_stages(&st, &s, p->pp, p->vp, true);
	p->layout = cut_layout_text(&st, a);
}

/* Rows that are being chosen. */
struct rows {
	struct suggestion *list;
	int count, most;
};

/* Its place among the rows: that of one alike, or behind the last. */
static int row_of(const struct rows *rows, const struct placement *p)
{
	int at = 0;

	while (at < rows->count && !placement_alike(&rows->list[at].place, p))
		at++;
	return at;
}

/* What a row at AT has to be faster than. */
static double most_seconds(const struct rows *rows, int at)
{
	if (at < rows->count)
		return rows->list[at].step;
	return rows->count < rows->most ? INFINITY
					: rows->list[rows->most - 1].step;
}

/* X as a row, if it passes every check and really fits. */
static void try_row(struct suggest *out, struct rows *rows,
		    const struct candidate *x, const struct config *base,
		    struct arena *a)
{
	struct suggestion row = {.place = x->place};
	int at = row_of(rows, &x->place);
	struct arena scratch = {0};
	struct report r = {.arena = &scratch};
	struct config *c;
	struct err e;

	if (at < rows->count && rows->list[at].step * SUGGEST_CLOSE <= x->step)
		return;
	if (arena_open(&scratch, &e))
		arena_exhausted();
	add_layout(&row.place, base, &out->on, a);
	row.sets = placement_sets(&row.place, out->loaded, row.set, a);
	c = arena_alloc(&scratch, 1, sizeof(*c));
	placement_config(c, out->loaded, row.set, row.sets, out->on.world, &r);
	if (report_count(&r, ERROR)) {
		for (size_t i = 0; i < r.count && !out->refused; i++)
			if (r.list[i].severity == ERROR)
				out->refused =
					arena_strdup(a, r.list[i].message);
	} else if (measure(&row, c, &out->on, most_seconds(rows, at),
			   &scratch)) {
		rows->list[at] = row;
		rows->count += at == rows->count;
	}
	arena_close(&scratch);
}

static int by_row(const void *a, const void *b)
{
	const struct suggestion *x = a, *y = b;

	if (x->step < y->step || x->step > y->step)
		return x->step < y->step ? -1 : 1;
	return x->memory < y->memory ? -1 : x->memory > y->memory;
}

static void sort_rows(struct rows *rows)
{
	qsort(rows->list, (size_t)rows->count, sizeof(*rows->list), by_row);
}

/* Candidates in order, until no other can be among the rows. */
static void choose_rows(struct suggest *out, struct rows *rows,
			struct candidates *all, const struct config *base,
			struct arena *a)
{
	rows->list = arena_alloc(a, all->count + 1, sizeof(*rows->list));
	if (all->count)
		qsort(all->list, all->count, sizeof(*all->list), by_step);
	for (size_t i = 0; i < all->count; i++) {
		if (rows->count >= rows->most) {
			sort_rows(rows);
			if (all->list[i].step >
			    SUGGEST_CLOSE * rows->list[rows->most - 1].step)
				break;
		}
		try_row(out, rows, &all->list[i], base, a);
	}
	sort_rows(rows);
	if (rows->count > rows->most)
		rows->count = rows->most;
}

/* Whether train-worker can run BASE's model at all. */
static bool is_served(const struct config *base, struct arena *a)
{
	struct report r = {.arena = a};

	return !config_unserved(base, &r);
}

/* What train-worker runs, behind the best if it is not among them. */
static void add_served(struct suggest *out, const struct config *base,
		       struct arena *a)
{
	struct rows rows = {.most = SUGGEST_SERVED};
	struct candidates all;

	if (!is_served(base, a))
		return;
	candidates_find(&all, base, &out->on, true, rows.most, a);
	out->looked_at += all.looked_at;
	choose_rows(out, &rows, &all, base, a);
	for (int i = 0; i < rows.count; i++) {
		int same = 0;

		while (same < out->best &&
		       !(out->row[same].planned &&
			 placement_alike(&out->row[same].place,
					 &rows.list[i].place)))
			same++;
		if (same == out->best && rows.list[i].planned)
			out->row[out->rows++] = rows.list[i];
	}
}

static void search(struct suggest *out, const struct config *base,
		   struct arena *a)
{
	struct rows rows = {.most = SUGGEST_ROWS};
	struct candidates all;

	candidates_find(&all, base, &out->on, false, rows.most, a);
	choose_rows(out, &rows, &all, base, a);
	out->row = arena_alloc(a, SUGGEST_ROWS + SUGGEST_SERVED,
			       sizeof(*out->row));
	for (out->rows = 0; out->rows < rows.count; out->rows++)
		out->row[out->rows] = rows.list[out->rows];
	out->best = out->rows;
	out->looked_at = all.looked_at;
	if (all.nearest < INFINITY) {
		out->nearest = (int64_t)all.nearest;
		out->least = all.least;
	}
	if (out->rows)
		add_served(out, base, a);
}

/* What the input says by itself. */
static void judge_given(struct suggest *out, struct arena *a)
{
	struct config *c = arena_alloc(a, 1, sizeof(*c));
	struct report r = {.arena = a};
	struct grid g;
	struct err e;

	placement_config(c, out->loaded, NULL, 0, out->on.world, &r);
	if (!*out->hints || report_count(&r, ERROR) ||
	    grid_build(&g, &c->place, out->on.world, &e))
		return;
	out->has_given = true;
	out->given.place = (struct placement){
		.tp = g.tp,
		.pp = g.pp,
		.vp = g.vp,
		.cp = g.cp,
		.ep = g.ep,
		.etp = g.etp,
		.dp = g.dp,
		.sp = c->place.sequence_parallel,
		.micro = c->run.micro_batch_size,
		.again = c->place.recompute_granularity == RECOMPUTE_NONE
				 ? AGAIN_NONE
			 : c->place.recompute_granularity == RECOMPUTE_FULL
				 ? AGAIN_LAYERS
				 : AGAIN_MODULES,
		.layers = c->place.recompute_num_layers,
		.sharding = c->place.data_parallel_sharding_strategy,
	};
	out->given_fits = measure(&out->given, c, &out->on, INFINITY, a);
}

int suggest_build(struct suggest *out, const struct config *loaded,
		  const struct cluster *on, struct arena *a, struct err *e)
{
	struct config *base;

	*out = (struct suggest){.loaded = loaded, .on = *on};
	base = one_rank(loaded, a, e);
	if (!base)
		return -1;
	out->hints = placement_hints(loaded, a);
	search(out, base, a);
	judge_given(out, a);
	return 0;
}

int suggest_load(struct suggest *out, const char *file,
		 enum config_format format, const struct cluster *on,
		 const char *const *sets, int set_count, struct arena *a,
		 struct err *e)
{
	struct config *c = arena_alloc(a, 1, sizeof(*c));
	struct report r = {.arena = a};
	struct cluster full = *on;

	if (!full.world)
		return err_set(e, CODE_USAGE,
			       "--suggest needs --world, or --nodes with "
			       "--gpus-per-node");
	full.gpu = full.gpu ? full.gpu : gpu_find(NULL);
	if (!full.gpus_per_node)
		full.gpus_per_node = CLUSTER_PER_NODE;
	if (!full.gpu_memory)
		full.gpu_memory = full.gpu->memory;
	if (config_load_as(format, file, sets, set_count, a, c, &r, e))
		return -1;
	for (size_t i = 0; i < r.count; i++)
		if (r.list[i].severity == ERROR)
			return err_set(e, CODE_FINDINGS, "%s: %s: %s", file,
				       r.list[i].path, r.list[i].message);
	if (suggest_build(out, c, &full, a, e))
		return err_wrap(e, "%s: ", file);
	return 0;
}
