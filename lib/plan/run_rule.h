/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of run_check, each with the rules of one topic. */
#ifndef PLAN_RUN_RULE_H
#define PLAN_RUN_RULE_H

#include "lib/plan/report.h"
#include "lib/plan/run.h"

/* A setting of run: its path and its origin. */
#define RUN_AT(m) "run." #m, field_from(&run_group, run, &run->m)

/* Sizes of batches that are not the step's: schedules and evaluation. */
void run_check_batches(const struct run *run, int64_t dp, struct report *r);

/* The optimizer's own numbers, loss scaling, and what a run starts from. */
void run_check_optimizer(const struct run *run, struct report *r);

#endif
