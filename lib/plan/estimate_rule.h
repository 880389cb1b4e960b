/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of an estimate: what does not depend on how the pipeline is cut
 * (estimator), stages, ranks.  Shared by estimate*.c and suggest.c, which
 * asks for many cuts of the same sizes.
 */
#ifndef PLAN_ESTIMATE_RULE_H
#define PLAN_ESTIMATE_RULE_H

#include "lib/plan/cost.h"
#include "lib/plan/estimate.h"
#include "lib/plan/stage.h"

/* Works added up. */
struct total {
	double flops[2], time[2]; /* of the forward and the backward slot */
	double keep;		  /* bytes that wait for the backward */
	double again,
		again_keep; /* of the modules computed again: seconds, bytes */
	double params[CLASSES];
	double arrays; /* of parameters */
};

/* Micro-batches of one size on ranks of one (tp, cp, ep, etp). */
struct estimator {
	struct work_dims dims;
	const struct machine *machine;
	/* sums over the layers before each; MTP's layer is behind the last */
	struct total *before;
	int64_t layers; /* num_layers, + 1 with MTP */
	struct total embedding, head;
	double *grad;		 /* bytes of each layer's largest gradient */
	double stream;		 /* bytes of a residual stream */
	double largest[CLASSES]; /* parameters of the largest layer */
};

/* One stage, one micro-batch. */
struct stage_cost {
	double flops[2], time[2];
	double keep;	 /* bytes from its forward to its backward */
	double extra[2]; /* bytes that it needs at most, beside what is kept */
	double params[CLASSES];
	double arrays;
};

/* Room for the layers of S; then any number of estimator_build. */
void estimator_open(struct estimator *out, const struct shape *s,
		    struct arena *a);

/*
 * C is finalised but for how its pipeline is cut, M fits it.  Both outlive
 * OUT.
 */
void estimator_build(struct estimator *out, const struct config *c,
		     const struct machine *m);

/* Stage ST of PP with the recompute of P. */
void estimator_stage(const struct estimator *s, const struct place *p,
		     const struct stage *st, struct stage_cost *out);

/* The pipeline of one step: M micro-batches, in groups with virtual stages. */
struct pipeline {
	int pp, vp;
	int64_t m, group;
};

/*
 * Larger groups, which nobody runs, are taken for this, and longer steps are
 * not simulated.
 */
enum { PIPELINE_GROUP_MAX = 1 << 12, PIPELINE_SLOTS_MAX = 1 << 20 };

/*
 * Bytes of activations of pipeline rank R at the peak, COST by stage; what
 * does not depend on its micro-batches included.
 */
double estimate_peak(const struct estimator *s, const struct pipeline *p,
		     const struct stage_cost *cost, int r);

/* Bytes of communication's buffers, PARAMS those of the rank. */
double estimate_buffers(const struct estimator *s);

/* Bytes of state of a rank of so many ELEMENTS, OWN of them its share. */
void estimate_state(const struct config *c, double elements, double own,
		    int64_t bytes[FAMILIES]);

/* The share of PARAMS that a rank owns in the groups of G. */
double estimate_own(const struct config *c, const struct grid *g,
		    const double params[CLASSES]);

/* Seconds from the last backward to updated parameters of such a rank. */
double estimate_finish(const struct estimator *s, const struct grid *g,
		       const double params[CLASSES], double arrays);

/*
 * What sched_simulate finds for a step's pipeline, about: one cycle for each
 * micro-batch, and the way of the first.
 */
double estimate_pipeline(const struct pipeline *p,
			 const struct stage_cost *cost);

/* Bytes of HOST. */
int64_t estimate_host(const struct estimator *s, int64_t m);

#endif
