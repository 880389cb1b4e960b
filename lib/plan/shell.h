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
	int said;      /* that one of them is not: its line */
};

struct shell {
	struct import *im;
	struct variable *variable;
	size_t variables, cap;
	size_t cells; /* of all texts so far: bounded */
	int depth;
	bool skips; /* what is read now is not run */
	bool doubt; /* a variable was read that may have another value */
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

enum truth { NOT_TRUE, IS_TRUE, NOT_KNOWN };

enum truth shell_not(enum truth x);

/* Whether all of the words are known. */
bool shell_known(const struct shell_words *w);

/*
 * What the command W, of at least one word, says: true, false, and test, [ ]
 * and [[ ]] with -z, -n, =, ==, != or -eq, -ne, -lt, -le, -gt, -ge of known
 * words; of all else it is not known.
 */
enum truth shell_test(struct shell *sh, const struct shell_words *w);

/* A compound command that is open: if it is an if, where it stands. */
enum branch {
	BRANCH_ASKS,	/* in its condition, which is run */
	BRANCH_TAKEN,	/* in the part that is run */
	BRANCH_SKIPPED, /* in one that is not; the next one may be */
	BRANCH_OVER,	/* in one behind that which was */
	BRANCH_CASE,	/* of a case: before its "in" */
	BRANCH_PATTERN, /* and before the bracket behind a pattern */
	BRANCH_UNKNOWN, /* nobody knows; loops, too */
};

enum { BRANCHES_MAX = 64 };

struct branches {
	enum branch state[BRANCHES_MAX];
	const char *word[BRANCHES_MAX]; /* of a case, or NULL */
	enum truth match;		/* of its patterns so far */
	int count, beyond; /* open; and more than fit, of which nobody knows */
};

/*
 * Whether WORD, at a command's start, is a keyword, and what then is open; LAST
 * is what the command before it said.
 */
bool shell_keyword(struct branches *b, const char *word, enum truth last);

/* Whether what is read now is the word or a pattern of a case. */
bool shell_in_case(const struct branches *b);

/*
 * That was W, and it ended with the character SEPARATOR.  What is compared is
 * whole words, and * alone.
 */
void shell_case(struct shell *sh, struct branches *b,
		const struct shell_words *w, char separator);

/*
 * ;; ends a part of a case, if one is open; behind ;& and ;;&, which go on in
 * another part, nothing is known: ON.
 */
void shell_case_end(struct branches *b, bool on);

/* Whether what is read now is run. */
enum truth shell_taken(const struct branches *b);

/* The characters alone. */
const char *shell_chars(struct shell *sh, const struct text *t);

#endif
