/* SPDX-License-Identifier: Apache-2.0 */
/* What the two panels of the drawing share; private to lib/plan/show*.c. */
#ifndef PLAN_SHOW_DRAW_H
#define PLAN_SHOW_DRAW_H

#include "lib/plan/show_text.h"

/* The page, in pixels: labels on the left, numbers on the right. */
enum { PAGE_WIDTH = 1200, PLOT_LEFT = 200, PLOT_RIGHT = 1110, PAGE_EDGE = 36 };

/* Heights of what stands around the rows. */
enum {
	TITLE_HEIGHT = 104,
	MAP_HEAD = 64,
	PANEL_GAP = 44,
	KINDS_HEIGHT = 22,
	TIME_HEAD = 40,
	TIME_AXIS = 36,
	PAGE_FOOT = 28
};

struct draw {
	FILE *f;
	const struct show *show;
	double row; /* height of a pipeline rank's row, its gap included */
};

#define INK   "#0f172a"
#define FAINT "#64748b"

struct color {
	char s[8]; /* "#rrggbb" */
};

/* Hue in degrees, saturation and lightness within [0, 1]. */
struct color draw_color(double hue, double saturation, double lightness);

/* ANCHOR: start, middle or end.  TEXT is UTF-8. */
void draw_text(const struct draw *d, double x, double y, double size,
	       const char *anchor, const char *fill, const char *text);
void draw_bold(const struct draw *d, double x, double y, double size,
	       const char *text);
void draw_rect(const struct draw *d, double x, double y, double w, double h,
	       const char *fill);

/* About how wide TEXT is. */
double draw_width(const char *text, double size);

/* The label of pipeline rank PP's row, whose rows begin at TOP. */
void draw_row_label(const struct draw *d, double top, int pp);
/* The size that text in a row can have; 0: no room for text. */
double draw_row_text(const struct draw *d);

/*
 * A sample of FILL and its NAME, which end at X; returns where the next one to
 * the left ends.
 */
double draw_legend(const struct draw *d, double x, double y, const char *fill,
		   const char *name);

/* Each draws its panel from TOP down: its head, the rows, the axis. */
void draw_map(const struct draw *d, double top);
void draw_memory(const struct draw *d, double top);
void draw_grid(const struct draw *d, double top);
void draw_time(const struct draw *d, double top);

/* How high they are; 0: there is nothing to draw. */
double draw_map_height(const struct draw *d);
double draw_memory_height(const struct draw *d);
double draw_grid_height(const struct draw *d);
double draw_time_height(const struct draw *d);

#endif
