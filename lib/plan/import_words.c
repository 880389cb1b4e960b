/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import_words.h"

#include <ctype.h>
#include <string.h>

#include "lib/plan/shell.h"

void word_add(struct words *w, struct word word)
{
	w->list = arena_grow(w->arena, w->list, w->count, &w->cap,
			     sizeof(*w->list));
	w->list[w->count++] = word;
}

void flag_add(struct import *im, struct flags *f, struct flag flag)
{
	f->list = arena_grow(im->arena, f->list, f->count, &f->cap,
			     sizeof(*f->list));
	f->list[f->count++] = flag;
}

/* The text with its lines; those of other systems end with two characters. */
static struct cursor cells_of(struct import *im, const char *text, size_t len)
{
	struct cell *cell = arena_alloc(im->arena, len + 1, sizeof(*cell));
	struct cell *end = cell;
	int line = 1;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\r' && text[i + 1] == '\n')
			continue;
		*end++ = (struct cell){line, text[i], CELL_BARE};
		line += text[i] == '\n';
	}
	return (struct cursor){cell, end};
}

static void to_words(struct shell *sh, const struct shell_words *from, int line,
		     struct words *out)
{
	out->arena = sh->im->arena;
	for (size_t i = 0; i < from->count; i++) {
		const struct text *t = &from->list[i].text;
		struct word w = {shell_chars(sh, t), line, false};

		for (size_t n = 0; n < t->len; n++)
			w.unknown |= t->cell[n].quoted == CELL_UNKNOWN;
		if (t->len)
			w.line = t->cell[0].line;
		word_add(out, w);
	}
}

/* Several commands have Megatron's flags; only one is read. */
static void say_others(const struct shell *sh)
{
	struct origin at = {.file = sh->im->file, .line = sh->found_line};

	if (sh->others)
		report_add(sh->im->report, "import-commands", WARNING, "", &at,
			   "%d other command%s with Megatron's flags %s not "
			   "read",
			   sh->others, plural(sh->others),
			   sh->others == 1 ? "is" : "are");
	else if (!sh->found_sure)
		report_add(sh->im->report, "import-commands", WARNING, "", &at,
			   "the command that is read stands under a condition");
}

int import_shell(struct import *im, const char *text, size_t len,
		 struct words *out)
{
	struct shell sh = {.im = im};

	if (len && shell_script(&sh, cells_of(im, text, len)))
		return -1;
	if (!sh.found.count)
		return import_give_up(im, 0,
				      "no command of this script has flags of "
				      "Megatron's, such as --num-layers");
	say_others(&sh);
	to_words(&sh, &sh.found, sh.found_line, out);
	return 0;
}

int import_args(struct import *im, const char *text, size_t len,
		struct words *out)
{
	struct shell sh = {.im = im};
	struct shell_words found = {0};
	struct cursor c = cells_of(im, text, len);

	/* All but blanks, quotes and variables is a character like others. */
	for (struct cell *cell = (struct cell *)c.at; cell < c.end; cell++)
		if (strchr(";&|<>()", cell->c))
			cell->quoted = CELL_QUOTED;
	while (c.at < c.end) {
		if (shell_at(&c, '#'))
			while (c.at < c.end && c.at->c != '\n')
				c.at++;
		else if (isspace((unsigned char)c.at->c))
			c.at++;
		else if (shell_word(&sh, &c, &found))
			return -1;
	}
	to_words(&sh, &found, 1, out);
	return 0;
}

/* "--name" or "-n", but not "-1". */
static bool is_flag(const char *text)
{
	return text[0] == '-' && text[1] == '-' &&
	       isalpha((unsigned char)text[2]);
}

/* A word that belongs to no flag: nothing if it was a variable. */
static void stray(struct import *im, const struct word *w)
{
	struct origin at = {.file = im->file, .line = w->line};

	if (w->unknown)
		report_add(im->report, "import-unset", WARNING, "", &at,
			   "'%.80s' is not set in this file: taken as empty",
			   w->text);
	else if (*w->text)
		report_add(im->report, "import-unknown", ERROR, "", &at,
			   "'%.80s' is neither a flag nor a flag's value",
			   w->text);
}

/* A word of its own that only a shell would know: more flags, or nothing. */
static bool is_variable(const struct word *w)
{
	return w->unknown && strchr("$`", *w->text);
}

/* How many values may follow the flag at word I. */
static size_t values_after(const struct words *words, size_t i)
{
	size_t n = i + 1;

	while (n < words->count && !is_flag(words->list[n].text))
		n++;
	return n - i - 1;
}

static void start_flag(struct import *im, const struct words *words, size_t i,
		       struct flags *out)
{
	const struct word *w = &words->list[i];
	const char *equals = strchr(w->text, '=');
	struct flag flag = {.name = w->text, .line = w->line};

	flag.value = arena_alloc(im->arena, values_after(words, i) + 1,
				 sizeof(*flag.value));
	if (equals) {
		flag.name = arena_strndup(im->arena, w->text,
					  (size_t)(equals - w->text));
		flag.value[flag.values++] = equals + 1;
	}
	flag_add(im, out, flag);
}

void import_flags(struct import *im, const struct words *words,
		  struct flags *out)
{
	struct flag *flag;

	for (size_t i = 0; i < words->count; i++) {
		const struct word *w = &words->list[i];

		flag = out->count ? &out->list[out->count - 1] : NULL;
		if (is_flag(w->text))
			start_flag(im, words, i, out);
		else if (flag && !(flag->values && is_variable(w)))
			flag->value[flag->values++] = w->text;
		else
			stray(im, w);
	}
}
