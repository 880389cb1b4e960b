/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a weight are made equal once and then stay so by getting the same
 * gradients: this proves it.
 */
#ifndef TRAIN_SYNC_H
#define TRAIN_SYNC_H

#include "lib/train/trainer.h"

/* A copy: which box of which weight (0: none), and what is in it. */
struct sync_copy {
	uint64_t box, hash;
	int32_t weight, rank;
};

/*
 * The two first ones of the N COPIES, sorted by box and rank on the way, that
 * are of one box and differ, in *A and *B; false if there are none.
 */
bool sync_differ(struct sync_copy *copies, size_t n, const struct sync_copy **a,
		 const struct sync_copy **b);

/*
 * Compare all copies of all weights over the world; every rank calls it, after
 * trainer_settle.  Fails (CODE_NUMERIC) on every rank with the weight and two
 * ranks.
 */
int sync_check(struct trainer *t, struct err *e);

#endif
