/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose code computes what of which layer.  spec.overrides lists
 * "LAYERS:OPS=NAME", of which the last that fits an op of a layer decides:
 *
 *   LAYERS  a number or FIRST-LAST of the model's decoder layers; "decoder",
 *           "mtp" (those of multi-token prediction), "moe" (those with
 *           experts), "*" (all)
 *   OPS     norm, attention, linear, act, experts, or "*"
 *   NAME    "local", the built-in code, or one of spec.plugins
 *
 * A plugin that no entry names computes all that it has, in all layers.
 */
#ifndef PLAN_OVERRIDE_H
#define PLAN_OVERRIDE_H

#include "kernels/kern.h"
#include "lib/plan/plugin.h"

struct shape;

enum override_ops {
	OVERRIDE_NORM,
	OVERRIDE_ATTENTION,
	OVERRIDE_LINEAR,
	OVERRIDE_ACT,
	OVERRIDE_EXPERTS,
	OVERRIDE_OPS
};

const char *override_ops_name(int ops);

void override_check(const struct spec *s, const struct shape *shape,
		    struct report *r);

/* Who is named for OPS of LAYER, or NULL if nobody is. */
const char *override_name(const struct spec *s, const struct shape *shape,
			  int64_t layer, int ops);

/* Whether some entry names PLUGIN. */
bool override_names(const struct spec *s, const char *plugin);

/*
 * OUT = LOCAL with the ops of LAYER that P's plugins are to compute.  Fails
 * (CODE_CONFIG) if one is named for ops that it does not have.
 */
int override_table(struct kern *out, const struct kern *local,
		   const struct plugins *p, const struct spec *s,
		   const struct shape *shape, int64_t layer, struct err *e);

#endif
