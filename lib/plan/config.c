/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/version.h"
#include "lib/plan/conf.h"
#include "lib/plan/config_rule.h"
#include "lib/plan/import.h"

enum { GROUPS = 4 };

/* The groups in the order in which a file is written. */
static void targets_of(struct config *c, struct conf_target target[GROUPS])
{
	target[0] = (struct conf_target){&shape_group, &c->shape};
	target[1] = (struct conf_target){&spec_group, &c->spec};
	target[2] = (struct conf_target){&place_group, &c->place};
	target[3] = (struct conf_target){&run_group, &c->run};
}

void config_set(struct config *c, const char *const *sets, int set_count,
		struct arena *a, struct report *r)
{
	struct conf_target target[GROUPS];
	struct conf conf = {target, GROUPS, a, r};

	targets_of(c, target);
	for (int i = 0; i < set_count; i++)
		conf_bind_set(&conf, sets[i]);
}

int config_load_as(enum config_format format, const char *file,
		   const char *const *sets, int set_count, struct arena *a,
		   struct config *c, struct report *r, struct err *e)
{
	struct conf_target target[GROUPS];
	struct conf conf = {target, GROUPS, a, r};
	struct conf_text text;

	targets_of(c, target);
	for (int i = 0; i < GROUPS; i++)
		field_defaults(target[i].group, target[i].base, a);
	if (format == CONFIG_OWN ? conf_load(&text, file, a, r, e)
				 : import_load(&text, format, file, a, c, r, e))
		return -1;
	if (conf_bind(&conf, &text, e))
		return -1;
	config_set(c, sets, set_count, a, r);
	if (format != CONFIG_OWN)
		import_excuse_vocab(c, r);
	if (format == CONFIG_HF)
		import_say_length(c, r);
	return 0;
}

int config_load(const char *file, const char *const *sets, int set_count,
		struct arena *a, struct config *c, struct report *r,
		struct err *e)
{
	return config_load_as(CONFIG_OWN, file, sets, set_count, a, c, r, e);
}

void config_finish(struct config *c, int64_t world, struct report *r)
{
	shape_finalize(&c->shape);
	spec_finalize(&c->spec, &c->shape);
	place_finalize(&c->place, &c->shape);
	run_finalize(&c->run, &c->place, world);
	shape_check(&c->shape, r);
	spec_check(&c->spec, &c->shape, r);
	place_check(&c->place, &c->shape, world, r);
	run_check(&c->run, &c->place, world, r);
	config_check(c, r);
	config_unused(c, r);
}

/* One setting and where it comes from; what is unset stays a comment. */
static void put_field(FILE *f, const struct conf_target *t, int row,
		      struct arena *a)
{
	const struct field *field = &t->group->fields[row];
	const struct origin *from = (const struct origin *)t->base + row;

	if (field_is_set(field, t->base)) {
		fprintf(f, "\t%s = %s; # %s\n", field->name,
			field_text(field, t->base, a), origin_text(from, a));
	} else {
		fprintf(f, "\t# %s is unset (%s)\n", field->name, field->help);
	}
}

const char *config_text(const struct config *c, struct arena *a)
{
	struct conf_target target[GROUPS];
	char *text = NULL;
	const char *copy;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		arena_exhausted();
	targets_of((struct config *)c, target);
	fprintf(f, "# finalised by trisect %s: every value is explicit\n",
		TRISECT_VERSION);
	for (int i = 0; i < GROUPS; i++) {
		fprintf(f, "\n%s: {\n", target[i].group->name);
		for (int row = 0; row < target[i].group->count; row++)
			put_field(f, &target[i], row, a);
		fputs("};\n", f);
	}
	if (fclose(f))
		arena_exhausted();
	copy = arena_strdup(a, text);
	free(text);
	return copy;
}
