/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "lib/plan/shell.h"

static enum truth truth(bool x)
{
	return x ? IS_TRUE : NOT_TRUE;
}

enum truth shell_not(enum truth x)
{
	return x == NOT_KNOWN ? x : truth(x == NOT_TRUE);
}

bool shell_known(const struct shell_words *w)
{
	for (size_t i = 0; i < w->count; i++)
		for (size_t k = 0; k < w->list[i].text.len; k++)
			if (w->list[i].text.cell[k].quoted == CELL_UNKNOWN)
				return false;
	return true;
}

/* Characters that match others, where [[ ]] compares with a pattern. */
static bool is_pattern(const struct shell_word *w)
{
	for (size_t i = 0; i < w->text.len; i++)
		if (w->text.cell[i].quoted == CELL_BARE &&
		    strchr("*?[\\", w->text.cell[i].c))
			return true;
	return false;
}

static enum truth compare_numbers(const char *a, const char *op, const char *b)
{
	char *end_a, *end_b;
	long long x = strtoll(a, &end_a, 10), y = strtoll(b, &end_b, 10);

	if (!*a || !*b || *end_a || *end_b)
		return NOT_KNOWN;
	if (!strcmp(op, "-eq"))
		return truth(x == y);
	if (!strcmp(op, "-ne"))
		return truth(x != y);
	if (!strcmp(op, "-lt"))
		return truth(x < y);
	if (!strcmp(op, "-le"))
		return truth(x <= y);
	if (!strcmp(op, "-gt"))
		return truth(x > y);
	return strcmp(op, "-ge") ? NOT_KNOWN : truth(x >= y);
}

/* COUNT words of a test; what asks for files and the like is not known. */
static enum truth test_words(struct shell *sh, const struct shell_word *w,
			     size_t count, bool patterns)
{
	const char *word[3];

	if (count && count < 5 && !w[0].quoted &&
	    !strcmp(shell_chars(sh, &w[0].text), "!"))
		return shell_not(test_words(sh, w + 1, count - 1, patterns));
	for (size_t i = 0; i < count && i < 3; i++)
		word[i] = shell_chars(sh, &w[i].text);
	if (count == 1)
		return truth(*word[0]);
	if (count == 2 && !strcmp(word[0], "-z"))
		return truth(!*word[1]);
	if (count == 2 && !strcmp(word[0], "-n"))
		return truth(*word[1]);
	if (count != 3)
		return NOT_KNOWN;
	if (*word[1] == '-')
		return compare_numbers(word[0], word[1], word[2]);
	if (patterns && is_pattern(&w[2]))
		return NOT_KNOWN;
	if (!strcmp(word[1], "=") || !strcmp(word[1], "=="))
		return truth(!strcmp(word[0], word[2]));
	return strcmp(word[1], "!=") ? NOT_KNOWN
				     : truth(strcmp(word[0], word[2]) != 0);
}

enum truth shell_test(struct shell *sh, const struct shell_words *w)
{
	const char *name = shell_chars(sh, &w->list[0].text), *close = NULL;
	size_t count = w->count - 1;

	if (!shell_known(w))
		return NOT_KNOWN;
	if (!strcmp(name, "true") || !strcmp(name, ":"))
		return IS_TRUE;
	if (!strcmp(name, "false"))
		return NOT_TRUE;
	if (!strcmp(name, "["))
		close = "]";
	else if (!strcmp(name, "[["))
		close = "]]";
	else if (strcmp(name, "test") != 0)
		return NOT_KNOWN;
	if (close && (!count || strcmp(shell_chars(sh, &w->list[count--].text),
				       close) != 0))
		return NOT_KNOWN;
	return test_words(sh, w->list + 1, count, close && close[1]);
}

/* What becomes of the innermost of B at one of its keywords. */
static void step(struct branches *b, const char *word, enum truth last)
{
	enum branch *now = &b->state[b->count - 1];

	if (!strcmp(word, "then")) {
		if (*now == BRANCH_ASKS)
			*now = last == NOT_KNOWN ? BRANCH_UNKNOWN
			       : last == IS_TRUE ? BRANCH_TAKEN
						 : BRANCH_SKIPPED;
	} else if (*now == BRANCH_TAKEN) {
		*now = BRANCH_OVER;
	} else if (*now == BRANCH_SKIPPED) {
		*now = strcmp(word, "elif") ? BRANCH_TAKEN : BRANCH_ASKS;
	}
}

