/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of checks and settings, for people. */
#ifndef PLAN_SHOW_CHECKS_H
#define PLAN_SHOW_CHECKS_H

#include <stdio.h>

#include "lib/base/arena.h"

/* A line a check: id, severity, what it demands. */
void show_checks(FILE *f);

/*
 * What the check ID demands and why, what it depends on, an example and a way
 * out.  CODE_USAGE, with ids that may have been meant: there is none.
 */
int show_check(FILE *f, const char *id, struct arena *a, struct err *e);

/* Each setting: its values, its default, its meaning. */
void show_settings(FILE *f, struct arena *a);

#endif
