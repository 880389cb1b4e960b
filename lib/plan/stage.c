/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/stage.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "lib/plan/layout.h"
#include "lib/plan/place.h"
#include "lib/plan/shape.h"
#include "lib/plan/stage_rule.h"

/* What the rules work on; COUNTS is filled by one of the three ways. */
struct cut {
	const struct place *p;
	struct report *r;
	int64_t layers, mtp, pp, vp;
	int64_t *counts, *mtps; /* per stage, in the order s = vp * PP + pp */
};

/* A setting of place: its path and its origin. */
#define AT(m) "place." #m, field_from(&place_group, c->p, &c->p->m)

static bool has_ends(const struct place *p)
{
	return IS_SET(p->num_layers_in_first_pipeline_stage) ||
	       IS_SET(p->num_layers_in_last_pipeline_stage);
}

static bool has_accounts(const struct place *p)
{
	return p->account_for_embedding_in_pipeline_split ||
	       p->account_for_loss_in_pipeline_split;
}

static int64_t value_or(int64_t n, int64_t otherwise)
{
	return IS_SET(n) ? n : otherwise;
}

#define ENDS_FMT                                        \
	"num_layers_in_first_pipeline_stage = %" PRId64 \
	" with num_layers_in_last_pipeline_stage = %" PRId64

/* More than one way of cutting unevenly at a time contradict each other. */
static int one_way(struct cut *c)
{
	const struct place *p = c->p;

	if (p->pipeline_model_parallel_layout &&
	    (has_ends(p) || has_accounts(p))) {
		report_add(c->r, "place-split-ways", ERROR,
			   AT(pipeline_model_parallel_layout),
			   "a layout places every layer, so "
			   "num_layers_in_first/last_pipeline_stage and "
			   "account_for_embedding/loss_in_pipeline_split must "
			   "not be given beside it");
		return -1;
	}
	if (has_ends(p) && has_accounts(p)) {
		report_add(c->r, "place-split-ways", ERROR,
			   AT(account_for_embedding_in_pipeline_split),
			   "num_layers_in_first/last_pipeline_stage and "
			   "account_for_embedding/loss_in_pipeline_split are "
			   "two ways of one uneven split; give one of them");
		return -1;
	}
	return 0;
}

/*
 * First and last stage of F and Z layers so that the middle ones are equal;
 * false if there is no such cut.
 */
static bool uneven_cut(int64_t layers, int64_t pp, int64_t vp, int64_t *f,
		       int64_t *z)
{
	int64_t units = layers / vp, middle = (units + pp - 1) / pp, rest;

	if (layers % vp || pp < 2)
		return false;
	rest = units - (pp - 2) * middle;
	if (rest < 2)
		rest = units - (pp - 2) * --middle;
	if (rest < 2 || (pp > 2 && middle < 1))
		return false;
	*f = rest / 2 * vp;
	*z = layers - *f - (pp - 2) * middle * vp;
	return true;
}

/* Ways out of layers that do not divide: other sizes, ends, accounting. */
static void suggest_split(struct cut *c)
{
	int64_t l = c->layers, pp = c->pp, f, z;

	for (int64_t n = pp - 1; n > 0; n--)
		if (l % (n * c->vp) == 0) {
			report_suggest(
				c->r, "pipeline_model_parallel_size = %" PRId64,
				n);
			break;
		}
	for (int64_t n = pp + 1; n <= l; n++)
		if (l % (n * c->vp) == 0) {
			report_suggest(
				c->r, "pipeline_model_parallel_size = %" PRId64,
				n);
			break;
		}
	if (uneven_cut(l, pp, c->vp, &f, &z))
		report_suggest(c->r, ENDS_FMT, f, z);
	if ((l + 2) % (pp * c->vp) == 0)
		report_suggest(c->r,
			       "account_for_embedding_in_pipeline_split = true "
			       "with account_for_loss_in_pipeline_split = "
			       "true");
	else if ((l + 1) % (pp * c->vp) == 0)
		report_suggest(c->r,
			       "account_for_loss_in_pipeline_split = true");
}

