/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lib/base/xml.h"
#include "lib/plan/show_draw.h"

/* Rows share about this height, within bounds. */
enum { ROWS_HEIGHT = 480, ROW_MAX = 32, ROW_MIN = 11 };

struct color draw_color(double hue, double saturation, double lightness)
{
	double a = saturation * fmin(lightness, 1 - lightness);
	struct color c;
	int rgb[3];

	for (int i = 0; i < 3; i++) {
		double k = fmod((i == 0	  ? 0
				 : i == 1 ? 8
					  : 4) +
					fmod(hue + 720, 360) / 30,
				12);
		double x =
			lightness - a * fmax(-1, fmin(fmin(k - 3, 9 - k), 1));

		rgb[i] = (int)lround(255 * x);
	}
	snprintf(c.s, sizeof(c.s), "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255,
		 rgb[2] & 255);
	return c;
}

static void text_open(const struct draw *d, double x, double y, double size,
		      const char *anchor, const char *fill)
{
	fprintf(d->f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.3g\"", x, y,
		size);
	if (strcmp(anchor, "start"))
		fprintf(d->f, " text-anchor=\"%s\"", anchor);
	fprintf(d->f, " fill=\"%s\"", fill);
}

void draw_text(const struct draw *d, double x, double y, double size,
	       const char *anchor, const char *fill, const char *text)
{
	text_open(d, x, y, size, anchor, fill);
	fputc('>', d->f);
	xml_put(d->f, text);
	fputs("</text>\n", d->f);
}

void draw_bold(const struct draw *d, double x, double y, double size,
	       const char *text)
{
	text_open(d, x, y, size, "start", INK);
	fputs(" font-weight=\"600\">", d->f);
	xml_put(d->f, text);
	fputs("</text>\n", d->f);
}

void draw_rect(const struct draw *d, double x, double y, double w, double h,
	       const char *fill)
{
	fprintf(d->f,
		"<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
		"rx=\"%.1f\" fill=\"%s\"/>\n",
		x, y, w, h, fmin(3, fmin(w, h) / 4), fill);
}

double draw_legend(const struct draw *d, double x, double y, const char *fill,
		   const char *name)
{
	x -= draw_width(name, 12);
	draw_text(d, x, y, 12, "start", INK, name);
	draw_rect(d, x - 18, y - 10, 12, 12, fill);
	return x - 36;
}

double draw_width(const char *text, double size)
{
	return 0.58 * size * (double)strlen(text);
}

double draw_row_text(const struct draw *d)
{
	return d->row < 11 ? 0 : fmin(12, d->row - 3);
}

void draw_row_label(const struct draw *d, double top, int pp)
{
	const struct grid *g = &d->show->sum->grid;
	double size = draw_row_text(d);
	double y = top + (pp + 0.5) * d->row + size * 0.34;
	const char *ranks = text_pp_ranks(d->show, pp);

	if (size == 0)
		return;
	draw_bold(d, PAGE_EDGE, y, size, arena_printf(d->show->a, "pp %d", pp));
	if (strlen(ranks) > 18)
		ranks = arena_printf(d->show->a, "%d ranks", g->world / g->pp);
	draw_text(d, PLOT_LEFT - 12, y, fmin(11, size), "end", FAINT, ranks);
}

static void put_title(const struct draw *d)
{
	const struct sum *x = d->show->sum;
	const struct config *c = x->config;
	struct arena *a = d->show->a;
	const char *axes = text_axes(x, "\xc3\x97", a);

	draw_bold(d, PAGE_EDGE, 48, 22,
		  arena_printf(a, "%d rank%s%s%s", x->grid.world,
			       x->grid.world == 1 ? "" : "s",
			       *axes ? " = " : "", axes));
	draw_text(
		d, PAGE_EDGE, 72, 13, "start", FAINT,
		arena_printf(a,
			     "%.60s: %" PRId64 " layer%s, %s parameters, %d "
			     "micro-batch%s of %" PRId64 " \xc3\x97 %" PRId64
			     " tokens on each rank",
			     d->show->file, c->shape.num_layers,
			     plural(c->shape.num_layers),
			     word_flops((double)shape_parameters(&c->shape)).s,
			     x->microbatches, x->microbatches == 1 ? "" : "es",
			     c->run.micro_batch_size, c->shape.seq_length));
}

static const struct panel {
	double (*height)(const struct draw *d);
	void (*draw)(const struct draw *d, double top);
} panels[] = {
	{draw_map_height, draw_map},
	{draw_memory_height, draw_memory},
	{draw_grid_height, draw_grid},
	{draw_time_height, draw_time},
};

enum { PANELS = sizeof(panels) / sizeof(*panels) };

/* All panels one below the other; returns where the page ends. */
static double put_panels(const struct draw *d, bool measure)
{
	double y = TITLE_HEIGHT;

	for (int i = 0; i < PANELS; i++) {
		double height = panels[i].height(d);

		if (height == 0)
			continue;
		if (!measure)
			panels[i].draw(d, y);
		y += height + PANEL_GAP;
	}
	return y - PANEL_GAP + PAGE_FOOT;
}

void show_svg(FILE *f, const struct show *s)
{
	int pp = s->sum->grid.pp;
	struct draw d = {.f = f, .show = s};
	double height;

	d.row = fmax(ROW_MIN, fmin(ROW_MAX, ROWS_HEIGHT / (double)pp));
	height = put_panels(&d, true);
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		"height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
		"font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, "
		"'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif\">\n",
		PAGE_WIDTH, height, PAGE_WIDTH, height);
	fputs("<defs><pattern id=\"idle\" width=\"6\" height=\"6\" "
	      "patternUnits=\"userSpaceOnUse\" "
	      "patternTransform=\"rotate(45)\">"
	      "<rect width=\"6\" height=\"6\" fill=\"#f8fafc\"/>"
	      "<rect width=\"1.5\" height=\"6\" fill=\"#e2e8f0\"/>"
	      "</pattern></defs>\n",
	      f);
	fputs("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n", f);
	put_title(&d);
	put_panels(&d, false);
	fputs("</svg>\n", f);
}
