/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open MPI as the mover of bytes: only point-to-point messages are its own,
 * so that order of addition, deadlines and messages are ours.
 *
 * A reduction of N elements goes in blocks that fit the scratch.  In each,
 * every rank collects its part from all others (EXCHANGE) and adds in rank
 * order; an all-reduce then hands the parts round (SHARE).  A small one is
 * one EXCHANGE of everything: fewer messages and, in rank order, the same
 * bits.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/train/comm_impl.h"
#include "lib/train/within.h"

/* Messages stay below what an int counts; blocks of reductions, in cache. */
#define MESSAGE_BYTES ((int64_t)1 << 30)
#define BLOCK_BYTES   ((int64_t)1 << 22)
#define SMALL_BYTES   4096

/* Tags below 2^15, all that MPI promises: number and kind of a collective. */
#define TAG_NUMBERS 4096
#define TAG_KINDS   8

enum phase { EXCHANGE, SHARE, MOVE };

/* One operation in flight; kept by its group for the next one. */
struct flight {
	struct flight *next;
	struct comm_req *req;
	enum phase phase;
	bool direct;	  /* everything in one EXCHANGE */
	int64_t at, part; /* where the block begins; elements of a part */
	int pending;	  /* messages */
	int messages;	  /* of mpi[] and so on in use: 1 or 2 size */
	MPI_Request *mpi; /* [2 size]: receive from p, send to p */
	MPI_Status *status;
	int *done, *want; /* want: elements of a receive, -1 of a send */
	const void **src; /* [size] */
};

struct mpi_group {
	MPI_Comm collective, message;
	struct flight *idle;
};

/* In flight, oldest first: MPI is one per process. */
static struct flight *flights;

static int failed(const struct comm_req *req, int rc, struct err *e)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	MPI_Error_string(rc, text, &len);
	return err_set(e, CODE_COMM, "%s: %s in group %s, number %lld: %s",
		       req->name, comm_op_name(req->op), req->group->name,
		       (long long)req->seq, text);
}

/* --- opening and closing ------------------------------------------------ */

struct call {
	int rc, thread_level;
	MPI_Group members;
	struct mpi_group *group;
};

/* Static: a call that outlives its deadline still owns it. */
static struct call call;

static void call_init(void *arg)
{
	(void)arg;
	call.rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED,
				  &call.thread_level);
}

static void call_finalize(void *arg)
{
	(void)arg;
	MPI_Finalize();
}

static void call_create(void *arg)
{
	(void)arg;
	call.rc = MPI_Comm_create_group(MPI_COMM_WORLD, call.members, 0,
					&call.group->collective);
	if (call.rc == MPI_SUCCESS)
		call.rc = MPI_Comm_create_group(MPI_COMM_WORLD, call.members, 1,
						&call.group->message);
}

/*
 * Nodes of the launcher that are one machine: Open MPI takes ranks there for
 * neighbours, but they share no folder for its shared memory files.
 */
static void settle_environment(const struct boot *b)
{
	bool one = true, shared = false;

	setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
	if (!b->card)
		return;
	for (int i = 0; i < b->world; i++)
		for (int j = 0; j < i && !(shared && !one); j++) {
			bool same =
				!strcmp(b->card[i].machine, b->card[j].machine);

			one &= same;
			shared |= same &&
				  strcmp(b->card[i].host, b->card[j].host);
		}
	if (shared) {
		setenv("OMPI_MCA_pml", "ob1", 0);
		setenv("OMPI_MCA_btl", "self,tcp", 0);
	}
	if (shared && one)
		setenv("OMPI_MCA_btl_tcp_if_include", "lo", 0);
}

static int check_world(const struct boot *b, struct err *e)
{
	int rank, size;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rank == b->rank && size == b->world)
		return 0;
	return err_set(e, CODE_LAUNCH,
		       "MPI says rank %d of %d, PMIx rank %d of %d: this MPI "
		       "was built without PMIx",
		       rank, size, b->rank, b->world);
}

static int group_open(struct comm_group *g, enum comm_use use, struct err *e)
{
	struct mpi_group *m;
	MPI_Group world;

	(void)use;
	if (g->size < 2)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(e, CODE_COMM, "no memory for group %s", g->name);
	call.group = m;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, g->size, g->ranks, &call.members);
	MPI_Group_free(&world);
	if (within(g->comm->timeout, call_create, NULL))
		return err_set(e, CODE_COMM,
			       "group %s: its %d ranks did not all come "
			       "together in %g s",
			       g->name, g->size, g->comm->timeout);
	MPI_Group_free(&call.members);
	g->own = m;
	if (call.rc == MPI_SUCCESS)
		return 0;
	free(m);
	return err_set(e, CODE_COMM, "group %s: MPI_Comm_create_group: %d",
		       g->name, call.rc);
}

