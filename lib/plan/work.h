/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank does for a layer on one micro-batch, as a short list: products,
 * attention, traffic of memory, communication; and what of it has to be kept
 * for the backward pass.  For every valid shape and place, whether train-worker
 * runs it or not; where it does, prog*.c is the truth that this follows.
 */
#ifndef PLAN_WORK_H
#define PLAN_WORK_H

#include "lib/plan/config.h"
#include "lib/plan/prog.h"

/* Sizes of one micro-batch on one rank: kern.h's legend. */
struct work_dims {
	const struct config *config;
	int tp, cp, ep, etp;
	bool sp;
	double B, T, N, C; /* N: tokens on this rank, B * T / cp */
	double rows;	   /* in the residual stream: N, or N / tp with sp */
	double elem, sum;  /* bytes */
	double input;	   /* bytes of what a product's input is kept in */
	bool low;	   /* products in fp8 */
};

enum work_kind { WORK_GEMM, WORK_ATTN, WORK_BYTES, WORK_COMM };

/* What recompute_modules can name, and what full recompute repeats. */
enum {
	MODULE_NORM = 1 << 0,
	MODULE_CORE = 1 << 1,
	MODULE_MLP = 1 << 2,
	MODULE_MOE = 1 << 3,
	MODULE_MOE_ACT = 1 << 4,
	MODULE_SHARED = 1 << 5,
	MODULE_MLA_UP = 1 << 6,
	MODULE_DELTA_NORM = 1 << 7,
};

/* What offload_modules can name. */
enum {
	AWAY_ATTN_NORM = 1 << 0,
	AWAY_QKV = 1 << 1,
	AWAY_CORE = 1 << 2,
	AWAY_PROJ = 1 << 3,
	AWAY_MLP_NORM = 1 << 4,
	AWAY_FC1 = 1 << 5,
	AWAY_ACT = 1 << 6,
};

struct work {
	enum work_kind kind;
	unsigned modules; /* that it belongs to */
	/* GEMM: COUNT products, rows x out of in; gradients are two more.
	 * ATTN: IN is a head's width, ROWS the tokens that each sees, COUNT
	 * the query heads of a key */
	double count, rows, out, in;
	bool at_once;	 /* its gradients are in the forward slot */
	double flops[2]; /* forward, backward */
	double bytes[2]; /* of memory, each array once */
	double rate[2];	 /* BYTES: share of the bandwidth reached */
	int ops[2];	 /* kernels or collectives that are started */
	int comm, group; /* COMM: enum prog_comm or WORK_EXCHANGE, prog_group */
	bool hidden;	 /* COMM: beside the work before it */
	double keep;	 /* bytes that are kept for the backward */
	double part;	 /* of them, that its module computes again */
	/* offload_modules that send PART, and the rest of KEEP, to the host */
	unsigned away_part, away_rest;
	double grad;   /* bytes of the gradient of what it makes */
	double params; /* elements on this rank */
	int arrays;    /* that they lie in */
	enum weight_class cls;
};

/* COMM: everyone sends everyone a part. */
enum { WORK_EXCHANGE = PROG_COMMS };

enum { WORKS_MAX = 64 };

struct works {
	struct work list[WORKS_MAX];
	int count;
};

/* CONFIG is finalised and valid for these sizes. */
void work_dims(struct work_dims *d, const struct config *c);

/* Decoder layer LAYER; num_layers stands for one of multi-token prediction. */
void works_layer(struct works *w, const struct work_dims *d, int64_t layer);

/* The lookup, and positions. */
void works_embedding(struct works *w, const struct work_dims *d);

/*
 * The final norm, the projection to the vocabulary, and the loss.  OWN: its
 * weight is neither tied nor another's.
 */
void works_head(struct works *w, const struct work_dims *d, bool own);

/* Modules that recompute_modules names. */
unsigned work_modules(const struct place *p);

/* Modules whose inputs wait on the host. */
unsigned work_away(const struct place *p);

/* The kind of LAYER: equal ones have equal works. */
int64_t work_layer_kind(const struct shape *s, int64_t layer);

#endif
