/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: validation collects them all and never stops at the first. */
#ifndef PLAN_REPORT_H
#define PLAN_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"

enum severity { NOTE, WARNING, ERROR };

struct finding {
	const char *id; /* stable, never reused: "place-heads" */
	enum severity severity;
	const char *path; /* "place.tensor_model_parallel_size", or "" */
	const char *file; /* where that value was written, or NULL */
	int line;	  /* or 0 */
	const char *message;
	const char **suggest; /* values or edits that would work */
	int suggests;
	const char *excerpt; /* of the value, or NULL */
	int column;	     /* of what is wrong in it, from 1 */
};

struct report {
	struct arena *arena; /* owns every text */
	struct finding *list;
	size_t count, cap;
};

/* Where a value comes from. */
enum origin_kind { ORIGIN_DEFAULT, ORIGIN_GIVEN, ORIGIN_DERIVED };

struct origin {
	enum origin_kind kind;
	const char *file; /* of a given value; "--set" for the command line */
	int line;
	const char *why; /* of a derived value: the formula with its names */
};

/* "default", "given: a.cfg:3", "derived: world / (tp * cp * pp)"; one line. */
const char *origin_text(const struct origin *from, struct arena *a);

/*
 * Add one finding.  ID must be a string constant that check_table() knows
 * (check.h); FROM may be NULL.  MESSAGE: lower case, both numbers, no full
 * stop.
 */
void report_add(struct report *r, const char *id, enum severity severity,
		const char *path, const struct origin *from, const char *fmt,
		...) __attribute__((format(printf, 6, 7)));

/* Add a way out to the last finding. */
void report_suggest(struct report *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The divisors of N nearest to NEAR, below and above: "NAME = 4". */
void report_suggest_divisors(struct report *r, const char *name, int64_t n,
			     int64_t near);

/*
 * The last finding is about the character in COLUMN of TEXT (from 1; the one
 * behind the last is its end).  Of a long text what stands around it is kept.
 */
void report_mark(struct report *r, const char *text, int column);

/* How many findings have at least this severity. */
size_t report_count(const struct report *r, enum severity at_least);

const char *severity_name(enum severity s);

#endif
