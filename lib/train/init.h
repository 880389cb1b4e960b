/* SPDX-License-Identifier: Apache-2.0 */
/* The first weights: from the seed, the weight's name and the element. */
#ifndef TRAIN_INIT_H
#define TRAIN_INIT_H

#include "lib/plan/config.h"
#include "lib/plan/slice.h"
#include "lib/train/exec.h"

/* What is to be done with the parameters before they are rounded, or fails. */
struct init_hook {
	void *arg;
	int (*call)(void *arg, void *params, size_t size, struct err *e);
};

/*
 * The first parameters of X, and their master copies where it has such, by
 * init_params and then HOOK.
 */
int init_exec(struct exec *x, const struct slice *s, const struct weights *w,
	      const struct config *c, const struct init_hook *hook,
	      struct err *e);

/* Parameters of 16 bits and their masters, both from ALL (elements of S). */
int init_weights(struct exec *x, const struct slice *s, const float *all,
		 struct err *e);

/* How a weight starts: normal with the deviation VALUE, or that everywhere. */
struct init_how {
	bool normal;
	double value;
};

/*
 * Piece P of W in a flat parameter buffer, elements of SIZE bytes, 4 or 8.  An
 * element depends on nothing but HOW, SEED, the weight's name and its index.
 */
void init_piece(const struct piece *p, const struct weight *w,
		const struct init_how *how, uint64_t seed, size_t size,
		void *params);

/*
 * Fill the flat parameter buffer of SLICE (elements of SIZE bytes, 4 or 8).  The
 * value of an element depends on the seed, its weight's name and its index
 * in the whole weight, and so on no layout.  Padding stays zero.
 */
void init_params(const struct slice *s, const struct weights *w,
		 const struct config *c, size_t size, void *params);

#endif
