/* SPDX-License-Identifier: Apache-2.0 */
/* The panel of the rank grids: the ranks of pipeline rank 0, axis by axis. */
#include <inttypes.h>
#include <math.h>

#include "lib/plan/show_draw.h"

enum { GRID_HEAD = 30, GRID_ROW = 22, GRID_GAP = 10, GRID_MAX = 64 };

/* One axis: a strip on which each run of ranks with one coordinate is a box. */
struct strip {
	const char *name, *what;
	int size;
	int at; /* of the coordinate in struct coord, in bytes */
	double hue;
	bool expert; /* an axis of the experts' grid */
};

enum { GRID_AXES = 6 };

static int strips(const struct draw *d, struct strip out[GRID_AXES])
{
	const struct grid *g = &d->show->sum->grid;
	const struct strip all[GRID_AXES] = {
#define STRIP(axis, text, hue, expert) \
	{#axis, text, g->axis, (int)offsetof(struct coord, axis), hue, expert}
		STRIP(tp, "cuts layers", 215, false),
		STRIP(cp, "cuts tokens", 175, false),
		STRIP(dp, "repeats them", 95, false),
		STRIP(etp, "cuts experts", 265, true),
		STRIP(ep, "deals experts", 320, true),
		STRIP(edp, "repeats experts", 35, true),
#undef STRIP
	};
	int n = 0;

	if (g->world == g->pp)
		return 0;
	for (int i = 0; i < GRID_AXES; i++)
		if (all[i].size > 1 &&
		    (!all[i].expert ||
		     d->show->sum->config->shape.num_moe_experts))
			out[n++] = all[i];
	return n;
}

static int coordinate(const struct grid *g, int rank, const struct strip *s)
{
	struct coord c = grid_coord(g, rank);

	return *(const int *)((const char *)&c + s->at);
}

/* Ranks of pipeline rank 0, at most GRID_MAX of them. */
static int first_ranks(const struct grid *g, int ranks[GRID_MAX])
{
	int n = 0;

	for (int r = 0; r < g->world && n < GRID_MAX; r++)
		if (grid_coord(g, r).pp == 0)
			ranks[n++] = r;
	return n;
}

/* The coordinate, and which experts it means where there is room for them. */
static const char *box_text(const struct draw *d, const struct strip *s, int at,
			    double width)
{
	int64_t experts = d->show->sum->config->shape.num_moe_experts / s->size;
	const char *text;

	if (s->at == (int)offsetof(struct coord, ep)) {
		text = arena_printf(d->show->a, "%d: experts %s", at,
				    word_range(at * experts, experts).s);
		if (draw_width(text, 11) < width - 4)
			return text;
	}
	text = arena_printf(d->show->a, "%d", at);
	return draw_width(text, 11) < width - 2 ? text : "";
}

static void put_strip(const struct draw *d, double y, const struct strip *s,
		      const int *ranks, int n)
{
	const struct grid *g = &d->show->sum->grid;
	double w = (double)(PLOT_RIGHT - PLOT_LEFT) / n;

	draw_bold(d, PAGE_EDGE, y + 15, 12, s->name);
	draw_text(d, PLOT_LEFT - 12, y + 15, 11, "end", FAINT, s->what);
	for (int i = 0, run; i < n; i += run) {
		int at = coordinate(g, ranks[i], s);
		double light = 0.86 - 0.24 * at / fmax(1, s->size - 1);

		for (run = 1; i + run < n; run++)
			if (coordinate(g, ranks[i + run], s) != at)
				break;
		draw_rect(d, PLOT_LEFT + i * w + 0.5, y + 1, run * w - 1,
			  GRID_ROW - 2, draw_color(s->hue, 0.7, light).s);
		draw_text(d, PLOT_LEFT + (i + run / 2.0) * w, y + 15, 11,
			  "middle", INK, box_text(d, s, at, run * w));
	}
}

static void put_ranks(const struct draw *d, double y, const int *ranks, int n)
{
	double w = (double)(PLOT_RIGHT - PLOT_LEFT) / n;
	const char *last = arena_printf(d->show->a, "%d", ranks[n - 1]);
	int step = 1;

	while (step * w < draw_width(last, 10) + 4)
		step *= 2;
	draw_text(d, PLOT_LEFT - 12, y + 14, 11, "end", FAINT, "rank");
	for (int i = 0; i < n; i += step)
		draw_text(d, PLOT_LEFT + (i + 0.5) * w, y + 14, 10, "middle",
			  FAINT, arena_printf(d->show->a, "%d", ranks[i]));
}

double draw_grid_height(const struct draw *d)
{
	struct strip s[GRID_AXES];
	int n = strips(d, s);

	return n ? GRID_HEAD + GRID_ROW * (n + 1) + GRID_GAP : 0;
}

void draw_grid(const struct draw *d, double top)
{
	const struct grid *g = &d->show->sum->grid;
	struct strip s[GRID_AXES];
	int ranks[GRID_MAX], n = strips(d, s), shown = first_ranks(g, ranks);
	int all = g->world / g->pp;
	double y = top + GRID_HEAD;

	if (!n)
		return;
	draw_bold(d, PAGE_EDGE, top + 14, 15, "The grids of pp 0");
	draw_text(d, PLOT_RIGHT, top + 14, 12, "end", FAINT,
		  shown < all
			  ? arena_printf(d->show->a, "the first %d of %d ranks",
					 shown, all)
			  : "the coordinates of each rank");
	put_ranks(d, y, ranks, shown);
	for (int i = 0; i < n; i++) {
		y += GRID_ROW;
		if (i && s[i].expert && !s[i - 1].expert)
			y += GRID_GAP;
		put_strip(d, y, &s[i], ranks, shown);
	}
}
