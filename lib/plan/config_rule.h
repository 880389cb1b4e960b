/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that need more than one group of a config. */
#ifndef PLAN_CONFIG_RULE_H
#define PLAN_CONFIG_RULE_H

#include "lib/plan/config.h"

/* All of them, of a finalised config. */
void config_check(const struct config *c, struct report *r);

/* Those of the run: losses of experts, MTP, what optimizers can do where. */
void config_check_run(const struct config *c, struct report *r);

#endif
