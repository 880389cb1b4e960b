/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's training state: its plan, its memory, its groups. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "lib/plan/plan.h"
#include "lib/train/exec.h"

struct trainer {
	struct plan plan;
	struct exec exec;
	struct comm_group *group[PROG_GROUPS];
	int64_t step; /* optimizer steps done */
	int64_t consumed_samples;
};

/* What one step, or one evaluation, gave. */
struct trainer_result {
	double loss;
	double grad_norm;
	double tokens; /* scored */
	bool stop;     /* some rank was asked to stop */
};

/*
 * Where samples come from: fill IDS and LABELS (seq_length each) with sample
 * INDEX of the training or the validation stream; labels < 0 are not scored.
 */
struct trainer_data {
	void *arg;
	int (*sample)(void *arg, bool valid, int64_t index, int32_t *ids,
		      int32_t *labels, struct err *e);
};

/*
 * Plan RANK of WORLD, open its groups over COMM (NULL when alone), allocate,
 * and draw the first weights.
 */
int trainer_open(struct trainer *t, const struct config *c, int world, int rank,
		 struct comm *comm, struct arena *a, struct err *e);
void trainer_close(struct trainer *t);

/*
 * Load the step's micro-batches, run it, update: t->step and
 * t->consumed_samples move on.  STOP asks all ranks to stop.  Fails
 * (CODE_NUMERIC) if loss or gradient norm is not finite: then nothing has
 * moved on, but the parameters may be spoilt.
 */
int trainer_step(struct trainer *t, const struct trainer_data *data, bool stop,
		 struct trainer_result *out, struct err *e);

/* The mean loss over ITERS global batches of the validation stream. */
int trainer_eval(struct trainer *t, const struct trainer_data *data,
		 int64_t iters, double *loss, struct err *e);

#endif
