/* SPDX-License-Identifier: Apache-2.0 */
/* RUN.DIR/metrics.jsonl: one object a step, and what a person sees. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/train/trainer.h"

struct metrics {
	int fd;	       /* -1: this rank writes none */
	bool terminal; /* stderr is one: a progress line */
	bool line_open;
	int64_t log_interval, train_iters;
	double ms_mean; /* of the recent steps, for the time left */
};

struct metrics_row {
	int64_t step;
	double loss, grad_norm, lr;
	double mtp_grad_norm; /* NAN: not apart from the rest */
	int64_t tokens;	      /* of the whole run so far */
	double tokens_per_second, tflops, mfu; /* NAN: null */
	double step_ms;
	int64_t memory_bytes;
	double eval_loss;  /* NAN: not evaluated */
	double loss_scale; /* 0: none */
	bool skipped;
	int depths; /* of multi-token prediction */
	const struct trainer_depth *mtp;
	struct trainer_moe moe;
};

/*
 * Open the file for appending; what it says of steps after STEP (an earlier,
 * longer life of this run) is dropped first.  DIR NULL: this rank writes
 * nothing.
 */
int metrics_open(struct metrics *m, const char *dir, int64_t step,
		 int64_t log_interval, int64_t train_iters, struct err *e);

/* Append one row and tell the person. */
int metrics_write(struct metrics *m, const struct metrics_row *row,
		  struct err *e);

/* End an open progress line, so that other talk starts on its own. */
void metrics_settle(struct metrics *m);
void metrics_close(struct metrics *m);

#endif
