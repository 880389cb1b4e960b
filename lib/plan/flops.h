/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point work that a model asks for, as the field counts it. */
#ifndef PLAN_FLOPS_H
#define PLAN_FLOPS_H

#include <stdint.h>

struct shape;

/*
 * FLOPs of forward and backward on SAMPLES samples of seq_length tokens, by
 * Megatron's formula (num_floating_point_operations): products only, causal
 * attention halved, the head over PADDED_VOCAB columns, of experts those that a token goes
 * to, no router, no recompute.
 */
double flops_model(const struct shape *s, int64_t padded_vocab,
		   int64_t samples);

#endif