/* Interleaving needs a pipeline. */
static int virtual_wrong(struct cut *c)
{
	if (c->vp == 1 || c->pp > 1)
		return 0;
	report_add(c->r, "place-virtual", ERROR,
		   AT(virtual_pipeline_model_parallel_size),
		   "%" PRId64 " virtual stages a rank need a "
		   "pipeline_model_parallel_size above 1",
		   c->vp);
	report_suggest(c->r, "pipeline_model_parallel_size = 2");
	return -1;
}

/* Room for the counts, once the rules have bounded them by the layers. */
static void counts_new(struct cut *c)
{
	size_t stages = (size_t)(c->pp * c->vp);

	c->counts = arena_alloc(c->r->arena, stages, sizeof(*c->counts));
	c->mtps = arena_alloc(c->r->arena, stages, sizeof(*c->mtps));
}

/* Every chunk of rank R gets SHARE / VP layers. */
static void spread(struct cut *c, int64_t r, int64_t share)
{
	for (int64_t v = 0; v < c->vp; v++)
		c->counts[v * c->pp + r] = share / c->vp;
}

/* The equal split, with one slot each for embedding and loss if asked. */
static int cut_even(struct cut *c)
{
	int64_t e = c->p->account_for_embedding_in_pipeline_split;
	int64_t l = c->p->account_for_loss_in_pipeline_split;
	int64_t total = c->layers + e + l;
	const char *what = e && l ? " with embedding and loss"
			   : e	  ? " with the embedding"
			   : l	  ? " with the loss"
				  : "";

	if (total % c->pp) {
		report_add(c->r, "place-split", ERROR,
			   AT(pipeline_model_parallel_size),
			   "%" PRId64 " layer%s%s make %" PRId64
			   " slot%s, not a multiple of "
			   "pipeline_model_parallel_size %" PRId64,
			   c->layers, plural(c->layers), what, total,
			   plural(total), c->pp);
		suggest_split(c);
		return -1;
	}
	if (total / c->pp % c->vp) {
		report_add(c->r, "place-split-chunks", ERROR,
			   AT(virtual_pipeline_model_parallel_size),
			   "%" PRId64 " layer%s%s / pp %" PRId64 " = %" PRId64
			   " a rank, not a multiple of "
			   "virtual_pipeline_model_parallel_size %" PRId64,
			   c->layers, plural(c->layers), what, c->pp,
			   total / c->pp, c->vp);
		report_suggest_divisors(c->r,
					"virtual_pipeline_model_parallel_size",
					total / c->pp, c->vp);
		return -1;
	}
	counts_new(c);
	for (int64_t r = 0; r < c->pp; r++)
		spread(c, r, total / c->pp);
	c->counts[0] -= e;
	c->counts[c->pp * c->vp - 1] -= l;
	c->mtps[c->pp * c->vp - 1] = c->mtp;
	return 0;
}

/* Ways out of ends that do not fit. */
static void suggest_ends(struct cut *c)
{
	int64_t f, z;

	if (uneven_cut(c->layers, c->pp, c->vp, &f, &z))
		report_suggest(c->r, ENDS_FMT, f, z);
	if (c->layers % (c->pp * c->vp) == 0)
		report_suggest(c->r,
			       "no first and no last: %" PRId64
			       " layers a stage",
			       c->layers / c->pp);
}

