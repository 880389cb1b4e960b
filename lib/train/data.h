/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training data: sample number i of a job, the same under every layout and
 * after every resume.
 *
 * A dataset is one array of tokens in a memory-mapped file.  Its split
 * (train, valid, test) is a range of them, cut at document ends where the
 * format knows documents; ranges do not overlap.  A range of N tokens has
 * S = (N - 1) / T windows: window w is tokens w T ... w T + T, the last one
 * being only a label, so windows share no input.  Sample k of the dataset is
 * window P(k % S) where P is the permutation of epoch k / S: a Feistel
 * network on Philox, keyed by (seed, epoch, dataset, split), which needs no
 * memory and no order of visits.
 *
 * A blend of D datasets with weights w_d: sample i of the job is sample k of
 * dataset d, both read from a table of one period.  The weights, read to six
 * decimals, are brought to their smallest integer ratio c_d; the period is
 * P = sum c_d slots (rounded to 2^20 slots when P is larger), over which
 * each copy takes the slot with the earliest deadline.  So after any number
 * of samples i every dataset has been used c_d i / P times, within one.
 */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdint.h>

#include "lib/base/err.h"

struct run;
struct shape;
struct data;

enum data_split { DATA_TRAIN, DATA_VALID, DATA_TEST, DATA_SPLITS };

/*
 * Open run->data_path (format run->data_format, shares run->split) for
 * windows of shape->seq_length tokens.  Fails (CODE_USAGE) for a missing,
 * truncated or inconsistent file, and a split too short for one window.
 */
int data_open(struct data **out, const struct run *run,
	      const struct shape *shape, enum data_split split, uint64_t seed,
	      struct err *e);

/*
 * Sample INDEX >= 0 into tokens (T + 1): inputs are 0 .. T - 1, labels 1 ..
 * T.  Fails (CODE_USAGE) for a token outside the vocabulary, naming file,
 * position, id and vocabulary.  May be called from several threads.
 */
int data_sample(const struct data *d, int64_t index, int32_t *tokens,
		struct err *e);

/* Windows that exist: of all datasets together, and once each. */
int64_t data_windows(const struct data *d);

void data_close(struct data *d);

#endif
