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
	return type == COMM_F32 ? sizeof(float) : sizeof(double);
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

int comm_open(struct comm **out, const struct boot *b, double timeout,
	      struct err *e)
{
	struct comm *c = calloc(1, sizeof(*c));

	*out = NULL;
	if (!c)
		return err_set(e, CODE_COMM, "no memory for a comm");
	c->boot = b;
	c->timeout = timeout;
	if (b->world > 1 && comm_mpi_open(c, e)) {
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

int comm_group_open(struct comm *c, const char *name, const int *ranks, int n,
		    int me, struct comm_group **out, struct err *e)
{
	struct comm_group *g = calloc(1, sizeof(*g));
	size_t bytes = (size_t)n * sizeof(*g->ranks);

	*out = NULL;
	if (g)
		g->ranks = malloc(bytes);
	if (!g || !g->ranks) {
		free(g);
		return err_set(e, CODE_COMM, "no memory for group %s", name);
	}
	memcpy(g->ranks, ranks, bytes);
	g->comm = c;
	g->size = n;
	g->me = me;
	snprintf(g->name, sizeof(g->name), "%s", name);
	if (n > 1 && c->t->group_open(g, e)) {
		free(g->ranks);
		free(g);
		return -1;
	}
	*out = g;
	return 0;
}

int comm_group_size(const struct comm_group *g)
{
	return g ? g->size : 1;
}

int comm_group_me(const struct comm_group *g)
{
	return g ? g->me : 0;
}

void comm_group_close(struct comm_group *g)
{
	if (!g)
		return;
	if (g->size > 1)
		g->comm->t->group_close(g);
	free(g->ranks);
	free(g);
}

/* A group of one: every collective is a copy. */
static int start_self(const struct comm_req *req, struct err *e)
{
	if (req->op == COMM_SEND || req->op == COMM_RECV)
		return err_set(e, CODE_COMM, "%s: %s in a group of one rank",
			       req->name, comm_op_name(req->op));
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
	if (req->op != COMM_SEND && req->op != COMM_RECV)
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

static int late(const struct comm_req *req, struct err *e)
{
	const struct comm_group *g = req->group;
	char peers[400], number[32] = "";

	list_peers(req, peers, sizeof(peers));
	if (req->op == COMM_SEND || req->op == COMM_RECV)
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
	return late(req, e);
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

	for (int polls = 1; !(rc = comm_test(req, e)); polls++)
		relax(req, polls);
	return rc < 0 ? -1 : 0;
}

static int reduce_small(struct comm_group *g, double *x, int n,
			const char *name, struct err *e)
{
	struct comm_req req = {.op = COMM_SUM,
			       .group = g,
			       .type = COMM_F64,
			       .send = x,
			       .recv = x,
			       .n = n,
			       .name = name};
	int rc;

	req.scratch_bytes =
		(size_t)comm_group_size(g) * (size_t)n * sizeof(double);
	req.scratch = malloc(req.scratch_bytes);
	if (!req.scratch)
		return err_set(e, CODE_COMM, "%s: no memory for %zu bytes",
			       name, req.scratch_bytes);
	rc = comm_start(&req, e);
	if (!rc)
		rc = comm_wait(&req, e);
	free(req.scratch);
	return rc;
}

int comm_sum(struct comm_group *g, double *x, int n, struct err *e)
{
	return n > 0 ? reduce_small(g, x, n, "sum", e) : 0;
}

int comm_barrier(struct comm_group *g, struct err *e)
{
	double one = 1;

	return reduce_small(g, &one, 1, "barrier", e);
}
