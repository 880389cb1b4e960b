/* SPDX-License-Identifier: Apache-2.0 */
/* The lower panel: one step in time, a row for each pipeline rank. */
#include <math.h>
#include <string.h>

#include "lib/plan/gpu.h"
#include "lib/plan/show_draw.h"

/* Slots narrower than this many pixels are drawn together. */
#define NARROW 1.0
#define MIXED  "#94a3b8"

/* Smaller numbers of micro-batches are left out. */
#define NUMBER_MIN 7.5

/* A row of the timeline. */
struct row {
	const struct draw *d;
	const struct sched *sched;
	const double *start, *end; /* by slot */
	double y;
};

/* With a program FLOPs are the times, else estimated seconds. */
static const struct sched_sim *times(const struct draw *d)
{
	const struct show *s = d->show;

	return s->sum->planned ? &s->sum->sim : &s->estimate->sim;
}

static double step_time(const struct draw *d)
{
	return times(d)->step;
}

static double time_x(const struct draw *d, double t)
{
	return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * t / step_time(d);
}

static double chunk_light(const struct draw *d, int chunk)
{
	int last = d->show->sum->grid.vp - 1;

	return 0.5 + (last ? 0.28 * chunk / last : 0);
}

static struct color slot_color(const struct draw *d, bool backward, int chunk)
{
	return draw_color(backward ? 25 : 215, backward ? 0.82 : 0.72,
			  chunk_light(d, chunk));
}

/* What is drawn as one: a slot, or several that are too narrow alone. */
struct span {
	double from, to;
	int paint; /* 2 * chunk + backward, or 2 * vp: mixed */
};

static bool narrow(const struct span *b)
{
	return b->to - b->from < NARROW;
}

/* The slots of a row that take time; narrow ones of one colour that touch
 * are one span.  Returns the number of spans. */
static int merge_same(const struct row *r, struct span *span)
{
	int n = 0;

	for (int i = 0; i < r->sched->count; i++) {
		const struct sched_slot *x = &r->sched->slot[i];
		struct span b = {time_x(r->d, r->start[i]),
				 time_x(r->d, r->end[i]),
				 2 * x->chunk + x->backward};

		if (b.to <= b.from)
			continue;
		if (n && span[n - 1].paint == b.paint && narrow(&b) &&
		    b.from - span[n - 1].to < 0.1)
			span[n - 1].to = b.to;
		else
			span[n++] = b;
	}
	return n;
}

/* What is still narrow becomes MIXED with its neighbours. */
static int merge_mixed(struct span *span, int n, int mixed)
{
	int kept = 0;

	for (int i = 0; i < n; i++) {
		struct span b = span[i];

		if (narrow(&b))
			b.paint = mixed;
		if (kept && b.paint == mixed && span[kept - 1].paint == mixed &&
		    b.from - span[kept - 1].to < 0.5)
			span[kept - 1].to = b.to;
		else
			span[kept++] = b;
	}
	return kept;
}

static void put_span(const struct row *r, const struct span *b)
{
	double gap = b->to - b->from > 4 ? 0.5 : 0;

	fprintf(r->d->f, "M%.2f %.2fH%.2fV%.2fH%.2fZ", b->from + gap, r->y + 1,
		b->to - gap, r->y + r->d->row - 1, b->from + gap);
}

/* All spans with this PAINT in one path; whether there were any. */
static bool put_paint(const struct row *r, const struct span *span, int n,
		      int paint, const char *fill)
{
	bool any = false;

	for (int i = 0; i < n; i++) {
		if (span[i].paint != paint)
			continue;
		if (!any)
			fprintf(r->d->f, "<path fill=\"%s\" d=\"", fill);
		any = true;
		put_span(r, &span[i]);
	}
	if (any)
		fputs("\"/>\n", r->d->f);
	return any;
}

/* Whether anything was too narrow to be told apart. */
static bool put_spans(const struct row *r)
{
	const struct draw *d = r->d;
	struct span *span = arena_alloc(d->show->a, (size_t)r->sched->count + 1,
					sizeof(*span));
	int mixed = 2 * d->show->sum->grid.vp;
	int n = merge_mixed(span, merge_same(r, span), mixed);

	for (int i = 0; i < mixed; i++)
		put_paint(r, span, n, i, slot_color(d, i % 2, i / 2).s);
	return put_paint(r, span, n, mixed, MIXED);
}

/* How large the step's longest number could be in box I. */
static double fitting(const struct row *r, int i)
{
	double w = time_x(r->d, r->end[i]) - time_x(r->d, r->start[i]);
	char longest[16];

	snprintf(longest, sizeof(longest), "%d",
		 r->d->show->sum->microbatches - 1);
	return (w - 2) / draw_width(longest, 1);
}

/* One size for all boxes that have room, as large as these allow. */
static double number_size(const struct row *r)
{
	double size = fmin(11, draw_row_text(r->d));

	for (int i = 0; i < r->sched->count; i++)
		if (fitting(r, i) >= NUMBER_MIN)
			size = fmin(size, fitting(r, i));
	return size;
}

