/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/sys.h"
#include "lib/train/comm_impl.h"

/* How long to poll without a pause: a peer is at most this late, usually. */
#define SPINS	 20
#define IDLE_NAP 0.05 /* seconds; from then on sleep between polls */
#define NAP_NS	 100000

size_t comm_elem(enum comm_type type)
{
	return type == COMM_F32	  ? sizeof(float)
	       : type == COMM_F64 ? sizeof(double)
				  : sizeof(uint16_t);
}

bool comm_is_message(const struct comm_req *req)
{
	return req->op == COMM_SEND || req->op == COMM_RECV;
}

const char *comm_op_name(enum comm_op op)
{
	static const char *const names[] = {
		[COMM_SUM] = "all-reduce (sum)",
		[COMM_MAX] = "all-reduce (max)",
		[COMM_REDUCE_SCATTER] = "reduce-scatter",
		[COMM_ALL_GATHER] = "all-gather",
		[COMM_SEND] = "send",
		[COMM_RECV] = "receive",
	};

	return names[op];
}

#ifndef TRISECT_CUDA
static int no_cuda(struct err *e)
{
	return err_set(e, CODE_LAUNCH,
		       "ranks on GPUs, but this program was built without "
		       "CUDA and NCCL (make CUDA=1)");
}

int comm_id(unsigned char id[COMM_ID_BYTES], struct err *e)
{
	memset(id, 0, COMM_ID_BYTES);
	return no_cuda(e);
}

int comm_nccl_open(struct comm *c, struct err *e)
{
	(void)c;
	return no_cuda(e);
}

int comm_nccl_self(const struct comm_req *req, struct err *e)
{
	(void)req;
	return no_cuda(e);
}
#endif

int comm_open(struct comm **out, const struct boot *b, bool gpu, double timeout,
	      struct err *e)
{
	struct comm *c = calloc(1, sizeof(*c));

	*out = NULL;
	if (!c)
		return err_set(e, CODE_COMM, "no memory for a comm");
	c->boot = b;
	c->timeout = timeout;
	if (b->world > 1 && (gpu ? comm_nccl_open : comm_mpi_open)(c, e)) {
		free(c);
		return -1;
	}
	*out = c;
	return 0;
}

void comm_close(struct comm *c)
{
	if (!c)
		return;
	if (c->t)
		c->t->close(c);
	free(c);
}

static void group_free(struct comm_group *g)
{
	if (g)
		free(g->ranks);
	free(g);
}

static struct comm_group *group_new(struct comm *c, const char *name,
				    const int *ranks, int n, int me)
{
	struct comm_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->ranks = calloc((size_t)n + 1, sizeof(*g->ranks));
	if (!g->ranks) {
		free(g);
		return NULL;
	}
	for (int i = 0; i < n; i++)
		g->ranks[i] = ranks[i];
	g->comm = c;
	g->size = n;
	g->me = me;
	snprintf(g->name, sizeof(g->name), "%s", name);
	return g;
}

int comm_group_open(struct comm *c, const char *name, enum comm_use use,
		    const int *ranks, int n, int me, struct comm_group **out,
		    struct err *e)
{
	struct comm_group *g = group_new(c, name, ranks, n, me);

	*out = NULL;
	if (!g)
		return err_set(e, CODE_COMM, "no memory for group %s", name);
	if (c->t && c->t->group_open(g, use, e)) {
		c->broken = true;
		group_free(g);
		return -1;
	}
	if (n > 0)
		*out = g;
	else
		group_free(g);
	return 0;
}

int comm_group_size(const struct comm_group *g)
{
	return g ? g->size : 1;
}

void comm_group_close(struct comm_group *g)
{
	if (!g)
		return;
	if (g->size > 1)
		g->comm->t->group_close(g);
	group_free(g);
}

