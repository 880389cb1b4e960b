/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step of any valid config would need and take: memory by formula,
 * time by a roofline of what is computed, moved and sent (work.h, cost.h).
 * For configs that train-worker can run, the plan itself (sum.h) is exact
 * about memory; this is for what has no plan yet, and for the many placements
 * among which one is to be found.  Like train-worker, it lets no
 * communication run beside computation, but for rings of context parallelism
 * and the gathers of sharded parameters.
 */
#ifndef PLAN_ESTIMATE_H
#define PLAN_ESTIMATE_H

#include "lib/plan/cluster.h"
#include "lib/plan/prog.h"

struct estimate_rank {
	int64_t bytes[FAMILIES]; /* as in prog.h */
	double forward,
		backward; /* seconds of one micro-batch, all its chunks */
	double flops[2];  /* of it, forward and backward slots */
};

struct estimate {
	struct estimate_rank *rank; /* by pp */
	int pp;
	int worst;	/* the pp rank that needs most memory */
	int64_t memory; /* bytes of that one, all families */
	double step;	/* seconds of a training step */
	double bubble;	/* share of it that the pipeline waits, 0 to 1 */
	double tokens_per_second;
	double flops_share; /* of the peak, by estimate_flops */
	/* By pp, in seconds up to the last backward; NULL: too many slots. */
	struct sched *sched;
	struct sched_sim sim;
};

/*
 * CONFIG is finalised and has passed its checks for CL->world ranks.  Fails
 * (CODE_CONFIG) for a world that does not fit.
 */
int estimate_build(struct estimate *out, const struct config *config,
		   const struct cluster *cl, struct arena *a, struct err *e);

int64_t estimate_bytes(const struct estimate_rank *r);

/*
 * FLOPs of forward and backward of a step, as Megatron counts them: three
 * times the products of a forward, causal attention halved, nothing twice, the
 * head over the padded vocabulary.  For every kind of layer.
 */
double estimate_flops(const struct config *c);

#endif
