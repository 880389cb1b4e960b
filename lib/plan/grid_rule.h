/* SPDX-License-Identifier: Apache-2.0 */
/* What place_check wants to know of the grids beyond built or not. */
#ifndef PLAN_GRID_RULE_H
#define PLAN_GRID_RULE_H

#include "lib/plan/grid.h"

enum { GRID_WORLD_MAX = 1 << 20 };

/* grid_build that also tells the id of the check that failed. */
int grid_try(struct grid *g, const struct place *p, int64_t world,
	     const char **id, struct err *e);

/* Ranks of one data-parallel replica in each grid; saturates. */
int64_t grid_dense_ranks(const struct place *p);
int64_t grid_expert_ranks(const struct place *p);

#endif
