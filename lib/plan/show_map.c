/* SPDX-License-Identifier: Apache-2.0 */
/* The upper panel: layers from left to right, a row for each pipeline rank. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/plan/show_draw.h"

enum { ENDS_WIDTH = 122, ENDS_GAP = 6 };

/* Where layer N begins. */
static double layer_x(const struct draw *d, int64_t n)
{
	double left = PLOT_LEFT + ENDS_WIDTH + ENDS_GAP;
	double right = PLOT_RIGHT - ENDS_WIDTH - ENDS_GAP;

	return left + (right - left) * (double)n /
			      (double)d->show->sum->config->shape.num_layers;
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
	if (st->final_norm || st->output_head || st->mtp_layers) {
		struct stage end = *st;
		const char *label[] = {"", "head", ""};

		end.embedding = false;
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

void draw_map(const struct draw *d, double top)
{
	const struct sum *x = d->show->sum;
	double rows = top + MAP_HEAD;

	draw_bold(d, PAGE_EDGE, top + 14, 15, "Layers of each rank");
	draw_text(d, PLOT_RIGHT, top + 14, 12, "end", FAINT, row_text(d));
	draw_text(d, PAGE_WIDTH - PAGE_EDGE, top + 46, 10, "end", FAINT,
		  "bytes a rank");
	put_scale(d, rows - 12);
	for (int pp = 0; pp < x->grid.pp; pp++) {
		double y = rows + pp * d->row, size = draw_row_text(d);

		draw_row_label(d, rows, pp);
		draw_rect(d, PLOT_LEFT, y + 1, PLOT_RIGHT - PLOT_LEFT,
			  d->row - 2, "#f1f5f9");
		if (x->planned && size > 0)
			draw_text(d, PAGE_WIDTH - PAGE_EDGE,
				  y + d->row / 2 + size * 0.34, size, "end",
				  INK, word_bytes(sum_bytes(&x->rank[pp])).s);
	}
	for (int i = 0; i < x->stages.count; i++)
		put_stage(d, rows, &x->stages.stage[i]);
}
