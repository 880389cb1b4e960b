/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's training state: its plan, its memory, its groups. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "lib/plan/plan.h"
#include "lib/plan/plugin.h"
#include "lib/train/machine.h"
#include "lib/train/scaler.h"

struct trainer {
	struct plan plan;
	struct exec exec;
	struct plugins plugins;
	struct comm_group *group[PROG_GROUPS];
	int64_t step; /* done, with those that updated nothing */
	struct scaler scaler;
	int64_t profile; /* the step whose ops are timed, told on stdout; 0 */
	int64_t consumed_samples;
};

/* A depth of multi-token prediction in one step. */
struct trainer_depth {
	double loss; /* the mean of the micro-batches' means: Megatron's */
	double token_loss; /* the mean over tokens */
	/* the share of tokens that were the most likely ones: a draft of
	 * this depth would be accepted */
	double acceptance;
};

/* Mixtures of experts in one step. */
struct trainer_moe {
	bool there;
	/* what the losses add to the objective: the sum over layers of the
	 * means over micro-batches */
	double aux, z;
	/* the most loaded expert's tokens over the mean expert's: the mean
	 * over layers and micro-batches */
	double load;
};

/* What one step gave. */
struct trainer_result {
	int64_t step; /* its number, from 1; 0: none has ended yet */
	double loss;
	double grad_norm;
	double mtp_grad_norm; /* of detached depths; NAN: there are none */
	double grad_scale;    /* of the gradients in the update: the clip's */
	double lr;
	double loss_scale; /* 0: none */
	bool skipped;	   /* for gradients that were not finite: no update */
	double tokens;	   /* scored */
	double seconds;	   /* it took */
	bool stop;	   /* some rank was asked to stop */
	int depths;
	struct trainer_depth mtp[KERN_DEPTHS];
	struct trainer_moe moe;
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
 * Plan RANK of WORLD, open its groups over COMM (NULL when alone), allocate on
 * M, load the config's plugins, and draw the first weights.
 */
int trainer_open(struct trainer *t, const struct config *c, int world, int rank,
		 const struct machine *m, struct comm *comm, struct arena *a,
		 struct err *e);
/*
 * The same for a generation of SIZE, whose lists go to GEN: the parameters are
 * still to be loaded, and only exec_run runs them.
 */
int trainer_open_gen(struct trainer *t, struct prog_gen *gen,
		     const struct gen_size *size, const struct config *c,
		     int world, int rank, const struct machine *m,
		     struct comm *comm, struct arena *a, struct err *e);
void trainer_close(struct trainer *t);

/*
 * Load the step's micro-batches, run it, update: t->step and
 * t->consumed_samples move on.  STOP asks all ranks to stop.  *OUT is this
 * step's, or on a GPU, which is still at it, the one before's.  Fails
 * (CODE_NUMERIC) if that step's loss or gradient norm is not finite: then the
 * parameters are spoilt.  With a scaled loss such a step updates nothing, and
 * TRAINER_SKIPS of them in a row are the failure.
 */
enum { TRAINER_SKIPS = 64 };

int trainer_step(struct trainer *t, const struct trainer_data *data, bool stop,
		 struct trainer_result *out, struct err *e);

/*
 * Wait for the last step, before anything but another one: *OUT is its, if
 * trainer_step has not given it yet.  Fails as that does.
 */
int trainer_settle(struct trainer *t, struct trainer_result *out,
		   struct err *e);

/*
 * The mean loss over ITERS global batches of the validation stream, and the
 * scored tokens (may be NULL).
 */
int trainer_eval(struct trainer *t, const struct trainer_data *data,
		 int64_t iters, double *loss, double *tokens, struct err *e);

#endif
