/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/items.h"

/* Where items_build stands. */
struct builder {
	const struct slice *slice;
	struct arena *a;
	struct ckpt_item *list;
	size_t count, cap;
	int64_t (*shard)[2]; /* what the rank updates, by bucket */
	int shards;
};

/* Elements LO .. HI of piece P, in memory AT elements behind the base. */
static void add_item(struct builder *b, const struct piece *p,
		     enum ckpt_role role, const struct items_role *mem,
		     int64_t lo, int64_t hi, int64_t at)
{
	struct ckpt_item *item;

	b->list =
		arena_grow(b->a, b->list, b->count, &b->cap, sizeof(*b->list));
	item = &b->list[b->count++];
	*item = (struct ckpt_item){
		.piece = {.weight = p->weight,
			  .role = role,
			  .dtype = mem->dtype,
			  .box = p->box,
			  .lo = lo,
			  .hi = hi,
			  .replica = p->replica},
	};
	if (mem->base)
		item->data =
			mem->base + at * (int64_t)ckpt_dtype_size(mem->dtype);
}

static void add_whole(struct builder *b, enum ckpt_role role,
		      const struct items_role *mem, enum weight_class cls)
{
	const struct slice *s = b->slice;

	for (int i = 0; i < s->params; i++) {
		const struct param *x = &s->param[i];
		const struct piece *p = &s->piece[x->first_piece];

		for (int k = 0; k < x->pieces && x->cls == cls; k++, p++)
			add_item(b, p, role, mem, 0, box_elements(&p->box),
				 p->at);
	}
}

static void add_all(struct builder *b, enum ckpt_role role,
		    const struct items_role *mem)
{
	for (int cls = 0; cls < CLASSES; cls++)
		add_whole(b, role, mem, (enum weight_class)cls);
}

/* What the shards have of piece P; they lie one behind the other or apart. */
static void add_shards(struct builder *b, const struct piece *p,
		       enum ckpt_role role, const struct items_role *mem,
		       bool packed)
{
	int64_t end = p->at + box_elements(&p->box), before = 0;

	for (int k = 0; k < b->shards; k++) {
		int64_t lo = b->shard[k][0], hi = b->shard[k][1];
		int64_t shift = packed ? before - lo : 0;

		before += hi - lo;
		if (lo < p->at)
			lo = p->at;
		if (hi > end)
			hi = end;
		if (lo < hi)
			add_item(b, p, role, mem, lo - p->at, hi - p->at,
				 lo + shift);
	}
}

int items_build(const struct slice *s, const struct items_role role[ROLES],
		bool own_shard, enum ckpt_use use, struct arena *a,
		struct ckpt_item **items, int count[CKPT_FILES])
{
	struct builder b = {.slice = s, .a = a};

	b.shards = slice_shards(s, &b.shard, a);
	for (int cls = 0; cls < CLASSES; cls++) {
		int before = (int)b.count;

		if (use == CKPT_LOAD || !s->flat[cls].d)
			add_whole(&b, ROLE_PARAM, &role[ROLE_PARAM],
				  (enum weight_class)cls);
		count[cls == CLASS_EXPERT ? CKPT_EXPERTS : CKPT_MODEL] =
			(int)b.count - before;
	}
	for (int r = ROLE_PARAM + 1; r < ROLES; r++) {
		if (!role[r].has)
			continue;
		if (use == CKPT_LOAD && !own_shard) {
			add_all(&b, (enum ckpt_role)r, &role[r]);
			continue;
		}
		for (int i = 0; i < s->pieces; i++)
			add_shards(&b, &s->piece[i], (enum ckpt_role)r,
				   &role[r], own_shard);
	}
	count[CKPT_OPTIM] =
		(int)b.count - count[CKPT_MODEL] - count[CKPT_EXPERTS];
	*items = b.list;
	return (int)b.count;
}

void items_file(char out[FORMAT_FILE], const struct slice *s,
		enum ckpt_file file)
{
	const struct coord *at = &s->at;

	if (file == CKPT_MODEL)
		format_model(out, at->pp, at->tp);
	else if (file == CKPT_EXPERTS)
		format_experts(out, at->pp, at->ep, at->etp);
	else
		format_optim(out, at->pp, at->tp, s->flat[CLASS_DENSE].d);
}

int ckpt_items(const struct slice *s, const struct ckpt_memory *mem,
	       enum ckpt_use use, struct arena *a, struct ckpt_item **items,
	       int count[CKPT_FILES])
{
	enum ckpt_dtype state = mem->master ? CKPT_F32 : mem->dtype;
	struct items_role role[ROLES] = {
		[ROLE_PARAM] = {true, mem->dtype, mem->param},
		[ROLE_MASTER] = {mem->master, state, mem->master},
		[ROLE_M] = {mem->m, state, mem->m},
		[ROLE_V] = {mem->v, state, mem->v},
	};

	return items_build(s, role, mem->own_shard, use, a, items, count);
}

int ckpt_weight_items(const struct slice *s, enum ckpt_role role,
		      enum ckpt_dtype dtype, void *base, struct arena *a,
		      struct ckpt_item **items)
{
	struct builder b = {.slice = s, .a = a};
	struct items_role mem = {true, dtype, base};

	add_all(&b, role, &mem);
	*items = b.list;
	return (int)b.count;
}
