/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: start or resume, step, evaluate, save, stop. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "lib/plan/config.h"
#include "lib/train/boot.h"
#include "lib/train/generate.h"
#include "lib/train/machine.h"

struct loop_options {
	int64_t profile; /* the step whose ops rank 0 times and prints, or 0 */
	bool eval;	 /* only evaluate the checkpoint, on SPLIT */
	int split;	 /* enum data_split */
	const struct gen_options *gen; /* only generate, or NULL */
	const struct prompts *prompts; /* from these */
};

/*
 * Train CONFIG (finished, valid and served) to its last step, as one rank of
 * BOOT's job.  *code: CODE_DONE, or CODE_STOPPED when asked to stop early
 * (everything is saved then).  Or evaluate, or generate: nothing is written but
 * rank 0's lines of JSON on stdout.  -1: failed; the caller tells why and ends the job
 * with E's code.
 */
int loop_run(struct boot *boot, const struct config *c, const struct machine *m,
	     const struct loop_options *opt, enum code *code, struct err *e);

#endif
