/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/sys.h"

#define NAP_NS	    50000
#define CHECK_EVERY 1e-3 /* seconds */

static void nap(void)
{
	static const struct timespec t = {0, NAP_NS};

	nanosleep(&t, NULL);
}

/* --- what NCCL says ----------------------------------------------------- */

static ncclResult_t async_error(ncclComm_t nccl)
{
	ncclResult_t state, rc = ncclCommGetAsyncError(nccl, &state);

	return rc == ncclSuccess ? state : rc;
}

ncclResult_t comm_nccl_settle(ncclComm_t nccl, ncclResult_t rc, double timeout)
{
	double end = sys_seconds() + timeout;

	while (rc == ncclInProgress && sys_seconds() < end) {
		nap();
		rc = async_error(nccl);
	}
	return rc;
}

const char *comm_nccl_text(const struct comm *c, ncclResult_t rc, char *buf,
			   size_t size)
{
	const char *last = ncclGetLastError(NULL);

	if (rc == ncclInProgress)
		snprintf(buf, size,
			 "not through in %g s: a rank is late or has stopped, "
			 "or no network between them (NCCL_SOCKET_IFNAME)",
			 c->timeout);
	else
		snprintf(buf, size, "%s%s%s", ncclGetErrorString(rc),
			 last && *last ? ": " : "", last ? last : "");
	buf[strcspn(buf, "\n")] = 0;
	return buf;
}

static int refused(const struct comm_req *req, ncclResult_t rc, struct err *e)
{
	const struct comm_group *g = req->group;
	char buf[400];

	return err_set(e, CODE_COMM, "%s: %s in group %s of %d ranks: NCCL: %s",
		       req->name, comm_op_name(req->op), g->name, g->size,
		       comm_nccl_text(g->comm, rc, buf, sizeof(buf)));
}

/* --- operations ---------------------------------------------------------- */

static int flight_new(struct world *w, struct err *e)
{
	struct flight *f = calloc(1, sizeof(*f));

	if (!f)
		return err_set(e, CODE_COMM, "no memory for an operation");
	f->next = w->idle;
	w->idle = f;
	f->before = device_event_open(false, e);
	f->after = device_event_open(false, e);
	return f->before && f->after ? 0 : -1;
}

void comm_nccl_end(struct world *w, struct lane *l)
{
	struct flight *f = l->first;

	if (f->asked)
		f->asked->flight = NULL;
	f->asked = NULL;
	l->first = f->next;
	if (!l->first)
		l->last = &l->first;
	f->next = w->idle;
	w->idle = f;
}

/* Put aside what has ended. */
static int retire(struct world *w, struct lane *l, struct err *e)
{
	bool done = true;

	while (l->first) {
		if (device_event_done(l->first->after, &done, e))
			return -1;
		if (!done)
			break;
		comm_nccl_end(w, l);
	}
	return 0;
}

static ncclResult_t launch(const struct lane *l, const struct comm_req *req)
{
	static const ncclDataType_t types[] = {
		[COMM_F32] = ncclFloat32,
		[COMM_F64] = ncclFloat64,
		[COMM_BF16] = ncclBfloat16,
		[COMM_FP16] = ncclFloat16,
	};
	cudaStream_t s = device_queue_stream(l->queue);
	ncclDataType_t t = types[req->type];
	size_t n = (size_t)req->n;
	int other;

	switch (req->op) {
	case COMM_SUM:
		return ncclAllReduce(req->send, req->recv, n, t, ncclSum,
				     l->nccl, s);
	case COMM_MAX:
		return ncclAllReduce(req->send, req->recv, n, t, ncclMax,
				     l->nccl, s);
	case COMM_REDUCE_SCATTER:
		return ncclReduceScatter(req->send, req->recv, n, t, ncclSum,
					 l->nccl, s);
	case COMM_ALL_GATHER:
		return ncclAllGather(req->send, req->recv, n, t, l->nccl, s);
	case COMM_SEND:
	case COMM_RECV: break;
	}
	/* of the two, the one that sends even tags is number 0 */
	other = (req->op == COMM_SEND) == !(req->tag & 1);
	if (req->op == COMM_SEND)
		return ncclSend(req->send, n, t, other, l->nccl, s);
	return ncclRecv(req->recv, n, t, other, l->nccl, s);
}

static int start_on(struct lane *l, struct comm_req *req, struct err *e)
{
	struct comm *c = l->group->comm;
	struct world *w = c->own;
	struct flight *f;
	ncclResult_t rc;

	if (retire(w, l, e) || (!w->idle && flight_new(w, e)))
		return -1;
	f = w->idle;
	if (device_event_put(f->before, req->queue, e) ||
	    device_event_after(l->queue, f->before, e))
		return -1;
	rc = comm_nccl_settle(l->nccl, launch(l, req), c->timeout);
	if (rc != ncclSuccess)
		return refused(req, rc, e);
	if (device_event_put(f->after, l->queue, e))
		return -1;
	w->idle = f->next;
	f->next = NULL;
	f->req = *req;
	f->asked = req;
	f->since = 0;
	req->flight = f;
	*l->last = f;
	l->last = &f->next;
	return 0;
}

/* A message's, or NULL: not between these two, not by this tag. */
static struct lane *message_lane(const struct comm_req *req)
{
	const struct comm_group *g = req->group;
	const struct lanes *own = g->own;
	int odd = req->tag & 1;
	int side = req->op == COMM_SEND ? odd : !odd;
	int peer = (g->me + (side ? -1 : 1) + g->size) % g->size;

