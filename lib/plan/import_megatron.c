/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import_megatron.h"

#include <stdlib.h>
#include <string.h>

#include "lib/plan/config.h"
#include "lib/plan/import_table.h"

struct import_source import_source(const struct import *im,
				   const struct flag *flag)
{
	return (struct import_source){
		flag->name, {ORIGIN_GIVEN, im->file, flag->line, NULL}};
}

const struct flag *import_flag(const struct flags *flags, const char *name)
{
	for (size_t i = flags->count; i-- > 0;)
		if (!flags->list[i].off && !strcmp(flags->list[i].name, name))
			return &flags->list[i];
	return NULL;
}

enum { NAME_MAX_LEN = 128 };

/* "--num-layers" as "num_layers"; a longer one is cut: no setting has it. */
static const char *field_name(char name[NAME_MAX_LEN], const char *flag)
{
	size_t n = 0;

	for (flag += strspn(flag, "-"); n < NAME_MAX_LEN - 1 && flag[n]; n++)
		name[n] = flag[n] == '-' ? '_' : flag[n];
	name[n] = 0;
	return name;
}

static bool is_row(const char *flag)
{
	struct import_row row;

	for (int i = 0; import_table_row(i, &row); i++)
		if (!strcmp(row.flag, flag))
			return true;
	return false;
}

bool import_flag_known(const char *flag, bool *model)
{
	char name[NAME_MAX_LEN];
	const char *neutral;
	enum import_class class;
	int group, row;

	*model = true;
	if (is_row(flag) ||
	    (!import_table_hides(flag) &&
	     import_field(field_name(name, flag), &group, &row)))
		return true;
	class = import_table_class(flag, &neutral);
	*model = class != FLAG_IGNORED;
	return class != FLAG_UNKNOWN;
}

/* A switch has no value, but perhaps a variable behind it that is not set. */
static bool is_bare(struct import *im, const struct flag *flag)
{
	struct import_source from = import_source(im, flag);

	if (flag->values == 1 && strchr("$`", flag->value[0][0])) {
		report_add(im->report, "import-unset", WARNING, "", &from.at,
			   "'%.80s' is not set in this file: taken as empty",
			   flag->value[0]);
		return true;
	}
	return !flag->values;
}

static void put(struct import *im, const char *field, const struct flag *flag)
{
	static const char *const on[] = {"true"};
	int group, row;
	bool is_switch = import_field(field, &group, &row)->type == FIELD_BOOL;

	if (is_switch && is_bare(im, flag))
		import_put(im, field, on, 1, import_source(im, flag));
	else
		import_put(im, field, flag->value, flag->values,
			   import_source(im, flag));
}

static void cannot(struct import *im, const struct flag *flag)
{
	struct import_source from = import_source(im, flag);
	char name[NAME_MAX_LEN];
	const char *because = conf_because(field_name(name, flag->name));

	report_add(im->report, "import-flag", ERROR, "", &from.at,
		   "%.100s concerns the model and has no setting here%s%s",
		   flag->name, because ? ": " : "", because ? because : "");
}

static void put_constant(struct import *im, const struct import_row *row,
			 const struct flag *flag)
{
	struct import_source from = import_source(im, flag);

	if (is_bare(im, flag))
		import_say(im, row->field, row->value, from);
	else
		report_add(im->report, "import-value", ERROR, "", &from.at,
			   "%.100s wants no value, not '%.100s'", flag->name,
			   flag->value[0]);
}

/* A flag of another name; false: it is none. */
static bool by_table(struct import *im, const struct flag *flag)
{
	struct import_row row;
	int group, at;
	bool found = false;

	for (int i = 0; import_table_row(i, &row); i++) {
		if (strcmp(row.flag, flag->name))
			continue;
		if (!import_field(row.field, &group, &at)) {
			if (!found)
				return false;
			continue;
		}
		found = true;
		if (row.value)
			put_constant(im, &row, flag);
		else
			put(im, row.field, flag);
	}
	return found;
}

/* A flag that is named like a setting; false: it is none. */
static bool by_name(struct import *im, const struct flag *flag)
{
	char buffer[NAME_MAX_LEN];
	const char *name = field_name(buffer, flag->name);
	const char *rest = !strncmp(name, "no_", 3)	   ? name + 3
			   : !strncmp(name, "disable_", 8) ? name + 8
							   : NULL;
	const struct field *field;
	int group, row;

	if (import_table_hides(flag->name) || strchr(flag->name, '_'))
		return false;
	if (import_field(name, &group, &row)) {
		put(im, name, flag);
		return true;
	}
	field = rest ? import_field(rest, &group, &row) : NULL;
	if (!field || field->type != FIELD_BOOL)
		return false;
	put_constant(im, &(struct import_row){flag->name, rest, "false"}, flag);
	return true;
}

/* The flag says only what holds anyway. */
static bool is_neutral(const struct flag *flag, const char *neutral)
{
	char *end, *end2;
	double x, y;

	if (!neutral || flag->values != 1)
		return false;
	x = strtod(flag->value[0], &end);
	y = strtod(neutral, &end2);
	if (!*end && !*end2)
		return x >= y && x <= y;
	return !strcmp(flag->value[0], neutral);
}

/* Suggestions of settings, "shape.num_layers", as flags. */
static void suggest_flags(struct import *im)
{
	struct finding *f = &im->report->list[im->report->count - 1];

	for (int i = 0; i < f->suggests; i++) {
		const char *dot = strchr(f->suggest[i], '.');
		char *flag;

		if (!dot || strchr(dot, ' '))
			continue;
		flag = arena_printf(im->arena, "--%s", dot + 1);
		for (char *p = flag; *p; p++)
			*p = *p == '_' ? '-' : *p;
		f->suggest[i] = flag;
	}
}

