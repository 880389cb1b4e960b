/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The factor of the loss that keeps gradients of 16 bits away from 0: constant,
 * or dynamic as Megatron's DynamicGradScaler (model-numerics 3).
 */
#ifndef TRAIN_SCALER_H
#define TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

struct config;

struct scaler {
	double scale;	    /* 0: the loss is not scaled */
	int64_t growth;	    /* good steps since the last bad one or doubling */
	int64_t hysteresis; /* bad steps left until the scale halves */
	int64_t skipped;    /* steps without an update, ever */
	int64_t row;	    /* of them the last ones, in a row, in this job */
};

/* What C's training begins with. */
struct scaler scaler_start(const struct config *c);

/*
 * After a step whose gradients were BAD (not finite) or good.  A dynamic scale
 * halves with each bad step once its hysteresis is used up, and doubles after
 * loss_scale_window good ones in a row, which give the hysteresis back.
 */
void scaler_update(struct scaler *s, const struct config *c, bool bad);

#endif
