/* SPDX-License-Identifier: Apache-2.0 */
/* Rank grids: which coordinates a rank has and who its peers are. */
#ifndef PLAN_GRID_H
#define PLAN_GRID_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct place;

/* The axes of both grids. */
enum axis { AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP, AXIS_EP, AXIS_ETP, AXIS_EDP };

/*
 * Dense grid, fastest first: tp cp dp pp (tp cp pp dp with
 * use_tp_pp_dp_mapping).  Expert grid: etp ep edp pp, over the same ranks with
 * the same pp.
 */
struct grid {
	int world;
	int tp, cp, dp, pp, vp;
	int ep, etp, edp;
	bool pp_before_dp;
};

struct coord {
	int tp, cp, dp, pp, ep, etp, edp;
};

/* Fails (CODE_CONFIG) if the sizes do not tile WORLD ranks. */
int grid_build(struct grid *g, const struct place *p, int64_t world,
	       struct err *e);

struct coord grid_coord(const struct grid *g, int rank);

/* The rank at these dense coordinates (tp, cp, dp, pp). */
int grid_rank(const struct grid *g, struct coord at);

/* Sets of axes: bit AXIS_X. */
#define AXES(x)	   (1u << (x))
#define AXES_DP_CP (AXES(AXIS_DP) | AXES(AXIS_CP))

/*
 * The ranks that differ from RANK only along AXES (all of the dense grid or
 * all of the expert grid), in grid order, fastest axis first.  RANKS has room
 * for world.  Returns their number; *me is RANK's place among them.
 */
int grid_group(const struct grid *g, int rank, unsigned axes, int *ranks,
	       int *me);

#endif
