/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/hook.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/plugin.h"
#include "lib/plan/spec_rule.h"
#include "lib/plan/weight.h"

static const char *const names[HOOK_KINDS] = {
	[HOOK_FREEZE] = "freeze",
	[HOOK_INIT_CONSTANT] = "init_constant",
	[HOOK_INIT_STD] = "init_std",
	[HOOK_LOG] = "log_parameters",
};

/* "VALUE:PATTERN" */
static int parse_init(struct hook *h, const char *args, struct err *e)
{
	char *end;

	h->value = strtod(args, &end);
	if (end == args || *end != ':' || !end[1] || !isfinite(h->value))
		return err_set(e, CODE_CONFIG,
			       "'%.100s' is not %s:VALUE:PATTERN", h->text,
			       names[h->kind]);
	if (h->kind == HOOK_INIT_STD && h->value < 0)
		return err_set(
			e, CODE_CONFIG,
			"'%.100s': a standard deviation of %g is below 0",
			h->text, h->value);
	h->pattern = end + 1;
	return 0;
}

int hook_parse(struct hook *h, const char *text, struct err *e)
{
	size_t len = strcspn(text, ":");
	const char *args = text[len] ? text + len + 1 : "";
	int kind = 0;

	while (kind < HOOK_KINDS && (strlen(names[kind]) != len ||
				     strncmp(names[kind], text, len) != 0))
		kind++;
	*h = (struct hook){.text = text, .kind = HOOK_PLUGIN, .pattern = args};
	if (kind == HOOK_KINDS && memchr(text, '.', len))
		return 0;
	if (kind == HOOK_KINDS)
		return err_set(e, CODE_CONFIG,
			       "'%.100s' is no hook; there are freeze:PATTERN, "
			       "init_constant:VALUE:PATTERN, "
			       "init_std:VALUE:PATTERN, "
			       "log_parameters[:PATTERN] and "
			       "PLUGIN.HOOK[:ARGS]",
			       text);
	*h = (struct hook){.text = text,
			   .kind = (enum hook_kind)kind,
			   .pattern = *args ? args : "*"};
	if (kind == HOOK_FREEZE && !*args)
		return err_set(e, CODE_CONFIG, "'%.100s' is not freeze:PATTERN",
			       text);
	if (kind == HOOK_INIT_CONSTANT || kind == HOOK_INIT_STD)
		return parse_init(h, args, e);
	return 0;
}

bool hook_matches(const struct hook *h, const char *weight)
{
	return fnmatch(h->pattern, weight, 0) == 0;
}

bool hook_freezes(const struct spec *s, const char *weight)
{
	const struct texts *list = &s->pre_wrap_hooks;
	struct hook h;
	struct err e;

	for (int i = 0; i < list->count; i++)
		if (!hook_parse(&h, list->item[i], &e) &&
		    h.kind == HOOK_FREEZE && hook_matches(&h, weight))
			return true;
	return false;
}

static bool matches_some(const struct hook *h, const struct weights *w)
{
	if (h->kind == HOOK_PLUGIN)
		return true;
	for (int i = 0; i < w->count; i++)
		if (hook_matches(h, w->list[i].name))
			return true;
	return false;
}

static bool has_plugin(const struct spec *s, const char *hook)
{
	return plugin_find(s, hook, strcspn(hook, ".")) >= 0;
}

static void check_list(const struct spec *s, const struct texts *list,
		       const char *path, const struct origin *from,
		       const struct weights *w, struct report *r)
{
	struct hook h;
	struct err e;

	for (int i = 0; i < list->count; i++) {
		if (hook_parse(&h, list->item[i], &e))
			report_add(r, "spec-hook", ERROR, path, from, "%s",
				   e.text);
		else if (list == &s->post_wrap_hooks && h.kind < HOOK_LOG)
			report_add(r, "spec-hook", ERROR, path, from,
				   "'%.100s' would change what is wrapped "
				   "already; it is a pre-wrap hook",
				   h.text);
		else if (h.kind == HOOK_PLUGIN && !has_plugin(s, h.text))
			report_add(r, "spec-hook", ERROR, path, from,
				   "'%.100s': spec.plugins has no '%.*s'",
				   h.text, (int)strcspn(h.text, "."), h.text);
		else if (w && !matches_some(&h, w))
			report_add(r, "spec-hook-pattern", ERROR, path, from,
				   "'%.100s' matches none of the model's %d "
				   "weights, '%s' to '%s'",
				   h.text, w->count, w->list[0].name,
				   w->list[w->count - 1].name);
	}
}

void hook_check(const struct spec *s, const struct shape *shape,
		struct report *r)
{
	const struct weights *known = NULL;
	struct weights all;

	if (!s->pre_wrap_hooks.count && !s->post_wrap_hooks.count)
		return;
	if (!report_count(r, ERROR) && weights_known(shape)) {
		weights_build(&all, shape, r->arena);
		known = &all;
	}
	check_list(s, &s->pre_wrap_hooks, SPEC_AT(pre_wrap_hooks), known, r);
	check_list(s, &s->post_wrap_hooks, SPEC_AT(post_wrap_hooks), known, r);
}