static void flight_free(struct flight *f)
{
	free(f->mpi);
	free(f->status);
	free(f->done);
	free(f->want);
	free(f->src);
	free(f);
}

static void group_close(struct comm_group *g)
{
	struct mpi_group *m = g->own;
	struct flight *next;

	for (struct flight *f = m->idle; f; f = next) {
		next = f->next;
		flight_free(f);
	}
	if (!g->comm->broken) {
		MPI_Comm_free(&m->collective);
		MPI_Comm_free(&m->message);
	}
	free(m);
}

static void mpi_close(struct comm *c)
{
	if (!c->broken)
		within(c->timeout, call_finalize, NULL);
}

/* --- one operation ------------------------------------------------------ */

static struct flight *flight_new(int size)
{
	struct flight *f = calloc(1, sizeof(*f));
	size_t n = 2 * (size_t)size;

	if (!f)
		return NULL;
	f->mpi = malloc(n * sizeof(*f->mpi));
	f->status = malloc(n * sizeof(*f->status));
	f->done = malloc(n * sizeof(*f->done));
	f->want = malloc(n * sizeof(*f->want));
	f->src = malloc((size_t)size * sizeof(*f->src));
	if (f->mpi && f->status && f->done && f->want && f->src)
		return f;
	flight_free(f);
	return NULL;
}

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static bool is_reduction(const struct comm_req *req)
{
	return !comm_is_message(req) && req->op != COMM_ALL_GATHER;
}

static char *at(const struct comm_req *req, const void *base, int64_t elements)
{
	return (char *)base + elements * (int64_t)comm_elem(req->type);
}

/* Elements of a rank's part in this block: the last block is smaller. */
static int64_t part_length(const struct flight *f, int place)
{
	int64_t left = f->req->n - f->at;

	if ((f->req->op == COMM_SUM || f->req->op == COMM_MAX) && !f->direct)
		left -= place * f->part;
	return left < 0 ? 0 : min(left, f->part);
}

/* Where PLACE's part begins in the buffer that has all parts. */
static int64_t part_begin(const struct flight *f, int place)
{
	if (f->direct)
		return f->at;
	if (f->req->op == COMM_SUM || f->req->op == COMM_MAX)
		return f->at + place * f->part;
	return place * f->req->n + f->at;
}

/* What one rank's contribution to this rank's part is stored in. */
static char *slot(const struct flight *f, int place)
{
	const struct comm_req *req = f->req;

	if (place == req->group->me)
		return at(req, req->send, part_begin(f, place));
	return at(req, req->scratch,
		  (place - (place > req->group->me)) * f->part);
}

static int set_part(struct flight *f, struct err *e)
{
	const struct comm_req *req = f->req;
	int64_t elem = (int64_t)comm_elem(req->type), n = req->n;
	int64_t others = req->group->size - 1, room;

	f->direct = false;
	f->part = min(MESSAGE_BYTES / elem, n);
	if (!is_reduction(req) || n == 0)
		return 0;
	room = (int64_t)req->scratch_bytes / elem / others;
	if (room < 1)
		return err_set(e, CODE_COMM,
			       "%s: %zu bytes of scratch for %s over %d ranks",
			       req->name, req->scratch_bytes,
			       comm_op_name(req->op), req->group->size);
	f->direct = req->op != COMM_REDUCE_SCATTER && room >= n &&
		    n * elem <= SMALL_BYTES;
	if (f->direct)
		return 0;
	if (req->op != COMM_REDUCE_SCATTER)
		n = (n + others) / (others + 1);
	f->part = min(n, min(room, BLOCK_BYTES / elem));
	return 0;
}

static int tag_of(const struct comm_req *req)
{
	if (comm_is_message(req))
		return req->tag;
	return (int)(req->seq % TAG_NUMBERS) * TAG_KINDS + (int)req->op;
}

static MPI_Datatype type_of(const struct comm_req *req)
{
	return req->type == COMM_F32   ? MPI_FLOAT
	       : req->type == COMM_F64 ? MPI_DOUBLE
				       : MPI_UINT16_T;
}

