/* SPDX-License-Identifier: Apache-2.0 */
/* Proposed placements for people and programs. */
#ifndef PLAN_SHOW_SUGGEST_H
#define PLAN_SHOW_SUGGEST_H

#include <stdio.h>

#include "lib/plan/suggest.h"

/* A table of the rows, then the settings that make each of FILE. */
void show_suggest(FILE *f, const struct suggest *s, const char *file,
		  struct arena *a);

/* The same as one JSON object in one line. */
void show_suggest_json(FILE *f, const struct suggest *s, const char *file,
		       struct arena *a);

#endif
