/* SPDX-License-Identifier: Apache-2.0 */
/* What two pieces of a weight share, as moves between their arrays. */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H

#include "ckpt/ckpt.h"

/*
 * ROWS runs of LEN elements, STEP apart; FROM and TO count from the first
 * element of each piece.
 */
struct move {
	int64_t from, to, len, rows, from_step, to_step;
};

/* A flat interval of a box is at most three boxes, two pieces share nine. */
enum { PLAN_BOXES = 3, PLAN_MOVES = PLAN_BOXES * PLAN_BOXES };

/* Elements LO .. HI (row-major) of BOX as boxes of the weight, in order. */
int plan_boxes(const struct box *box, int64_t lo, int64_t hi,
	       struct box out[PLAN_BOXES]);

/* What A and B have in common; false if nothing. */
bool plan_common(const struct box *a, const struct box *b, struct box *out);

/*
 * The moves that bring all that FROM and TO share from one to the other, in
 * the order of FROM; returns their number.
 */
int plan_moves(const struct ckpt_piece *from, const struct ckpt_piece *to,
	       struct move out[PLAN_MOVES]);

#endif