/* The flags that say the setting NAME; false: it has no others. */
static bool suggest_rows(struct import *im, const char *name)
{
	struct import_row row;
	bool any = false;

	for (int i = 0; import_table_row(i, &row); i++)
		if (!strcmp(row.field, name)) {
			report_suggest(im->report, "%s", row.flag);
			any = true;
		}
	return any;
}

static void unknown(struct import *im, const struct flag *flag)
{
	struct import_source from = import_source(im, flag);
	struct conf_target target[IMPORT_GROUPS] = {{&shape_group, NULL},
						    {&spec_group, NULL},
						    {&place_group, NULL},
						    {&run_group, NULL}};
	struct conf c = {target, IMPORT_GROUPS, im->arena, im->report};
	char name[NAME_MAX_LEN];

	report_add(im->report, "import-unknown", ERROR, "", &from.at,
		   "%.100s is no flag of Megatron's that is known here",
		   flag->name);
	if (suggest_rows(im, field_name(name, flag->name)))
		return;
	conf_suggest_name(&c, name);
	suggest_flags(im);
}

static void by_class(struct import *im, const struct flag *flag)
{
	struct import_source from = import_source(im, flag);
	const char *neutral;

	switch (import_table_class(flag->name, &neutral)) {
	case FLAG_RULE: break;
	case FLAG_UNKNOWN: unknown(im, flag); break;
	case FLAG_MODEL:
		if (!is_neutral(flag, neutral))
			cannot(im, flag);
		break;
	case FLAG_RUN:
		report_add(im->report, "import-run", WARNING, "", &from.at,
			   "%.100s has no setting here: training would differ",
			   flag->name);
		break;
	case FLAG_IGNORED:
		import_note_name(im, &im->ignored, flag->name, from.at);
		break;
	}
}

static void translate(struct import *im, const struct flag *flag)
{
	const char *neutral;

	if (by_table(im, flag) || by_name(im, flag))
		return;
	if (is_row(flag->name) &&
	    import_table_class(flag->name, &neutral) == FLAG_UNKNOWN)
		cannot(im, flag);
	else
		by_class(im, flag);
}

static void say_duplicate(struct import *im, const struct flag *first,
			  const struct flag *flag)
{
	struct import_source from = import_source(im, flag);

	report_add(im->report, "import-duplicate", WARNING, "", &from.at,
		   "%.100s is given a second time, first on line %d: the last "
		   "one counts",
		   flag->name, first->line);
}

/* Drop what is given again later, and say so. */
static void drop_duplicates(struct import *im, struct flags *flags)
{
	for (size_t i = 0; i < flags->count; i++)
		for (size_t k = i + 1; k < flags->count && !flags->list[i].off;
		     k++)
			if (!strcmp(flags->list[i].name, flags->list[k].name)) {
				say_duplicate(im, &flags->list[i],
					      &flags->list[k]);
				flags->list[i].off = true;
			}
}

static bool ends_with(const char *text, const char *const *ends)
{
	size_t n = strlen(text), len;

	for (; *ends; ends++) {
		len = strlen(*ends);
		if (n > len && !strcmp(text + n - len, *ends))
			return true;
	}
	return false;
}

/* The first line that is neither empty nor a comment. */
static const char *first_line(const char *text)
{
	for (;;) {
		text += strspn(text, " \t\r\n");
		if (*text != '#' || text[1] == '!')
			return text;
		text += strcspn(text, "\n");
	}
}

enum front import_front(const char *file, const char *text)
{
	static const char *const yaml[] = {".yaml", ".yml", NULL};
	static const char *const shell[] = {".sh",    ".bash", ".sbatch",
					    ".slurm", ".job",  NULL};
	const char *line = first_line(text), *end;

	if (ends_with(file, yaml))
		return FRONT_YAML;
	if (ends_with(file, shell) || !strncmp(text, "#!", 2))
		return FRONT_SHELL;
	end = line + strcspn(line, " \t\r\n=:");
	if (!strncmp(line, "---", 3) && end == line + 3)
		return FRONT_YAML;
	if (*end == ':' && end > line && strchr(" \t\r\n", end[1]))
		return FRONT_YAML;
	return !strncmp(line, "--", 2) ? FRONT_ARGS : FRONT_SHELL;
}

static int read_flags(struct import *im, const char *text, size_t len,
		      struct flags *flags)
{
	struct words words = {.arena = im->arena};
	enum front front = import_front(im->file, text);

	if (front == FRONT_YAML)
		return import_yaml(im, text, len, flags);
	if (front == FRONT_SHELL ? import_shell(im, text, len, &words)
				 : import_args(im, text, len, &words))
		return -1;
	import_flags(im, &words, flags);
	return 0;
}

int import_megatron(struct import *im, const char *text, size_t len)
{
	struct flags flags = {0};

	if (read_flags(im, text, len, &flags))
		return -1;
	if (flags.count > CONF_SETTINGS_MAX)
		return import_give_up(im, 0, "more than %d flags",
				      CONF_SETTINGS_MAX);
	drop_duplicates(im, &flags);
	for (size_t i = 0; i < flags.count; i++)
		if (!flags.list[i].off) {
			const struct flag *flag = &flags.list[i];

			import_give(im, flag->name, flag->value, flag->values,
				    flag->line);
			translate(im, flag);
		}
	import_rules(im, &flags);
	return 0;
}
