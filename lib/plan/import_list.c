/* SPDX-License-Identifier: Apache-2.0 */
/* Python's lists of integers: sums and products of them, nothing else. */
#include <ctype.h>
#include <string.h>

#include "lib/plan/import_set.h"

enum { DEPTH_MAX = 32 };

struct parser {
	const char *at;
	struct arena *arena;
	int depth;
	size_t made; /* elements of all lists, also those on the way */
};

static bool parse_sum(struct parser *p, struct ints *out);

static char next(struct parser *p)
{
	while (isspace((unsigned char)*p->at))
		p->at++;
	return *p->at;
}

/* A new list of COUNT elements, or NULL if that is too many. */
static int64_t *new_list(struct parser *p, int64_t count)
{
	if (count < 0 || count > IMPORT_ITEMS_MAX ||
	    (p->made += (size_t)count) > 16 * (size_t)IMPORT_ITEMS_MAX)
		return NULL;
	return arena_alloc(p->arena, (size_t)count + 1, sizeof(int64_t));
}

static bool parse_int(struct parser *p, struct ints *out)
{
	int64_t *n = arena_alloc(p->arena, 1, sizeof(*n));
	bool minus = *p->at == '-';

	p->at += minus;
	if (!isdigit((unsigned char)*p->at))
		return false;
	for (; isdigit((unsigned char)*p->at); p->at++)
		if (__builtin_mul_overflow(*n, 10, n) ||
		    __builtin_add_overflow(*n, *p->at - '0', n))
			return false;
	*n = minus ? -*n : *n;
	*out = (struct ints){.item = n, .count = 1};
	return true;
}

/* B behind A. */
static bool join(struct parser *p, struct ints *a, const struct ints *b)
{
	int64_t count = (int64_t)a->count + b->count;
	int64_t *item = new_list(p, count);

	if (!item)
		return false;
	if (a->count)
		memcpy(item, a->item, (size_t)a->count * sizeof(*item));
	if (b->count)
		memcpy(item + a->count, b->item,
		       (size_t)b->count * sizeof(*item));
	*a = (struct ints){item, (int)count, true};
	return true;
}

/* One more number at the end of a list that has room for CAP. */
static bool append(struct parser *p, struct ints *list, size_t *cap, int64_t n)
{
	int64_t *item;

	if (list->count == IMPORT_ITEMS_MAX)
		return false;
	item = arena_grow(p->arena, (int64_t *)list->item, (size_t)list->count,
			  cap, sizeof(*item));
	item[list->count++] = n;
	list->item = item;
	return true;
}

/* "1, 2, 3" up to CLOSE; a list in a list is none of ours. */
static bool parse_items(struct parser *p, char close, bool *comma,
			struct ints *out)
{
	struct ints one, all = {.is_list = true};
	size_t cap = 0;

	*comma = false;
	while (next(p) != close) {
		if (!parse_sum(p, &one))
			return false;
		if (close == ')' && !*comma && next(p) == close) {
			*out = one; /* brackets, not a list of one */
			return true;
		}
		if (one.is_list || !append(p, &all, &cap, one.item[0]))
			return false;
		if (next(p) == ',') {
			*comma = true;
			p->at++;
		} else if (*p->at != close) {
			return false;
		}
	}
	*out = all;
	return true;
}

static bool parse_atom(struct parser *p, struct ints *out)
{
	char c = next(p), close = c == '[' ? ']' : ')';
	bool comma, good;

	if (c != '[' && c != '(')
		return parse_int(p, out);
	if (++p->depth > DEPTH_MAX)
		return false;
	p->at++;
	good = parse_items(p, close, &comma, out) && next(p) == close;
	p->at += good;
	p->depth--;
	return good;
}

static bool repeat(struct parser *p, const struct ints *list, int64_t times,
		   struct ints *out)
{
	int64_t count;
	int64_t *item;

	times = times < 0 ? 0 : times;
	if (__builtin_mul_overflow(times, list->count, &count))
		return false;
	item = new_list(p, count);
	if (!item)
		return false;
	for (int64_t i = 0; i < count; i++)
		item[i] = list->item[i % list->count];
	*out = (struct ints){item, (int)count, true};
	return true;
}

static struct ints number(struct parser *p, int64_t n)
{
	int64_t *item = arena_alloc(p->arena, 1, sizeof(*item));

	*item = n;
	return (struct ints){.item = item, .count = 1};
}

/* A becomes A * B. */
static bool multiply(struct parser *p, struct ints *a, const struct ints *b)
{
	int64_t n;

	if (a->is_list && b->is_list)
		return false;
	if (a->is_list)
		return repeat(p, a, b->item[0], a);
	if (b->is_list)
		return repeat(p, b, a->item[0], a);
	if (__builtin_mul_overflow(a->item[0], b->item[0], &n))
		return false;
	*a = number(p, n);
	return true;
}

/* A becomes A + B. */
static bool add(struct parser *p, struct ints *a, const struct ints *b)
{
	int64_t n;

	if (a->is_list != b->is_list)
		return false;
	if (a->is_list)
		return join(p, a, b);
	if (__builtin_add_overflow(a->item[0], b->item[0], &n))
		return false;
	*a = number(p, n);
	return true;
}

static bool parse_product(struct parser *p, struct ints *out)
{
	struct ints a, b;

	if (!parse_atom(p, &a))
		return false;
	while (next(p) == '*') {
		p->at++;
		if (!parse_atom(p, &b) || !multiply(p, &a, &b))
			return false;
	}
	*out = a;
	return true;
}

static bool parse_sum(struct parser *p, struct ints *out)
{
	struct ints a, b;

	if (!parse_product(p, &a))
		return false;
	while (next(p) == '+') {
		p->at++;
		if (!parse_product(p, &b) || !add(p, &a, &b))
			return false;
	}
	*out = a;
	return true;
}

/* "1, 2" or a sum, and nothing behind it. */
static bool parse_all(struct parser *p, struct ints *all)
{
	struct ints one;

	if (!parse_sum(p, all) || (next(p) == ',' && all->is_list))
		return false;
	if (*p->at == ',') { /* "127,0" */
		all->is_list = true;
		while (next(p) == ',') {
			p->at++;
			if (!parse_sum(p, &one) || one.is_list ||
			    !join(p, all, &one))
				return false;
		}
	}
	return !next(p);
}

bool import_list(const char *text, struct arena *a, struct ints *out,
		 int *column)
{
	struct parser p = {.at = text, .arena = a};
	struct ints all;

	if (!parse_all(&p, &all)) {
		*column = (int)(p.at - text) + 1;
		return false;
	}
	*out = all;
	return true;
}
