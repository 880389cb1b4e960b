/* SPDX-License-Identifier: Apache-2.0 */
/* Between a trainer and its checkpoints: where to start, load, save. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "lib/train/boot.h"
#include "lib/train/trainer.h"

struct resume {
	const char *path;  /* what to load, or NULL: start afresh */
	int64_t step;	   /* optimizer steps it holds, or -1 */
	bool own;	   /* it is a checkpoint of run.dir itself */
	bool weights_only; /* run.finetune: moments and step are not loaded */
};

/*
 * Start or resume: the newest complete step of run.dir, else run.load, else
 * nothing.  SAY (may be NULL) hears of rejected candidates.  Fails
 * (CODE_CKPT) if there are checkpoints but none is complete, or run.load has
 * none.
 */
int resume_choose(struct resume *r, const struct config *c,
		  void (*say)(const char *line), struct err *e);

/* Load what was chosen into T, whatever layout saved it. */
int resume_load(const struct resume *r, struct trainer *t, struct arena *a,
		struct err *e);

/* Save T's step in run.dir, together with all ranks. */
int resume_save(struct trainer *t, const struct boot *boot, struct err *e);

#endif
