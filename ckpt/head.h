/* SPDX-License-Identifier: Apache-2.0 */
/* What every file says about its checkpoint: shape, place, run, provenance. */
#ifndef CKPT_HEAD_H
#define CKPT_HEAD_H

#include "ckpt/ckpt.h"
#include "ckpt/h5.h"

/* A setting by its field name, as a config file would say it. */
struct head_line {
	const char *name, *text;
};

struct head_lines {
	struct head_line *list;
	int count;
};

struct head {
	struct head_lines shape; /* the fields that differ from their default */
	struct head_lines place; /* the fields that were given */
	struct head_lines run;	 /* ckpt_run_names, where set */
	struct head_lines provenance;
	char shape_hash[33];
	int64_t world;
	struct ckpt_progress progress;
};

/* JOB: also say which host and job wrote it. */
void head_build(struct head *h, const struct config *c, int64_t world,
		const struct ckpt_progress *progress, bool job,
		struct arena *a);

/* Into the file FILE (its name in the checkpoint). */
int head_write(const struct head *h, struct h5 *f, const char *file,
	       struct err *e);

/* All but the provenance. */
int head_read(struct head *h, struct h5 *f, struct arena *a, struct err *e);

/*
 * The shape that H tells, complete and checked, with its hash recomputed;
 * CODE_CKPT if it is not what it says.
 */
int head_shape(const struct head *h, struct shape *s, struct arena *a,
	       struct err *e);

/*
 * The names and values of the shape fields in which A and B differ, as
 * "num_layers: 4 / 8, ...", or "" if they are the same model.
 */
const char *head_difference(const struct shape *x, const struct shape *y,
			    struct arena *a);

#endif
