/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/show_checks.h"

#include "lib/plan/check.h"
#include "lib/plan/config.h"

void show_checks(FILE *f)
{
	const struct check *check;
	int count;

	check = check_table(&count);
	for (int i = 0; i < count; i++)
		fprintf(f, "%-24s %-8s %s\n", check[i].id,
			severity_name(check[i].severity), check[i].rule);
}

static const char *names_of(const struct field *f, struct arena *a)
{
	const char *out = "";

	for (int i = 0; f->names[i]; i++)
		out = arena_printf(a, "%s%s\"%s\"", out, i ? ", " : "",
				   f->names[i]);
	return out;
}

static const char *kind_of(const struct field *f, struct arena *a)
{
	switch (f->type) {
	case FIELD_INT:
	case FIELD_INTS:
		return arena_printf(a, "integer, %.0f to %.0f%s", f->min,
				    f->max,
				    f->type == FIELD_INTS ? ", or a list" : "");
	case FIELD_FLOAT:
	case FIELD_FLOATS:
		return arena_printf(
			a, "number, %.15g to %.15g%s", f->min, f->max,
			f->type == FIELD_FLOATS ? ", or a list" : "");
	case FIELD_BOOL: return "true or false";
	case FIELD_TEXT: return "string";
	case FIELD_TEXTS:
		return f->names ? arena_printf(a, "%s, or a list of them",
					       names_of(f, a))
				: "string, or a list";
	case FIELD_ENUM: return names_of(f, a);
	}
	return "";
}

static void show_setting(FILE *out, const char *group, const struct field *f,
			 struct arena *a)
{
	fprintf(out, "%s.%s\n    %s; default: %s\n    %s\n", group, f->name,
		kind_of(f, a), f->initial ? f->initial : "unset", f->help);
	if (f->unserved)
		fprintf(out, "    other values: see %s\n", f->unserved);
}

void show_settings(FILE *f, struct arena *a)
{
	const struct group *groups[] = {&shape_group, &spec_group, &place_group,
					&run_group};

	for (int g = 0; g < 4; g++)
		for (int i = 0; i < groups[g]->count; i++)
			show_setting(f, groups[g]->name, &groups[g]->fields[i],
				     a);
}
