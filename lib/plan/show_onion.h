/* SPDX-License-Identifier: Apache-2.0 */
/* What is around each chunk of the model, from the inside out. */
#ifndef PLAN_SHOW_ONION_H
#define PLAN_SHOW_ONION_H

#include "lib/plan/show.h"

/* Slices, pre-wrap hooks, mixed precision, data parallel, post-wrap hooks. */
void show_onion(FILE *f, const struct show *s);

#endif
