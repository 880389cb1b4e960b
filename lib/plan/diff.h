/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two configs beside each other, as they are when everything is explicit:
 * which of the four questions they answer differently, and what a job of the
 * second makes of the first one's checkpoints.
 */
#ifndef PLAN_DIFF_H
#define PLAN_DIFF_H

#include "lib/plan/verdict.h"

/* A setting that has two values. */
struct diff_row {
	const struct group *group;
	const struct field *field;
	const char *value[2];
	const struct origin *from[2];
	bool hashed; /* it makes two models of one */
};

struct diff {
	const struct verdict *v[2];
	struct diff_row *row;
	size_t rows, cap;
	bool same_shape;
	int assumed;  /* the side whose vocabulary is not known; -1: none */
	bool loads;   /* a job of the second goes on from the first's steps */
	bool weights; /* or at least takes their weights */
	const char **note; /* what happens then, a sentence each */
	size_t notes, notes_cap;
};

/*
 * A and B have been read and judged (verdict_reach).  A vocabulary that is
 * not known is taken to be the other's.  All memory is from ARENA.
 */
void diff_build(struct diff *d, const struct verdict *a,
		const struct verdict *b, struct arena *arena);

/* For people, and as one JSON object in one line. */
const char *diff_text(const struct diff *d, struct arena *a);
const char *diff_json(const struct diff *d, struct arena *a);

#endif
