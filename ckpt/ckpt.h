/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: boxes of logical weights in stage-sliced HDF5 files.  Any
 * layout loads what any other has saved.  ckpt/FORMAT.md describes the files.
 */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/format.h"
#include "lib/plan/config.h"
#include "lib/plan/slice.h"

/*
 * Elements lo .. hi (row-major within BOX) of a logical weight.  A whole box
 * has lo 0 and hi box_elements().
 */
struct ckpt_piece {
	int weight; /* its row in the weight table */
	enum ckpt_role role;
	enum ckpt_dtype dtype;
	struct box box;
	int64_t lo, hi;
	int replica; /* > 0: only its checksum is recorded */
};

/* A piece and where its hi - lo elements lie in memory, contiguous. */
struct ckpt_item {
	struct ckpt_piece piece;
	void *data;
};

/* Progress: the same in every file of a checkpoint. */
struct ckpt_progress {
	int64_t step;		  /* optimizer steps done */
	int64_t consumed_samples; /* of the training data */
	int64_t seed;
	uint64_t nonce; /* of the job that saved it */
	/* of the loss's scale (lib/train/scaler.h); 0: it has none */
	double loss_scale;
	int64_t scale_growth, scale_hysteresis, skipped_steps;
};

/* The ranks that save together; one process alone has world 1 and no calls. */
struct ckpt_peers {
	int rank, world;
	void *arg;
	/* ALL (world * bytes) = MINE (bytes) of every rank, in rank order. */
	int (*gather)(void *arg, const void *mine, size_t bytes, void *all,
		      struct err *e);
	/* Rank 0 tells what else it did (a line of text); may be NULL. */
	void (*say)(const char *line);
};

/*
 * A rank's memory.  PARAM is its whole flat buffer; MASTER, M and V are each
 * either as long or (OWN_SHARD) the shards of slice_shards one behind the
 * other.  MASTER is NULL unless there are float32 master weights beside
 * parameters of another dtype; with them M and V are float32 too, otherwise
 * everything is of DTYPE.  M and V may be NULL: weights alone.
 */
struct ckpt_memory {
	enum ckpt_dtype dtype;
	char *param, *master, *m, *v;
	bool own_shard;
};

enum ckpt_use { CKPT_SAVE, CKPT_LOAD };

/* The files of a rank: dense parameters, those of experts, optimizer state. */
enum ckpt_file { CKPT_MODEL, CKPT_EXPERTS, CKPT_OPTIM, CKPT_FILES };

/*
 * The items of slice S in MEM, COUNT of each file, one file after the other.
 * To save, parameters are those of the first rank of its group and state is
 * the rank's shards; to load they are all that MEM holds.  Returns how many.
 */
int ckpt_items(const struct slice *s, const struct ckpt_memory *mem,
	       enum ckpt_use use, struct arena *a, struct ckpt_item **items,
	       int count[CKPT_FILES]);

/*
 * Items that read every piece of S from ROLE (its parameters, or their
 * masters) into BASE, a whole flat buffer of DTYPE; returns their number.
 */
int ckpt_weight_items(const struct slice *s, enum ckpt_role role,
		      enum ckpt_dtype dtype, void *base, struct arena *a,
		      struct ckpt_item **items);

/*
 * Save SLICE of every peer as RUN_DIR/step_NNNNNNNN, complete or not at all:
 * all files to a temporary folder, checksums and fsync, the manifest last,
 * commit by rename; then LATEST, then all but the KEEP newest are removed
 * (KEEP 0: none).  A complete step of that name is kept as it is and nothing
 * is written; a broken one makes way.  On failure earlier checkpoints are
 * untouched and every rank returns the same code: CODE_STORAGE for a full
 * disk, CODE_CKPT when copies of a weight differ between ranks or the step is
 * another model's.  A file too large is an error only where SIGXFSZ is
 * ignored.
 */
int ckpt_save(const char *run_dir, const struct config *c,
	      const struct weights *w, const struct grid *g,
	      const struct slice *s, const struct ckpt_memory *mem,
	      const struct ckpt_progress *progress, int keep,
	      const struct ckpt_peers *peers, struct err *e);

/*
 * The step to resume from: the newest step folder of RUN_DIR that proves
 * complete (manifest, sizes, index checksums, shape hash).  *step = -1 if
 * there is no candidate at all.  Candidates that are all bad are an error
 * (CODE_CKPT): never start afresh over them.  Each rejected one and why is
 * told through SAY.
 */
int ckpt_newest(const char *run_dir, const struct shape *shape,
		void (*say)(const char *line), int64_t *step, struct err *e);

/* The folder of a step, "RUN_DIR/step_00000120". */
const char *ckpt_step_path(const char *run_dir, int64_t step, struct arena *a);

/* An open checkpoint. */
struct ckpt;

/*
 * Open a step folder, or a run's folder (its newest complete step).  Fails
 * (CODE_CKPT) if it is incomplete or damaged, or, with SHAPE given, of another
 * shape: the error names the fields that differ.
 * SAY (may be NULL) hears of newer steps of the run that were passed over.
 */
int ckpt_open(struct ckpt **out, const char *path, const struct shape *shape,
	      void (*say)(const char *line), struct err *e);
void ckpt_close(struct ckpt *c);
const struct ckpt_progress *ckpt_progress(const struct ckpt *c);
const struct shape *ckpt_shape(const struct ckpt *c);
/*
 * The settings of run that are recorded because they decide which samples
 * come; ended by NULL.  Their value in RUN as it would be recorded, and as C
 * has it (NULL: it was not set, or C is older than these records).
 */
extern const char *const ckpt_run_names[];
const char *ckpt_run_value(const struct run *run, const char *name,
			   struct arena *a);
const char *ckpt_run_text(const struct ckpt *c, const char *name);

bool ckpt_has_role(const struct ckpt *c, enum ckpt_role role);

/*
 * Fill the N items from whatever files hold them; every element exactly once
 * or it is an error (CODE_CKPT), checksums of pieces read whole are checked.
 * The item's dtype must be the stored one, one that holds all its numbers
 * (f16 and bf16 -> f32 -> f64), or f32 for f64, narrowed as C does.
 */
int ckpt_read(struct ckpt *c, const struct weights *w, struct ckpt_item *items,
	      int n, struct err *e);

#endif
