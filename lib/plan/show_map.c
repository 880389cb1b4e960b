/* SPDX-License-Identifier: Apache-2.0 */
/* The upper panel: layers from left to right, a row for each pipeline rank. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/plan/show_draw.h"

enum { ENDS_WIDTH = 122, ENDS_GAP = 6 };

/* Columns: decoder layers, then the depths of multi-token prediction. */
static int64_t columns(const struct draw *d)
{
	const struct shape *s = &d->show->sum->config->shape;

	return s->num_layers + s->mtp_num_layers;
}

/* Where column N begins. */
static double layer_x(const struct draw *d, int64_t n)
{
	double left = PLOT_LEFT + ENDS_WIDTH + ENDS_GAP;
	double right = PLOT_RIGHT - ENDS_WIDTH - ENDS_GAP;

	return left + (right - left) * (double)n / (double)columns(d);
}

/* From blue over green and yellow to red, as the data flows. */
static struct color row_color(const struct draw *d, int pp)
{
	int last = d->show->sum->grid.pp - 1;

	return draw_color(212 - 212.0 * pp / (last < 4 ? 4 : last), 0.72, 0.76);
}

/* A block with the longest of its labels that fits; "" is the end. */
static void put_block(const struct draw *d, double x, double y, double w,
		      int pp, const char *const *label)
{
	double size = draw_row_text(d);

	draw_rect(d, x + 0.5, y + 1, w - 1, d->row - 2, row_color(d, pp).s);
	if (size == 0)
		return;
	while (**label && draw_width(*label, size) > w - 6)
		label++;
	if (**label)
		draw_text(d, x + w / 2, y + d->row / 2 + size * 0.34, size,
			  "middle", INK, *label);
}

/* Depths of multi-token prediction, behind those of the stages before. */
static void put_mtp(const struct draw *d, double y, const struct stage *st)
{
	const struct stages *all = &d->show->sum->stages;
	int64_t n = d->show->sum->config->shape.num_layers;
	const char *depths;

	for (const struct stage *x = all->stage; x < st; x++)
		n += x->mtp_layers;
	depths = st->mtp_layers == 1
			 ? "mtp"
			 : arena_printf(d->show->a, "mtp \xc3\x97 %" PRId64,
					st->mtp_layers);
	put_block(d, layer_x(d, n), y,
		  layer_x(d, n + st->mtp_layers) - layer_x(d, n), st->pp,
		  (const char *const[]){depths, "m", ""});
}

static void put_stage(const struct draw *d, double top, const struct stage *st)
{
	struct arena *a = d->show->a;
	double y = top + st->pp * d->row;
	const char *layers;

	layers = arena_strdup(a, word_range(st->first_layer, st->num_layers).s);
	if (st->embedding)
		put_block(d, PLOT_LEFT, y, ENDS_WIDTH, st->pp,
			  (const char *const[]){"embedding", ""});
	if (st->num_layers) {
		double from = layer_x(d, st->first_layer);
		double to = layer_x(d, st->first_layer + st->num_layers);
		const char *label[] = {layers, layers, ""};

		if (d->show->sum->grid.vp > 1)
			label[0] = arena_printf(a, "%s  v%d", layers, st->vp);
		put_block(d, from, y, to - from, st->pp, label);
	}
	if (st->mtp_layers)
		put_mtp(d, y, st);
	if (st->final_norm || st->output_head) {
		struct stage end = *st;
		const char *label[] = {"", "head", ""};

		end.embedding = false;
		end.mtp_layers = 0;
		label[0] = text_roles(&end, a);
		put_block(d, PLOT_RIGHT - ENDS_WIDTH, y, ENDS_WIDTH, st->pp,
			  label);
	}
}

/* Numbers of layers above the rows, as many as have room. */
static void put_scale(const struct draw *d, double y)
{
	int64_t layers = d->show->sum->config->shape.num_layers, step = 1;
	double w = layer_x(d, 1) - layer_x(d, 0);

	for (int64_t n = layers; n < columns(d) && w >= 12; n++)
		draw_text(d, layer_x(d, n) + w / 2, y, 10, "middle", FAINT,
			  arena_printf(d->show->a, "m%" PRId64, n - layers));

	while (w * (double)step < 26)
		step *= step == 1 || step % 3 ? 2 : 5;
	for (int64_t n = 0; n < layers; n += step)
		draw_text(d, layer_x(d, n) + w / 2, y, 10, "middle", FAINT,
			  arena_printf(d->show->a, "%" PRId64, n));
}

