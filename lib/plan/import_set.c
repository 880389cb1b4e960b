/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import_set.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cli.h"
#include "lib/plan/config.h"

/* The order in which a file is written. */
static const struct group *const groups[IMPORT_GROUPS] = {
	&shape_group, &spec_group, &place_group, &run_group};

const struct field *import_field(const char *name, int *group, int *row)
{
	for (int g = 0; g < IMPORT_GROUPS; g++) {
		*row = field_find(groups[g], name);
		*group = g;
		if (*row >= 0)
			return &groups[g]->fields[*row];
	}
	return NULL;
}

struct import_setting *import_get(struct import *im, const char *name)
{
	int group, row;

	if (!import_field(name, &group, &row))
		return NULL;
	for (size_t i = 0; i < im->count; i++)
		if (im->list[i].group == group && im->list[i].row == row)
			return &im->list[i];
	return NULL;
}

void import_drop(struct import *im, const char *name)
{
	struct import_setting *s = import_get(im, name);

	if (s)
		*s = im->list[--im->count];
}

int64_t import_int(struct import *im, const char *name, int64_t otherwise)
{
	struct import_setting *s = import_get(im, name);

	return s ? strtoll(s->text, NULL, 10) : otherwise;
}

bool import_is(struct import *im, const char *name, const char *value)
{
	struct import_setting *s = import_get(im, name);
	const char *text = s ? s->text : "";
	size_t len = strlen(value);

	text += *text == '"';
	return !strncmp(text, value, len) && strcspn(text + len, "\"") == 0;
}

static void put(struct import *im, int group, int row, const char *text,
		struct import_source from)
{
	struct import_setting s = {group, row, text, from.what, from.at};

	for (size_t i = 0; i < im->count; i++)
		if (im->list[i].group == group && im->list[i].row == row) {
			im->list[i] = s;
			return;
		}
	im->list = arena_grow(im->arena, im->list, im->count, &im->cap,
			      sizeof(*im->list));
	im->list[im->count++] = s;
}

/* A value as its row wants it; the field tables then write it. */
union value {
	int64_t n;
	double x;
	bool yes;
	const char *text;
	struct ints ints;
	struct texts texts;
	struct floats floats;
};

static bool to_float(const char *word, double *x)
{
	char *end;

	*x = strtod(word, &end);
	return end != word && !*end && isfinite(*x);
}

static bool to_bool(const char *word, bool *yes)
{
	*yes = !strcasecmp(word, "true");
	return *yes || !strcasecmp(word, "false");
}

/* The words with commas between them. */
static const char *joined(struct import *im, const char *const *item, int count)
{
	size_t room = 1;
	char *all, *t;

	for (int i = 0; i < count; i++)
		room += strlen(item[i]) + 1;
	t = all = arena_alloc(im->arena, room, 1);
	for (int i = 0; i < count; i++) {
		if (i)
			*t++ = ',';
		t = stpcpy(t, item[i]);
	}
	return all;
}

/* One word, or words that are numbers of one list. */
static bool to_ints(struct import *im, const char *const *item, int count,
		    struct ints *out)
{
	int column;

	return import_list(joined(im, item, count), im->arena, out, &column);
}

/* Show where the words, which are no list, cease to be one. */
static void mark_list(struct import *im, const char *const *item, int count)
{
	const char *all = joined(im, item, count);
	struct ints list;
	int column;

	if (!import_list(all, im->arena, &list, &column))
		report_mark(im->report, all, column);
}

static bool to_floats(struct import *im, const char *const *item, int count,
		      struct floats *out)
{
	double *x = arena_alloc(im->arena, (size_t)count + 1, sizeof(*x));

	for (int i = 0; i < count; i++)
		if (!to_float(item[i], &x[i]))
			return false;
	*out = (struct floats){x, count};
	return count > 0;
}

/* The value of ITEM for F into V; NULL, or what F wants. */
static const char *to_value(struct import *im, const struct field *f,
			    const char *const *item, int count, union value *v)
{
	struct err e;

	if (f->type == FIELD_TEXTS) {
		v->texts = (struct texts){item, count};
		return count ? NULL : "a string or a list of strings";
	}
	if (f->type == FIELD_FLOATS)
		return to_floats(im, item, count, &v->floats)
			       ? NULL
			       : "a number or a list of numbers";
	if (f->type == FIELD_INTS)
		return to_ints(im, item, count, &v->ints)
			       ? NULL
			       : "an integer or a list of integers";
	if (count != 1)
		return "one value";
	switch (f->type) {
	case FIELD_INT:
		return cli_int(item[0], INT64_MIN + 1, INT64_MAX, &v->n, &e)
			       ? "an integer"
			       : NULL;
	case FIELD_FLOAT: return to_float(item[0], &v->x) ? NULL : "a number";
	case FIELD_BOOL: return to_bool(item[0], &v->yes) ? NULL : "no value";
	default: v->text = item[0]; return NULL;
	}
}

static const char *words(struct import *im, const char *const *item, int count)
{
	const char *all = count ? item[0] : "nothing";

	for (int i = 1; i < count && i < 8; i++)
		all = arena_printf(im->arena, "%s %s", all, item[i]);
	return all;
}

