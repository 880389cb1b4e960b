/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "lib/plan/shell.h"

enum { DEPTH_MAX = 16, NAME_MAX_LEN = 128 };

/* A word that is being read. */
struct reader {
	struct shell *sh;
	struct cursor *c;
	struct shell_words *out;
	struct shell_word now;
	bool quoted; /* inside "..." */
	bool split;  /* blanks of values end words */
};

bool shell_at(const struct cursor *c, char ch)
{
	return c->at < c->end && c->at->c == ch && c->at->quoted == CELL_BARE;
}

int shell_line(const struct cursor *c)
{
	return c->at < c->end ? c->at->line : c->end[-1].line;
}

int shell_put(struct shell *sh, struct text *t, struct cell cell)
{
	if (++sh->cells > CELLS_MAX)
		return import_give_up(sh->im, cell.line,
				      "the variables of this script expand to "
				      "more than %d characters",
				      CELLS_MAX);
	t->cell = arena_grow(sh->im->arena, t->cell, t->len, &t->cap,
			     sizeof(*t->cell));
	t->cell[t->len++] = cell;
	return 0;
}

struct shell_word *shell_add(struct shell *sh, struct shell_words *w)
{
	w->list = arena_grow(sh->im->arena, w->list, w->count, &w->cap,
			     sizeof(*w->list));
	w->list[w->count] = (struct shell_word){0};
	return &w->list[w->count++];
}

const char *shell_chars(struct shell *sh, const struct text *t)
{
	char *chars = arena_alloc(sh->im->arena, t->len + 1, 1);

	for (size_t i = 0; i < t->len; i++)
		chars[i] = t->cell[i].c;
	return chars;
}

/* The word that was read so far is complete. */
static int end_word(struct reader *r)
{
	if (!r->now.text.len && !r->now.quoted)
		return 0;
	if (r->out->count == WORDS_MAX)
		return import_give_up(r->sh->im, shell_line(r->c),
				      "a command of more than %d words",
				      WORDS_MAX);
	*shell_add(r->sh, r->out) = r->now;
	r->now = (struct shell_word){0};
	return 0;
}

static int put(struct reader *r, struct cell cell, enum cell_quote quote)
{
	if (cell.quoted != CELL_UNKNOWN)
		cell.quoted = quote;
	return shell_put(r->sh, &r->now.text, cell);
}

/* A value's text, of which bare blanks end words unless it is quoted. */
static int put_text(struct reader *r, const struct text *t)
{
	for (size_t i = 0; i < t->len; i++) {
		struct cell cell = t->cell[i];

		if (r->split && !r->quoted && cell.quoted != CELL_UNKNOWN &&
		    isspace((unsigned char)cell.c)) {
			if (end_word(r))
				return -1;
		} else if (put(r, cell, CELL_QUOTED)) {
			return -1;
		}
	}
	return 0;
}

/* What is not known stays as it is written, from FROM to where we are. */
static int put_unknown(struct reader *r, const struct cell *from)
{
	for (; from < r->c->at; from++) {
		struct cell cell = *from;

		cell.quoted = CELL_UNKNOWN;
		if (shell_put(r->sh, &r->now.text, cell))
			return -1;
	}
	return 0;
}

static int unclosed(struct reader *r, const struct cell *from, const char *what)
{
	return import_give_up(r->sh->im, from->line,
			      "the %s that begins here is not closed", what);
}

/* Over "(...)" or "{...}" with all that is nested in it. */
static int skip_nested(struct reader *r, char open, char close)
{
	const struct cell *from = r->c->at;
	int depth = 0;
	char quote = 0;

	for (; r->c->at < r->c->end; r->c->at++) {
		char c = r->c->at->c;

		if (c == '\\' && quote != '\'') {
			r->c->at += r->c->at + 1 < r->c->end;
		} else if (quote) {
			quote = c == quote ? 0 : quote;
		} else if (c == '"' || c == '\'') {
			quote = c;
		} else {
			depth += (c == open) - (c == close);
			if (!depth) {
				r->c->at++;
				return 0;
			}
		}
	}
	return unclosed(r, from, open == '(' ? "$(" : "${");
}

