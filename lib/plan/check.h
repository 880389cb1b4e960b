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

/* All checks, in the order in which --list-checks prints them. */
const struct check *check_table(int *count);

/* The row of ID, or NULL. */
const struct check *check_find(const char *id);

#endif
