/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of spec_check, each with the rules of one topic. */
#ifndef PLAN_SPEC_RULE_H
#define PLAN_SPEC_RULE_H

#include "lib/plan/report.h"
#include "lib/plan/spec.h"

/* A setting of spec: its path and its origin. */
#define SPEC_AT(m) "spec." #m, field_from(&spec_group, s, &s->m)

/* Matrix products in 8 and 4 bits. */
void spec_check_low(const struct spec *s, const struct shape *shape,
		    struct report *r);

/* How experts are computed and reached. */
void spec_check_experts(const struct spec *s, const struct shape *shape,
			struct report *r);

/* What CUDA graphs capture. */
void spec_check_graphs(const struct spec *s, const struct shape *shape,
		       struct report *r);

#endif
