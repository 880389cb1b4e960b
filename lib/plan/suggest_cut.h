/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways of cutting layers into stages: evenly, and by their times. */
#ifndef PLAN_SUGGEST_CUT_H
#define PLAN_SUGGEST_CUT_H

#include "lib/plan/estimate_rule.h"

/*
 * PP * VP stages into OUT, whose array has room.  False if the even cut does
 * not divide, or the BALANCED one is the even one or leaves a stage between
 * the ends empty.
 */
bool cut_stages(struct stages *out, const struct estimator *s, int pp, int vp,
		bool balanced);

/* The stages as a pipeline_model_parallel_layout: "Et*7|(t*9|)*2t*7L". */
const char *cut_layout_text(const struct stages *st, struct arena *a);

#endif
