/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/field.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int field_find(const struct group *g, const char *name)
{
	for (int i = 0; i < g->count; i++)
		if (*g->fields[i].name == *name &&
		    !strcmp(g->fields[i].name, name))
			return i;
	return -1;
}

static int name_index(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return i;
	assert(!"the default of an enum is one of its names");
	return 0;
}

static struct ints one_int(const char *text, struct arena *a)
{
	int64_t *item = arena_alloc(a, 1, sizeof(*item));

	*item = strtoll(text, NULL, 10);
	return (struct ints){.item = item, .count = 1};
}

static struct texts one_text(const char *text, struct arena *a)
{
	const char **item = arena_alloc(a, 1, sizeof(*item));

	*item = text;
	return (struct texts){.item = item, .count = 1};
}

static struct floats one_float(const char *text, struct arena *a)
{
	double *item = arena_alloc(a, 1, sizeof(*item));

	*item = strtod(text, NULL);
	return (struct floats){.item = item, .count = 1};
}

static void field_default(const struct field *f, void *at, struct arena *a)
{
	const char *s = f->initial;

	switch (f->type) {
	case FIELD_INT:
		*(int64_t *)at = s ? strtoll(s, NULL, 10) : UNSET;
		break;
	case FIELD_FLOAT: *(double *)at = s ? strtod(s, NULL) : NAN; break;
	case FIELD_BOOL: *(bool *)at = s && *s == 't'; break;
	case FIELD_ENUM: *(int *)at = name_index(f->names, s); break;
	case FIELD_TEXT: *(const char **)at = s; break;
	case FIELD_INTS:
		*(struct ints *)at = s ? one_int(s, a) : (struct ints){0};
		break;
	case FIELD_TEXTS:
		*(struct texts *)at = s ? one_text(s, a) : (struct texts){0};
		break;
	case FIELD_FLOATS:
		*(struct floats *)at = s ? one_float(s, a) : (struct floats){0};
		break;
	}
}

void field_defaults(const struct group *g, void *base, struct arena *a)
{
	assert(g->count <= FIELDS_MAX);
	memset(base, 0, g->size);
	for (int i = 0; i < g->count; i++)
		field_default(&g->fields[i], (char *)base + g->fields[i].offset,
			      a);
}

void field_reset(const struct group *g, void *base, int row, struct arena *a)
{
	((struct origin *)base)[row] = (struct origin){.kind = ORIGIN_DEFAULT};
	field_default(&g->fields[row], (char *)base + g->fields[row].offset, a);
}

/* The row of the value that lies at VALUE inside BASE. */
static int row_of(const struct group *g, const void *base, const void *value)
{
	size_t offset = (size_t)((const char *)value - (const char *)base);

	for (int i = 0; i < g->count; i++)
		if (g->fields[i].offset == offset)
			return i;
	assert(!"every value has a row in its group's table");
	return 0;
}

struct origin *field_origin(const struct group *g, void *base,
			    const void *value)
{
	return (struct origin *)base + row_of(g, base, value);
}

const struct origin *field_from(const struct group *g, const void *base,
				const void *value)
{
	return (const struct origin *)base + row_of(g, base, value);
}

void field_derived(const struct group *g, void *base, const void *value,
		   const char *why)
{
	struct origin *from = field_origin(g, base, value);

	from->kind = ORIGIN_DERIVED;
	from->why = why;
}

/* At T the shortest decimal that reads back as X, at most 29 characters. */
static char *put_float(char *t, double x)
{
	int len = 0;

	for (int digits = 15; digits <= 17; digits++) {
		len = snprintf(t, 28, "%.*g", digits, x);
		if (strtod(t, NULL) == x)
			break;
	}
	if (!strpbrk(t, ".en"))
		return stpcpy(t + len, ".0");
	return t + len;
}

static const char *float_text(double x, struct arena *a)
{
	char *text = arena_alloc(a, 32, 1);

	put_float(text, x);
	return text;
}

/* S as a string of a config file, at T; returns the end. */
static char *quote(char *t, const char *s)
{
	static const char hex[] = "0123456789abcdef";

	*t++ = '"';
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\') {
			*t++ = '\\';
			*t++ = *s;
		} else if (c < ' ' || c == 127) {
			memcpy(t, "\\x", 2);
			t[2] = hex[c >> 4];
			t[3] = hex[c & 15];
			t += 4;
		} else {
			*t++ = *s;
		}
	}
	*t++ = '"';
	return t;
}

