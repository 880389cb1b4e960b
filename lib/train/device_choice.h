/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a node's GPUs is this rank's. */
#ifndef TRAIN_DEVICE_CHOICE_H
#define TRAIN_DEVICE_CHOICE_H

#include "lib/train/boot.h"

/*
 * The number of the device to use, or -1: of one visible device that one,
 * whatever the rank, since launchers that deal them out show each rank its
 * own; else the one with B's node_rank.  Fails (CODE_LAUNCH) with both
 * numbers if fewer than that are visible.
 */
int device_choice(const struct boot *b, int count, struct err *e);

/*
 * Choose, open the device for this process and put its address on CARD, with
 * the id of the job's communicator if this is rank 0 of several.  Fails
 * (CODE_LAUNCH) in a build without CUDA.
 */
int device_choice_open(const struct boot *b, struct boot_card *card,
		       struct err *e);

#endif
