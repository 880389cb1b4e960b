/* SPDX-License-Identifier: Apache-2.0 */
/* The whole walk for one rank: config, grid, stages, weights, slice, prog. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "lib/plan/prog_gen.h"

struct plan {
	const struct config *config;
	int rank;
	struct grid grid;
	struct stages stages;
	struct weights weights;
	struct slice slice;
	struct prog prog;
};

/*
 * What RANK of WORLD owns, prog's share of it by prog_state alone: also of a
 * config that is not served yet, if its weights are known (weights_known).
 * Fails (CODE_CONFIG) for a world that does not fit.
 */
int plan_slice(struct plan *out, const struct config *config, int world,
	       int rank, struct arena *a, struct err *e);

/*
 * Everything that RANK of WORLD owns and does.  CONFIG has passed its checks
 * and outlives OUT; the rest is in A.  Fails (CODE_CONFIG) for a world that
 * does not fit or a feature that is not served yet.
 */
int plan_build(struct plan *out, const struct config *config, int world,
	       int rank, struct arena *a, struct err *e);

/*
 * The same for a generation, whose lists go to GEN; OUT's own have none.  Fails
 * as that does, and for what does not generate yet.
 */
int plan_gen_build(struct plan *out, struct prog_gen *gen,
		   const struct config *config, const struct gen_size *size,
		   int world, int rank, struct arena *a, struct err *e);

/*
 * Whether the step of a valid CONFIG is too long to be planned for WORLD
 * ranks: then a warning.
 */
bool plan_unserved(const struct config *config, int64_t world,
		   struct report *r);

/* Whether any rank's program communicates over GROUP. */
bool plan_has_group(const struct plan *p, int group);

/*
 * The ranks of GROUP that RANK belongs to, in order, into RANKS (room for
 * world); *me is its place.  Returns their number, 0 if it is in none.
 */
int plan_group(const struct plan *p, int group, int *ranks, int *me);

#endif
