/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/plugin.h"

#include <dlfcn.h>
#include <string.h>

#include "lib/plan/spec_rule.h"

/* The length of the name in "NAME=PATH", 0 if it is not of that form. */
static size_t name_length(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	return len <= PLUGIN_NAME && text[len] == '=' && text[len + 1] ? len
								       : 0;
}

int plugin_find(const struct spec *s, const char *name, size_t len)
{
	for (int i = 0; i < s->plugins.count; i++) {
		const char *text = s->plugins.item[i];

		if (len && name_length(text) == len &&
		    !strncmp(text, name, len))
			return i;
	}
	return -1;
}

void plugin_check(const struct spec *s, struct report *r)
{
	for (int i = 0; i < s->plugins.count; i++) {
		const char *text = s->plugins.item[i];
		size_t len = name_length(text);

		if (!len)
			report_add(r, "spec-plugin", ERROR, SPEC_AT(plugins),
				   "'%.100s' is not NAME=PATH with a name of "
				   "a-z, 0-9, _ and -, at most %d of them",
				   text, PLUGIN_NAME);
		else if (len == 5 && !strncmp(text, "local", len))
			report_add(r, "spec-plugin", ERROR, SPEC_AT(plugins),
				   "'%.100s': \"local\" is the built-in code",
				   text);
		else if (plugin_find(s, text, len) != i)
			report_add(r, "spec-plugin", ERROR, SPEC_AT(plugins),
				   "'%.100s': another plugin is called '%.*s', "
				   "too",
				   text, (int)len, text);
	}
}

/* What H exports, if it is of this interface. */
static int look(struct plugin_object *o, struct err *e)
{
	const struct plugin *(*entry)(void);
	void *symbol = dlsym(o->handle, PLUGIN_SYMBOL);

	if (!symbol)
		return err_set(e, CODE_CONFIG,
			       "has no symbol " PLUGIN_SYMBOL
			       ", which a plugin has (kernels/plugin.h)");
	memcpy(&entry, &symbol, sizeof(entry));
	o->is = entry();
	if (!o->is)
		return err_set(e, CODE_CONFIG,
			       PLUGIN_SYMBOL " returned NULL: it does not "
					     "want to be loaded here");
	if (o->is->abi != PLUGIN_ABI)
		return err_set(e, CODE_CONFIG,
			       "is of plugin ABI %u, this program of %d; "
			       "build it with this version's kernels/plugin.h",
			       o->is->abi, PLUGIN_ABI);
	if (o->is->kern_bytes != sizeof(struct kern))
		return err_set(e, CODE_CONFIG,
			       "has a table of ops of %u bytes, this program "
			       "one of %zu; build it with this version's "
			       "kernels/kern.h",
			       o->is->kern_bytes, sizeof(struct kern));
	return 0;
}

static int open_one(struct plugin_object *o, struct err *e)
{
	const char *why;

	o->handle = dlopen(o->path, RTLD_NOW | RTLD_LOCAL);
	if (!o->handle) {
		why = dlerror();
		return err_set(e, CODE_LAUNCH, "plugin '%s': cannot load: %s",
			       o->name, why ? why : "no reason given");
	}
	if (!look(o, e))
		return 0;
	dlclose(o->handle);
	return err_wrap(e, "plugin '%s': '%.300s' ", o->name, o->path);
}

int plugins_open(struct plugins *p, const struct spec *s, struct arena *a,
		 struct err *e)
{
	*p = (struct plugins){
		.list = arena_alloc(a, (size_t)s->plugins.count + 1,
				    sizeof(*p->list)),
	};
	for (int i = 0; i < s->plugins.count; i++) {
		struct plugin_object *o = &p->list[i];
		const char *text = s->plugins.item[i];
		size_t len = name_length(text);

		o->name = arena_strndup(a, text, len);
		o->path = text + len + 1;
		if (open_one(o, e)) {
			plugins_close(p);
			return -1;
		}
		p->count++;
	}
	return 0;
}

void plugins_close(struct plugins *p)
{
	while (p->count)
		dlclose(p->list[--p->count].handle);
}

const struct plugin_hook *plugins_hook(const struct plugins *p,
				       const char *text, struct err *e)
{
	size_t name = strcspn(text, ".");
	const char *function = text + name + (text[name] == '.');
	size_t len = strcspn(function, ":");

	for (int i = 0; i < p->count; i++) {
		const struct plugin_object *o = &p->list[i];
		const struct plugin_hook *h = o->is->hooks;

		if (strlen(o->name) != name ||
		    strncmp(o->name, text, name) != 0)
			continue;
		for (; h && h->name; h++)
			if (strlen(h->name) == len &&
			    !strncmp(h->name, function, len))
				return h;
		err_set(e, CODE_CONFIG,
			"plugin '%s' ('%.300s') has no hook "
			"'%.*s'",
			o->name, o->path, (int)len, function);
		return NULL;
	}
	err_set(e, CODE_CONFIG, "spec.plugins has no '%.*s'", (int)name, text);
	return NULL;
}
