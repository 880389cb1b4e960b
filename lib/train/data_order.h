/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that need no memory of what came before. */
#ifndef TRAIN_DATA_ORDER_H
#define TRAIN_DATA_ORDER_H

#include <stdint.h>

#include "lib/base/err.h"

/*
 * Where I of 0 .. n - 1 goes under the permutation of SEED, EPOCH and STREAM:
 * a balanced Feistel network over the next power of four, its round function
 * Philox, walked along its cycle until it is below N (at most four steps on
 * average).
 */
int64_t data_permute(int64_t i, int64_t n, uint64_t seed, uint64_t epoch,
		     uint32_t stream);

/* A weighted blend as a table of one period; see data.h. */
struct data_blend {
	int count;	/* data sets */
	int64_t period; /* slots */
	int64_t *share; /* [count], sums to period */
	struct data_slot *slot;
};

struct data_slot {
	int32_t dataset;
	int32_t before; /* samples of it earlier in the period */
};

/* WEIGHT (count), each > 0; fails (CODE_USAGE) if they span too much. */
int data_blend_open(struct data_blend *b, const double *weight, int count,
		    struct err *e);
void data_blend_close(struct data_blend *b);

/* Sample INDEX is sample *k of the data set that is returned. */
int data_blend_at(const struct data_blend *b, int64_t index, int64_t *k);

#endif
