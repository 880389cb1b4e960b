/* SPDX-License-Identifier: Apache-2.0 */
/* The one placement function: which layers and roles each stage holds. */
#ifndef PLAN_STAGE_H
#define PLAN_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"

struct shape;
struct place;

/*
 * Stage s = vp * PP + pp; data flows from s to s + 1.  Layers are counted per
 * stage and the offsets are their prefix sums, whatever rule gave the counts.
 */
struct stage {
	int pp, vp;
	int64_t first_layer, num_layers; /* global decoder layers, from 0 */
	bool embedding;	  /* has the word embedding and its lookup */
	bool final_norm;  /* the decoder's final norm */
	bool output_head; /* the projection to the vocabulary */
	bool loss;
	int64_t mtp_layers;
};

struct stages {
	struct stage *stage; /* in the order s, PP * VP of them */
	int count;
	int pp, vp;
};

/*
 * Fails (CODE_CONFIG) with the first reason why PLACE cannot hold SHAPE's
 * layers.  Post-conditions, asserted: counts >= 0, their sum is num_layers,
 * the embedding is on stage 0, head and loss on the last.
 */
int stages_build(struct stages *out, const struct place *p,
		 const struct shape *s, struct arena *a, struct err *e);

/*
 * Whether pipeline rank PP holds the word embedding: for its lookup or, with
 * TIED, as the head's weight too.  The other answers how many ranks do.
 */
bool stages_embedding(const struct stages *st, bool tied, int pp);
int stages_embeddings(const struct stages *st, bool tied);

#endif
