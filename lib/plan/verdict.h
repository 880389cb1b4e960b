/* SPDX-License-Identifier: Apache-2.0 */
/* One config read, finished and judged, and how that is told. */
#ifndef PLAN_VERDICT_H
#define PLAN_VERDICT_H

#include "lib/plan/cluster.h"
#include "lib/plan/config.h"

struct verdict {
	const char *file; /* as it was named */
	enum config_format format;
	struct config *config;
	struct report report;
	bool readable, valid;
	bool served;  /* valid, and train-worker can run it */
	bool counted; /* parameters, padded_vocab_size and hash are there */
	int64_t parameters, parameters_active, padded_vocab_size;
	char hash[33];
	int64_t world, dp; /* 0: not known */
	/* The rank that needs most, and what a GPU has; 0: not asked for. */
	int64_t memory, gpu_memory;
	bool planned; /* that is what train-worker allocates, else estimated */
	const struct config *loaded; /* as it was before it was finished */
};

/*
 * Read FILE with SETS.  -1: unreadable, E says why, and so does the report.
 * All memory is from A.
 */
int verdict_read(struct verdict *v, const char *file, const char *const *sets,
		 int set_count, struct arena *a, struct err *e);

/* The same for a file of FORMAT. */
int verdict_import(struct verdict *v, enum config_format format,
		   const char *file, const char *const *sets, int set_count,
		   struct arena *a, struct err *e);

/*
 * Then judge it for CL; the report says what is wrong.  A world that is not
 * known is the smallest one that fits for a file that was imported.
 */
void verdict_reach(struct verdict *v, const struct cluster *cl);

/* A line per finding and one for the whole. */
const char *verdict_text(const struct verdict *v, struct arena *a);

/* One JSON object in one line. */
const char *verdict_json(const struct verdict *v, struct arena *a);

/* CODE_DONE, CODE_FINDINGS, or CODE_USAGE if the text could not be read. */
enum code verdict_code(const struct verdict *v);

#endif