	return peer == req->peer ? own->message[side][odd] : NULL;
}

int comm_nccl_start(struct comm_req *req, struct err *e)
{
	const struct comm_group *g = req->group;
	const struct lanes *own = g->own;
	struct lane *l = own->collective;

	if (comm_is_message(req))
		l = message_lane(req);
	if (!l && comm_is_message(req))
		return err_set(e, CODE_COMM,
			       "%s: %s in group %s between places %d and %d "
			       "with tag %d: on GPUs only neighbours, even "
			       "tags to the next place, odd ones to the one "
			       "before",
			       req->name, comm_op_name(req->op), g->name, g->me,
			       req->peer, req->tag);
	if (!l)
		return err_set(e, CODE_COMM,
			       "%s: %s in group %s, which is one of messages",
			       req->name, comm_op_name(req->op), g->name);
	return req->n > 0 ? start_on(l, req, e) : 0;
}

int comm_nccl_wait(struct comm_req *req, struct err *e)
{
	struct flight *f = req->flight;

	if (device_event_after(req->queue, f->after, e))
		return -1;
	f->asked = NULL;
	req->flight = NULL;
	return 0;
}

/* The oldest operation of a lane runs once what it comes after is done. */
static int check_late(struct comm *c, struct lane *l, struct err *e)
{
	struct flight *f = l->first;
	bool runs = false;

	if (!f)
		return 0;
	if (f->since > 0)
		return sys_seconds() - f->since < c->timeout
			       ? 0
			       : comm_late(&f->req, e);
	if (device_event_done(f->before, &runs, e))
		return -1;
	if (runs)
		f->since = sys_seconds();
	return 0;
}

static int check_lane(struct comm *c, struct lane *l, struct err *e)
{
	ncclResult_t rc = async_error(l->nccl);
	char buf[400];

	if (rc != ncclSuccess && rc != ncclInProgress && l->first)
		return refused(&l->first->req, rc, e);
	if (rc != ncclSuccess && rc != ncclInProgress)
		return err_set(e, CODE_COMM, "group %s: NCCL: %s",
			       l->group->name,
			       comm_nccl_text(c, rc, buf, sizeof(buf)));
	return retire(c->own, l, e) || check_late(c, l, e) ? -1 : 0;
}

int comm_nccl_poll(struct comm *c, struct err *e)
{
	struct world *w = c->own;

	w->checked = sys_seconds();
	for (struct lane *l = w->lanes; l; l = l->next)
		if (check_lane(c, l, e))
			return -1;
	return 0;
}

int comm_nccl_check(struct comm *c, struct err *e)
{
	const struct world *w = c->own;

	return sys_seconds() - w->checked < CHECK_EVERY ? 0
							: comm_nccl_poll(c, e);
}

/* Of a collective NCCL does not say whom it waits for. */
bool comm_nccl_waits_for(const struct comm_req *req, int peer)
{
	return comm_is_message(req) ? peer == req->peer
				    : peer != req->group->me;
}

int comm_nccl_self(const struct comm_req *req, struct err *e)
{
	if (req->n == 0 || req->send == req->recv)
		return 0;
	return device_copy(req->queue, req->recv, req->send,
			   (size_t)req->n * comm_elem(req->type), e);
}

/* --- the host's own ------------------------------------------------------- */

int comm_nccl_run(struct lane *l, struct comm_req *req, struct err *e)
{
	int rc;

	if (start_on(l, req, e))
		return -1;
	while (!(rc = comm_test(req, e)))
		nap();
	return rc < 0 ? -1 : 0;
}

int comm_nccl_room(struct world *w, size_t bytes, struct err *e)
{
	if (bytes <= w->room_bytes)
		return 0;
	device_free(w->room);
	w->room_bytes = 0;
	w->room = device_alloc(2 * bytes, e);
	if (!w->room)
		return -1;
	w->room_bytes = 2 * bytes;
	return 0;
}

static int gather_on(struct lane *l, const void *mine, size_t bytes, void *all,
		     struct err *e)
{
	struct comm_group *g = l->group;
	struct world *w = g->comm->own;
	size_t words = (bytes + sizeof(float) - 1) / sizeof(float);
	size_t size = (size_t)g->size, part = words * sizeof(float);
	struct comm_req req = {
		.op = COMM_ALL_GATHER,
		.group = g,
		.type = COMM_F32,
		.n = (int64_t)words,
		.queue = l->queue,
		.seq = g->seq++,
		.name = "gather",
	};

	if (comm_nccl_room(w, part * (size + 1), e))
		return -1;
	req.send = w->room + size * part;
	req.recv = w->room;
	if (device_copy(l->queue, w->room + size * part, mine, bytes, e) ||
	    comm_nccl_run(l, &req, e))
		return -1;
	for (size_t p = 0; p < size; p++)
		if (device_copy(l->queue, (char *)all + p * bytes,
				w->room + p * part, bytes, e))
			return -1;
	return device_queue_wait(l->queue, e);
}

int comm_nccl_gather(struct comm_group *g, const void *mine, size_t bytes,
		     void *all, struct err *e)
{
	const struct lanes *own = g->own;

	if (!own->collective)
		return err_set(e, CODE_COMM,
			       "gather in group %s, which is one of messages",
			       g->name);
	return bytes > 0 ? gather_on(own->collective, mine, bytes, all, e) : 0;
}
