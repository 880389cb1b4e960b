/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people and programs: text, JSON, a drawing, sbatch lines. */
#ifndef PLAN_SHOW_H
#define PLAN_SHOW_H

#include <stdio.h>

#include "lib/plan/estimate.h"
#include "lib/plan/plugin.h"
#include "lib/plan/sum.h"

struct show {
	const struct sum *sum;
	const char *file;	/* the config, as it was named */
	const char *world_from; /* "--world", "SLURM_NTASKS", ... */
	/* for what the plan does not know, and for times on GPUs */
	const struct estimate *estimate;
	const struct cluster *cluster;
	const struct plugins *plugins; /* the config's, loaded; or NULL */
	struct arena *a;	       /* for texts on the way */
};

/* Text is at most this wide, but for the config's own names. */
enum { SHOW_WIDTH = 100 };

/*
 * Stages, layers, ranks, groups, communication and bubble.  Up to
 * SHOW_RANKS ranks have a row each; beyond, each pipeline rank has one.
 */
void show_table(FILE *f, const struct show *s);
enum { SHOW_RANKS = 64 };

/* One rank, P: peers, arrays with their pieces, bytes, ops, communication. */
void show_rank(FILE *f, const struct show *s, const struct plan *p);

/* The spec row of each layer with its reason; where values come from. */
void show_explain(FILE *f, const struct show *s);

/*
 * One JSON object in one line; ranks[] has only RANK unless that is -1.  What
 * is not known (sum.h) is null.  Bytes and elements are exact.
 */
void show_json(FILE *f, const struct show *s, int rank);

/*
 * One self-contained SVG: layers x ranks, memory (beside that of a GPU, if the
 * cluster has it), both grids, and the timeline of a step.
 */
void show_svg(FILE *f, const struct show *s);

/*
 * One self-contained page: that drawing, every number of show_json as tables,
 * and any rank with its groups.
 */
void show_html(FILE *f, const struct show *s);

/* The #SBATCH lines that fit, with PER_NODE tasks on a node. */
void show_sbatch(FILE *f, const struct show *s, int per_node);

#endif
