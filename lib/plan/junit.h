/* SPDX-License-Identifier: Apache-2.0 */
/* Outcomes as a JUnit report: one <testcase> for each input. */
#ifndef PLAN_JUNIT_H
#define PLAN_JUNIT_H

#include <stdio.h>

#include "lib/plan/batch.h"

struct junit {
	FILE *f; /* of the cases so far */
	char *text;
	size_t len, tests, failures, errors;
};

void junit_open(struct junit *j);

/*
 * What came of FILE: a failure if it is invalid, an error if it cannot be
 * read or written; else what was found is the case's output.
 */
void junit_add(struct junit *j, const char *file, const struct outcome *out);

/* The whole report; J is used up. */
const char *junit_close(struct junit *j, struct arena *a);

#endif
