/* SPDX-License-Identifier: Apache-2.0 */
/* Many configs judged at a time, and finalised files written. */
#ifndef PLAN_BATCH_H
#define PLAN_BATCH_H

#include "lib/plan/inputs.h"
#include "lib/plan/verdict.h"

enum { BATCH_JOBS_MAX = 64 };

/* How each input is judged, and what is written of it. */
struct batch_options {
	enum config_format format;
	struct cluster on;
	const char *const *sets;
	int set_count;
	int jobs;   /* at a time, at most BATCH_JOBS_MAX */
	bool json;  /* outcomes as verdict_json, else as verdict_text */
	bool plain; /* as verdict_text, too */
	const char *output, *output_dir; /* of finalised files, or NULL */
	bool force;			 /* replace files that exist */
};

/* What came of one input. */
struct outcome {
	char *text;  /* findings and verdict; NULL if trouble came first */
	char *plain; /* if that was wanted */
	char *final; /* the finalised file for standard output, or NULL */
	enum code code;
	bool readable, valid, served, ready;
	struct err trouble; /* why the finalised file was not written, or "" */
};

/* What came of all. */
struct batch_sum {
	size_t inputs, valid, unserved; /* unserved ones are valid, too */
	size_t invalid, unreadable;
	size_t *errors; /* findings of each row of check_table() */
};

/* No two inputs may write the same file: CODE_USAGE. */
int batch_check(const struct batch_options *opt, const struct inputs *in,
		struct arena *a, struct err *e);

/*
 * Judge every input; EACH is called once an input, in their order, in this
 * thread.  The outcome's texts end with the call.  *CODE: the worst of all.
 * SUM is in A.
 */
int batch_run(const struct batch_options *opt, const struct inputs *in,
	      void (*each)(void *arg, const struct input *input,
			   const struct outcome *out),
	      void *arg, enum code *code, struct batch_sum *sum,
	      struct arena *a, struct err *e);

/* SUM in one line, with the checks that found most. */
const char *batch_summary(const struct batch_sum *sum, struct arena *a);

#endif