static int post(struct flight *f, int i, bool receive, char *buf, int64_t n,
		int peer)
{
	const struct comm_req *req = f->req;
	struct mpi_group *m = req->group->own;
	MPI_Comm comm = comm_is_message(req) ? m->message : m->collective;
	int rc;

	f->want[i] = receive ? (int)n : -1;
	if (receive)
		rc = MPI_Irecv(buf, (int)n, type_of(req), peer, tag_of(req),
			       comm, &f->mpi[i]);
	else
		rc = MPI_Isend(buf, (int)n, type_of(req), peer, tag_of(req),
			       comm, &f->mpi[i]);
	f->pending++;
	return rc;
}

/* This rank's message to, and the one from, PEER in this phase. */
static int post_pair(struct flight *f, int peer)
{
	const struct comm_req *req = f->req;
	int me = req->group->me, size = req->group->size, rc = MPI_SUCCESS;
	int64_t mine = part_length(f, me), theirs = part_length(f, peer);
	char *from, *to;

	if (f->phase == EXCHANGE) {
		to = slot(f, peer);
		from = at(req, req->send, part_begin(f, peer));
	} else {
		int64_t swap = mine;

		to = at(req, req->recv, part_begin(f, peer));
		from = f->phase == SHARE ? at(req, req->recv, part_begin(f, me))
					 : at(req, req->send, f->at);
		mine = theirs;
		theirs = swap;
	}
	if (mine)
		rc = post(f, peer, true, to, mine, peer);
	if (theirs && rc == MPI_SUCCESS)
		rc = post(f, size + peer, false, from, theirs, peer);
	return rc;
}

static int post_phase(struct flight *f, enum phase phase, struct err *e)
{
	const struct comm_req *req = f->req;
	int size = req->group->size, rc = MPI_SUCCESS;

	f->phase = phase;
	f->messages = comm_is_message(req) ? 1 : 2 * size;
	for (int i = 0; i < f->messages; i++)
		f->mpi[i] = MPI_REQUEST_NULL;
	if (req->op == COMM_SEND)
		rc = post(f, 0, false, at(req, req->send, f->at), f->part,
			  req->peer);
	else if (req->op == COMM_RECV)
		rc = post(f, 0, true, at(req, req->recv, f->at), f->part,
			  req->peer);
	/* each rank begins with its right neighbour, not all with rank 0 */
	else
		for (int k = 1; k < size && rc == MPI_SUCCESS; k++)
			rc = post_pair(f, (req->group->me + k) % size);
	return rc == MPI_SUCCESS ? 0 : failed(req, rc, e);
}

static enum phase first_phase(const struct comm_req *req)
{
	return is_reduction(req) ? EXCHANGE : MOVE;
}

static void combine(struct flight *f)
{
	const struct comm_req *req = f->req;
	int me = req->group->me, size = req->group->size;
	int64_t to = req->op == COMM_REDUCE_SCATTER ? f->at : part_begin(f, me);

	for (int p = 0; p < size; p++)
		f->src[p] = slot(f, p);
	comm_combine(req->op, req->type, at(req, req->recv, to), f->src, size,
		     part_length(f, me));
}

/* The next block, if any: 1 when the operation has ended. */
static int next_block(struct flight *f, struct err *e)
{
	const struct comm_req *req = f->req;
	bool all = req->op == COMM_SUM || req->op == COMM_MAX;

	f->at += all && !f->direct ? f->part * req->group->size : f->part;
	if (f->at >= req->n)
		return 1;
	if (comm_is_message(req))
		f->part = min(f->part, req->n - f->at);
	return post_phase(f, first_phase(req), e);
}

/* All messages of a phase have arrived: 1 when the operation has ended. */
static int phase_done(struct flight *f, struct err *e)
{
	const struct comm_req *req = f->req;

	if (f->phase != EXCHANGE)
		return next_block(f, e);
	combine(f);
	if (f->direct || req->op == COMM_REDUCE_SCATTER)
		return next_block(f, e);
	return post_phase(f, SHARE, e);
}

static int check_arrived(const struct flight *f, int done, int rc,
			 struct err *e)
{
	const struct comm_req *req = f->req;

	for (int k = 0; k < done; k++) {
		int i = f->done[k], got;

		if (rc != MPI_SUCCESS && f->status[k].MPI_ERROR != MPI_SUCCESS)
			return failed(req, f->status[k].MPI_ERROR, e);
		if (f->want[i] < 0)
			continue;
		MPI_Get_count(&f->status[k], type_of(req), &got);
		if (got != f->want[i])
			return err_set(
				e, CODE_COMM,
				"%s: %s in group %s, number %lld: rank %d sent "
				"%d elements, %d were expected",
				req->name, comm_op_name(req->op),
				req->group->name, (long long)req->seq,
				req->group->ranks[f->status[k].MPI_SOURCE], got,
				f->want[i]);
	}
	return rc == MPI_SUCCESS ? 0 : failed(req, rc, e);
}

