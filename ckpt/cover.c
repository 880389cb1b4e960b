/* SPDX-License-Identifier: Apache-2.0 */
/* Every element exactly once, and copies that are copies. */
#include <inttypes.h>
#include <stdlib.h>

#include "ckpt/index.h"
#include "ckpt/plan.h"

/* A rectangle that a row holds. */
struct held {
	struct box box;
	int64_t row;
};

/* The rectangles of one weight and role; ACTIVE reach the sweep's line. */
struct cover {
	struct held *held, **active;
	int64_t count, room;
};

static const char *file_of(const struct index *x, int64_t row)
{
	return x->manifest->files[x->list[row].file].name;
}

static const char *name_of(const struct index *x, int weight)
{
	return x->weights->list[weight].name;
}

static int cover_grow(struct cover *c, int64_t room, struct err *e)
{
	struct held *held;
	struct held **active;

	if (room <= c->room)
		return 0;
	held = realloc(c->held, (size_t)room * sizeof(*held));
	if (held)
		c->held = held;
	active = realloc(c->active, (size_t)room * sizeof(*active));
	if (active)
		c->active = active;
	if (!held || !active)
		return err_set(e, CODE_LAUNCH, "out of memory");
	c->room = room;
	return 0;
}

static void cover_add(struct cover *c, const struct index *x, int64_t row)
{
	const struct ckpt_piece *p = &x->list[row].piece;
	struct box box[PLAN_BOXES];
	int n = plan_boxes(&p->box, p->lo, p->hi, box);

	for (int i = 0; i < n; i++)
		c->held[c->count++] = (struct held){box[i], row};
}

static int by_top(const void *pa, const void *pb)
{
	const struct held *a = pa, *b = pb;

	return (a->box.off[0] > b->box.off[0]) -
	       (a->box.off[0] < b->box.off[0]);
}

/* Sweep over the rows: the first two rectangles that meet, if any do. */
static bool cover_overlap(struct cover *c, int64_t *one, int64_t *other)
{
	int64_t active = 0;
	struct box both;

	qsort(c->held, (size_t)c->count, sizeof(*c->held), by_top);
	for (int64_t i = 0; i < c->count; i++) {
		struct held *h = &c->held[i];
		int64_t kept = 0;

		for (int64_t k = 0; k < active; k++) {
			struct held *was = c->active[k];

			if (was->box.off[0] + was->box.cnt[0] <= h->box.off[0])
				continue;
			if (plan_common(&was->box, &h->box, &both)) {
				*one = was->row;
				*other = h->row;
				return true;
			}
			c->active[kept++] = was;
		}
		c->active[kept++] = h;
		active = kept;
	}
	return false;
}

/* One weight, one role: disjoint, of one dtype, and nothing missing. */
static int check_group(struct index *x, struct cover *c, int weight,
		       enum ckpt_role role, struct err *e)
{
	int64_t want = weight_elements(&x->weights->list[weight]), have = 0;
	int64_t first, end, one, other;

	index_range(x, weight, role, &first, &end);
	if (cover_grow(c, PLAN_BOXES * (end - first), e))
		return -1;
	c->count = 0;
	for (int64_t i = first; i < end; i++) {
		const struct ckpt_piece *p = &x->list[x->order[i]].piece;

		if (p->dtype != x->dtype[role])
			return err_set(e, CODE_CKPT,
				       "%s: %s of %s is %s, others are %s",
				       file_of(x, x->order[i]),
				       format_role(role), name_of(x, weight),
				       format_dtype(p->dtype),
				       format_dtype(x->dtype[role]));
		if (p->replica)
			continue;
		have += p->hi - p->lo;
		cover_add(c, x, x->order[i]);
	}
	if (cover_overlap(c, &one, &other))
		return err_set(e, CODE_CKPT,
			       "%s of %s: the same elements are in %s and %s",
			       format_role(role), name_of(x, weight),
			       file_of(x, one), file_of(x, other));
	if (have != want)
		return err_set(e, CODE_CKPT,
			       "%s of %s: %" PRId64 " of its %" PRId64
			       " elements are in no file",
			       format_role(role), name_of(x, weight),
			       want - have, want);
	return 0;
}

/* Rows of the same place follow each other, what was saved first. */
static int check_replicas(const struct index *x, struct err *e)
{
	const struct row *saved = NULL;

	for (int64_t i = 0; i < x->count; i++) {
		const struct row *row = &x->list[x->order[i]];

		if (!row->piece.replica) {
			saved = row;
			continue;
		}
		if (!saved || !index_same_place(&saved->piece, &row->piece) ||
		    saved->crc == row->crc)
			continue;
		return err_set(e, CODE_CKPT,
			       "%s of %s: the copy in %s (crc %08" PRIx32
			       ") is not what %s holds (crc %08" PRIx32 ")",
			       format_role(row->piece.role),
			       name_of(x, row->piece.weight),
			       x->manifest->files[row->file].name, row->crc,
			       x->manifest->files[saved->file].name,
			       saved->crc);
	}
	return 0;
}

int index_check(struct index *x, struct err *e)
{
	struct cover c = {0};
	int rc = 0;

	for (int64_t i = 0; i < x->count; i++) {
		const struct ckpt_piece *p = &x->list[i].piece;

		x->has[p->role] = true;
		x->dtype[p->role] = p->dtype;
	}
	if (!x->has[ROLE_PARAM])
		return err_set(e, CODE_CKPT, "it holds no weights at all");
	for (int w = 0; w < x->weights->count && !rc; w++)
		for (int role = 0; role < ROLES && !rc; role++)
			if (x->has[role])
				rc = check_group(x, &c, w, (enum ckpt_role)role,
						 e);
	free(c.held);
	free(c.active);
	return rc ? rc : check_replicas(x, e);
}
