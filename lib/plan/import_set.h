/* SPDX-License-Identifier: Apache-2.0 */
/* What the importers share: settings on their way into our own text. */
#ifndef PLAN_IMPORT_SET_H
#define PLAN_IMPORT_SET_H

#include "lib/plan/conf.h"

struct config;

enum { IMPORT_GROUPS = 4, IMPORT_ITEMS_MAX = 16384 };

struct import_setting {
	int group, row;
	const char *text; /* the value, as our own file would say it */
	const char *what; /* who said it: "--num-layers", or why */
	struct origin from;
};

/* What a file says, whatever becomes of it. */
struct import_given {
	const char *name, *value; /* "--num-layers", "32" */
	int line;
	bool read; /* somebody wanted to know it */
};

/* Names of what was left out, said once for all. */
struct import_names {
	const char *text; /* "--save, --load" */
	struct origin first;
	int count;
};

struct import {
	struct arena *arena;
	struct report *report;
	struct err *err;
	const char *file;
	struct config *config; /* told which of its values were refused */
	bool keys;	       /* YAML maps bare names to any values */
	struct import_setting *list;
	size_t count, cap;
	struct import_given *given;
	size_t givens, given_cap;
	struct import_names ignored;
};

/* What a setting is to become, and where that stands. */
struct import_source {
	const char *what; /* "--num-layers" */
	struct origin at;
};

/* Whether one of the groups has a setting NAME, whose row this is. */
const struct field *import_field(const char *name, int *group, int *row);

/*
 * Set NAME, which has a row, to the words ITEM, replacing what it had.  A
 * value that does not fit the row's type is a finding, and false; nobody says
 * then that it is missing.
 */
bool import_put(struct import *im, const char *name, const char *const *item,
		int count, struct import_source from);

/* The same for one word that is right. */
void import_say(struct import *im, const char *name, const char *value,
		struct import_source from);

/* Set NAME unless it is set, if there is such a row: it follows from WHY. */
void import_default(struct import *im, const char *name, const char *value,
		    const char *why);

/* Set NAME, whatever it is, if there is such a row: it follows from WHY. */
void import_derive(struct import *im, const char *name, const char *value,
		   const char *why);

/* The setting NAME, or NULL. */
struct import_setting *import_get(struct import *im, const char *name);

/* Its value as a number, or OTHERWISE. */
int64_t import_int(struct import *im, const char *name, int64_t otherwise);

/* Whether its value is VALUE, without quotes. */
bool import_is(struct import *im, const char *name, const char *value);

void import_drop(struct import *im, const char *name);

/* The file says NAME with these values. */
void import_give(struct import *im, const char *name, const char *const *item,
		 int count, int line);

/* Add NAME to NAMES. */
void import_note_name(struct import *im, struct import_names *names,
		      const char *name, struct origin at);

/* Our own text of all settings. */
void import_text(struct import *im, struct conf_text *t);

/* A fault that ends the reading: a finding "import-format", and the error. */
int import_give_up(struct import *im, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * A list as Python says it, without evaluating anything: "([0]*3+[1]*5)",
 * "(127, 0)", "4".  False: it is none from *COLUMN on, counted from 1, or has
 * more than IMPORT_ITEMS_MAX.
 */
bool import_list(const char *text, struct arena *a, struct ints *out,
		 int *column);

#endif