/* A first and / or last stage of its own size, the middle ones equal. */
static int cut_ends(struct cut *c)
{
	const struct place *p = c->p;
	bool has_f = IS_SET(p->num_layers_in_first_pipeline_stage);
	bool has_z = IS_SET(p->num_layers_in_last_pipeline_stage);
	int64_t f = value_or(p->num_layers_in_first_pipeline_stage, 0);
	int64_t z = value_or(p->num_layers_in_last_pipeline_stage, 0);
	int64_t stages = c->pp - has_f - has_z, rest = c->layers - f - z;
	int64_t share = stages > 0 ? rest / stages : 0;

	if (stages < 0 || rest < 0 || !stages != !rest) {
		report_add(c->r, "place-split-ends", ERROR,
			   AT(num_layers_in_first_pipeline_stage),
			   "first %" PRId64 " and last %" PRId64
			   " of num_layers %" PRId64 " leave %" PRId64
			   " layer%s for %" PRId64 " middle stage%s of pp "
			   "%" PRId64,
			   f, z, c->layers, rest, plural(rest), stages,
			   plural(stages), c->pp);
		suggest_ends(c);
		return -1;
	}
	if (stages && rest % stages) {
		report_add(c->r, "place-split-middle", ERROR,
			   AT(pipeline_model_parallel_size),
			   "num_layers %" PRId64 " - first %" PRId64
			   " - last %" PRId64 " = %" PRId64
			   " layer%s, not a multiple of the %" PRId64
			   " middle stages",
			   c->layers, f, z, rest, plural(rest), stages);
		suggest_ends(c);
		return -1;
	}
	if (f % c->vp || z % c->vp || share % c->vp) {
		report_add(c->r, "place-split-chunks", ERROR,
			   AT(virtual_pipeline_model_parallel_size),
			   "stages of %" PRId64 " (first), %" PRId64
			   " (middle) and %" PRId64
			   " (last) layers are not all multiples of "
			   "virtual_pipeline_model_parallel_size %" PRId64,
			   f ? f : share, share, z ? z : share, c->vp);
		suggest_ends(c);
		return -1;
	}
	counts_new(c);
	for (int64_t r = 0; r < c->pp; r++)
		spread(c, r, share);
	if (has_f)
		spread(c, 0, f);
	if (has_z)
		spread(c, c->pp - 1, z);
	c->mtps[c->pp * c->vp - 1] = c->mtp;
	return 0;
}

/* How often LETTER stands in TEXT. */
static int64_t letters(const char *text, char letter)
{
	int64_t n = 0;

	for (; *text; text++)
		n += *text == letter;
	return n;
}

/* Embedding first, loss last, each once. */
static bool layout_ends_ok(const char **stage, int64_t count)
{
	const char *last = stage[count - 1];
	int64_t e = 0, l = 0;

	for (int64_t i = 0; i < count; i++) {
		e += letters(stage[i], 'E');
		l += letters(stage[i], 'L');
	}
	return e == 1 && l == 1 && stage[0][0] == 'E' && *last &&
	       last[strlen(last) - 1] == 'L';
}

/* MTP whole, in one stage, after every layer, not on pipeline rank 0. */
static bool layout_mtp_ok(const struct cut *c, const char **stage,
			  int64_t count)
{
	int64_t total = 0, holders = 0;
	bool seen = false;

	for (int64_t i = 0; i < count; i++) {
		c->mtps[i] = letters(stage[i], 'm');
		total += c->mtps[i];
		holders += c->mtps[i] > 0;
		if (c->mtps[i] &&
		    (i / c->pp != c->vp - 1 || (c->pp > 1 && i % c->pp == 0)))
			return false;
		for (const char *t = stage[i]; *t; t++) {
			seen |= *t == 'm';
			if (seen && *t == 't')
				return false;
		}
	}
	return total == c->mtp && holders <= 1;
}

