/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/sync.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

static int by_box(const void *x, const void *y)
{
	const struct sync_copy *a = x, *b = y;

	if (a->box != b->box)
		return a->box < b->box ? -1 : 1;
	return (a->rank > b->rank) - (a->rank < b->rank);
}

bool sync_differ(struct sync_copy *copies, size_t n, const struct sync_copy **a,
		 const struct sync_copy **b)
{
	qsort(copies, n, sizeof(*copies), by_box);
	for (size_t i = 1; i < n; i++) {
		*a = &copies[i - 1];
		*b = &copies[i];
		if ((*a)->box && (*a)->box == (*b)->box &&
		    (*a)->hash != (*b)->hash)
			return true;
	}
	return false;
}

/* This rank's pieces; what MINE has room for beyond them stays of no box. */
static void hash_pieces(struct trainer *t, const char *params,
			struct sync_copy *mine)
{
	const struct slice *s = &t->plan.slice;
	size_t elem = t->plan.prog.elem;

	for (int i = 0; i < s->pieces; i++) {
		const struct piece *p = &s->piece[i];
		uint64_t box = XXH3_64bits_withSeed(&p->box, sizeof(p->box),
						    (uint64_t)p->weight);

		mine[i] = (struct sync_copy){
			.box = box ? box : 1,
			.weight = p->weight,
			.rank = t->plan.rank,
			.hash = XXH3_64bits(params + (size_t)p->at * elem,
					    (size_t)box_elements(&p->box) *
						    elem),
		};
	}
}

/* The most pieces of any rank, in *N. */
static int most_pieces(struct trainer *t, int64_t *all, size_t *n,
		       struct err *e)
{
	int64_t mine = t->plan.slice.pieces;

	if (comm_gather(t->group[GROUP_WORLD], &mine, sizeof(mine), all, e))
		return -1;
	*n = 0;
	for (int r = 0; r < t->plan.grid.world; r++)
		if ((size_t)all[r] > *n)
			*n = (size_t)all[r];
	return 0;
}

static int compare(struct trainer *t, struct sync_copy *mine,
		   struct sync_copy *all, size_t n, struct err *e)
{
	size_t world = (size_t)t->plan.grid.world;
	const struct sync_copy *a, *b;
	struct err late;
	char *params = exec_map(&t->exec, FAMILY_PARAM, true, e);
	int bad;

	if (!params)
		return -1;
	hash_pieces(t, params, mine);
	bad = comm_gather(t->group[GROUP_WORLD], mine, n * sizeof(*mine), all,
			  e);
	if (exec_unmap(&t->exec, FAMILY_PARAM, params, false, bad ? &late : e))
		bad = -1;
	if (bad || !sync_differ(all, world * n, &a, &b))
		return bad;
	return err_set(e, CODE_NUMERIC,
		       "step %" PRId64
		       ": the copies of %s on ranks %d and %d are no longer "
		       "equal; resume from a checkpoint before",
		       t->step, t->plan.weights.list[a->weight].name, a->rank,
		       b->rank);
}

int sync_check(struct trainer *t, struct err *e)
{
	size_t world = (size_t)t->plan.grid.world, n;
	int64_t *counts;
	struct sync_copy *room;
	int bad;

	if (world == 1)
		return 0;
	counts = calloc(world, sizeof(*counts));
	if (!counts)
		return err_set(e, CODE_LAUNCH, "out of memory");
	bad = most_pieces(t, counts, &n, e);
	free(counts);
	if (bad)
		return -1;
	room = calloc((world + 1) * (n + 1), sizeof(*room));
	if (!room)
		return err_set(e, CODE_LAUNCH, "out of memory");
	bad = compare(t, room, room + n, n, e);
	free(room);
	return bad;
}