/* Which ranks share a row. */
static const char *row_text(const struct draw *d)
{
	const struct grid *g = &d->show->sum->grid;
	struct arena *a = d->show->a;
	int n = g->world / g->pp;
	const char *text;

	if (n == 1)
		return "one rank a row";
	text = arena_printf(a, "%d ranks a row", n);
	if (g->tp > 1)
		text = arena_printf(a, "%s; tp %d cuts each layer", text,
				    g->tp);
	if (g->cp > 1)
		text = arena_printf(a, "%s; cp %d cuts the tokens", text,
				    g->cp);
	if (g->dp > 1)
		text = arena_printf(a, "%s; dp %d repeats it", text, g->dp);
	return text;
}

/* What layer N computes, as the spec calls it. */
static const char *kind_of(const struct draw *d, int64_t n)
{
	const struct config *c = d->show->sum->config;
	struct spec_row row = spec_layer(&c->spec, &c->shape, n);
	struct spec_row first = spec_layer(&c->spec, &c->shape, 0);
	struct spec_row last =
		spec_layer(&c->spec, &c->shape, c->shape.num_layers - 1);

	if (!strcmp(first.attention, row.attention) &&
	    !strcmp(last.attention, row.attention))
		return row.mlp;
	return arena_printf(d->show->a, "%s, %s", row.attention, row.mlp);
}

/* The different kinds in the order of the layers; at most KINDS_MAX. */
enum { KINDS_MAX = 6 };

static int kinds(const struct draw *d, const char *kind[KINDS_MAX])
{
	int count = 0, k;

	for (int64_t n = 0; n < d->show->sum->config->shape.num_layers; n++) {
		const char *text = kind_of(d, n);

		for (k = 0; k < count && strcmp(kind[k], text); k++)
			;
		if (k == count && count < KINDS_MAX)
			kind[count++] = text;
	}
	return count;
}

/* Layers of one kind need no band. */
static double kinds_height(const struct draw *d)
{
	const char *kind[KINDS_MAX];

	return kinds(d, kind) > 1 ? KINDS_HEIGHT : 0;
}

static struct color kind_color(int kind)
{
	return draw_color(215 + 55.0 * kind, 0.5, 0.84);
}

/* A band above the rows: runs of layers of one kind. */
static void put_kinds(const struct draw *d, double y)
{
	int64_t layers = d->show->sum->config->shape.num_layers, run;
	const char *kind[KINDS_MAX];
	int count = kinds(d, kind);
	double x = PLOT_RIGHT;

	if (count < 2)
		return;
	draw_text(d, PLOT_LEFT - 12, y + 12, 11, "end", FAINT, "kind");
	for (int k = count - 1; k >= 0; k--)
		x = draw_legend(d, x, y - 26, kind_color(k).s, kind[k]);
	for (int64_t n = 0; n < layers; n += run) {
		const char *text = kind_of(d, n);
		double from = layer_x(d, n);
		int k = 0;

		for (run = 1; n + run < layers; run++)
			if (strcmp(kind_of(d, n + run), text))
				break;
		while (k < count - 1 && strcmp(kind[k], text))
			k++;
		draw_rect(d, from + 0.5, y, layer_x(d, n + run) - from - 1, 16,
			  kind_color(k).s);
	}
}

/* The parameters of the model that lie on pipeline rank PP. */
static int64_t row_params(const struct sum *x, int pp)
{
	int64_t all = 0;

	for (int i = pp; i < x->stages.count; i += x->stages.pp)
		all += x->stage[i].parameters;
	return all;
}

double draw_map_height(const struct draw *d)
{
	return MAP_HEAD + kinds_height(d) + d->show->sum->grid.pp * d->row;
}

void draw_map(const struct draw *d, double top)
{
	const struct sum *x = d->show->sum;
	double rows = top + MAP_HEAD + kinds_height(d);

	put_kinds(d, top + MAP_HEAD - 4);
	draw_bold(d, PAGE_EDGE, top + 14, 15, "Layers of each rank");
	draw_text(d, PLOT_RIGHT, top + 14, 12, "end", FAINT, row_text(d));
	draw_text(d, PAGE_WIDTH - PAGE_EDGE, top + MAP_HEAD - 12, 10, "end",
		  FAINT, "parameters");
	put_scale(d, top + MAP_HEAD - 12);
	for (int pp = 0; pp < x->grid.pp; pp++) {
		double y = rows + pp * d->row, size = draw_row_text(d);

		draw_row_label(d, rows, pp);
		draw_rect(d, PLOT_LEFT, y + 1, PLOT_RIGHT - PLOT_LEFT,
			  d->row - 2, "#f1f5f9");
		if (size > 0 && x->counted)
			draw_text(d, PAGE_WIDTH - PAGE_EDGE,
				  y + d->row / 2 + size * 0.34, size, "end",
				  INK, word_flops((double)row_params(x, pp)).s);
	}
	for (int i = 0; i < x->stages.count; i++)
		put_stage(d, rows, &x->stages.stage[i]);
}
