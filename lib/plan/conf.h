/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Config files as text: includes, literals, duplicates, and the binding of
 * every setting to a row of a group's table.  Only conf*.c know libconfig.
 */
#ifndef PLAN_CONF_H
#define PLAN_CONF_H

#include "lib/plan/field.h"

/* A file and all it includes make at most this much text, and this deep. */
enum {
	CONF_BYTES_MAX = 1 << 20,
	CONF_SETTINGS_MAX = 4096,
	CONF_INCLUDES_MAX = 10,
	CONF_NESTING_MAX = 16,
};

/*
 * Lines from line FIRST of the whole text on are FILE's from LINE on; or, if
 * WHY is there, they follow from something else, and WHY says from what.
 */
struct conf_segment {
	const char *file;
	int line, first;
	const char *why;
};

/*
 * The text with its includes put in place: what libconfig parses.  Integers
 * too long for libconfig have been given the suffix that they lacked, and
 * the name of a repeated setting starts with '*': both are reported already.
 */
struct conf_text {
	struct arena *arena;
	char *text; /* a closing 0 is there */
	size_t len;
	int lines;
	struct conf_segment *segment;
	size_t segments, cap;
};

/*
 * Read FILE ("-": standard input).  -1: a file cannot be read or the text is
 * no config at all; E says why, and R has it as a finding too.
 */
int conf_load(struct conf_text *t, const char *file, struct arena *a,
	      struct report *r, struct err *e);

/* The same for text that is at hand, called FILE in findings. */
int conf_load_string(struct conf_text *t, const char *file, const char *text,
		     struct arena *a, struct report *r, struct err *e);

/* Where LINE of the whole text was written. */
struct origin conf_where(const struct conf_text *t, int line);

/* A group of settings and the struct that its values go to. */
struct conf_target {
	const struct group *group;
	void *base;
};

/* The groups of a config and where findings go. */
struct conf {
	struct conf_target *target;
	int targets;
	struct arena *arena;
	struct report *report;
};

/* Parse T and bind every setting.  -1 as conf_load. */
int conf_bind(struct conf *c, const struct conf_text *t, struct err *e);

/* Bind "group.name=value" as if a file said so; all faults are findings. */
void conf_bind_set(struct conf *c, const char *set);

/* Whether NAME may have been meant as OTHER. */
bool conf_is_near(const char *name, const char *other);

/* Why Megatron's field NAME is no setting here, or NULL. */
const char *conf_because(const char *name);

/* Suggest names that NAME may have been meant as, in the last finding. */
void conf_suggest_name(struct conf *c, const char *name);

/* The same for a group's name. */
void conf_suggest_group(struct conf *c, const char *name);

/* Suggest those of NAMES that are near to NAME. */
void conf_suggest_choice(struct report *r, const char *name,
			 const char *const *names);

#endif