void import_give(struct import *im, const char *name, const char *const *item,
		 int count, int line)
{
	im->given = arena_grow(im->arena, im->given, im->givens, &im->given_cap,
			       sizeof(*im->given));
	im->given[im->givens++] = (struct import_given){
		name, count ? words(im, item, count) : "", line, false};
}

/* Why a word is no value: what a script leaves to its surroundings. */
static const char *variable_hint(const char *const *item, int count)
{
	for (int i = 0; i < count; i++)
		if (strpbrk(item[i], "$`"))
			return ", which only a shell would know";
	return "";
}

static const char *path_of(struct import *im, int group, const struct field *f)
{
	return arena_printf(im->arena, "%s.%s", groups[group]->name, f->name);
}

/* The setting was given, though not as it must be. */
static void mark_given(struct import *im, int group, int row, struct origin at)
{
	struct config *c = im->config;
	void *base[IMPORT_GROUPS] = {&c->shape, &c->spec, &c->place, &c->run};

	((struct origin *)base[group])[row] = at;
}

bool import_put(struct import *im, const char *name, const char *const *item,
		int count, struct import_source from)
{
	int group, row;
	const struct field *f = import_field(name, &group, &row);
	struct field as = *f;
	const char *wants;
	union value v = {0};

	wants = to_value(im, f, item, count, &v);
	if (!wants && (f->type == FIELD_ENUM || f->type == FIELD_TEXT) &&
	    *variable_hint(item, count))
		wants = "a string";
	if (wants) {
		report_add(im->report, "import-value", ERROR,
			   path_of(im, group, f), &from.at,
			   "%.100s wants %s, not '%.100s'%s", from.what, wants,
			   words(im, item, count), variable_hint(item, count));
		if (f->type == FIELD_INTS)
			mark_list(im, item, count);
		mark_given(im, group, row, from.at);
		return false;
	}
	as.offset = 0;
	if (as.type == FIELD_ENUM)
		as.type = FIELD_TEXT;
	put(im, group, row, field_text(&as, &v, im->arena), from);
	return true;
}

void import_say(struct import *im, const char *name, const char *value,
		struct import_source from)
{
	import_put(im, name, &value, 1, from);
}

void import_derive(struct import *im, const char *name, const char *value,
		   const char *why)
{
	int group, row;
	struct import_source from = {why, {.kind = ORIGIN_DERIVED, .why = why}};

	if (import_field(name, &group, &row))
		import_say(im, name, value, from);
}

void import_default(struct import *im, const char *name, const char *value,
		    const char *why)
{
	if (!import_get(im, name))
		import_derive(im, name, value, why);
}

void import_note_name(struct import *im, struct import_names *names,
		      const char *name, struct origin at)
{
	enum { NAMES_MAX = 24 };

	if (!names->count++) {
		names->first = at;
		names->text = arena_printf(im->arena, "%.80s", name);
	} else if (names->count <= NAMES_MAX) {
		names->text =
			arena_printf(im->arena, "%s, %.80s", names->text, name);
	} else if (names->count == NAMES_MAX + 1) {
		names->text = arena_printf(im->arena, "%s, ...", names->text);
	}
}

int import_give_up(struct import *im, int line, const char *fmt, ...)
{
	struct origin at = {.file = im->file, .line = line};
	const char *what;
	va_list ap;

	va_start(ap, fmt);
	what = arena_vprintf(im->arena, fmt, ap);
	va_end(ap);
	report_add(im->report, "import-format", ERROR, "", &at, "%s", what);
	if (line)
		return err_set(im->err, CODE_USAGE, "%s:%d: %s", im->file, line,
			       what);
	return err_set(im->err, CODE_USAGE, "%s: %s", im->file, what);
}

/* One line of the text is one setting, and a segment of its own. */
static void segment(struct conf_text *t, struct origin from)
{
	t->segment = arena_grow(t->arena, t->segment, t->segments, &t->cap,
				sizeof(*t->segment));
	t->segment[t->segments++] = (struct conf_segment){
		from.file, from.line, t->lines,
		from.kind == ORIGIN_DERIVED ? from.why : NULL};
	t->lines++;
}

static void put_group(struct import *im, struct conf_text *t, FILE *f, int g)
{
	struct origin none = {.file = im->file};

	fprintf(f, "%s: {\n", groups[g]->name);
	segment(t, none);
	for (size_t i = 0; i < im->count; i++) {
		const struct import_setting *s = &im->list[i];

		if (s->group != g)
			continue;
		fprintf(f, "%s = %s;\n", groups[g]->fields[s->row].name,
			s->text);
		segment(t, s->from);
	}
	fputs("};\n", f);
	segment(t, none);
}

void import_text(struct import *im, struct conf_text *t)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, &t->len);

	if (!f)
		arena_exhausted();
	*t = (struct conf_text){.arena = im->arena, .lines = 1};
	for (int g = 0; g < IMPORT_GROUPS; g++)
		put_group(im, t, f, g);
	if (fclose(f))
		arena_exhausted();
	t->text = arena_strdup(im->arena, text);
	free(text);
}
