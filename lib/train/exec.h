/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program: memory by family, ops in order, collectives in flight. */
#ifndef TRAIN_EXEC_H
#define TRAIN_EXEC_H

#include "lib/plan/prog.h"
#include "lib/train/comm.h"

enum { EXEC_IN_FLIGHT = PROG_IN_FLIGHT };

struct exec {
	const struct prog *prog;
	const struct kern *kern;
	char *base[FAMILIES]; /* exactly prog->bytes[] each */
	int64_t allocated;    /* bytes, over all families */
	struct comm_group *group[PROG_GROUPS];
	struct comm_req req[EXEC_IN_FLIGHT];
	int req_op[EXEC_IN_FLIGHT]; /* index of the op, or -1 */
	/* Where this rank is, for the watchdog: may be read at any time. */
	const struct op *volatile now;
};

/*
 * Allocate every family, zeroed, and fill the rope table.  GROUPS are the
 * groups this rank is in (NULL where it is in none or alone).  Fails
 * (CODE_LAUNCH) with the bytes wanted.
 */
int exec_open(struct exec *x, const struct prog *p, const struct kern *k,
	      const struct shape *s,
	      struct comm_group *const groups[PROG_GROUPS], struct err *e);
void exec_close(struct exec *x);

/* Run one of the program's lists.  Allocates nothing. */
int exec_run(struct exec *x, const struct prog_list *list, struct err *e);

struct prog_scalars *exec_scalars(const struct exec *x);
int32_t *exec_ids(const struct exec *x, int mb);
int32_t *exec_labels(const struct exec *x, int mb);
double *exec_loss(const struct exec *x); /* by micro-batch */
double *exec_coef(const struct exec *x);

/* The table of ops for a dtype on the CPU (enum spec_dtype). */
const struct kern *exec_kern(int dtype);

#endif
