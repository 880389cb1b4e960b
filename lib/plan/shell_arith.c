/* SPDX-License-Identifier: Apache-2.0 */
/* $((2 * N + 1)): whole numbers, + - * / %, brackets and variables. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cli.h"
#include "lib/plan/shell.h"

enum { DEPTH_MAX = 32, NAME_MAX_LEN = 128 };

struct sum {
	struct shell *sh;
	const char *at;
	int depth;
};

static bool parse_sum(struct sum *s, int64_t *n);

static char next(struct sum *s)
{
	while (isspace((unsigned char)*s->at))
		s->at++;
	return *s->at;
}

/* N, $N or ${N}: what this script sets it to. */
static bool parse_variable(struct sum *s, int64_t *n)
{
	char name[NAME_MAX_LEN + 1];
	bool braced;
	struct variable *v;
	size_t len = 0;
	struct err e;

	s->at += *s->at == '$';
	braced = *s->at == '{';
	s->at += braced;
	while (len < NAME_MAX_LEN &&
	       (isalnum((unsigned char)*s->at) || *s->at == '_'))
		name[len++] = *s->at++;
	name[len] = 0;
	if (braced && *s->at++ != '}')
		return false;
	v = len ? shell_variable(s->sh, name, false) : NULL;
	return v && v->value.count == 1 && !v->array && !v->condition &&
	       !cli_int(shell_chars(s->sh, &v->value.list[0].text), INT64_MIN,
			INT64_MAX, n, &e);
}

static bool parse_brackets(struct sum *s, int64_t *n)
{
	return parse_sum(s, n) && next(s) == ')' && s->at++;
}

static bool parse_atom(struct sum *s, int64_t *n)
{
	char c = next(s), *end;
	bool good;

	if (strchr("-+(", c) && c) {
		s->at++;
		good = ++s->depth <= DEPTH_MAX &&
		       (c == '(' ? parse_brackets(s, n) : parse_atom(s, n));
		s->depth--;
		return good && (c != '-' || !__builtin_sub_overflow(0, *n, n));
	}
	if (!isdigit((unsigned char)c))
		return parse_variable(s, n);
	*n = strtoll(s->at, &end, 10);
	good = *n != INT64_MAX && (c != '0' || end == s->at + 1);
	s->at = end;
	return good;
}

static bool apply(char op, int64_t *n, int64_t m)
{
	if (op == '*')
		return !__builtin_mul_overflow(*n, m, n);
	if (op == '+')
		return !__builtin_add_overflow(*n, m, n);
	if (op == '-')
		return !__builtin_sub_overflow(*n, m, n);
	if (!m || m == -1)
		return false;
	*n = op == '/' ? *n / m : *n % m;
	return true;
}

static bool parse_product(struct sum *s, int64_t *n)
{
	int64_t m;
	char op;

	if (!parse_atom(s, n))
		return false;
	while ((op = next(s)) && strchr("*/%", op)) {
		s->at++;
		if (!parse_atom(s, &m) || !apply(op, n, m))
			return false;
	}
	return true;
}

static bool parse_sum(struct sum *s, int64_t *n)
{
	int64_t m;
	char op;

	if (!parse_product(s, n))
		return false;
	while ((op = next(s)) && strchr("+-", op)) {
		s->at++;
		if (!parse_product(s, &m) || !apply(op, n, m))
			return false;
	}
	return true;
}

bool shell_arithmetic(struct shell *sh, const char *text, int64_t *n)
{
	struct sum s = {.sh = sh, .at = text};

	return parse_sum(&s, n) && !next(&s);
}
