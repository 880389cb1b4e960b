/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of shape_check, each with the rules of one topic. */
#ifndef PLAN_SHAPE_RULE_H
#define PLAN_SHAPE_RULE_H

#include "lib/plan/report.h"
#include "lib/plan/shape.h"

/* A setting of shape: its path and its origin. */
#define SHAPE_AT(m) "shape." #m, field_from(&shape_group, s, &s->m)

/* A pattern over the layers: a period, or a list of zeros and ones. */
bool shape_is_pattern(const struct ints *p, int64_t layers);

/* Experts and their router. */
void shape_check_experts(const struct shape *s, struct report *r);

/* Attention: windows, latent and linear attention, sparse attention. */
void shape_check_attention(const struct shape *s, struct report *r);

/* Rotation: what rope, mrope and yarn need. */
void shape_check_rotation(const struct shape *s, struct report *r);

/* Layers with sizes of their own. */
void shape_check_own_layers(const struct shape *s, struct report *r);

#endif
