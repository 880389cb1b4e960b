/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of one step goes, by kind of op. */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H

#include <stdio.h>

#include "lib/plan/prog.h"

/*
 * A line for each kind of op in L, most time first: how many, the
 * milliseconds that MS (by op) gives them, and what they reached: TFLOP/s of
 * products, GB/s by prog_op_bytes or by what communication sends.
 */
void profile_print(FILE *f, const struct prog *p, const struct prog_list *l,
		   const double *ms);

#endif