/* 1 when the operation has ended. */
static int flight_move(struct flight *f, struct err *e)
{
	int done, rc;

	rc = MPI_Testsome(f->messages, f->mpi, &done, f->done, f->status);
	if (done == MPI_UNDEFINED)
		done = 0;
	if (check_arrived(f, done, rc, e))
		return -1;
	if (done)
		f->req->idle = 0;
	f->pending -= done;
	return f->pending ? 0 : phase_done(f, e);
}

static void flight_end(struct flight *f)
{
	struct mpi_group *m = f->req->group->own;

	f->req->flight = NULL;
	f->req = NULL;
	f->next = m->idle;
	m->idle = f;
}

static int mpi_poll(struct comm *c, struct err *e)
{
	struct flight **link = &flights;

	(void)c;
	while (*link) {
		struct flight *f = *link;
		int rc = flight_move(f, e);

		if (rc < 0)
			return -1;
		if (rc) {
			*link = f->next;
			flight_end(f);
		} else {
			link = &f->next;
		}
	}
	return 0;
}

static int mpi_start(struct comm_req *req, struct err *e)
{
	struct mpi_group *m = req->group->own;
	struct flight *f = m->idle, **link;
	int64_t mine = req->group->me * req->n;

	if (f)
		m->idle = f->next;
	else if (!(f = flight_new(req->group->size)))
		return err_set(e, CODE_COMM, "%s: no memory", req->name);
	f->req = req;
	f->at = 0;
	f->pending = 0;
	f->next = NULL;
	if (set_part(f, e) || post_phase(f, first_phase(req), e)) {
		flight_free(f);
		return -1;
	}
	if (req->op == COMM_ALL_GATHER && req->send != at(req, req->recv, mine))
		memmove(at(req, req->recv, mine), req->send,
			(size_t)req->n * comm_elem(req->type));
	if (!f->pending) { /* a collective of nothing */
		flight_end(f);
		return 0;
	}
	req->flight = f;
	for (link = &flights; *link;)
		link = &(*link)->next;
	*link = f;
	return 0;
}

/* By floats, so that no type of its own is needed. */
static int gather(struct comm_group *g, const void *mine, size_t bytes,
		  void *all, struct err *e)
{
	size_t words = (bytes + sizeof(float) - 1) / sizeof(float);
	size_t size = (size_t)g->size, part = words * sizeof(float);
	char *room = calloc(size + 1, part + 1);
	struct comm_req req = {
		.op = COMM_ALL_GATHER,
		.group = g,
		.type = COMM_F32,
		.n = (int64_t)words,
		.name = "gather",
	};
	int bad;

	if (!room)
		return err_set(e, CODE_LAUNCH,
			       "gather: no memory for %zu bytes",
			       (size + 1) * part);
	memcpy(room + size * part, mine, bytes);
	req.send = room + size * part;
	req.recv = room;
	bad = comm_start(&req, e) || comm_wait(&req, e);
	for (size_t i = 0; i < size && !bad; i++)
		memcpy((char *)all + i * bytes, room + i * part, bytes);
	free(room);
	return bad ? -1 : 0;
}

static bool waits_for(const struct comm_req *req, int peer)
{
	const struct flight *f = req->flight;
	int size = req->group->size;

	if (comm_is_message(req))
		return peer == req->peer;
	return f->mpi[peer] != MPI_REQUEST_NULL ||
	       f->mpi[size + peer] != MPI_REQUEST_NULL;
}

static const struct comm_transport transport = {
	.group_open = group_open,
	.group_close = group_close,
	.start = mpi_start,
	.poll = mpi_poll,
	.gather = gather,
	.waits_for = waits_for,
	.close = mpi_close,
};

int comm_mpi_open(struct comm *c, struct err *e)
{
	settle_environment(c->boot);
	if (within(c->timeout, call_init, NULL))
		return err_set(e, CODE_COMM,
			       "MPI_Init: not through in %g s: a rank has "
			       "stopped, or no network between the nodes "
			       "(OMPI_MCA_btl_tcp_if_include)",
			       c->timeout);
	if (call.rc != MPI_SUCCESS || call.thread_level < MPI_THREAD_SERIALIZED)
		return err_set(e, CODE_COMM,
			       "MPI_Init: error %d, thread level %d, wanted %d",
			       call.rc, call.thread_level,
			       MPI_THREAD_SERIALIZED);
	c->t = &transport;
	return check_world(c->boot, e);
}
