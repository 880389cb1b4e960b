/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline layout string: "Et*3|(tt|)*29,m|L". */
#ifndef PLAN_LAYOUT_H
#define PLAN_LAYOUT_H

#include "lib/base/arena.h"
#include "lib/base/err.h"

enum { LAYOUT_TOKENS_MAX = 4096 };

/*
 * Expand TEXT to plain stages: one string of the letters E t m L per stage.
 *   layout := item* ;  item := atom ['*' INT]
 *   atom := 'E' | 't' | 'm' | 'L' | '|' | '(' layout ')'
 * Commas and blanks are ignored.  Fails (CODE_CONFIG) with the column of the
 * wrong character, or if more than LAYOUT_TOKENS_MAX tokens come out.
 */
int layout_expand(const char *text, struct arena *a, const char ***stages,
		  int *count, struct err *e);

#endif
