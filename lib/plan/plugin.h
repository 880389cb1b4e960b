/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared objects that a config names: spec.plugins lists "NAME=PATH", and NAME
 * is what spec.overrides and hooks call it.  PATH is dlopen's: without a "/"
 * it is looked for where libraries are.
 */
#ifndef PLAN_PLUGIN_H
#define PLAN_PLUGIN_H

#include "kernels/plugin.h"
#include "lib/base/err.h"
#include "lib/plan/spec.h"

/* The longest NAME. */
enum { PLUGIN_NAME = 15 };

/* One that is loaded. */
struct plugin_object {
	const char *name, *path;
	void *handle;
	const struct plugin *is;
};

struct plugins {
	struct plugin_object *list;
	int count;
};

/* Which of S's plugins is called NAME (LEN bytes), or -1. */
int plugin_find(const struct spec *s, const char *name, size_t len);

/* Their form: names and no two alike; loads nothing. */
void plugin_check(const struct spec *s, struct report *r);

/*
 * Load all of S's, which runs their code: for configs that are the caller's
 * own.  Fails (CODE_LAUNCH) for what cannot be opened, (CODE_CONFIG) for what
 * is no plugin or of another ABI, with nothing left open.
 */
int plugins_open(struct plugins *p, const struct spec *s, struct arena *a,
		 struct err *e);
void plugins_close(struct plugins *p);

/* The hook that TEXT ("NAME.HOOK:ARGS") names; fails (CODE_CONFIG). */
const struct plugin_hook *plugins_hook(const struct plugins *p,
				       const char *text, struct err *e);

#endif