static void push(struct branches *b, const char *word)
{
	b->word[b->count] = NULL;
	b->match = NOT_TRUE;
	b->state[b->count++] = !strcmp(word, "if")     ? BRANCH_ASKS
			       : !strcmp(word, "case") ? BRANCH_CASE
						       : BRANCH_UNKNOWN;
}

static bool is_one(const char *word, const char *const *list)
{
	while (*list && strcmp(*list, word))
		list++;
	return *list;
}

bool shell_keyword(struct branches *b, const char *word, enum truth last)
{
	static const char *const opens[] = {"if",     "for",  "while", "until",
					    "select", "case", NULL};
	static const char *const closes[] = {"fi", "done", "esac", NULL};
	static const char *const steps[] = {"then", "else", "elif", NULL};
	static const char *const others[] = {"do", "{", "}", "!", "time", NULL};

	if (is_one(word, opens)) {
		if (b->count == BRANCHES_MAX)
			b->beyond++;
		else
			push(b, word);
		return true;
	}
	if (is_one(word, closes)) {
		if (b->beyond)
			b->beyond--;
		else
			b->count -= b->count > 0;
		return true;
	}
	if (is_one(word, steps)) {
		if (b->count && !b->beyond)
			step(b, word, last);
		return true;
	}
	return is_one(word, others);
}

bool shell_in_case(const struct branches *b)
{
	enum branch now = b->count ? b->state[b->count - 1] : BRANCH_TAKEN;

	return !b->beyond && (now == BRANCH_CASE || now == BRANCH_PATTERN);
}

/* Whether the case's word is PATTERN. */
static enum truth matches(struct shell *sh, const char *word,
			  const struct shell_words *pattern)
{
	const char *text = shell_chars(sh, &pattern->list[0].text);

	if (pattern->count != 1 || !shell_known(pattern))
		return NOT_KNOWN;
	if (!strcmp(text, "*") && !pattern->list[0].quoted)
		return IS_TRUE;
	return is_pattern(&pattern->list[0]) ? NOT_KNOWN
					     : truth(!strcmp(text, word));
}

void shell_case(struct shell *sh, struct branches *b,
		const struct shell_words *w, char separator)
{
	struct shell_words pattern = *w;
	int top = b->count - 1;

	if (b->state[top] == BRANCH_CASE) {
		b->state[top] = BRANCH_UNKNOWN;
		if (w->count < 2 || sh->doubt || !shell_known(w) ||
		    strcmp(shell_chars(sh, &w->list[1].text), "in") != 0)
			return;
		b->state[top] = BRANCH_PATTERN;
		b->word[top] = shell_chars(sh, &w->list[0].text);
		pattern.list += 2;
		pattern.count -= 2;
	}
	if (pattern.count && b->match != IS_TRUE) {
		enum truth one = matches(sh, b->word[top], &pattern);

		b->match = one == NOT_TRUE ? b->match : one;
	}
	if (separator != ')')
		return;
	b->state[top] = b->match == IS_TRUE    ? BRANCH_TAKEN
			: b->match == NOT_TRUE ? BRANCH_SKIPPED
					       : BRANCH_UNKNOWN;
}

void shell_case_end(struct branches *b, bool on)
{
	int top = b->count - 1;

	if (top < 0 || b->beyond || !b->word[top])
		return;
	b->match = NOT_TRUE;
	if (on && b->state[top] != BRANCH_OVER)
		b->state[top] = BRANCH_UNKNOWN;
	else if (b->state[top] == BRANCH_TAKEN)
		b->state[top] = BRANCH_OVER;
	else if (b->state[top] == BRANCH_SKIPPED)
		b->state[top] = BRANCH_PATTERN;
}

enum truth shell_taken(const struct branches *b)
{
	enum truth all = b->beyond ? NOT_KNOWN : IS_TRUE;

	for (int i = 0; i < b->count; i++) {
		if (b->state[i] == BRANCH_SKIPPED || b->state[i] == BRANCH_OVER)
			return NOT_TRUE;
		if (b->state[i] == BRANCH_UNKNOWN)
			all = NOT_KNOWN;
	}
	return all;
}
