/* SPDX-License-Identifier: Apache-2.0 */
/* What a step reads of its data, for every depth of multi-token prediction. */
#ifndef TRAIN_MICROBATCH_H
#define TRAIN_MICROBATCH_H

#include "lib/train/trainer.h"

/*
 * Fill the inputs of micro-batch MB of the global batch that begins with
 * sample FIRST: ids and labels of every depth, and where documents stay apart
 * their beginnings and positions.  Adds the scored tokens of each depth to
 * SCORED [1 + depths].
 */
int microbatch_load(struct trainer *t, const struct trainer_data *data,
		    bool valid, int64_t first, int mb, int64_t *scored,
		    struct err *e);

#endif
