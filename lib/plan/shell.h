/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of shell scripts that runs nothing: words, quotes, simple
 * variables and arrays.  What only a running shell would know stays in the
 * words as it was written, marked CELL_UNKNOWN.
 */
#ifndef PLAN_SHELL_H
#define PLAN_SHELL_H

#include "lib/plan/import_words.h"

struct text {
	struct cell *cell;
	size_t len, cap;
};

/* A word on its way: what of it is known, and how. */
struct shell_word {
	struct text text;
	bool quoted; /* some of it: it is a word, even if empty */
};

struct shell_words {
	struct shell_word *list;
	size_t count, cap;
};

struct variable {
	const char *name;
	struct shell_words value; /* of an array, or one */
	bool array;
	int condition; /* line of an assignment not followed */
	bool said;     /* that it is not */
};

struct shell {
	struct import *im;
	struct variable *variable;
	size_t variables, cap;
	size_t cells; /* of all texts so far: bounded */
	int depth;
	/* the words of the command that has Megatron's flags */
	struct shell_words found;
	int found_line, others;
	bool found_sure; /* it stands under no condition */
};

/* Where the reading stands in a text. */
struct cursor {
	const struct cell *at, *end;
};

/* Read one word, which may expand to none or many, into OUT; -1: give up. */
int shell_word(struct shell *sh, struct cursor *c, struct shell_words *out);

/* The text that follows NAME=, as one word. */
int shell_value(struct shell *sh, struct cursor *c, struct shell_words *out);

/* Whether the next bare character is C. */
bool shell_at(const struct cursor *c, char ch);

/* The line where the reading stands. */
int shell_line(const struct cursor *c);

/* Run through the script: follow assignments, look at commands. */
int shell_script(struct shell *sh, struct cursor c);

struct variable *shell_variable(struct shell *sh, const char *name, bool make);

/* Append a character, or fail if there are too many. */
int shell_put(struct shell *sh, struct text *t, struct cell cell);

struct shell_word *shell_add(struct shell *sh, struct shell_words *w);

/*
 * What stands between $(( and )), as a number.  False: it is more than whole
 * numbers, + - * / %, brackets and variables that this script sets.
 */
bool shell_arithmetic(struct shell *sh, const char *text, int64_t *n);

/* The characters alone. */
const char *shell_chars(struct shell *sh, const struct text *t);

#endif
