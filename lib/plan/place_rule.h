/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of place_check, each with the rules of one topic. */
#ifndef PLAN_PLACE_RULE_H
#define PLAN_PLACE_RULE_H

#include "lib/plan/place.h"
#include "lib/plan/report.h"
#include "lib/plan/stage.h"

/* A setting of place: its path and its origin. */
#define PLACE_AT(m) "place." #m, field_from(&place_group, p, &p->m)

/* Whether WORD is one of LIST. */
bool place_names(const struct texts *list, const char *word);

/* Whether HEADS and GROUPS can be shared by TP ranks, whole ones on each. */
bool place_heads_fit(int64_t heads, int64_t groups, int64_t tp);

/* Whether TP ranks share every width of S evenly. */
bool place_tp_fits(const struct shape *s, int64_t tp);

/*
 * Suggest the tensor parallel sizes nearest to the one of P that cut all of S
 * evenly: heads, groups, feed-forward, sequence and what else is cut by it.
 */
void place_suggest_tp(const struct place *p, const struct shape *s,
		      struct report *r);

/* How ranks of a sequence, of a pipeline and of a layer talk. */
void place_check_comm(const struct place *p, const struct shape *s,
		      struct report *r);

/* What is computed again or waits elsewhere; stages may be empty. */
void place_check_memory(const struct place *p, const struct shape *s,
			const struct stages *st, struct report *r);

/* What data parallel ranks share; WORLD 0: not known. */
void place_check_sharding(const struct place *p, const struct shape *s,
			  int64_t world, struct report *r);

#endif
