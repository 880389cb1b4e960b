/* SPDX-License-Identifier: Apache-2.0 */
/* The plugins of a config, and whose code computes what of which layer. */
#ifndef PLAN_SHOW_PLUGINS_H
#define PLAN_SHOW_PLUGINS_H

#include "lib/plan/show.h"

/* Nothing for a config without plugins and overrides. */
void show_plugins(FILE *f, const struct show *s);

#endif