/* A variable was set again where we did not follow. */
static void say_condition(struct shell *sh, struct variable *v)
{
	struct origin at = {.file = sh->im->file, .line = v->condition};

	if (!v->condition || sh->skips)
		return;
	sh->doubt = true;
	if (v->said == v->condition)
		return;
	v->said = v->condition;
	report_add(sh->im->report, "import-condition", WARNING, "", &at,
		   "'%.80s' is set here under a condition that is not "
		   "known",
		   v->name);
}

/* It is set in this script, or at least not only where we did not follow. */
static struct variable *known(struct reader *r, const char *name)
{
	struct variable *v = shell_variable(r->sh, name, false);

	if (!v || v->value.count || v->array || !v->condition)
		return v;
	say_condition(r->sh, v);
	return NULL;
}

/* The value of V; an array's words stay apart with [@] or without quotes. */
static int put_variable(struct reader *r, struct variable *v, bool all)
{
	say_condition(r->sh, v);
	if (all && !v->value.count)
		r->now.quoted = false;
	for (size_t i = 0; i < v->value.count && (all || !i); i++) {
		if (i && end_word(r))
			return -1;
		r->now.quoted |= r->quoted && v->value.count > 0;
		if (put_text(r, &v->value.list[i].text))
			return -1;
	}
	return 0;
}

static int read_pieces(struct reader *r, bool in_quotes);

/* ${NAME:-WORD}: WORD ends at END. */
static int put_default(struct reader *r, const struct cell *word,
		       const struct cell *end)
{
	struct cursor inner = {word, end}, *outer = r->c;
	int bad;

	if (++r->sh->depth > DEPTH_MAX)
		return import_give_up(r->sh->im, word->line,
				      "nested more than %d deep", DEPTH_MAX);
	r->c = &inner;
	bad = read_pieces(r, true);
	r->c = outer;
	r->sh->depth--;
	return bad;
}

static size_t name_at(const struct cell *at, const struct cell *end,
		      char name[NAME_MAX_LEN + 1])
{
	size_t n = 0;

	while (at + n < end && n < NAME_MAX_LEN &&
	       (isalnum((unsigned char)at[n].c) || at[n].c == '_')) {
		name[n] = at[n].c;
		n++;
	}
	name[n] = 0;
	return n;
}

static bool cells_are(const struct cell *at, const struct cell *end,
		      const char *text)
{
	for (; *text && at < end; text++, at++)
		if (at->c != *text)
			return false;
	return !*text && at == end;
}

/* ${...}, from FROM to where we are now. */
static int put_braced(struct reader *r, const struct cell *from)
{
	const struct cell *at = from + 2, *end = r->c->at - 1;
	char name[NAME_MAX_LEN + 1];
	size_t len = name_at(at, end, name);
	struct variable *v = len ? known(r, name) : NULL;
	bool given;

	at += len;
	if (v && at == end)
		return put_variable(r, v, false);
	if (v && (cells_are(at, end, "[@]") || cells_are(at, end, "[*]")))
		return put_variable(r, v, true);
	if (!len || at == end || (*at).c == '[')
		return put_unknown(r, from);
	given = v && v->value.count && (v->value.list[0].text.len);
	if (at->c == ':' && at + 1 < end)
		at++;
	if (at->c != '-' && at->c != '=')
		return put_unknown(r, from);
	return given ? put_variable(r, v, false) : put_default(r, at + 1, end);
}

/* $(...), from FROM to where we are now: arithmetic, or not known. */
static int put_command(struct reader *r, const struct cell *from)
{
	const struct cell *end = r->c->at - 2;
	struct text inner = {(struct cell *)from + 3, 0, 0};
	const char *digits;
	int64_t n;

	if (end < from + 3 || from[2].c != '(' || end->c != ')')
		return put_unknown(r, from);
	inner.len = (size_t)(end - from) - 3;
	if (!shell_arithmetic(r->sh, shell_chars(r->sh, &inner), &n))
		return put_unknown(r, from);
	digits = arena_printf(r->sh->im->arena, "%lld", (long long)n);
	for (; *digits; digits++)
		if (put(r, (struct cell){from->line, *digits, CELL_QUOTED},
			CELL_QUOTED))
			return -1;
	return 0;
}

