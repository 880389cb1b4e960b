/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/plan/classify.h"

/* Columns are as wide as what is in them, up to these. */
enum { NAME_WIDTH = 46, VALUE_WIDTH = 24 };

static int wider(int width, const char *text, int most)
{
	int n = (int)strlen(text);

	return n > width ? n < most ? n : most : width;
}

/* What becomes of it, or why nothing does. */
static const char *fate(const struct class_row *row, struct arena *a)
{
	bool same = !strcmp(row->becomes, row->given);

	if (!*row->why)
		return same ? "" : row->becomes;
	if (!*row->becomes || same)
		return arena_printf(a, "(%s)", row->why);
	return arena_printf(a, "%s (%s)", row->becomes, row->why);
}

/* One line; of a value too long, its beginning. */
static const char *shorten(const char *text, struct arena *a)
{
	char *copy = arena_printf(a, "%.*s", VALUE_WIDTH, text);

	for (char *p = copy; *p; p++)
		*p = (unsigned char)*p < ' ' ? ' ' : *p;
	if (strlen(text) <= VALUE_WIDTH)
		return copy;
	return arena_printf(a, "%.*s...", VALUE_WIDTH - 3, copy);
}

static void put_line(FILE *f, const struct class_row *row, int name, int value,
		     struct arena *a)
{
	const char *line = arena_printf(a, "%5d  %-*s  %-*s  %s", row->line,
					name, row->given, value,
					shorten(row->value, a), fate(row, a));
	int n = (int)strlen(line);

	while (n && line[n - 1] == ' ')
		n--;
	fprintf(f, "%.*s\n", n, line);
}

static size_t put_question(FILE *f, const struct classes *c, enum question q,
			   struct arena *a)
{
	int name = 0, value = 0;
	size_t n = 0;

	for (size_t i = 0; i < c->rows; i++) {
		name = wider(name, c->row[i].given, NAME_WIDTH);
		value = wider(value, c->row[i].value, VALUE_WIDTH);
	}
	for (size_t i = 0; i < c->rows; i++) {
		const struct class_row *row = &c->row[i];

		if (row->question != q)
			continue;
		if (!n++)
			fprintf(f, "%s\n", question_name(q));
		put_line(f, row, name, value, a);
	}
	return n;
}

/* Each once, however often the file says it. */
static void put_pollution(FILE *f, const struct classes *c)
{
	bool any = false;

	for (size_t i = 0; i < c->rows; i++) {
		const struct class_row *row = &c->row[i];
		size_t before = 0;

		while (before < i && c->row[before].polluted != row->polluted)
			before++;
		if (!row->polluted || before < i)
			continue;
		if (!any)
			fputs("where a place gets into the rest\n", f);
		fprintf(f, "  %s: %s\n", row->given, row->polluted);
		any = true;
	}
}

const char *classify_text(const struct classes *c, struct arena *a)
{
	size_t n[QUESTIONS], len;
	char *text = NULL;
	const char *copy;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		arena_exhausted();
	for (int q = 0; q < QUESTIONS; q++)
		n[q] = put_question(f, c, (enum question)q, a);
	put_pollution(f, c);
	fprintf(f, "%s: %zu setting%s given:", c->file, c->rows,
		plural((long long)c->rows));
	for (int q = 0; q < QUESTIONS; q++)
		fprintf(f, "%s %zu %s", q ? "," : "", n[q],
			question_name((enum question)q));
	fputc('\n', f);
	if (fclose(f))
		arena_exhausted();
	copy = arena_strdup(a, text);
	free(text);
	return copy;
}

static json_t *json_or_null(const char *text)
{
	return text && *text ? json_any(text) : json_null();
}

const char *classify_json(const struct classes *c, struct arena *a)
{
	const char **line = arena_alloc(a, c->rows + 1, sizeof(*line));
	size_t room = 1;
	char *text, *t;

	for (size_t i = 0; i < c->rows; i++) {
		const struct class_row *row = &c->row[i];
		json_t *out = json_object();

		json_object_set_new(out, "file", json_any(c->file));
		json_object_set_new(out, "line", json_integer(row->line));
		json_object_set_new(out, "given", json_any(row->given));
		json_object_set_new(out, "value", json_any(row->value));
		json_object_set_new(out, "question",
				    json_string(question_name(row->question)));
		json_object_set_new(out, "becomes", json_or_null(row->becomes));
		json_object_set_new(out, "why", json_or_null(row->why));
		json_object_set_new(out, "polluted",
				    json_or_null(row->polluted));
		line[i] = json_line(out, a);
		room += strlen(line[i]);
	}
	t = text = arena_alloc(a, room, 1);
	for (size_t i = 0; i < c->rows; i++)
		t = stpcpy(t, line[i]);
	return text;
}
