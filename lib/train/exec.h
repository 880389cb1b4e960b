/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program: memory by family, ops in order, collectives in flight. */
#ifndef TRAIN_EXEC_H
#define TRAIN_EXEC_H

#include "lib/plan/prog.h"
#include "lib/train/comm.h"

struct machine;

enum { EXEC_IN_FLIGHT = PROG_IN_FLIGHT };

struct exec {
	const struct prog *prog;
	const struct machine *machine;
	const struct kern *kern;
	/* by layer, where plugins compute some of it; or NULL: all KERN */
	const struct kern *layer_kern;
	int dtype;	      /* of its elements: enum spec_dtype */
	struct queue *queue;  /* NULL on the CPU */
	char *base[FAMILIES]; /* as ops see them: prog->bytes[] each */
	int64_t allocated;    /* bytes, over all families */
	char *host; /* FAMILY_HOST of the next run, for the host to write */
	int runs;   /* begun whose results were not asked for */
	double prepared; /* when, in seconds */
	void *own;	 /* the machine's */
	struct comm *comm;
	struct comm_group *group[PROG_GROUPS];
	struct comm_req req[EXEC_IN_FLIGHT];
	int req_op[EXEC_IN_FLIGHT]; /* index of the op, or -1 */
	/* Where this rank is, for the watchdog: may be read at any time. */
	const struct op *volatile now;
};

/*
 * Allocate every family, zeroed, on MACHINE and fill the rope table.  GROUPS
 * are COMM's that this rank is in (NULL where it is in none or alone).  Fails
 * (CODE_LAUNCH) with the bytes wanted.
 */
int exec_open(struct exec *x, const struct prog *p, const struct machine *m,
	      const struct config *c, struct comm *comm,
	      struct comm_group *const groups[PROG_GROUPS], struct err *e);
void exec_close(struct exec *x);

/*
 * A step: exec_prepare, then the caller writes all inputs (below), exec_run
 * with one of the program's lists, exec_results.  On a GPU the results of
 * the last exec_lag runs may be left until later, so that the device always
 * has work; they come in the order of the runs.  Their *seconds (may be NULL)
 * are the run's: from its exec_prepare, or from the end of the run before it
 * if that was still under way, to its end.  Allocates nothing.  exec_time is an
 * exec_run that waits: ms[i] = what op I took.
 */
int exec_lag(const struct exec *x);
int exec_prepare(struct exec *x, struct err *e);
int exec_run(struct exec *x, const struct prog_list *list, struct err *e);
int exec_time(struct exec *x, const struct prog_list *list, double *ms,
	      struct err *e);
int exec_results(struct exec *x, struct kern_scalars *out, double *seconds,
		 struct err *e);

/* The inputs of the next run. */
struct kern_scalars *exec_scalars(const struct exec *x);
/* Of the main head, and of each depth of multi-token prediction from 1 on. */
int32_t *exec_ids(const struct exec *x, int mb, int depth);
int32_t *exec_labels(const struct exec *x, int mb, int depth);
/* prog.h's doc and place; NULL where they are none. */
int32_t *exec_doc(const struct exec *x, int mb);
int32_t *exec_place(const struct exec *x, int mb, int depth);

/* A micro-batch's numbers in kern.h's loss, coef, share and right. */
struct exec_objective {
	double *loss, *coef;
	double *share, *right; /* NULL for the main head */
};

struct exec_objective exec_objective(const struct exec *x, int mb, int depth);

/*
 * BYTES at R as the last run has left them, once its results are here: their
 * place on the CPU, a copy in ROOM of a GPU's.  NULL is a failure.
 */
const void *exec_see(struct exec *x, struct ref r, size_t bytes, void *room,
		     struct err *e);

/*
 * FAMILY for the host to read and write, between runs: the memory itself on
 * the CPU, a copy of a GPU's.  Without READ what is there is of no use, with
 * WRITE it goes back.  NULL is a failure; an empty family has an address, too.
 */
void *exec_map(struct exec *x, int family, bool read, struct err *e);
int exec_unmap(struct exec *x, int family, void *map, bool write,
	       struct err *e);

#endif
