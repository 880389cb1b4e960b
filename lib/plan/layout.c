/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/layout.h"

#include <stdint.h>
#include <string.h>

/* Deeper nesting than this is not a layout but an attack on the stack. */
enum { DEPTH_MAX = 32 };

struct layout {
	const char *text, *at;
	char *out; /* room for LAYOUT_TOKENS_MAX */
	int count, depth;
	int *column; /* of what is wrong */
	struct err *e;
};

static int wrong(struct layout *l, const char *at, const char *what)
{
	*l->column = (int)(at - l->text) + 1;
	return err_set(l->e, CODE_CONFIG, "layout '%.200s', column %d: %s",
		       l->text, *l->column, what);
}

/* Over commas, blanks and comments; one that is not closed is no comment. */
static void skip(struct layout *l)
{
	const char *end;

	for (;;) {
		l->at += strspn(l->at, ", \t\r\n");
		if (*l->at == '#') {
			l->at += strcspn(l->at, "\n");
			continue;
		}
		end = strncmp(l->at, "/*", 2) ? NULL : strstr(l->at + 2, "*/");
		if (!end)
			return;
		l->at = end + 2;
	}
}

/* The count behind a '*', from 1 to LAYOUT_TOKENS_MAX. */
static int layout_times(struct layout *l, int *times)
{
	const char *start;

	*times = 1;
	skip(l);
	if (*l->at != '*')
		return 0;
	l->at++;
	skip(l);
	start = l->at;
	for (*times = 0; *l->at >= '0' && *l->at <= '9'; l->at++) {
		*times = 10 * *times + (*l->at - '0');
		if (*times > LAYOUT_TOKENS_MAX)
			return wrong(l, start,
				     "the count after * is too large");
	}
	if (!*times)
		return wrong(l, start, "* wants a count of at least 1");
	return 0;
}

/* Repeat what was put out since FIRST until it stands there TIMES times. */
static int layout_repeat(struct layout *l, const char *at, int first, int times)
{
	int len = l->count - first;

	if (first + (int64_t)len * times > LAYOUT_TOKENS_MAX)
		return wrong(l, at, "it expands to more than 4096 tokens");
	for (int i = 1; i < times && len; i++) {
		memcpy(l->out + l->count, l->out + first, (size_t)len);
		l->count += len;
	}
	return 0;
}

static int layout_items(struct layout *l);

static int layout_atom(struct layout *l)
{
	const char *open = l->at;

	if (*l->at == '(') {
		if (++l->depth > DEPTH_MAX)
			return wrong(l, open, "brackets are nested too deep");
		l->at++;
		if (layout_items(l))
			return -1;
		if (*l->at != ')')
			return wrong(l, open, "this bracket is not closed");
		l->depth--;
	} else if (*l->at == '*') {
		return wrong(l, open, "* has nothing before it to repeat");
	} else if (strchr("EtmL|", *l->at)) {
		if (l->count == LAYOUT_TOKENS_MAX)
			return wrong(l, open,
				     "it expands to more than 4096 tokens");
		l->out[l->count++] = *l->at;
	} else {
		return wrong(l, open,
			     strncmp(open, "/*", 2)
				     ? "only E t m L | ( ) * are known"
				     : "this comment is not closed");
	}
	l->at++;
	return 0;
}

static int layout_items(struct layout *l)
{
	for (skip(l); *l->at && *l->at != ')'; skip(l)) {
		const char *at = l->at;
		int first = l->count, times;

		if (layout_atom(l) || layout_times(l, &times) ||
		    layout_repeat(l, at, first, times))
			return -1;
	}
	return 0;
}

int layout_expand(const char *text, struct arena *a, const char ***stages,
		  int *count, int *column, struct err *e)
{
	struct layout l = {.text = text, .at = text, .column = column, .e = e};
	char *token;

	l.out = arena_alloc(a, LAYOUT_TOKENS_MAX + 1, 1);
	if (layout_items(&l))
		return -1;
	if (*l.at)
		return wrong(&l, l.at, "this bracket was never opened");
	*count = 1;
	for (int i = 0; i < l.count; i++)
		*count += l.out[i] == '|';
	*stages = arena_alloc(a, (size_t)*count, sizeof(**stages));
	token = l.out;
	for (int i = 0; i < *count; i++) {
		(*stages)[i] = token;
		token = strchrnul(token, '|');
		*token++ = 0;
	}
	return 0;
}
