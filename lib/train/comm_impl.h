/* SPDX-License-Identifier: Apache-2.0 */
/* What comm.c and its transports share. */
#ifndef TRAIN_COMM_IMPL_H
#define TRAIN_COMM_IMPL_H

#include <stdbool.h>

#include "lib/train/boot.h"
#include "lib/train/comm.h"

/* A way to move bytes between the ranks of a group of two or more. */
struct comm_transport {
	/*
	 * All ranks of the world call, G->size being 0 or 1 for those that
	 * are in no such group of several.
	 */
	int (*group_open)(struct comm_group *g, enum comm_use use,
			  struct err *e);
	void (*group_close)(struct comm_group *g);
	/* Post the first messages; req->flight stays NULL if that was all. */
	int (*start)(struct comm_req *req, struct err *e);
	/*
	 * Move everything in flight; the requests that end get flight NULL,
	 * those that moved idle 0.  Fails for what any of them fails for.
	 */
	int (*poll)(struct comm *c, struct err *e);
	/* comm_wait of what is in flight; NULL: by polling. */
	int (*wait)(struct comm_req *req, struct err *e);
	/* comm_check; NULL: nothing runs that no one polls. */
	int (*check)(struct comm *c, struct err *e);
	int (*gather)(struct comm_group *g, const void *mine, size_t bytes,
		      void *all, struct err *e);
	/* Whether REQ still waits for place PEER of its group. */
	bool (*waits_for)(const struct comm_req *req, int peer);
	void (*close)(struct comm *c);
};

struct comm {
	const struct comm_transport *t; /* NULL: alone */
	const struct boot *boot;
	double timeout;
	bool broken; /* failed: close without the peers */
	void *own;   /* the transport's */
};

struct comm_group {
	struct comm *comm;
	char name[32];
	int *ranks; /* [size], global */
	int size, me;
	int64_t seq; /* collectives started */
	void *own;   /* the transport's */
};

/* comm_mpi.c: MPI_Init, over the ranks of c->boot. */
int comm_mpi_open(struct comm *c, struct err *e);

/* comm_nccl.c: a communicator of all ranks of c->boot. */
int comm_nccl_open(struct comm *c, struct err *e);
/* A collective over one rank, on its device: a copy. */
int comm_nccl_self(const struct comm_req *req, struct err *e);

size_t comm_elem(enum comm_type type);
const char *comm_op_name(enum comm_op op);
bool comm_is_message(const struct comm_req *req);

/* REQ is later than its comm's timeout: who waits for whom; returns -1. */
int comm_late(const struct comm_req *req, struct err *e);

/*
 * out[i] = ((src[0][i] op src[1][i]) op src[2][i]) ... over N sources, op
 * being the maximum for COMM_MAX and the sum otherwise.  OUT may be one of
 * the sources.  TYPE is none of a GPU's alone.
 */
void comm_combine(enum comm_op op, enum comm_type type, void *out,
		  const void *const *src, int n, int64_t count);

#endif
