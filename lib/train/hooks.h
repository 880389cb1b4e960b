/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a config's hooks (lib/plan/hook.h) around a rank's parameters. */
#ifndef TRAIN_HOOKS_H
#define TRAIN_HOOKS_H

#include "lib/train/trainer.h"

/*
 * spec.pre_wrap_hooks, in order, on the flat parameter buffer PARAMS as it was
 * drawn (elements of SIZE bytes, 4 or 8, before they are rounded to 16 bits).
 * All ranks of the world call it.  Fails with the hook's name.
 */
int hooks_pre_wrap(struct trainer *t, void *params, size_t size, struct err *e);

/*
 * spec.post_wrap_hooks, in order, on the parameters that the first step starts
 * from: those of the checkpoint if there is one.
 */
int hooks_post_wrap(struct trainer *t, struct err *e);

#endif
