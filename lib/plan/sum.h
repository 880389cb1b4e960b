/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan adds up to: parameters, bytes, FLOPs, communication and the
 * pipeline's bubble.  Every number is a sum over programs (prog.h); nothing
 * here has a formula of its own.
 */
#ifndef PLAN_SUM_H
#define PLAN_SUM_H

#include "lib/plan/plan.h"

/* Operations of one kind over one group, and the bytes that a rank sends. */
struct sum_comm {
	int64_t ops, bytes;
};

/* One rank's training step. */
struct sum_rank {
	int64_t parameters; /* elements allocated: padding and copies too */
	int64_t bytes[FAMILIES];
	double flops[KINDS];
	int64_t ops[OP_CODES];
	struct sum_comm comm[PROG_GROUPS][PROG_COMMS];
};

/* One stage. */
struct sum_stage {
	/*
	 * Elements of the logical weights whose counting copy (replica 0)
	 * lies here: no padding, no tensor-parallel copies; a tied head
	 * counts with the embedding, so the stages add up to the model.
	 */
	int64_t parameters;
	/* FLOPs of one micro-batch on one tp rank, by the slot they run in:
	 * the head's gradients are part of its forward slot. */
	double forward, backward;
};

/* Groups of ranks of both grids. */
enum sum_group {
	SUM_TP,
	SUM_CP,
	SUM_DP,
	SUM_DP_CP,
	SUM_EP,
	SUM_ETP,
	SUM_EDP,
	SUM_PP,
	SUM_EMBEDDING, /* holders of the word embedding or a tied head */
	SUM_GROUPS
};

struct sum {
	const struct config *config;
	struct grid grid;
	struct stages stages;
	bool counted;	  /* the weights are known, and so parameters */
	bool planned;	  /* the program is known, and so the rest */
	int microbatches; /* of a step, on each rank */
	/*
	 * By pp.  Ranks that differ only in tp, cp or dp have equal sums, but
	 * for ops[]: SUMSQ and ADAMW follow the cuts of their shards.
	 */
	struct sum_rank *rank;
	struct sum_stage *stage; /* by s = vp * PP + pp */
	struct sched *sched;	 /* by pp */
	struct sched_sim sim;	 /* FLOPs as times, messages free */
};

/*
 * Sum CONFIG up for WORLD ranks, one program for each pp rank.  CONFIG has
 * passed its checks and outlives OUT.  What train-worker does not serve yet
 * leaves PLANNED false: then only parameters and what follows from them (the
 * bytes of parameters, gradients and optimizer) are known, and without
 * COUNTED not even those; the rest holds zeros.  Fails (CODE_CONFIG) for a world that does not fit.
 */
int sum_build(struct sum *out, const struct config *config, int world,
	      struct arena *a, struct err *e);

/* The sum of one rank's program. */
void sum_plan(struct sum_rank *out, const struct plan *p);

int64_t sum_bytes(const struct sum_rank *r);

/* Whether the bytes of FAMILY are known. */
bool sum_knows(const struct sum *s, int family);

const char *sum_group_name(int group);

/*
 * The members of RANK's GROUP in order, into RANKS (room for world).  Returns
 * their number, 0 if RANK is in no such group.
 */
int sum_group(const struct sum *s, int group, int rank, int *ranks);

/* Whether RANK would be the first of its GROUP: visit each group once. */
bool sum_group_first(const struct sum *s, int group, int rank);

#endif
