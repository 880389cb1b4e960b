/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The four questions asked of anybody's settings: which of them each one
 * answers, what it is in our files, and where a shape depends on a place.
 */
#ifndef PLAN_CLASSIFY_H
#define PLAN_CLASSIFY_H

#include "lib/plan/config.h"

enum question {
	ASKS_SHAPE,
	ASKS_SPEC,
	ASKS_PLACE,
	ASKS_RUN,
	ASKS_NONE,
	ASKS_UNKNOWN,
	QUESTIONS
};

struct class_row {
	const char *given, *value; /* as the file says it */
	int line;
	enum question question;
	const char *becomes;  /* "shape.num_layers = 32", or "" */
	const char *why;      /* it becomes nothing, or "" */
	const char *polluted; /* how a place gets into it, or NULL */
};

struct classes {
	const char *file;
	enum config_format format;
	struct class_row *row;
	size_t rows, cap;
};

/*
 * Sort the settings that FILE gives.  -1 (CODE_USAGE): it cannot be read.
 * Values that are wrong are sorted like any other.  All memory is from A.
 */
int classify_file(struct classes *c, enum config_format format,
		  const char *file, struct arena *a, struct err *e);

/* A table with the shape's pollution below, or one JSON object a setting. */
const char *classify_text(const struct classes *c, struct arena *a);
const char *classify_json(const struct classes *c, struct arena *a);

const char *question_name(enum question q);

/* A setting of somebody else's that has its question from a table. */
struct class_known {
	const char *name; /* "max-num-seqs" */
	enum question question;
	const char *setting; /* ours that it is or follows, or NULL */
	const char *why;     /* if it is none, or more than that */
};

/* The row of an engine argument, --NAME or name; NULL: not known. */
const struct class_known *classify_vllm(const char *name);

/* The row of a config.json's key that is no model's. */
const struct class_known *classify_hf(const char *key);

/* The row of a flag of Megatron's that sets nothing by itself. */
const struct class_known *classify_megatron(const char *flag);

/* How a place gets into setting NAME, of ours or somebody else's, or NULL. */
const char *classify_pollution(const char *name);

#endif
