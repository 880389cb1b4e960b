/* SPDX-License-Identifier: Apache-2.0 */
/* Field tables: each group of the config says its settings once, as rows. */
#ifndef PLAN_FIELD_H
#define PLAN_FIELD_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/plan/report.h"

/* "Not given and no default": later derived, or meaningful by itself. */
#define UNSET	   INT64_MIN
#define IS_SET(n)  ((n) != UNSET)
#define FIELDS_MAX 112

enum field_type {
	FIELD_INT,    /* int64_t */
	FIELD_FLOAT,  /* double; NAN is unset */
	FIELD_BOOL,   /* bool */
	FIELD_ENUM,   /* int, an index into NAMES */
	FIELD_TEXT,   /* const char *; NULL is unset */
	FIELD_INTS,   /* struct ints: one integer or a list */
	FIELD_TEXTS,  /* struct texts: one string or a list; NAMES if any */
	FIELD_FLOATS, /* struct floats: one number or a list */
};

/* What a setting belongs to: without it the setting means nothing. */
enum feature {
	OF_ALL,
	OF_GATED,
	OF_WINDOW,
	OF_STREAMS,
	OF_GROUPED, /* attention that is not latent */
	OF_ROPE,
	OF_GROUPED_ROPE,
	OF_ROPE_SCALING,
	OF_MROPE,
	OF_YARN,
	OF_LATENT,
	OF_DELTA,
	OF_INDEXER,
	OF_MTP,
	OF_MOE,
	OF_SHARED,
	OF_MUP,
	OF_CONTEXT,
	OF_RECOMPUTE,
	OF_OFFLOAD,
	OF_FINE_OFFLOAD,
	OF_TP_OVERLAP,
	OF_FSDP,
	OF_FP8,
	OF_FP4,
	OF_GRAPHS,
	OF_HALF,
	OF_FP16,
	OF_SGD,
	OF_MUON,
	OF_LION,
	OF_SOAP,
	OF_ADAPTIVE_MUON,
	FEATURES
};

struct ints {
	const int64_t *item;
	int count;    /* 0 is unset */
	bool is_list; /* [3] differs from 3 in per-layer patterns */
};

struct texts {
	const char *const *item;
	int count;
};

struct floats {
	const double *item;
	int count;
};

struct field {
	const char *name; /* Megatron-Core's own where it has one */
	enum field_type type;
	size_t offset; /* of the value in the group's struct */
	const char
		*initial; /* the default, as a file would say it; NULL: unset */
	double min, max;  /* of numbers, inclusive */
	const char *const *names; /* of an enum, NULL-terminated */
	const char *help;	  /* unit and meaning, one line */
	enum feature of;	  /* without it the setting means nothing */
	/* The check that tells of other values than the default, or NULL. */
	const char *unserved;
};

/* A row of the table of struct GROUP; the rest is as in struct field. */
#define FIELD(group, member, kind, ...)                               \
	{                                                             \
		.name = #member, .type = FIELD_##kind,                \
		.offset = offsetof(struct group, member), __VA_ARGS__ \
	}

/* A group's struct begins with its origins, one per row of its table. */
struct group {
	const char *name; /* "shape" */
	const struct field *fields;
	int count;
	size_t size; /* of the struct */
};

/* The row of NAME in G, or -1. */
int field_find(const struct group *g, const char *name);

/* Write every default into the group's struct at BASE. */
void field_defaults(const struct group *g, void *base, struct arena *a);

/* Row ROW as if nobody had set it. */
void field_reset(const struct group *g, void *base, int row, struct arena *a);

/* The origin of the field whose value is at VALUE inside BASE. */
struct origin *field_origin(const struct group *g, void *base,
			    const void *value);

/* The same for readers. */
const struct origin *field_from(const struct group *g, const void *base,
				const void *value);

/* The value as a config file would say it ("unset" if it is). */
const char *field_text(const struct field *f, const void *base,
		       struct arena *a);

/* The same without libconfig's suffixes: what hashes are made of. */
const char *field_canonical(const struct field *f, const void *base,
			    struct arena *a);

bool field_is_set(const struct field *f, const void *base);

/* Whether the value is the default, whoever said so. */
bool field_is_default(const struct field *f, const void *base, struct arena *a);

/* Mark the value at VALUE as derived, with the formula it came from. */
void field_derived(const struct group *g, void *base, const void *value,
		   const char *why);

#endif
