/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of stage placement, reporting: what place_check calls. */
#ifndef PLAN_STAGE_RULE_H
#define PLAN_STAGE_RULE_H

#include "lib/plan/report.h"
#include "lib/plan/stage.h"

/*
 * stages_build with every finding and ways out instead of one error.  -1:
 * there are findings and OUT is not filled.  num_layers must be set.
 */
int stages_place(struct stages *out, const struct place *p,
		 const struct shape *s, struct report *r);

#endif
