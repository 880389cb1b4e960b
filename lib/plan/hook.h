/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named functions around a chunk of the model: what spec.pre_wrap_hooks and
 * spec.post_wrap_hooks list.  From the inside out a chunk is its slices, the
 * pre-wrap hooks on the weights as they were drawn, mixed precision, data
 * parallel, and the post-wrap hooks on what then starts.
 *
 *   freeze:PATTERN               no update, and no part in the gradients' norm
 *   init_constant:VALUE:PATTERN  first weights that are all VALUE
 *   init_std:VALUE:PATTERN       normal with this standard deviation
 *   log_parameters[:PATTERN]     names, shapes and norms, told by rank 0
 *   PLUGIN.HOOK[:ARGS]           one of spec.plugins'
 *
 * PATTERN is a shell's, of names of weights as `ckpt-merge ls` prints them; its
 * "*" takes "/" too.
 */
#ifndef PLAN_HOOK_H
#define PLAN_HOOK_H

#include "lib/base/err.h"
#include "lib/plan/spec.h"

enum hook_kind {
	HOOK_FREEZE,
	HOOK_INIT_CONSTANT,
	HOOK_INIT_STD,
	HOOK_LOG,
	HOOK_KINDS,
	HOOK_PLUGIN = HOOK_KINDS
};

struct hook {
	const char *text; /* as the config says it */
	enum hook_kind kind;
	double value;	     /* of HOOK_INIT_* */
	const char *pattern; /* "*" if none was given; of a plugin's: ARGS */
};

/* TEXT taken apart; it outlives H.  Fails (CODE_CONFIG) for what is none. */
int hook_parse(struct hook *h, const char *text, struct err *e);

/* Whether H is about the weight of this name. */
bool hook_matches(const struct hook *h, const char *weight);

/* Whether some pre-wrap hook of S freezes the weight of this name. */
bool hook_freezes(const struct spec *s, const char *weight);

/* Both lists of hooks: forms, phases, and patterns that match some weight. */
void hook_check(const struct spec *s, const struct shape *shape,
		struct report *r);

#endif