/* "$" and what follows it. */
static int put_dollar(struct reader *r)
{
	const struct cell *from = r->c->at++;
	char name[NAME_MAX_LEN + 1], c;
	struct variable *v;
	size_t len;

	c = r->c->at < r->c->end ? r->c->at->c : 0;
	if (c == '(')
		return skip_nested(r, '(', ')') || put_command(r, from) ? -1
									: 0;
	if (c == '{')
		return skip_nested(r, '{', '}') || put_braced(r, from) ? -1 : 0;
	len = name_at(r->c->at, r->c->end, name);
	if (!len || isdigit((unsigned char)c)) {
		r->c->at += c && strchr("0123456789@*#?$!-", c);
		return put_unknown(r, from);
	}
	r->c->at += len;
	v = known(r, name);
	return v ? put_variable(r, v, false) : put_unknown(r, from);
}

static int put_backticks(struct reader *r)
{
	const struct cell *from = r->c->at++;

	while (r->c->at < r->c->end && r->c->at->c != '`')
		r->c->at++;
	if (r->c->at == r->c->end)
		return unclosed(r, from, "`");
	r->c->at++;
	return put_unknown(r, from);
}

static int put_single(struct reader *r)
{
	const struct cell *from = r->c->at++;

	r->now.quoted = true;
	for (; r->c->at < r->c->end && r->c->at->c != '\''; r->c->at++)
		if (put(r, *r->c->at, CELL_QUOTED))
			return -1;
	if (r->c->at == r->c->end)
		return unclosed(r, from, "'");
	r->c->at++;
	return 0;
}

static int put_double(struct reader *r)
{
	const struct cell *from = r->c->at++;

	r->now.quoted = true;
	r->quoted = true;
	while (r->c->at < r->c->end && !shell_at(r->c, '"'))
		if (read_pieces(r, false))
			return -1;
	r->quoted = false;
	if (r->c->at == r->c->end)
		return unclosed(r, from, "\"");
	r->c->at++;
	return 0;
}

/* A backslash: nothing before a newline, else the next character itself. */
static int put_escaped(struct reader *r)
{
	const struct cell *from = r->c->at++;

	if (r->c->at == r->c->end || r->c->at->c == '\n') {
		r->c->at += r->c->at < r->c->end;
		return 0;
	}
	if (r->quoted && !strchr("$`\"\\", r->c->at->c) &&
	    put(r, *from, CELL_QUOTED))
		return -1;
	r->now.quoted = true;
	return put(r, *r->c->at++, CELL_QUOTED);
}

/* One piece, or with ALL every piece to the end of the text. */
static int read_pieces(struct reader *r, bool all)
{
	int bad;

	do {
		if (r->c->at == r->c->end)
			return 0;
		if (shell_at(r->c, '$'))
			bad = put_dollar(r);
		else if (shell_at(r->c, '`'))
			bad = put_backticks(r);
		else if (shell_at(r->c, '\\'))
			bad = put_escaped(r);
		else if (shell_at(r->c, '\'') && !r->quoted)
			bad = put_single(r);
		else if (shell_at(r->c, '"') && !r->quoted)
			bad = put_double(r);
		else
			bad = put(r, *r->c->at++,
				  r->quoted ? CELL_QUOTED : CELL_BARE);
	} while (all && !bad);
	return bad;
}

/* Whether a word ends here. */
static bool at_end(const struct cursor *c)
{
	return c->at == c->end || (c->at->quoted == CELL_BARE &&
				   strchr(" \t\r\n;&|<>()", c->at->c));
}

static int read_word(struct shell *sh, struct cursor *c, bool split,
		     struct shell_words *out)
{
	struct reader r = {.sh = sh, .c = c, .out = out, .split = split};

	while (!at_end(c))
		if (read_pieces(&r, false))
			return -1;
	return end_word(&r);
}

int shell_word(struct shell *sh, struct cursor *c, struct shell_words *out)
{
	return read_word(sh, c, true, out);
}

int shell_value(struct shell *sh, struct cursor *c, struct shell_words *out)
{
	return read_word(sh, c, false, out);
}
