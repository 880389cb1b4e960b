/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of works_layer share; private to lib/plan/work*.c. */
#ifndef PLAN_WORK_RULE_H
#define PLAN_WORK_RULE_H

#include "lib/plan/work.h"

/* A new work of KIND in W. */
struct work *work_add(struct works *w, enum work_kind kind, unsigned modules);

/*
 * A product ROWS x OUT of IN with a weight of its own, and a bias if BIAS,
 * whose gradient is a pass over the outputs.  KEEP: its outputs are kept.
 */
struct work *work_gemm(struct works *w, const struct work_dims *d,
		       unsigned modules, double rows, double out, double in,
		       bool bias, bool keep);

/* A pass over memory: bytes that it moves forward and backward. */
struct work *work_bytes(struct works *w, unsigned modules, double forward,
			double backward, double rate);

/*
 * ROWS x WIDTH normalised after the branch before was added to the stream:
 * both results are kept.
 */
struct work *work_norm(struct works *w, const struct work_dims *d,
		       unsigned modules, double rows, double width);

/* A norm inside of a layer, in place of its input, which is kept as well. */
void work_inner_norm(struct works *w, const struct work_dims *d,
		     unsigned modules, double rows, double width,
		     double vectors);

/* SIZE bytes from each rank (or of the result) over GROUP, TIMES in all. */
void work_comm(struct works *w, int comm, int group, double size, int forward,
	       int backward);

/* Rows of all tp ranks, and their sums back: what surrounds a half layer. */
void work_gather(struct works *w, const struct work_dims *d);
void work_reduce(struct works *w, const struct work_dims *d);

/* work_attn.c, work_mlp.c: the halves of a layer */
void works_attention(struct works *w, const struct work_dims *d, int64_t layer);
void works_mlp(struct works *w, const struct work_dims *d, int64_t layer);

#endif
