/* SPDX-License-Identifier: Apache-2.0 */
/* The panel of memory: a bar for each pipeline rank, by family. */
#include <math.h>

#include "lib/plan/show_draw.h"

static const char *const fill[FAMILIES] = {
	[FAMILY_PARAM] = "#60a5fa", [FAMILY_GRAD] = "#34d399",
	[FAMILY_OPTIM] = "#a78bfa", [FAMILY_ACT] = "#fbbf24",
	[FAMILY_COMM] = "#f472b6",  [FAMILY_HOST] = "#94a3b8",
};

enum { MEMORY_HEAD = 40, MEMORY_AXIS = 20 };

/* The bytes of the whole width. */
static double full(const struct draw *d)
{
	double most = (double)d->show->cluster->gpu_memory;

	for (int pp = 0; pp < d->show->sum->grid.pp; pp++)
		most = fmax(most, (double)show_all_bytes(d->show, pp));
	return fmax(most, 1);
}

static double bytes_x(const struct draw *d, double bytes)
{
	return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * bytes / full(d);
}

static void put_bar(const struct draw *d, double rows, int pp)
{
	double y = rows + pp * d->row, size = draw_row_text(d), from = 0;
	int64_t all = show_all_bytes(d->show, pp),
		gpu = d->show->cluster->gpu_memory;

	draw_row_label(d, rows, pp);
	draw_rect(d, PLOT_LEFT, y + 1, PLOT_RIGHT - PLOT_LEFT, d->row - 2,
		  "#f1f5f9");
	for (int k = 0; k < FAMILIES; k++) {
		double x = bytes_x(d, from);

		from += (double)show_bytes(d->show, pp, k);
		if (bytes_x(d, from) - x >= 0.25)
			draw_rect(d, x, y + 1, bytes_x(d, from) - x, d->row - 2,
				  fill[k]);
	}
	if (size > 0)
		draw_text(d, PAGE_WIDTH - PAGE_EDGE,
			  y + d->row / 2 + size * 0.34, size, "end",
			  gpu && all > gpu ? "#dc2626" : INK,
			  word_bytes(all).s);
}

/* A family that nobody has is not explained. */
static bool any(const struct draw *d, int family)
{
	for (int pp = 0; pp < d->show->sum->grid.pp; pp++)
		if (show_bytes(d->show, pp, family))
			return true;
	return false;
}

/* A line where the GPU's memory ends. */
static void put_limit(const struct draw *d, double top, double bottom)
{
	double x = bytes_x(d, (double)d->show->cluster->gpu_memory);

	fprintf(d->f,
		"<path stroke=\"#dc2626\" stroke-width=\"1.5\" "
		"d=\"M%.1f %.1fV%.1f\"/>\n",
		x, top, bottom + 5);
	draw_text(d, x, bottom + 18, 11, "end", "#dc2626",
		  arena_printf(d->show->a, "a GPU has %s",
			       word_bytes(d->show->cluster->gpu_memory).s));
}

double draw_memory_height(const struct draw *d)
{
	return MEMORY_HEAD + d->show->sum->grid.pp * d->row + MEMORY_AXIS;
}

void draw_memory(const struct draw *d, double top)
{
	double rows = top + MEMORY_HEAD, x = PLOT_RIGHT;
	double bottom = rows + d->show->sum->grid.pp * d->row;

	draw_bold(d, PAGE_EDGE, top + 14, 15, "Memory of each rank");
	for (int k = FAMILIES - 1; k >= 0; k--)
		if (any(d, k))
			x = draw_legend(d, x, top + 14, fill[k],
					family_name(k));
	for (int pp = 0; pp < d->show->sum->grid.pp; pp++)
		put_bar(d, rows, pp);
	if (d->show->cluster->gpu_memory)
		put_limit(d, rows, bottom);
	draw_text(d, PLOT_LEFT, bottom + 18, 11, "start", FAINT,
		  show_bytes_source(d->show));
}
