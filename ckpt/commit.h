/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From files in a temporary folder to a checkpoint: index, manifest, one
 * rename.  Who reads never sees half of it.
 */
#ifndef CKPT_COMMIT_H
#define CKPT_COMMIT_H

#include "ckpt/head.h"
#include "ckpt/manifest.h"

/* A checkpoint in the making.  Paths are in the arena of commit_paths. */
struct commit {
	const char *run_dir;
	const char *temp; /* RUN_DIR/.tmp-step_00000120-NONCE */
	const char *step; /* RUN_DIR/step_00000120 */
	char name[FORMAT_STEP];
	size_t made; /* of RUN_DIR: what commit_begin made, as sys_make_dir */
	void (*say)(const char *line); /* may be NULL */
};

void commit_paths(struct commit *c, const char *run_dir,
		  const struct ckpt_progress *p, void (*say)(const char *),
		  struct arena *a);

/*
 * Make the temporary folder, and RUN_DIR if need be.  What dead jobs left
 * there is removed: a temporary folder of the same step, or of another step
 * and untouched for an hour.
 */
int commit_begin(struct commit *c, struct err *e);

/*
 * FILES (put in the order of their names) are written and synced: read their indexes back,
 * check coverage and copies, write manifest.h5 and MANIFEST, sync all.
 */
int commit_manifest(const struct commit *c, const struct head *h,
		    const struct weights *w, struct manifest_file *files,
		    int count, struct err *e);

/*
 * The rename.  A step folder of that name makes way: to .bad-... if it is
 * BAD, else (replaced on purpose) it is removed.  Then LATEST.
 */
int commit_end(const struct commit *c, bool bad, struct err *e);

/* Give up: remove the temporary folder, and RUN_DIR if it was made for it. */
void commit_abort(const struct commit *c);

/*
 * Remove all but the KEEP newest of the steps that have a sound manifest;
 * KEEP 0 keeps all.  Unsound ones are left for a person to look at.
 */
void commit_retain(const struct commit *c, int keep);

/* The steps in RUN_DIR by name alone, newest first; none if it is not there. */
int commit_list(const char *run_dir, struct arena *a, int64_t **steps,
		int *count, struct err *e);

#endif
