/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/show_checks.h"

#include <string.h>

#include "lib/plan/check.h"
#include "lib/plan/conf.h"
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

/* TEXT behind LABEL, in lines of 80 columns, broken at blanks. */
static void put_part(FILE *f, const char *label, const char *text)
{
	enum { INDENT = 12, ROOM = 80 - INDENT };

	while (text && *text) {
		size_t len = strlen(text), cut = len;

		if (len > ROOM) {
			cut = ROOM;
			while (cut && text[cut] != ' ')
				cut--;
			cut = cut ? cut : strcspn(text, " ");
		}
		fprintf(f, "  %-*s%.*s\n", INDENT - 2, label, (int)cut, text);
		text += cut + strspn(text + cut, " ");
		label = "";
	}
}

/* Ids that ID is close to, or a part of. */
static int no_check(const char *id, struct arena *a, struct err *e)
{
	enum { NEAR = 8 };
	const struct check *check;
	const char *near = "";
	int count, n = 0;

	check = check_table(&count);
	for (int i = 0; i < count && n < NEAR; i++)
		if (conf_is_near(id, check[i].id) ||
		    (*id && strstr(check[i].id, id)))
			near = arena_printf(a, "%s%s%s", near, n++ ? ", " : "",
					    check[i].id);
	return err_set(e, CODE_USAGE, "'%.100s' is no check; %s%s", id,
		       n ? "try " : "--list-checks prints all", near);
}

int show_check(FILE *f, const char *id, struct arena *a, struct err *e)
{
	const struct check *check = check_find(id);
	const struct check_text *text = check_text(id);

	if (!check || !text)
		return no_check(id, a, e);
	fprintf(f, "%s, %s\n", id, severity_name(check->severity));
	put_part(f, "demands", check->rule);
	put_part(f, "why", text->why);
	put_part(f, "settings", text->settings);
	put_part(f, "fired by", text->example);
	put_part(f, "way out", text->way);
	return 0;
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