static int layout_wrong(struct cut *c, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int layout_wrong(struct cut *c, const char *id, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report_add(c->r, id, ERROR, AT(pipeline_model_parallel_layout), "%s",
		   arena_vprintf(c->r->arena, fmt, ap));
	va_end(ap);
	return -1;
}

/* Pipelines nearest to the one that COUNT stages do not fill; 1 has none. */
static void suggest_ranks(struct cut *c, int64_t count)
{
	int64_t below = c->pp - 1, above = c->pp + 1;

	while (below > 1 && count % below)
		below--;
	while (above < count && count % above)
		above++;
	if (below > 1)
		report_suggest(c->r, "pipeline_model_parallel_size = %" PRId64,
			       below);
	if (above <= count)
		report_suggest(c->r, "pipeline_model_parallel_size = %" PRId64,
			       above);
}

/* The stages of a layout make whole chunks on every rank. */
static int layout_chunks(struct cut *c, const char *text, int count)
{
	if (count % c->pp) {
		layout_wrong(c, "place-layout-stages",
			     "layout '%.200s' has %d stage%s, not a multiple "
			     "of pipeline_model_parallel_size %" PRId64,
			     text, count, plural(count), c->pp);
		suggest_ranks(c, count);
		return -1;
	}
	if (IS_SET(c->vp) && c->vp != count / c->pp)
		return layout_wrong(c, "place-virtual-count",
				    "layout '%.200s' has %d stage%s / pp "
				    "%" PRId64 " = %" PRId64
				    " a rank, but virtual_pipeline_model_"
				    "parallel_size is %" PRId64,
				    text, count, plural(count), c->pp,
				    count / c->pp, c->vp);
	c->vp = count / c->pp;
	return virtual_wrong(c);
}

static int cut_layout(struct cut *c)
{
	const char *text = c->p->pipeline_model_parallel_layout, **stage;
	int64_t layers = 0;
	struct err e;
	int count, column, bad = 0;

	if (layout_expand(text, c->r->arena, &stage, &count, &column, &e)) {
		layout_wrong(c, "place-layout", "%s", e.text);
		report_mark(c->r, text, column);
		return -1;
	}
	if (layout_chunks(c, text, count))
		return -1;
	counts_new(c);
	for (int i = 0; i < count; i++)
		layers += c->counts[i] = letters(stage[i], 't');
	if (!layout_ends_ok(stage, count))
		bad = layout_wrong(c, "place-layout-ends",
				   "layout '%.200s' must begin with its only E "
				   "and end with its only L",
				   text);
	if (layers != c->layers)
		bad = layout_wrong(c, "place-layout-layers",
				   "layout '%.200s' has %" PRId64
				   " t, but num_layers is %" PRId64,
				   text, layers, c->layers);
	if (!layout_mtp_ok(c, stage, count))
		bad = layout_wrong(c, "place-layout-mtp",
				   "layout '%.200s' must have mtp_num_layers "
				   "%" PRId64 " m together in one stage, after "
				   "every t, in the last chunk of a pipeline "
				   "rank that is not the first",
				   text, c->mtp);
	return bad;
}

/* Counts become stages: offsets are prefix sums, whatever gave the counts. */
static void fill(struct cut *c, struct stages *out)
{
	int64_t count = c->pp * c->vp, first = 0;

	*out = (struct stages){
		.count = (int)count, .pp = (int)c->pp, .vp = (int)c->vp};
	out->stage =
		arena_alloc(c->r->arena, (size_t)count, sizeof(*out->stage));
	for (int64_t i = 0; i < count; i++) {
		int64_t n = c->counts[i];
		bool last = i == count - 1, end = n && first + n == c->layers;

		assert(n >= 0);
		out->stage[i] = (struct stage){
			.pp = (int)(i % c->pp),
			.vp = (int)(i / c->pp),
			.first_layer = first,
			.num_layers = n,
			.embedding = i == 0 || c->mtps[i],
			.final_norm = c->mtp ? end : last,
			.output_head = last,
			.loss = last,
			.mtp_layers = c->mtps[i],
		};
		first += n;
	}
	assert(first == c->layers);
}

int stages_place(struct stages *out, const struct place *p,
		 const struct shape *s, struct report *r)
{
	struct cut
		cut =
			{
				.p = p,
				.r = r,
				.layers = s->num_layers,
				.mtp = s->mtp_num_layers,
				.pp = p->pipeline_model_parallel_size,
				.vp = p->virtual_pipeline_model_parallel_size,
			},
		*c = &cut;
	int bad;

	if (one_way(c))
		return -1;
	if (p->pipeline_model_parallel_layout) {
		bad = cut_layout(c);
	} else {
		c->vp = IS_SET(c->vp) ? c->vp : 1;
		bad = virtual_wrong(c) ||
		      (has_ends(p) ? cut_ends(c) : cut_even(c));
	}
	if (bad)
		return -1;
	fill(c, out);
	return 0;
}

int stages_build(struct stages *out, const struct place *p,
		 const struct shape *s, struct arena *a, struct err *e)
{
	struct report r = {.arena = a};

	if (!IS_SET(s->num_layers))
		return err_set(e, CODE_CONFIG, "num_layers is not given");
	if (stages_place(out, p, s, &r))
		return err_set(e, CODE_CONFIG, "%s", r.list[0].message);
	return 0;
}

bool stages_embedding(const struct stages *st, bool tied, int pp)
{
	for (int i = pp; i < st->count; i += st->pp)
		if (st->stage[i].embedding ||
		    (tied && st->stage[i].output_head))
			return true;
	return false;
}

int stages_embeddings(const struct stages *st, bool tied)
{
	int n = 0;

	for (int pp = 0; pp < st->pp; pp++)
		n += stages_embedding(st, tied, pp);
	return n;
}
