/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a checkpoint, weight by weight. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "ckpt/tools.h"

/* One weight and role of a listing. */
struct entry {
	const struct weight *weight;
	const char *role, *dtype;
	int64_t pieces;
	char digest[33]; /* empty unless asked for */
};

typedef void print_entry(void *arg, const struct entry *entry);

static int list(struct ckpt *c, bool digest, print_entry *print, void *arg,
		struct err *e)
{
	const struct index *x = &c->index;

	for (int i = 0; i < c->weights.count * ROLES; i++) {
		int weight = i / ROLES, role = i % ROLES;
		struct entry entry = {.weight = &c->weights.list[weight],
				      .role = format_role(role)};
		struct digest d;
		int64_t first, end;

		if (!x->has[role])
			continue;
		entry.dtype = format_dtype((int)x->dtype[role]);
		index_range(x, weight, (enum ckpt_role)role, &first, &end);
		for (int64_t k = first; k < end; k++)
			entry.pieces += !x->list[x->order[k]].piece.replica;
		if (digest) {
			if (ckpt_digest(c, weight, (enum ckpt_role)role, &d, e))
				return -1;
			digest_text(&d, entry.digest);
		}
		print(arg, &entry);
	}
	return 0;
}

static void print_line(void *arg, const struct entry *entry)
{
	const struct weight *w = entry->weight;
	char dims[48];

	if (w->ndim > 1)
		snprintf(dims, sizeof(dims), "%" PRId64 " x %" PRId64,
			 w->dim[0], w->dim[1]);
	else
		snprintf(dims, sizeof(dims), "%" PRId64, w->dim[0]);
	fprintf(arg, "%-28s %-6s %-4s %16s %6" PRId64 "%s%s\n", w->name,
		entry->role, entry->dtype, dims, entry->pieces,
		*entry->digest ? "  " : "", entry->digest);
}

static void add_json(void *arg, const struct entry *entry)
{
	const struct weight *w = entry->weight;
	json_t *shape = json_array(), *o;

	for (int i = 0; i < w->ndim; i++)
		json_array_append_new(shape, json_integer(w->dim[i]));
	o = json_pack("{s:s, s:s, s:s, s:o, s:I}", "name", w->name, "role",
		      entry->role, "dtype", entry->dtype, "shape", shape,
		      "pieces", (json_int_t)entry->pieces);
	if (*entry->digest)
		json_object_set_new(o, "digest", json_string(entry->digest));
	json_array_append_new(arg, o);
}

static int64_t total_bytes(const struct ckpt *c)
{
	int64_t n = c->manifest.index.size;

	for (int i = 0; i < c->manifest.count; i++)
		n += c->manifest.files[i].size;
	return n;
}

int ckpt_list_json(struct ckpt *c, bool digest, FILE *f, struct err *e)
{
	const struct ckpt_progress *p = ckpt_progress(c);
	json_t *weights = json_array(), *place = json_object(), *top;
	int rc = list(c, digest, add_json, weights, e);

	for (int i = 0; i < c->head.place.count; i++)
		json_object_set_new(place, c->head.place.list[i].name,
				    json_string(c->head.place.list[i].text));
	top = json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:o, s:i, s:I, s:o}",
			"path", c->dir, "step", (json_int_t)p->step,
			"consumed_samples", (json_int_t)p->consumed_samples,
			"seed", (json_int_t)p->seed, "shape_hash",
			c->manifest.shape_hash, "world",
			(json_int_t)c->head.world, "place", place, "files",
			c->manifest.count, "bytes", (json_int_t)total_bytes(c),
			"weights", weights);
	if (!top)
		arena_exhausted();
	if (p->loss_scale > 0) {
		json_object_set_new(top, "loss_scale",
				    json_real(p->loss_scale));
		json_object_set_new(top, "skipped_steps",
				    json_integer(p->skipped_steps));
	}
	if (!rc) {
		json_dumpf(top, f, JSON_COMPACT);
		fputc('\n', f);
	}
	json_decref(top);
	return rc;
}

int ckpt_list(struct ckpt *c, bool digest, FILE *f, struct err *e)
{
	const struct ckpt_progress *p = ckpt_progress(c);

	fprintf(f,
		"%s: step %" PRId64 ", %" PRId64
		" sample%s, %d file%s, %" PRId64
		" bytes, shape %s\nsaved by %" PRId64 " rank%s:",
		c->dir, p->step, p->consumed_samples,
		plural(p->consumed_samples), c->manifest.count,
		plural(c->manifest.count), total_bytes(c),
		c->manifest.shape_hash, c->head.world, plural(c->head.world));
	for (int i = 0; i < c->head.place.count; i++)
		fprintf(f, " %s=%s", c->head.place.list[i].name,
			c->head.place.list[i].text);
	fprintf(f, "\n%-28s %-6s %-4s %16s %6s%s\n", "weight", "role", "type",
		"shape", "pieces", digest ? "  digest" : "");
	return list(c, digest, print_line, f, e);
}
