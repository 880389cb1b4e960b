/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators.  The one of all ranks is only there to split the others off,
 * and alone non-blocking, which gives opening its deadline; of a non-blocking
 * one every operation would start a thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sys.h"
#include "lib/train/comm_nccl.h"

_Static_assert(COMM_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "NCCL's id on the card");

/*
 * Multiprocessors that an operation may take: NVLink is nearly full with
 * these, and all lanes of a rank fit on its GPU beside each other, so that no
 * operation that waits for its peer keeps another one from starting.
 */
enum { COLLECTIVE_CTAS = 16, MESSAGE_CTAS = 8 };

/*
 * The first operation of a kind makes its connections, and its start waits
 * for the peers meanwhile: do that where all of them are.
 */
static int warm_up(struct lane *l, enum comm_op op, int peer, int tag,
		   struct err *e)
{
	struct world *w = l->group->comm->own;
	struct comm_req req = {
		.op = op,
		.group = l->group,
		.type = COMM_F32,
		.n = 1,
		.peer = peer,
		.tag = tag,
		.queue = l->queue,
		.name = "first contact",
	};

	if (comm_nccl_room(w, ((size_t)l->group->size + 1) * sizeof(float), e))
		return -1;
	req.recv = w->room;
	req.send = w->room + (size_t)l->group->size * sizeof(float);
	if (device_fill(l->queue, w->room, 0, w->room_bytes, e))
		return -1;
	return comm_nccl_run(l, &req, e);
}

static void lane_close(struct comm *c, struct lane *l)
{
	struct world *w = c->own;
	struct lane **link = &w->lanes;
	struct err ignored;

	while (!c->broken && l->first)
		c->broken = comm_nccl_poll(c, &ignored) != 0;
	if (c->broken) {
		ncclCommAbort(l->nccl);
	} else {
		ncclCommFinalize(l->nccl);
		ncclCommDestroy(l->nccl);
	}
	device_queue_close(l->queue);
	while (l->first)
		comm_nccl_end(w, l);
	while (*link != l)
		link = &(*link)->next;
	*link = l->next;
	free(l);
}

/*
 * Every rank of the world calls; those of one COLOR become the members of
 * *OUT, in the order of KEY.  What NCCL may still write to after a deadline
 * is not on the stack and is never freed then.
 */
static int split(struct comm_group *g, int color, int key, int ctas,
		 struct lane **out, struct err *e)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct world *w = g->comm->own;
	struct lane *l = calloc(1, sizeof(*l));
	ncclResult_t rc;
	char buf[400];

	*out = NULL;
	if (!l)
		return err_set(e, CODE_COMM, "no memory for group %s", g->name);
	l->group = g;
	l->last = &l->first;
	config.blocking = 1;
	config.maxCTAs = ctas;
	rc = ncclCommSplit(w->nccl, color, key, &l->nccl, &config);
	if (rc == ncclSuccess) /* which only means that it has begun */
		rc = ncclInProgress;
	rc = comm_nccl_settle(w->nccl, rc, g->comm->timeout);
	if (rc != ncclSuccess)
		return err_set(e, CODE_COMM,
			       "group %s of %d ranks, called for by all %d: "
			       "NCCL: %s",
			       g->name, g->size, g->comm->boot->world,
			       comm_nccl_text(g->comm, rc, buf, sizeof(buf)));
	if (color == NCCL_SPLIT_NOCOLOR) {
		free(l);
		return 0;
	}
	l->queue = device_queue_open_bare(true, e);
	if (!l->queue)
		return -1;
	l->next = w->lanes;
	w->lanes = l;
	*out = l;
	return 0;
}

static int open_collectives(struct comm_group *g, struct lanes *own,
			    struct err *e)
{
	bool in = g->size > 1;

	if (split(g, in ? g->ranks[0] : NCCL_SPLIT_NOCOLOR, g->me,
		  COLLECTIVE_CTAS, &own->collective, e))
		return -1;
	if (!in)
		return 0;
	/* trees or a ring, and a ring */
	return warm_up(own->collective, COMM_SUM, 0, 0,
		       e) || warm_up(own->collective, COMM_ALL_GATHER, 0, 0, e)
		       ? -1
		       : 0;
}

/* Pairs that can be split off at once: no rank is in two of them. */
enum phase { EVEN_EDGES, ODD_EDGES, CLOSING_EDGE };

/*
 * The edge in PHASE that place ME of N is at the end of, -1 if none: edge i
 * goes from place i to the next, and *SIDE says at which end ME is.
 */
