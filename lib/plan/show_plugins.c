/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/show_plugins.h"

#include <inttypes.h>
#include <string.h>

#include "lib/plan/override.h"
#include "lib/plan/show_text.h"

/* "norm by fast, act by local", or "" */
static const char *text_layer(const struct show *s, int64_t layer)
{
	const struct config *c = s->sum->config;
	const char *text = "", *first = NULL, *name;
	int alike = 0;

	for (int ops = 0; ops < OVERRIDE_OPS; ops++) {
		name = override_name(&c->spec, &c->shape, layer, ops);
		if (!ops)
			first = name;
		alike += name && first && !strcmp(name, first);
		if (name)
			text = arena_printf(s->a, "%s%s%s by %s", text,
					    *text ? ", " : "",
					    override_ops_name(ops), name);
	}
	return alike == OVERRIDE_OPS ? arena_printf(s->a, "all by %s", first)
				     : text;
}

/* Layers that are alike are one line; those of multi-token prediction apart. */
static void put_layers(FILE *f, const struct show *s)
{
	const struct shape *shape = &s->sum->config->shape;
	int64_t n = shape->num_layers, all = shape_layers(shape), end;

	for (int64_t first = 0; first < all; first = end) {
		const char *text = text_layer(s, first);
		bool mtp = first >= n;

		end = first + 1;
		while (end < (mtp ? all : n) &&
		       !strcmp(text, text_layer(s, end)))
			end++;
		if (*text)
			fprintf(f, "  %s %-9s %s\n", mtp ? "mtp   " : "layers",
				word_range(mtp ? first - n : first, end - first)
					.s,
				text);
	}
}

static void put_object(FILE *f, const struct plugin_object *o)
{
	const struct plugin_hook *h = o->is->hooks;

	fprintf(f, "  %s: '%s', ABI %u: %s", o->name, o->path, o->is->abi,
		o->is->about ? o->is->about : "it does not say what it is");
	for (int i = 0; h && h[i].name; i++)
		fprintf(f, "%s%s", i ? ", " : "; hooks ", h[i].name);
	fputc('\n', f);
}

void show_plugins(FILE *f, const struct show *s)
{
	const struct spec *spec = &s->sum->config->spec;

	if (!spec->plugins.count && !spec->overrides.count)
		return;
	fputs("\nwhose code computes what; all else is local\n", f);
	for (int i = 0; i < spec->plugins.count; i++)
		if (s->plugins)
			put_object(f, &s->plugins->list[i]);
		else
			fprintf(f,
				"  '%s' is not loaded; --allow-plugins looks "
				"into it\n",
				spec->plugins.item[i]);
	for (int i = 0; i < spec->plugins.count; i++) {
		const char *text = spec->plugins.item[i];
		int len = (int)strcspn(text, "=");

		if (!override_names(spec,
				    arena_strndup(s->a, text, (size_t)len)))
			fprintf(f,
				"  layers *         all that '%.*s' has: no "
				"override names it\n",
				len, text);
	}
	put_layers(f, s);
}
