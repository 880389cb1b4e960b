/* SPDX-License-Identifier: Apache-2.0 */
/* The first weights: from the seed, the weight's name and the element. */
#ifndef TRAIN_INIT_H
#define TRAIN_INIT_H

#include "lib/plan/config.h"
#include "lib/plan/slice.h"
#include "lib/train/exec.h"

/*
 * The first parameters of X, and their master copies where it has such, by
 * init_params.
 */
int init_exec(struct exec *x, const struct slice *s, const struct weights *w,
	      const struct config *c, struct err *e);

/* Parameters of 16 bits and their masters, both from ALL (elements of S). */
int init_weights(struct exec *x, const struct slice *s, const float *all,
		 struct err *e);

/*
 * Fill the flat parameter buffer of SLICE (elements of SIZE bytes, 4 or 8).  The
 * value of an element depends on the seed, its weight's name and its index
 * in the whole weight, and so on no layout.  Padding stays zero.
 */
void init_params(const struct slice *s, const struct weights *w,
		 const struct config *c, size_t size, void *params);

#endif
