/* SPDX-License-Identifier: Apache-2.0 */
/* What ckpt-merge does with whole checkpoints. */
#ifndef CKPT_TOOLS_H
#define CKPT_TOOLS_H

#include <stdio.h>

#include "ckpt/digest.h"
#include "ckpt/load.h"

/* Told now and then; what is not 0 ends the work with CODE_FINDINGS. */
struct ckpt_watch {
	int (*tick)(void *arg, int64_t done, int64_t total);
	void *arg;
};

int ckpt_tick(const struct ckpt_watch *w, int64_t done, int64_t total,
	      struct err *e);

/*
 * The step that PATH means whatever its state: itself, or of a run's folder
 * the newest by name.  CODE_CKPT if there is none.
 */
int ckpt_find(const char *path, const char **step, struct arena *a,
	      struct err *e);

/*
 * Read all of the step folder STEP and check whatever it claims.  Problems
 * are told through SAY; any makes this fail with CODE_CKPT.
 */
int ckpt_verify(const char *step, void (*say)(const char *line),
		const struct ckpt_watch *watch, struct err *e);

/* The digest of a weight's role, which it must have. */
int ckpt_digest(struct ckpt *c, int weight, enum ckpt_role role,
		struct digest *out, struct err *e);

/* How a weight differs between two checkpoints. */
struct ckpt_difference {
	const char *weight;
	enum ckpt_role role;
	const char *why;  /* "only in the first", a dtype; NULL: values */
	int64_t elements; /* beyond the tolerance; of how many */
	int64_t of;
	double max, scale; /* largest |a - b|, largest |a|; NAN counts most */
};

/*
 * Compare two checkpoints of any layouts: TOLERANCE < 0 bit for bit, else
 * |a - b| <= TOLERANCE.  *COUNT weights and roles differ, each is told.
 */
int ckpt_diff(struct ckpt *a, struct ckpt *b, double tolerance,
	      void (*say)(const struct ckpt_difference *d), int *count,
	      const struct ckpt_watch *watch, struct err *e);

/*
 * The layout to reshard C to: FILE's shape and place, which must be of C's
 * shape, or without FILE the place that C was saved from; in both cases with
 * the SETS.  A set pipeline size starts from even stages: what the checkpoint
 * says of its stages is dropped.  WORLD 0: as many ranks as saved C if the
 * layout allows, else one data-parallel copy.  Findings go to R.
 */
int ckpt_target(const struct ckpt *c, const char *file, const char *const *sets,
		int set_count, int64_t world, struct config *out,
		struct grid *grid, struct arena *a, struct report *r,
		struct err *e);

/*
 * To F: progress, layout, and each weight and role with type, shape, number
 * of pieces and, if asked for, DIGEST; as lines or as one JSON object.
 */
int ckpt_list(struct ckpt *c, bool digest, FILE *f, struct err *e);
int ckpt_list_json(struct ckpt *c, bool digest, FILE *f, struct err *e);

/* What a reshard will do. */
struct ckpt_plan {
	int files;
	int64_t pieces, moves;
	int64_t bytes_written, bytes_read;
	int64_t smallest_run; /* bytes that lie together on both sides */
};

int ckpt_reshard_plan(struct ckpt *c, const struct config *target,
		      const struct grid *grid, struct ckpt_plan *out,
		      struct err *e);

/*
 * Whether RUN_DIR can be a run's folder: CODE_USAGE if it is a step or, by
 * whatever links, inside of one.  It need not be there.
 */
int ckpt_check_run_dir(const char *run_dir, struct arena *a, struct err *e);

/*
 * Whether STEP may be written: one that is there and complete is an error
 * (CODE_CKPT) unless FORCE; *BAD: it is not complete.
 */
int ckpt_check_old(const char *step, bool force, bool *bad, struct err *e);

/*
 * Write C in the layout of TARGET to RUN_DIR/step_NNNNNNNN, whole or not at
 * all.  A complete step of that name is an error (CODE_CKPT) unless FORCE
 * replaces it.  RUN_DIR is checked as above, and made if it is not there; what
 * was made is removed on failure.  All of C is read, its checksums compared.
 */
int ckpt_reshard(struct ckpt *c, const struct config *target,
		 const struct grid *grid, const char *run_dir, bool force,
		 const struct ckpt_watch *watch, struct err *e);

#endif