/* A group of one: every collective is a copy. */
static int start_self(const struct comm_req *req, struct err *e)
{
	if (comm_is_message(req))
		return err_set(e, CODE_COMM, "%s: %s in a group of one rank",
			       req->name, comm_op_name(req->op));
	if (req->queue)
		return comm_nccl_self(req, e);
	if (req->n > 0 && req->send != req->recv)
		memmove(req->recv, req->send,
			(size_t)req->n * comm_elem(req->type));
	return 0;
}

int comm_start(struct comm_req *req, struct err *e)
{
	struct comm_group *g = req->group;
	int rc;

	req->flight = NULL;
	req->idle = 0;
	if (comm_group_size(g) == 1)
		return start_self(req, e);
	if (!comm_is_message(req))
		req->seq = g->seq++;
	rc = g->comm->t->start(req, e);
	if (rc)
		g->comm->broken = true;
	return rc;
}

/* "1 on n2, 3 on n4": whom REQ still waits for. */
static void list_peers(const struct comm_req *req, char *buf, size_t size)
{
	const struct comm_group *g = req->group;
	const struct boot *b = g->comm->boot;
	size_t used = 0;

	buf[0] = 0;
	for (int p = 0; p < g->size && used < size - 100; p++) {
		int rank = g->ranks[p];

		if (!g->comm->t->waits_for(req, p))
			continue;
		used += (size_t)snprintf(buf + used, size - used, "%s%d%s%s",
					 used ? ", " : "", rank,
					 b->card ? " on " : "",
					 b->card ? b->card[rank].host : "");
	}
}

int comm_late(const struct comm_req *req, struct err *e)
{
	const struct comm_group *g = req->group;
	char peers[400], number[32] = "";

	list_peers(req, peers, sizeof(peers));
	if (comm_is_message(req))
		snprintf(number, sizeof(number), "tag %d", req->tag);
	else
		snprintf(number, sizeof(number), "number %lld",
			 (long long)req->seq);
	return err_set(e, CODE_COMM,
		       "%s: %s in group %s, %s, of %lld elements: rank %d has "
		       "waited %g s for rank %s: look there for the first "
		       "error, or raise place.distributed_timeout_minutes",
		       req->name, comm_op_name(req->op), g->name, number,
		       (long long)req->n, g->ranks[g->me], g->comm->timeout,
		       peers);
}

int comm_test(struct comm_req *req, struct err *e)
{
	struct comm *c;

	if (!req->flight)
		return 1;
	c = req->group->comm;
	if (c->t->poll(c, e)) {
		c->broken = true;
		return -1;
	}
	if (!req->flight)
		return 1;
	if (req->idle == 0) {
		req->idle = sys_seconds();
		return 0;
	}
	if (sys_seconds() - req->idle < c->timeout)
		return 0;
	c->broken = true;
	return comm_late(req, e);
}

/* Nothing has moved for a while: let others have the processor. */
static void relax(const struct comm_req *req, int polls)
{
	static const struct timespec nap = {0, NAP_NS};

	if (polls % SPINS)
		return;
	if (req->idle > 0 && sys_seconds() - req->idle > IDLE_NAP)
		nanosleep(&nap, NULL);
	else
		sched_yield();
}

int comm_wait(struct comm_req *req, struct err *e)
{
	int rc;

	if (!req->flight)
		return 0;
	if (req->group->comm->t->wait) {
		rc = req->group->comm->t->wait(req, e);
		req->group->comm->broken |= rc != 0;
		return rc;
	}
	for (int polls = 1; !(rc = comm_test(req, e)); polls++)
		relax(req, polls);
	return rc < 0 ? -1 : 0;
}

int comm_check(struct comm *c, struct err *e)
{
	if (!c || !c->t || !c->t->check)
		return 0;
	if (!c->t->check(c, e))
		return 0;
	c->broken = true;
	return -1;
}

int comm_gather(struct comm_group *g, const void *mine, size_t bytes, void *all,
		struct err *e)
{
	if (comm_group_size(g) == 1) {
		memcpy(all, mine, bytes);
		return 0;
	}
	if (!g->comm->t->gather(g, mine, bytes, all, e))
		return 0;
	g->comm->broken = true;
	return -1;
}
