/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/plan/diff.h"

static const struct group *const groups[] = {&shape_group, &spec_group,
					     &place_group, &run_group, NULL};

static void put_side(FILE *f, char name, const struct verdict *v)
{
	fprintf(f, "%c  %s: %s", name, v->file,
		!v->valid   ? "invalid"
		: v->served ? "valid"
			    : "valid, not served");
	if (v->world)
		fprintf(f, ", world %" PRId64, v->world);
	fprintf(f, ", shape %s\n", v->counted ? v->hash : "not known");
}

static size_t count_rows(const struct diff *d, const struct group *g)
{
	size_t n = 0;

	for (size_t i = 0; i < d->rows; i++)
		n += d->row[i].group == g;
	return n;
}

static void put_row(FILE *f, const struct diff_row *row, struct arena *a)
{
	int room = 1;

	for (int i = 0; i < 2; i++)
		if ((int)strlen(row->value[i]) > room)
			room = (int)strlen(row->value[i]);
	if (room > 40)
		room = 40;
	fprintf(f, "  %s%s\n", row->field->name,
		row->group == &shape_group && !row->hashed
			? " (makes no other model)"
			: "");
	for (int i = 0; i < 2; i++)
		fprintf(f, "      %c  %-*s  %s\n", "AB"[i], room,
			row -> value[i], origin_text(row->from[i], a));
}

static void put_group(FILE *f, const struct diff *d, const struct group *g,
		      struct arena *a)
{
	size_t n = count_rows(d, g);

	if (!n) {
		fprintf(f, "%s: the same\n", g->name);
		return;
	}
	fprintf(f, "%s: %zu setting%s differ%s\n", g->name, n,
		plural((long long)n), n == 1 ? "s" : "");
	for (size_t i = 0; i < d->rows; i++)
		if (d->row[i].group == g)
			put_row(f, &d->row[i], a);
}

static const char *answer(const struct diff *d)
{
	if (d->loads)
		return "B goes on from A's checkpoints";
	if (d->weights)
		return "B takes the weights of A's checkpoints, and no more";
	if (d->same_shape)
		return "B is the same model as A, but no job starts with it";
	return "B cannot load A's checkpoints";
}

/* Whose vocabulary is taken to be the other's. */
static const char *assumption(const struct diff *d, struct arena *a)
{
	int64_t other;

	if (d->assumed < 0)
		return "";
	other = d->v[!d->assumed]->config->shape.vocab_size;
	if (!IS_SET(other))
		return ", if their vocabularies are the same (--vocab-size)";
	return arena_printf(
		a, ", if %c's vocabulary is %" PRId64 ", too (--vocab-size)",
		"AB"[d->assumed], other);
}

const char *diff_text(const struct diff *d, struct arena *a)
{
	char *text = NULL;
	const char *copy;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		arena_exhausted();
	for (int i = 0; i < 2; i++)
		put_side(f, "AB"[i], d -> v[i]);
	fputc('\n', f);
	for (int g = 0; groups[g]; g++)
		put_group(f, d, groups[g], a);
	fprintf(f, "\n%s%s\n", answer(d),
		d->same_shape ? assumption(d, a) : "");
	for (size_t i = 0; i < d->notes; i++)
		fprintf(f, "  %s\n", d->note[i]);
	if (fclose(f))
		arena_exhausted();
	copy = arena_strdup(a, text);
	free(text);
	return copy;
}

static json_t *json_side(const struct verdict *v)
{
	json_t *out = json_object();

	json_object_set_new(out, "file", json_any(v->file));
	json_object_set_new(out, "valid", json_boolean(v->valid));
	json_object_set_new(out, "served", json_boolean(v->served));
	json_object_set_new(out, "world",
			    v->world ? json_integer(v->world) : json_null());
	json_object_set_new(out, "shape_hash",
			    v->counted ? json_string(v->hash) : json_null());
	return out;
}

static json_t *json_row(const struct diff_row *row, struct arena *a)
{
	static const char *const value[] = {"a", "b"};
	static const char *const from[] = {"a_from", "b_from"};
	json_t *out = json_object();

	json_object_set_new(out, "question", json_string(row->group->name));
	json_object_set_new(out, "setting", json_string(row->field->name));
	for (int i = 0; i < 2; i++) {
		json_object_set_new(out, value[i], json_any(row->value[i]));
		json_object_set_new(out, from[i],
				    json_any(origin_text(row->from[i], a)));
	}
	json_object_set_new(out, "other_model", json_boolean(row->hashed));
	return out;
}

const char *diff_json(const struct diff *d, struct arena *a)
{
	json_t *rows = json_array(), *notes = json_array();
	json_t *out = json_object();

	for (size_t i = 0; i < d->rows; i++)
		json_array_append_new(rows, json_row(&d->row[i], a));
	for (size_t i = 0; i < d->notes; i++)
		json_array_append_new(notes, json_any(d->note[i]));
	json_object_set_new(out, "a", json_side(d->v[0]));
	json_object_set_new(out, "b", json_side(d->v[1]));
	json_object_set_new(out, "same_shape", json_boolean(d->same_shape));
	json_object_set_new(out, "vocabulary_assumed",
			    json_boolean(d->assumed >= 0));
	json_object_set_new(out, "loads", json_boolean(d->loads));
	json_object_set_new(out, "loads_weights", json_boolean(d->weights));
	json_object_set_new(out, "differences", rows);
	json_object_set_new(out, "notes", notes);
	return json_line(out, a);
}
