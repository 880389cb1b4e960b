/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of checks: every id that a finding can have. */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H

#include "lib/plan/report.h"

struct check {
	const char *id; /* stable, never reused */
	enum severity severity;
	const char *rule; /* what it demands, one line */
};

/* The longer story of a check. */
struct check_text {
	const char *id;
	const char
		*settings; /* that it depends on, "shape.x place.y"; or NULL */
	const char *example; /* lines of a config that it is fired by */
	const char *way;     /* lines in their place that do not fire it */
	const char *why;     /* what goes wrong without it, and elsewhere */
};

/* All checks, in the order in which --list-checks prints them. */
const struct check *check_table(int *count);

/* The row of ID, or NULL. */
const struct check *check_find(const char *id);

/* The text of ID, or NULL. */
const struct check_text *check_text(const char *id);

#endif
