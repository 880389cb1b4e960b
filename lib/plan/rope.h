/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: which pairs of a head turn, and how fast. */
#ifndef PLAN_ROPE_H
#define PLAN_ROPE_H

#include <stdbool.h>
#include <stdint.h>

struct shape;

/* Pairs of a head that turn (R of kern.h); 0: positions are not rotations. */
int64_t rope_pairs(const struct shape *s);

/*
 * The angle of each pair from one position to the next, in FREQ
 * [rope_pairs]: plain, Llama 3's scaling, YaRN; interpolated.  Returns the
 * factor of cos and sin (YaRN's concentration, else 1).  model-numerics 2.6
 * and 2.7; mrope's axes are equal for text, so it is plain.  Latent attention has
 * its own numbers, for the shared part of a head.
 */
double rope_frequencies(const struct shape *s, double *freq);

/*
 * What latent attention's logits are multiplied with: YaRN's growth, squared,
 * over the root of the head's width.  model-numerics 2.7.
 */
double rope_latent_scale(const struct shape *s);

/* Whether LAYER (multi-token prediction's are like the last) has rotations. */
bool rope_turns(const struct shape *s, int64_t layer);

#endif
