/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives behind one small interface: Open MPI on CPUs, self for one
 * process.  Reductions gather and add in rank order, so their bits depend on
 * nothing but the values.
 */
#ifndef TRAIN_COMM_H
#define TRAIN_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct boot;
struct comm;
struct comm_group;

enum comm_type { COMM_F32, COMM_F64 };

enum comm_op {
	COMM_SUM,	     /* all-reduce: recv (n) = the sum of send (n) */
	COMM_MAX,	     /* all-reduce */
	COMM_REDUCE_SCATTER, /* recv (n) = this rank's part of the sum of
				send (n * size) */
	COMM_ALL_GATHER,     /* recv (n * size) = send (n) of every rank */
	COMM_SEND,	     /* n elements to PEER (place in the group) */
	COMM_RECV,
};

/*
 * One operation in flight.  The caller owns it and keeps it, send and recv
 * untouched until comm_wait or comm_test says it is done.
 */
struct comm_req {
	enum comm_op op;
	struct comm_group *group;
	enum comm_type type;
	const void *send;
	void *recv; /* may equal SEND for COMM_SUM and COMM_MAX; for
		       COMM_ALL_GATHER send may be its own part of recv, and
		       recv its own part of send for COMM_REDUCE_SCATTER */
	int64_t n;
	int peer, tag; /* of COMM_SEND and COMM_RECV */
	void *scratch; /* for reductions on the CPU, this op's alone while it
			  is in flight: at least one element per rank */
	size_t scratch_bytes;
	const char *name; /* of the op, for messages: "layer 3 attn out" */
	/* the transport's own, zero at first */
	void *flight; /* NULL: done */
	int64_t seq;  /* of the operation in its group */
	double idle;  /* since when nothing has moved, or 0 */
};

/*
 * Open the transport over the ranks that boot found; TIMEOUT bounds every
 * wait in seconds (CODE_COMM names op, group, sequence number and peers).
 * B outlives the comm; its cards, where exchanged, tell hosts for messages
 * and whether several nodes of the launcher share one machine (shared memory
 * between them is then off).  World 1 makes no MPI call at all.
 */
int comm_open(struct comm **out, const struct boot *b, double timeout,
	      struct err *e);
void comm_close(struct comm *c);

/*
 * A group of N global ranks in this order, of which this process is number
 * ME.  Every rank of the world calls for the groups in the same order of
 * NAME; ranks outside of it do not call.  A group of one needs no transport.
 */
int comm_group_open(struct comm *c, const char *name, const int *ranks, int n,
		    int me, struct comm_group **out, struct err *e);
int comm_group_size(const struct comm_group *g);
int comm_group_me(const struct comm_group *g);
void comm_group_close(struct comm_group *g);

/*
 * COMM_SUM, COMM_MAX, COMM_REDUCE_SCATTER give exactly ((x0 + x1) + x2) + ...
 * in the order of the group's ranks, whatever the scratch; a NaN wins in
 * COMM_MAX.  Collectives of a group are started in the same order on all its
 * ranks; messages between two ranks with one tag arrive in order.  A NULL
 * group is a group of one, and so needs no transport.  Waiting or testing
 * moves everything in flight.  After a failure nothing but boot_abort is
 * useful.  One thread calls.
 */
int comm_start(struct comm_req *req, struct err *e);
/* 1 when done, 0 when not yet, -1 on failure. */
int comm_test(struct comm_req *req, struct err *e);
int comm_wait(struct comm_req *req, struct err *e);

/* Small host-side helpers over a whole group, blocking, in doubles. */
int comm_sum(struct comm_group *g, double *x, int n, struct err *e);
int comm_barrier(struct comm_group *g, struct err *e);

#endif
