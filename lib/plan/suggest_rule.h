/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of suggest_build share; private to lib/plan/suggest*.c. */
#ifndef PLAN_SUGGEST_RULE_H
#define PLAN_SUGGEST_RULE_H

#include "lib/plan/estimate_rule.h"
#include "lib/plan/suggest.h"

/*
 * estimate_pipeline is so much above the simulation at most, where stages are
 * about alike, and so much below: what it says is this much worse may still
 * be the better one.
 */
#define SUGGEST_CLOSE 1.15

/* A placement that fits, and the pipeline's time by estimate_pipeline. */
struct candidate {
	struct placement place;
	double step, memory;
};

struct candidates {
	struct candidate *list;
	size_t count, cap;
	int64_t looked_at;
	double nearest; /* bytes of what needs least */
	struct placement least;
};

/* Whether two have one row: all but how they are run is the same. */
bool placement_alike(const struct placement *x, const struct placement *y);

/*
 * The settings that make P of LOADED, in SET; returns how many.
 */
int placement_sets(const struct placement *p, const struct config *loaded,
		   const char **set, struct arena *a);

/*
 * The settings of a placement that LOADED was given: "pp = 2, tp = 4".
 */
const char *placement_hints(const struct config *loaded, struct arena *a);

/* P with SETS as it is finished for WORLD, and what is wrong with it. */
void placement_config(struct config *out, const struct config *loaded,
		      const char *const *set, int sets, int64_t world,
		      struct report *r);

/*
 * Every placement of the space, or of what of it is SERVED, that may be among
 * the best MOST rows and fits ON, by formula.  BASE is the model finished on
 * one rank.
 */
void candidates_find(struct candidates *out, const struct config *base,
		     const struct cluster *on, bool served, int most,
		     struct arena *a);

#endif
