/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/classify.h"

#include <string.h>

#include "lib/plan/import.h"
#include "lib/plan/import_set.h"
#include "lib/plan/import_table.h"

enum { GROUPS = 4 };

/* In the order of enum question. */
static const struct group *const groups[GROUPS] = {&shape_group, &spec_group,
						   &place_group, &run_group};

static struct class_row *add(struct classes *c, const char *given,
			     const char *value, int line, struct arena *a)
{
	struct class_row *row;

	c->row = arena_grow(a, c->row, c->rows, &c->cap, sizeof(*c->row));
	row = &c->row[c->rows++];
	*row = (struct class_row){
		.given = given,
		.value = value,
		.line = line,
		.question = ASKS_UNKNOWN,
		.becomes = "",
		.why = "",
	};
	return row;
}

/* The pollution of the setting NAME, or of what the file calls it. */
static void pollute(struct class_row *row, const char *name)
{
	if (!row->polluted)
		row->polluted = classify_pollution(name);
}

/* All settings of ours that NAME said. */
static bool by_settings(struct class_row *row, const struct import *im)
{
	bool any = false;

	for (size_t i = 0; i < im->count; i++) {
		const struct import_setting *s = &im->list[i];
		const struct group *g = groups[s->group];
		const char *name = g->fields[s->row].name;

		if (s->from.kind != ORIGIN_GIVEN || strcmp(s->what, row->given))
			continue;
		row->becomes =
			arena_printf(im->arena, "%s%s%s.%s = %s", row->becomes,
				     any ? ", " : "", g->name, name, s->text);
		if (!any)
			row->question = (enum question)s->group;
		any = true;
		pollute(row, name);
	}
	return any;
}

static bool by_table(struct class_row *row, const struct class_known *known)
{
	if (!known)
		return false;
	row->question = known->question;
	row->becomes = known->setting ? known->setting : "";
	row->why = known->why ? known->why : "";
	return true;
}

/* What a finding says of NAME, behind its name. */
static const struct finding *finding_of(const struct import *im,
					const struct class_row *row)
{
	size_t len = strlen(row->given);

	for (size_t i = 0; i < im->report->count; i++) {
		const struct finding *f = &im->report->list[i];

		if (f->line == row->line &&
		    !strncmp(f->message, row->given, len) &&
		    strchr(" :", f->message[len]))
			return f;
	}
	return NULL;
}

/* The setting that a finding is about, "shape.num_query_groups". */
static void by_path(struct class_row *row, const char *path)
{
	for (int g = 0; g < GROUPS; g++) {
		size_t len = strlen(groups[g]->name);

		if (strncmp(path, groups[g]->name, len) || path[len] != '.')
			continue;
		row->question = (enum question)g;
		pollute(row, path + len + 1);
	}
}

static void by_finding(struct class_row *row, const struct import *im)
{
	const struct finding *f = finding_of(im, row);

	if (!f)
		return;
	if (row->question == ASKS_UNKNOWN)
		row->question = ASKS_NONE;
	by_path(row, f->path);
	row->why = f->message + strlen(row->given) +
		   strspn(f->message + strlen(row->given), " :");
	if (!strcmp(f->id, "import-unknown"))
		row->question = ASKS_UNKNOWN;
}

/* A flag of Megatron's that has become nothing. */
static void by_class(struct class_row *row)
{
	const char *neutral;

	switch (import_table_class(row->given, &neutral)) {
	case FLAG_IGNORED:
		row->question = ASKS_NONE;
		row->why = "logs, paths, files, services";
		break;
	case FLAG_RUN:
		row->question = ASKS_RUN;
		row->why = "no setting here";
		break;
	case FLAG_MODEL:
		row->question = ASKS_NONE;
		row->why =
			neutral ? "says Megatron's default" : "no setting here";
		break;
	case FLAG_RULE:
		row->question = ASKS_NONE;
		row->why = "another flag says it";
		break;
	case FLAG_UNKNOWN: break;
	}
}

