/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rate and weight decay as a function of samples consumed. */
#ifndef TRAIN_RATE_H
#define TRAIN_RATE_H

#include <stdint.h>

struct run;

struct rate {
	double lr, weight_decay;
};

/*
 * The rates of the step that begins after SAMPLES samples (so 0 for the
 * first step, whose lr is lr_warmup_init when there is a warm-up).  Megatron's
 * OptimizerParamScheduler: its counter is in samples, warm-up and decay are
 * iterations times global_batch_size, the fraction is of the decay length,
 * lr_decay_iters defaults to the training's length.  RUN is finalised and
 * valid.
 */
struct rate rate_at(const struct run *run, int64_t samples);

#endif
