/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Megatron's command line out of three kinds of files: a list of flags with
 * their values and lines.  Nothing is executed, no other file is opened.
 */
#ifndef PLAN_IMPORT_WORDS_H
#define PLAN_IMPORT_WORDS_H

#include "lib/plan/import_set.h"

enum { WORDS_MAX = 16384, CELLS_MAX = 1 << 20 };

struct word {
	const char *text;
	int line;
	bool unknown; /* parts of it only a running shell would know */
};

struct words {
	struct arena *arena;
	struct word *list;
	size_t count, cap;
};

struct flag {
	const char *name; /* "--num-layers" */
	int line;
	const char **value;
	int values;
	bool off; /* a YAML file says that it is not given: false, null */
};

struct flags {
	struct flag *list;
	size_t count, cap;
};

/* One character with the line that it was written on. */
struct cell {
	int line;
	char c;
	unsigned char quoted; /* enum cell_quote */
};

enum cell_quote { CELL_BARE, CELL_QUOTED, CELL_UNKNOWN };

/*
 * The words of the command in the script TEXT that has Megatron's flags,
 * without what stands before them.  -1: im->err says why.
 */
int import_shell(struct import *im, const char *text, size_t len,
		 struct words *out);

/* The words of a file that is nothing but arguments. */
int import_args(struct import *im, const char *text, size_t len,
		struct words *out);

/* The same as flags. */
void import_flags(struct import *im, const struct words *words,
		  struct flags *out);

/* The flags of a YAML file: those of MODEL_ARGS, or of the top. */
int import_yaml(struct import *im, const char *text, size_t len,
		struct flags *out);

/* A flag that Megatron has; MODEL: and that concerns the model. */
bool import_flag_known(const char *name, bool *model);

void word_add(struct words *w, struct word word);
void flag_add(struct import *im, struct flags *f, struct flag flag);

#endif
