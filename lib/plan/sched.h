/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline schedule: which micro-batch each rank works on, and when. */
#ifndef PLAN_SCHED_H
#define PLAN_SCHED_H

#include <stdbool.h>

#include "lib/base/arena.h"

struct sched_slot {
	bool backward;
	int mb, chunk;
};

struct sched {
	struct sched_slot *slot; /* in the order of execution */
	int count;
	int warmup; /* forward slots before the first backward */
};

/*
 * The order of pipeline rank PP_RANK: 1F1B for VP 1, else interleaved in
 * groups of GROUP micro-batches (Megatron's schedules.py; model-numerics
 * section 4).  M micro-batches.
 */
void sched_build(struct sched *out, int pp, int pp_rank, int vp, int m,
		 int group, struct arena *a);

/* Times of one simulated step. */
struct sched_sim {
	double *start, *end; /* [rank][slot], rows of sched[rank].count */
	int *row;	     /* first entry of each rank */
	double step;	     /* the whole step */
	double bubble;	     /* idle / (pp * step) */
	bool deadlock;
};

/*
 * Run all PP orders with the forward and backward times of each stage
 * (fwd[s], bwd[s], s = vp * PP + pp) and XFER for each message between ranks.
 */
void sched_simulate(struct sched_sim *out, const struct sched *sched, int pp,
		    int vp, const double *fwd, const double *bwd, double xfer,
		    struct arena *a);

/* "F0.0 F1.0 B0.0 ...": micro-batch.chunk. */
const char *sched_text(const struct sched *s, struct arena *a);

#endif