static int edge_of(int me, int n, enum phase phase, int *side)
{
	int edge;

	if (phase == CLOSING_EDGE) {
		*side = me == 0;
		return n > 1 && (me == 0 || me == n - 1) ? n - 1 : -1;
	}
	*side = me % 2 != (int)phase;
	edge = me - *side;
	return edge >= 0 && edge < n - 1 ? edge : -1;
}

static int open_messages(struct comm_group *g, struct lanes *own, bool ring,
			 struct err *e)
{
	int phases = ring ? CLOSING_EDGE + 1 : CLOSING_EDGE;

	for (int i = 0; i < 2 * phases; i++) {
		int odd = i / phases, side, peer;
		int edge = edge_of(g->me, g->size, (enum phase)(i % phases),
				   &side);
		struct lane *l;

		if (split(g, edge < 0 ? NCCL_SPLIT_NOCOLOR : g->ranks[edge],
			  side, MESSAGE_CTAS, &l, e))
			return -1;
		if (!l)
			continue;
		own->message[side][odd] = l;
		peer = (g->me + (side ? -1 : 1) + g->size) % g->size;
		if (warm_up(l, side == odd ? COMM_SEND : COMM_RECV, peer, odd,
			    e))
			return -1;
	}
	return 0;
}

static int group_open(struct comm_group *g, enum comm_use use, struct err *e)
{
	struct lanes *own = calloc(1, sizeof(*own));
	int bad;

	if (!own)
		return err_set(e, CODE_COMM, "no memory for group %s", g->name);
	bad = use == COMM_COLLECTIVES
		      ? open_collectives(g, own, e)
		      : open_messages(g, own, use == COMM_RING, e);
	if (!bad && g->size > 1)
		g->own = own;
	else
		free(own);
	return bad;
}

/* All ranks the last first, as a peer may have to close its end meanwhile. */
static void group_close(struct comm_group *g)
{
	struct world *w = g->comm->own;
	struct lane *next;

	for (struct lane *l = w->lanes; l; l = next) {
		next = l->next;
		if (l->group == g)
			lane_close(g->comm, l);
	}
	free(g->own);
}

static void nccl_close(struct comm *c)
{
	struct world *w = c->own;
	struct flight *f;

	if (c->broken) {
		ncclCommAbort(w->nccl);
	} else {
		comm_nccl_settle(w->nccl, ncclCommFinalize(w->nccl),
				 c->timeout);
		ncclCommDestroy(w->nccl);
	}
	while ((f = w->idle)) {
		w->idle = f->next;
		device_event_close(f->before);
		device_event_close(f->after);
		free(f);
	}
	device_free(w->room);
	free(w);
}

static const struct comm_transport transport = {
	.group_open = group_open,
	.group_close = group_close,
	.start = comm_nccl_start,
	.poll = comm_nccl_poll,
	.wait = comm_nccl_wait,
	.check = comm_nccl_check,
	.gather = comm_nccl_gather,
	.waits_for = comm_nccl_waits_for,
	.close = nccl_close,
};

/*
 * NVLink's multicast is the user's choice: it is fast, but a process that
 * ends at the wrong moment can put all GPUs of its host out of service.
 */
static void settle_environment(void)
{
	setenv("NCCL_NVLS_ENABLE", "0", 0);
}

int comm_id(unsigned char id[COMM_ID_BYTES], struct err *e)
{
	ncclUniqueId unique;
	ncclResult_t rc;

	settle_environment();
	rc = ncclGetUniqueId(&unique);
	if (rc != ncclSuccess)
		return err_set(e, CODE_COMM, "NCCL: %s: %.300s",
			       ncclGetErrorString(rc), ncclGetLastError(NULL));
	memcpy(id, &unique, sizeof(unique));
	return 0;
}

int comm_nccl_open(struct comm *c, struct err *e)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	struct world *w = calloc(1, sizeof(*w));
	ncclUniqueId unique;
	ncclResult_t rc;
	char buf[400];

	if (!w)
		return err_set(e, CODE_COMM, "no memory for a comm");
	settle_environment();
	memcpy(&unique, c->boot->card[0].comm_id, sizeof(unique));
	config.blocking = 0;
	config.maxCTAs = 1;
	rc = ncclCommInitRankConfig(&w->nccl, c->boot->world, unique,
				    c->boot->rank, &config);
	rc = comm_nccl_settle(w->nccl, rc, c->timeout);
	c->own = w;
	c->t = &transport;
	if (rc == ncclSuccess)
		return 0;
	return err_set(e, CODE_COMM,
		       "the GPUs of %d ranks, this one rank %d on %s: NCCL: %s",
		       c->boot->world, c->boot->rank, c->boot->host,
		       comm_nccl_text(c, rc, buf, sizeof(buf)));
}