static void put_numbers(const struct row *r)
{
	const struct draw *d = r->d;
	double size = number_size(r);

	for (int i = 0; i < r->sched->count && size >= NUMBER_MIN; i++) {
		const struct sched_slot *x = &r->sched->slot[i];
		double from = time_x(d, r->start[i]), to = time_x(d, r->end[i]);

		if (fitting(r, i) < size)
			continue;
		draw_text(d, (from + to) / 2, r->y + d->row / 2 + size * 0.36,
			  size, "middle",
			  chunk_light(d, x->chunk) < 0.66 ? "#ffffff" : INK,
			  arena_printf(d->show->a, "%d", x->mb));
	}
}

static double idle(const struct row *r)
{
	double busy = 0;

	for (int i = 0; i < r->sched->count; i++)
		busy += r->end[i] - r->start[i];
	return 1 - busy / step_time(r->d);
}

static bool put_row(const struct row *r)
{
	const struct draw *d = r->d;
	double size = draw_row_text(d);
	bool mixed;

	draw_rect(d, PLOT_LEFT, r->y + 1, PLOT_RIGHT - PLOT_LEFT, d->row - 2,
		  "url(#idle)");
	mixed = put_spans(r);
	put_numbers(r);
	if (size > 0)
		draw_text(d, PAGE_WIDTH - PAGE_EDGE,
			  r->y + d->row / 2 + size * 0.34, size, "end", INK,
			  arena_printf(d->show->a, "%.1f%%", 100 * idle(r)));
	return mixed;
}

static void put_axis(const struct draw *d, double top, double bottom)
{
	for (int k = 0; k <= 10; k++) {
		double x = time_x(d, step_time(d) * k / 10);

		fprintf(d->f,
			"<path stroke=\"#94a3b8\" stroke-width=\"0.6\" "
			"stroke-opacity=\"0.4\" d=\"M%.1f %.1fV%.1f\"/>\n",
			x, top, bottom + 5);
		draw_text(d, x, bottom + 18, 10, "middle", FAINT,
			  arena_printf(d->show->a, "%d%%", 10 * k));
	}
	draw_text(d, PLOT_LEFT, bottom + TIME_AXIS, 11, "start", FAINT,
		  d->show->sum->planned
			  ? "time as a share of the step: FLOPs as times, "
			    "messages free; numbers are micro-batches"
			  : arena_printf(d->show->a,
					 "time as a share of the pipeline's "
					 "%.4g s, of %.4g s a step, estimated "
					 "for %s; numbers are micro-batches",
					 step_time(d), d->show->estimate->step,
					 d->show->cluster->gpu->name));
}

static void put_legends(const struct draw *d, double y, bool mixed)
{
	int last = d->show->sum->grid.vp - 1;
	double x = PLOT_RIGHT;

	if (mixed)
		x = draw_legend(d, x, y, MIXED, "mixed, too narrow to draw");
	x = draw_legend(d, x, y, "url(#idle)", "idle");
	for (int backward = 1; backward >= 0; backward--) {
		const char *name = backward ? "backward" : "forward";

		for (int chunk = last; chunk >= 0; chunk--) {
			const char *text =
				arena_printf(d->show->a, "v%d", chunk);

			if (chunk > 2 && chunk < last)
				continue;
			if (!chunk)
				text = last ? arena_printf(d->show->a, "%s v0",
							   name)
					    : name;
			x = draw_legend(d, x, y,
					slot_color(d, backward, chunk).s, text);
		}
	}
}

static bool has_times(const struct draw *d)
{
	return d->show->sum->planned || d->show->estimate->sched;
}

double draw_time_height(const struct draw *d)
{
	if (!has_times(d))
		return TIME_HEAD;
	return TIME_HEAD + d->show->sum->grid.pp * d->row + TIME_AXIS;
}

void draw_time(const struct draw *d, double top)
{
	const struct sum *x = d->show->sum;
	double rows = top + TIME_HEAD, bottom = rows + x->grid.pp * d->row;
	bool mixed = false;

	draw_bold(d, PAGE_EDGE, top + 14, 15, "One step");
	if (!has_times(d)) {
		draw_text(d, PLOT_LEFT, top + 14, 12, "start", FAINT,
			  "no timeline: too many micro-batches");
		return;
	}
	draw_bold(d, PLOT_LEFT, top + 14, 15,
		  arena_printf(d->show->a, "bubble %.1f%% of pp \xc3\x97 step",
			       100 * times(d)->bubble));
	for (int pp = 0; pp < x->grid.pp; pp++) {
		int first = times(d)->row[pp];
		struct row r = {
			.d = d,
			.sched = x->planned ? &x->sched[pp]
					    : &d->show->estimate->sched[pp],
			.start = times(d)->start + first,
			.end = times(d)->end + first,
			.y = rows + pp * d->row};

		draw_row_label(d, rows, pp);
		mixed |= put_row(&r);
	}
	draw_text(d, PAGE_WIDTH - PAGE_EDGE, rows - 8, 10, "end", FAINT,
		  "idle");
	put_legends(d, top + 14, mixed);
	put_axis(d, rows, bottom);
}
