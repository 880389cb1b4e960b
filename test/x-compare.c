/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-compare REF NEW ROLE REL FLOOR SHARE: whether every weight of checkpoint
 * NEW is REF's within
 *   |new - ref| <= REL * max(max |ref| of the weight, FLOOR,
 *                            SHARE * max |ref| of all weights)
 * ROLE is param, m or v.  Prints the worst ratio of difference to bound;
 * exits 1 when it is above one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"

static enum ckpt_role role_of(const char *name)
{
	if (!strcmp(name, "m"))
		return ROLE_M;
	return strcmp(name, "v") ? ROLE_PARAM : ROLE_V;
}

/* All of a weight as doubles, row-major. */
static double *load(struct ckpt *c, const struct weights *w, int weight,
		    enum ckpt_role role)
{
	int64_t n = weight_elements(&w->list[weight]);
	struct ckpt_item item = {.piece = {
					 .weight = weight,
					 .role = role,
					 .dtype = CKPT_F64,
					 .box = {{0, 0},
						 {w->list[weight].dim[0],
						  w->list[weight].dim[1]}},
					 .hi = n,
				 }};
	struct err e;

	item.data = calloc((size_t)n + 1, sizeof(double));
	if (!item.data || ckpt_read(c, w, &item, 1, &e)) {
		fprintf(stderr, "x-compare: %s\n", e.text);
		exit(2);
	}
	return item.data;
}

static double largest(const double *x, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

struct bound {
	double rel, floor, share;
};

static double compare(struct ckpt *a, struct ckpt *b, const struct weights *w,
		      enum ckpt_role role, const struct bound *bound)
{
	double all = 0, worst = 0;

	for (int i = 0; i < w->count; i++) {
		double *x = load(a, w, i, role);

		all = fmax(all, largest(x, weight_elements(&w->list[i])));
		free(x);
	}
	for (int i = 0; i < w->count; i++) {
		int64_t n = weight_elements(&w->list[i]);
		double *x = load(a, w, i, role), *y = load(b, w, i, role);
		double most = fmax(fmax(largest(x, n), bound->floor),
				   bound->share * all);

		for (int64_t k = 0; k < n; k++) {
			double d = fabs(x[k] - y[k]) / (bound->rel * most);

			worst = isnan(d) ? INFINITY : fmax(worst, d);
		}
		free(x);
		free(y);
	}
	return worst;
}

int main(int argc, char **argv)
{
	struct bound bound;
	struct weights w;
	struct ckpt *a, *b;
	struct arena arena;
	struct err e;
	double worst;

	if (argc != 7)
		return 2;
	bound = (struct bound){strtod(argv[4], NULL), strtod(argv[5], NULL),
			       strtod(argv[6], NULL)};
	if (arena_open(&arena, &e) || ckpt_open(&a, argv[1], NULL, NULL, &e) ||
	    ckpt_open(&b, argv[2], ckpt_shape(a), NULL, &e)) {
		fprintf(stderr, "x-compare: %s\n", e.text);
		return 2;
	}
	weights_build(&w, ckpt_shape(a), &arena);
	worst = compare(a, b, &w, role_of(argv[3]), &bound);
	printf("%.3g\n", worst);
	ckpt_close(a);
	ckpt_close(b);
	arena_close(&arena);
	return worst <= 1 ? 0 : 1;
}
