/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives behind one small interface: NCCL on GPUs, Open MPI on CPUs,
 * self for one process.  On CPUs reductions gather and add in rank order, so
 * their bits depend on nothing but the values; NCCL's order follows from the
 * group and the size, so two runs give the same bits.
 */
#ifndef TRAIN_COMM_H
#define TRAIN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct boot;
struct comm;
struct comm_group;
struct queue;

enum comm_type { COMM_F32, COMM_F64, COMM_BF16, COMM_FP16 };

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
	/*
	 * On a GPU: what was put into QUEUE before the start comes before the
	 * operation, and what is put into it after the wait comes after it.
	 */
	struct queue *queue;
	void *scratch; /* for reductions on the CPU, this op's alone while it
			  is in flight: at least one element per rank */
	size_t scratch_bytes;
	const char *name; /* of the op, for messages: "layer 3 attn out" */
	/* the transport's own, zero at first */
	void *flight; /* NULL: done, or on a GPU waited for */
	int64_t seq;  /* of the operation in its group */
	double idle;  /* since when nothing has moved, or 0 */
};

/*
 * What rank 0 puts on its card (boot.h) so that GPUs find each other: once,
 * on the device it has opened.  Fails (CODE_LAUNCH) in a build without CUDA.
 */
enum { COMM_ID_BYTES = 128 };
int comm_id(unsigned char id[COMM_ID_BYTES], struct err *e);

/*
 * Open the transport over the ranks that boot found, between their GPUs or
 * between hosts; TIMEOUT bounds every wait in seconds (CODE_COMM names op,
 * group, sequence number and peers).  B outlives the comm; its cards, where
 * exchanged, tell hosts for messages and whether several nodes of the
 * launcher share one machine (shared memory between them is then off).
 * World 1 makes no call of a transport at all.  Between GPUs the cards have
 * been exchanged, rank 0's with comm_id, and this process has opened its
 * device; a build without CUDA refuses (CODE_LAUNCH).
 */
int comm_open(struct comm **out, const struct boot *b, bool gpu, double timeout,
	      struct err *e);
void comm_close(struct comm *c);

/*
 * A group of N global ranks in this order, of which this process is number
 * ME.  Every rank of the world calls for the groups in the same order of
 * NAME, also for those that it is not in: then N is 0 and *OUT NULL.  USE
 * says what for: collectives, or messages between neighbours, the last one's
 * being the first in a ring; on GPUs even tags then go to the next place and
 * odd ones to the one before.  A group of one needs no transport.
 */
enum comm_use { COMM_COLLECTIVES, COMM_CHAIN, COMM_RING };
int comm_group_open(struct comm *c, const char *name, enum comm_use use,
		    const int *ranks, int n, int me, struct comm_group **out,
		    struct err *e);
int comm_group_size(const struct comm_group *g);
void comm_group_close(struct comm_group *g);

/*
 * COMM_SUM, COMM_MAX, COMM_REDUCE_SCATTER give exactly ((x0 + x1) + x2) + ...
 * in the order of the group's ranks, whatever the scratch; a NaN wins in
 * COMM_MAX, on CPUs.  Collectives of a group are started in the same order on
 * all its ranks; so are messages from one rank to another, those of even tags
 * and those of odd tags each for themselves.  A NULL group is a group of one,
 * and so needs no transport.  Waiting or testing moves everything in flight;
 * on a GPU comm_wait does not wait for the operation but puts the wait into
 * its queue.  After a failure nothing but boot_abort is useful.  One thread
 * calls.
 */
int comm_start(struct comm_req *req, struct err *e);
/* 1 when done, 0 when not yet, -1 on failure. */
int comm_test(struct comm_req *req, struct err *e);
int comm_wait(struct comm_req *req, struct err *e);

/*
 * On a GPU: -1 if a peer or the network has failed (CODE_COMM), or if what
 * was started is later than the timeout, counted from when all before it was
 * done; to be asked while the host waits, as often as it likes.
 */
int comm_check(struct comm *c, struct err *e);

/*
 * all (n * bytes) = mine (bytes) of every rank of the group, in the host's
 * memory; blocks, and may allocate.  For groups of collectives.
 */
int comm_gather(struct comm_group *g, const void *mine, size_t bytes, void *all,
		struct err *e);

#endif