static void sort_megatron(struct class_row *row, const struct import *im)
{
	const char *bare = row->given + strspn(row->given, "-");
	char *name = arena_strdup(im->arena, bare);

	for (char *p = name; *p; p++)
		*p = *p == '-' ? '_' : *p;
	if (!by_settings(row, im) &&
	    !by_table(row, classify_megatron(row->given))) {
		by_class(row);
		by_finding(row, im);
	}
	pollute(row, name);
}

/* Whether a finding says that nobody knows the key. */
static bool is_strange(const struct import *im, const struct class_row *row)
{
	const char *quoted = arena_printf(im->arena, "'%.100s'", row->given);

	for (size_t i = 0; i < im->report->count; i++) {
		const struct finding *f = &im->report->list[i];

		if (f->line == row->line && !strcmp(f->id, "import-key") &&
		    !strncmp(f->message, quoted, strlen(quoted)))
			return true;
	}
	return false;
}

static void sort_hf(struct class_row *row, const struct import *im, bool read)
{
	const char *outer =
		arena_strndup(im->arena, row->given, strcspn(row->given, "."));

	pollute(row, row->given);
	if (by_settings(row, im) || by_table(row, classify_hf(row->given)) ||
	    by_table(row, classify_hf(outer)))
		return;
	if (!read && is_strange(im, row))
		return;
	row->question = read ? ASKS_SHAPE : ASKS_NONE;
	row->why = read ? "what the family does anyway"
			: "a name, or read with another key";
	by_finding(row, im);
}

static void sort_vllm(struct class_row *row)
{
	const struct class_known *known = classify_vllm(row->given);

	if (by_table(row, known))
		pollute(row, known->name);
}

static int sort_import(struct classes *c, struct arena *a, struct err *e)
{
	struct report report = {.arena = a};
	struct config *config = arena_alloc(a, 1, sizeof(*config));
	struct import im = {.arena = a,
			    .report = &report,
			    .err = e,
			    .file = c->file,
			    .config = config};

	if (import_read(&im, c->format))
		return -1;
	for (size_t i = 0; i < im.givens; i++) {
		const struct import_given *g = &im.given[i];
		struct class_row *row = add(c, g->name, g->value, g->line, a);

		if (c->format == CONFIG_MEGATRON)
			sort_megatron(row, &im);
		else if (c->format == CONFIG_HF)
			sort_hf(row, &im, g->read);
		else
			sort_vllm(row);
	}
	return 0;
}

/* What was given in a group of our own. */
static void sort_group(struct classes *c, int g, const void *base,
		       struct arena *a)
{
	const struct origin *from = base;

	for (int i = 0; i < groups[g]->count; i++) {
		const struct field *f = &groups[g]->fields[i];
		struct class_row *row;

		if (from[i].kind != ORIGIN_GIVEN)
			continue;
		row = add(c, arena_printf(a, "%s.%s", groups[g]->name, f->name),
			  field_canonical(f, base, a), from[i].line, a);
		row->question = (enum question)g;
		row->becomes = row->given;
		if (from[i].file && strcmp(from[i].file, c->file))
			row->why = from[i].file;
		pollute(row, f->name);
	}
}

static int sort_own(struct classes *c, struct arena *a, struct err *e)
{
	struct report r = {.arena = a};
	struct config *config = arena_alloc(a, 1, sizeof(*config));
	const void *base[GROUPS] = {&config->shape, &config->spec,
				    &config->place, &config->run};

	if (config_load(c->file, NULL, 0, a, config, &r, e))
		return -1;
	for (int g = 0; g < GROUPS; g++)
		sort_group(c, g, base[g], a);
	for (size_t i = 0; i < r.count; i++)
		if (!strcmp(r.list[i].id, "conf-unknown"))
			add(c, r.list[i].path, "", r.list[i].line, a);
	return 0;
}

int classify_file(struct classes *c, enum config_format format,
		  const char *file, struct arena *a, struct err *e)
{
	*c = (struct classes){.file = file, .format = format};
	return format == CONFIG_OWN ? sort_own(c, a, e) : sort_import(c, a, e);
}

const char *question_name(enum question q)
{
	static const char *const names[QUESTIONS] = {
		"shape", "spec", "place", "run", "none", "unknown"};

	return names[q];
}
