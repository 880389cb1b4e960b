/* SPDX-License-Identifier: Apache-2.0 */
/* Operands that name configs: files, folders, "-" and "@list". */
#ifndef PLAN_INPUTS_H
#define PLAN_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/arena.h"

struct input {
	const char *file; /* to read */
	const char *name; /* below an output folder */
};

struct inputs {
	const char *const *ends; /* ".sh" or whole names; NULL: .cfg */
	bool foreign;		 /* outputs get the ending .cfg as well */
	struct input *list;
	size_t count, cap;
};

/*
 * Add what OPERAND stands for, in a fixed order: a folder gives every config
 * below it (links to folders are not followed), @LIST what every line of the
 * file LIST names, but empty ones and those that begin with #.  Files themselves are not looked at.  -1 (CODE_USAGE): a folder or
 * list that cannot be read, or that has nothing in it.
 */
int inputs_add(struct inputs *in, const char *operand, struct arena *a,
	       struct err *e);

#endif
