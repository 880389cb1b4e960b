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
 * Commas, blanks and comments are ignored: # up to the end of the line, or
 * what stands between slash-star and star-slash.  Fails (CODE_CONFIG) with the
 * column of the wrong character, from 1, or if more than LAYOUT_TOKENS_MAX
 * tokens come out.
 */
int layout_expand(const char *text, struct arena *a, const char ***stages,
		  int *count, int *column, struct err *e);

#endif