static const char *text_text(const char *s, struct arena *a)
{
	char *text = arena_alloc(a, 4 * strlen(s) + 3, 1);

	quote(text, s);
	return text;
}

static const char *texts_text(const struct texts *v, struct arena *a)
{
	size_t room = 5;
	char *text, *t;

	if (v->count == 1)
		return text_text(v->item[0], a);
	for (int i = 0; i < v->count; i++)
		room += 4 * strlen(v->item[i]) + 4;
	t = text = arena_alloc(a, room, 1);
	for (int i = 0; i < v->count; i++) {
		*t++ = i ? ',' : '[';
		if (i)
			*t++ = ' ';
		t = quote(t, v->item[i]);
	}
	*t = ']';
	return text;
}

/* libconfig reads an integer as 32 bits unless an L says otherwise. */
static const char *suffix(int64_t n, bool file)
{
	return file && n != (int32_t)n ? "L" : "";
}

static const char *ints_text(const struct ints *v, bool file, struct arena *a)
{
	size_t room = 24 * (size_t)v->count + 3, n = 0;
	char *text = arena_alloc(a, room, 1);

	for (int i = 0; i < v->count; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%" PRId64 "%s",
				      i ? ", " : (v->is_list ? "[" : ""),
				      v->item[i], suffix(v->item[i], file));
	if (v->is_list)
		text[n] = ']';
	return text;
}

static const char *floats_text(const struct floats *v, struct arena *a)
{
	char *text, *t;

	if (v->count == 1)
		return float_text(v->item[0], a);
	t = text = arena_alloc(a, 32 * (size_t)v->count + 3, 1);
	for (int i = 0; i < v->count; i++) {
		t = stpcpy(t, i ? ", " : "[");
		t = put_float(t, v->item[i]);
	}
	*t = ']';
	return text;
}

bool field_is_set(const struct field *f, const void *base)
{
	const void *at = (const char *)base + f->offset;

	switch (f->type) {
	case FIELD_INT: return IS_SET(*(const int64_t *)at);
	case FIELD_FLOAT: return !isnan(*(const double *)at);
	case FIELD_BOOL:
	case FIELD_ENUM: return true;
	case FIELD_TEXT: return *(const char *const *)at;
	case FIELD_INTS: return ((const struct ints *)at)->count;
	case FIELD_TEXTS: return ((const struct texts *)at)->count;
	case FIELD_FLOATS: return ((const struct floats *)at)->count;
	}
	return false;
}

static const char *value_text(const struct field *f, const void *base,
			      bool file, struct arena *a)
{
	const void *at = (const char *)base + f->offset;

	if (!field_is_set(f, base))
		return "unset";
	switch (f->type) {
	case FIELD_INT:
		return arena_printf(a, "%" PRId64 "%s", *(const int64_t *)at,
				    suffix(*(const int64_t *)at, file));
	case FIELD_FLOAT: return float_text(*(const double *)at, a);
	case FIELD_BOOL: return *(const bool *)at ? "true" : "false";
	case FIELD_ENUM: return text_text(f->names[*(const int *)at], a);
	case FIELD_TEXT: return text_text(*(const char *const *)at, a);
	case FIELD_INTS: return ints_text(at, file, a);
	case FIELD_TEXTS: return texts_text(at, a);
	case FIELD_FLOATS: return floats_text(at, a);
	}
	return "unset";
}

const char *field_text(const struct field *f, const void *base, struct arena *a)
{
	return value_text(f, base, true, a);
}

const char *field_canonical(const struct field *f, const void *base,
			    struct arena *a)
{
	return value_text(f, base, false, a);
}

bool field_is_default(const struct field *f, const void *base, struct arena *a)
{
	/* Wide enough for any of the types. */
	union {
		struct ints ints;
		struct texts texts;
		struct floats floats;
		double x;
		int64_t n;
	} initial = {0};
	struct field alone = *f;

	alone.offset = 0;
	field_default(f, &initial, a);
	return !strcmp(field_canonical(f, base, a),
		       field_canonical(&alone, &initial, a));
}
