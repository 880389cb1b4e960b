/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL between GPUs.  NCCL runs the operations of one communicator one after
 * another, so whatever must not wait for each other has a lane of its own, a
 * communicator with a queue: one for a group's collectives; in a group of
 * messages, one for each pair of neighbours and direction, or a receive that
 * is posted early would hold up the sends behind it, and so the peer.
 */
#ifndef TRAIN_COMM_NCCL_H
#define TRAIN_COMM_NCCL_H

#include <nccl.h>

#include "kernels/device.h"
#include "lib/train/comm_impl.h"

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "needs NCCL 2.18 or later, the first with ncclCommSplit"
#endif

/* An operation under way; kept for the next one when it has ended. */
struct flight {
	struct flight *next;
	struct comm_req req;	/* the asker's may be gone before this ends */
	struct comm_req *asked; /* or NULL: waited for */
	struct device_event *before, *after;
	double since; /* when it was first seen to run, or 0 */
};

struct lane {
	struct lane *next;
	struct comm_group *group;
	ncclComm_t nccl;
	struct queue *queue;
	struct flight *first, **last; /* oldest first */
};

/* Of a comm. */
struct world {
	ncclComm_t nccl;     /* of all ranks, only to split others off */
	struct lane *lanes;  /* of all groups, the newest first */
	struct flight *idle; /* waited for and ended */
	char *room;	     /* device memory for the transport's own */
	size_t room_bytes;
	double checked;
};

/* Of a group; side 0 is the edge to the next place, 1 from the one before. */
struct lanes {
	struct lane *collective;
	struct lane *message[2][2]; /* by side and parity of tags */
};

/* comm_nccl.c: what a transport does between opening and closing. */
int comm_nccl_start(struct comm_req *req, struct err *e);
int comm_nccl_wait(struct comm_req *req, struct err *e);
int comm_nccl_poll(struct comm *c, struct err *e);
int comm_nccl_check(struct comm *c, struct err *e);
int comm_nccl_gather(struct comm_group *g, const void *mine, size_t bytes,
		     void *all, struct err *e);
bool comm_nccl_waits_for(const struct comm_req *req, int peer);

/* Start REQ in L and wait for its end; its queue is L's. */
int comm_nccl_run(struct lane *l, struct comm_req *req, struct err *e);
/* The oldest in L has ended, or will not be waited for. */
void comm_nccl_end(struct world *w, struct lane *l);
/* At least BYTES of device memory in w->room. */
int comm_nccl_room(struct world *w, size_t bytes, struct err *e);
/* What RC becomes when NCCL's threads are through, or the time is up. */
ncclResult_t comm_nccl_settle(ncclComm_t nccl, ncclResult_t rc, double timeout);
/* NCCL's words for RC, in one line. */
const char *comm_nccl_text(const struct comm *c, ncclResult_t rc, char *buf,
			   size_t size);

#endif
