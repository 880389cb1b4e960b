/* SPDX-License-Identifier: Apache-2.0 */
/* The four groups together: read, complete, check, write back. */
#ifndef PLAN_CONFIG_H
#define PLAN_CONFIG_H

#include "lib/plan/place.h"
#include "lib/plan/run.h"
#include "lib/plan/shape.h"
#include "lib/plan/spec.h"

/*
 * What wrote a file: ourselves, or somebody whose files are translated.
 * CONFIG_VLLM is no whole config: its settings are only sorted (classify.h).
 */
enum config_format { CONFIG_OWN, CONFIG_MEGATRON, CONFIG_HF, CONFIG_VLLM };

struct config {
	struct shape shape;
	struct spec spec;
	struct place place;
	struct run run;
};

/*
 * Read FILE ("-": standard input), apply the SETS ("place.x=2", as a file's
 * line would say it), and bind every setting.  What is wrong with the text
 * (unknown keys, types, ranges, duplicates) goes to R as findings; -1 only if
 * the file cannot be read or parsed at all (CODE_USAGE): E says why, and R
 * has it as a finding too.  A value that was refused keeps its default.
 * Texts are in A.
 */
int config_load(const char *file, const char *const *sets, int set_count,
		struct arena *a, struct config *c, struct report *r,
		struct err *e);

/* The same for a file of FORMAT (import.h). */
int config_load_as(enum config_format format, const char *file,
		   const char *const *sets, int set_count, struct arena *a,
		   struct config *c, struct report *r, struct err *e);

/*
 * Apply SETS to C, loaded and not finished; "place.x=unset" takes back what
 * was given.
 */
void config_set(struct config *c, const char *const *sets, int set_count,
		struct arena *a, struct report *r);

/* Fill what was not given, then check everything.  WORLD 0: not known. */
void config_finish(struct config *c, int64_t world, struct report *r);

/* A note for each setting that means nothing without another one. */
void config_unused(const struct config *c, struct report *r);

/* What is valid but train-worker cannot run yet: a warning each; the number. */
int config_unserved(const struct config *c, struct report *r);

/* The finalised file: every value explicit, each with where it came from. */
const char *config_text(const struct config *c, struct arena *a);

#endif
