/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <libconfig.h>
#include <stdio.h>
#include <string.h>

#include "lib/plan/conf.h"

#define NAME_BYTES                   \
	"abcdefghijklmnopqrstuvwxyz" \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
	"0123456789_"

/* A setting on its way to its row. */
struct binding {
	struct conf *c;
	const struct field *field;
	char *base;
	const char *path;
	struct origin at;
};

static const char *type_text(const struct field *f)
{
	switch (f->type) {
	case FIELD_INT: return "an integer";
	case FIELD_FLOAT: return "a number";
	case FIELD_BOOL: return "true or false";
	case FIELD_ENUM:
	case FIELD_TEXT: return "a string";
	case FIELD_INTS: return "an integer or a list of integers";
	case FIELD_TEXTS: return "a string or a list of strings";
	case FIELD_FLOATS: return "a number or a list of numbers";
	}
	return "";
}

static const char *found_text(const config_setting_t *s)
{
	switch (config_setting_type(s)) {
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64: return "an integer";
	case CONFIG_TYPE_FLOAT: return "a number with a fraction";
	case CONFIG_TYPE_BOOL: return "true or false";
	case CONFIG_TYPE_STRING: return "a string";
	case CONFIG_TYPE_GROUP: return "a group";
	case CONFIG_TYPE_ARRAY:
	case CONFIG_TYPE_LIST: return "a list";
	}
	return "nothing";
}

static void wrong_type(struct binding *b, const config_setting_t *s)
{
	report_add(b->c->report, "conf-type", ERROR, b->path, &b->at,
		   "wants %s, not %s", type_text(b->field), found_text(s));
	if (b->field->type == FIELD_BOOL && config_setting_is_number(s))
		report_suggest(b->c->report, "%s",
			       config_setting_get_int64(s) ? "true" : "false");
}

static bool is_int(const config_setting_t *s)
{
	return config_setting_type(s) == CONFIG_TYPE_INT ||
	       config_setting_type(s) == CONFIG_TYPE_INT64;
}

static bool int_in_range(struct binding *b, int64_t n)
{
	const struct field *f = b->field;

	/* The bounds are whole; N as a double might be rounded to one. */
	if (n >= (int64_t)f->min && n <= (int64_t)f->max)
		return true;
	report_add(b->c->report, "conf-range", ERROR, b->path, &b->at,
		   "%" PRId64 " is not between %.0f and %.0f", n, f->min,
		   f->max);
	report_suggest(b->c->report, "%.0f",
		       (double)n < f->min ? f->min : f->max);
	return false;
}

static void bind_int(struct binding *b, const config_setting_t *s, void *at)
{
	int64_t n = config_setting_get_int64(s);

	if (!is_int(s))
		wrong_type(b, s);
	else if (int_in_range(b, n))
		*(int64_t *)at = n;
}

static bool bind_float(struct binding *b, const config_setting_t *s, double *at)
{
	const struct field *f = b->field;
	double x;

	if (!config_setting_is_number(s)) {
		wrong_type(b, s);
		return false;
	}
	x = is_int(s) ? (double)config_setting_get_int64(s)
		      : config_setting_get_float(s);
	if (x >= f->min && x <= f->max) {
		*at = x;
		return true;
	}
	report_add(b->c->report, "conf-range", ERROR, b->path, &b->at,
		   "%.15g is not between %.15g and %.15g", x, f->min, f->max);
	report_suggest(b->c->report, "%.15g", x < f->min ? f->min : f->max);
	return false;
}

/* The index of NAME among the row's names; -1, and it is said: none. */
static int name_choice(struct binding *b, const char *name)
{
	const char *const *names = b->field->names;

	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return i;
	report_add(b->c->report, "conf-choice", ERROR, b->path, &b->at,
		   "unknown choice \"%.100s\"", name);
	conf_suggest_choice(b->c->report, name, names);
	return -1;
}

static void bind_enum(struct binding *b, const config_setting_t *s, void *at)
{
	const char *name = config_setting_get_string(s);
	int i;

	if (!name) {
		wrong_type(b, s);
		return;
	}
	i = name_choice(b, name);
	if (i >= 0)
		*(int *)at = i;
}

static void bind_text(struct binding *b, const config_setting_t *s, void *at)
{
	const char *text = config_setting_get_string(s);

	if (!text)
		wrong_type(b, s);
	else if (!*text)
		report_add(b->c->report, "conf-range", ERROR, b->path, &b->at,
			   "must not be empty");
	else
		*(const char **)at = arena_strdup(b->c->arena, text);
}

static bool is_list(const config_setting_t *s)
{
	return config_setting_is_aggregate(s) && !config_setting_is_group(s);
}

static int item_count(const config_setting_t *s)
{
	return is_list(s) ? config_setting_length(s) : 1;
}

/* Item I of a list, or the one value that stands for a list of one. */
static const config_setting_t *item_of(const config_setting_t *s, int i)
{
	return is_list(s) ? config_setting_get_elem(s, (unsigned)i) : s;
}

static void empty(struct binding *b)
{
	report_add(b->c->report, "conf-range", ERROR, b->path, &b->at,
		   "must not be empty");
}

static void bind_ints(struct binding *b, config_setting_t *s, void *at)
{
	int count = item_count(s);
	int64_t *item = arena_alloc(b->c->arena, (size_t)count, sizeof(*item));

	for (int i = 0; i < count; i++) {
		const config_setting_t *one = item_of(s, i);

		if (!is_int(one)) {
			wrong_type(b, one);
			return;
		}
		item[i] = config_setting_get_int64(one);
		if (!int_in_range(b, item[i]))
			return;
	}
	if (count)
		*(struct ints *)at = (struct ints){item, count, is_list(s)};
	else
		empty(b);
}

static void bind_floats(struct binding *b, config_setting_t *s, void *at)
{
	int count = item_count(s);
	double *item = arena_alloc(b->c->arena, (size_t)count, sizeof(*item));

	for (int i = 0; i < count; i++)
		if (!bind_float(b, item_of(s, i), &item[i]))
			return;
	if (count)
		*(struct floats *)at = (struct floats){item, count};
	else
		empty(b);
}

/* A string, or in a list a number too: weights stand among paths. */
static const char *one_text(struct arena *a, const config_setting_t *s,
			    bool list)
{
	if (config_setting_type(s) == CONFIG_TYPE_STRING)
		return arena_strdup(a, config_setting_get_string(s));
	if (list && is_int(s))
		return arena_printf(a, "%lld", config_setting_get_int64(s));
	if (list && config_setting_type(s) == CONFIG_TYPE_FLOAT)
		return arena_printf(a, "%.15g", config_setting_get_float(s));
	return NULL;
}

static void bind_texts(struct binding *b, config_setting_t *s, void *at)
{
	int count = item_count(s);
	const char **item =
		arena_alloc(b->c->arena, (size_t)count, sizeof(*item));

	for (int i = 0; i < count; i++) {
		const config_setting_t *one = item_of(s, i);

		item[i] = one_text(b->c->arena, one, is_list(s));
		if (!item[i]) {
			wrong_type(b, one);
			return;
		}
		if (b->field->names && name_choice(b, item[i]) < 0)
			return;
	}
	if (!count || !item[0][0])
		empty(b);
	else
		*(struct texts *)at = (struct texts){item, count};
}

static void bind_value(struct conf *c, struct conf_target *t, int row,
		       config_setting_t *s, struct origin at)
{
	const struct field *f = &t->group->fields[row];
	struct binding b = {
		.c = c,
		.field = f,
		.base = t->base,
		.path = arena_printf(c->arena, "%s.%s", t->group->name,
				     f->name),
		.at = at,
	};
	void *value = b.base + f->offset;

	*field_origin(t->group, t->base, value) = at;
	switch (f->type) {
	case FIELD_INT: bind_int(&b, s, value); break;
	case FIELD_FLOAT: bind_float(&b, s, value); break;
	case FIELD_BOOL:
		if (config_setting_type(s) == CONFIG_TYPE_BOOL)
			*(bool *)value = config_setting_get_bool(s);
		else
			wrong_type(&b, s);
		break;
	case FIELD_ENUM: bind_enum(&b, s, value); break;
	case FIELD_TEXT: bind_text(&b, s, value); break;
	case FIELD_INTS: bind_ints(&b, s, value); break;
	case FIELD_TEXTS: bind_texts(&b, s, value); break;
	case FIELD_FLOATS: bind_floats(&b, s, value); break;
	}
}

/* The group that has a setting NAME, and its row there. */
static struct conf_target *owner(struct conf *c, const char *name, int *row)
{
	for (int i = 0; i < c->targets; i++) {
		*row = field_find(c->target[i].group, name);
		if (*row >= 0)
			return &c->target[i];
	}
	return NULL;
}

/* A setting NAME that its group (NULL: none) does not have. */
static void bind_stranger(struct conf *c, const char *group, const char *name,
			  config_setting_t *s, struct origin at)
{
	const char *path = group ? arena_printf(c->arena, "%s.%s", group, name)
				 : arena_strdup(c->arena, name);
	const char *because = conf_because(name);
	int row;
	struct conf_target *t = owner(c, name, &row);

	if (!t && because) {
		report_add(c->report, "conf-unknown", ERROR, path, &at,
			   "no setting here: %s", because);
		return;
	}
	if (!t) {
		report_add(c->report, "conf-unknown", ERROR, path, &at,
			   "unknown setting");
		conf_suggest_name(c, name);
		return;
	}
	report_add(c->report, "conf-wrong-group", ERROR, path, &at,
		   "'%s' belongs to group '%s'", name, t->group->name);
	report_suggest(c->report, "%s.%s", t->group->name, name);
	/* Read it all the same, so that nothing is said to be missing. */
	if (((struct origin *)t->base)[row].kind == ORIGIN_DEFAULT)
		bind_value(c, t, row, s, at);
}

static void bind_setting(struct conf *c, struct conf_target *t,
			 config_setting_t *s, struct origin at)
{
	const char *name = config_setting_name(s);
	int row = field_find(t->group, name);

	if (*name == '*') /* a repeated one, reported by conf_load */
		return;
	if (row < 0)
		bind_stranger(c, t->group->name, name, s, at);
	else
		bind_value(c, t, row, s, at);
}

static struct conf_target *target_find(struct conf *c, const char *name)
{
	for (int i = 0; i < c->targets; i++)
		if (!strcmp(c->target[i].group->name, name))
			return &c->target[i];
	return NULL;
}

static void unknown_group(struct conf *c, const char *name,
			  const struct origin *at)
{
	report_add(c->report, "conf-group", ERROR, arena_strdup(c->arena, name),
		   at,
		   "unknown group; the groups are shape, spec, place and run");
	conf_suggest_group(c, name);
}

static void bind_top(struct conf *c, const struct conf_text *t,
		     config_setting_t *s)
{
	const char *name = config_setting_name(s);
	struct origin at = conf_where(t, (int)config_setting_source_line(s));
	struct conf_target *target = target_find(c, name);
	int row;

	if (*name == '*')
		return;
	if (!target && owner(c, name, &row)) {
		bind_stranger(c, NULL, name, s, at);
	} else if (!target) {
		unknown_group(c, name, &at);
	} else if (!config_setting_is_group(s)) {
		report_add(c->report, "conf-type", ERROR, target->group->name,
			   &at, "wants a group { ... }, not %s", found_text(s));
	} else {
		for (int i = 0; i < config_setting_length(s); i++) {
			config_setting_t *one =
				config_setting_get_elem(s, (unsigned)i);

			bind_setting(
				c, target, one,
				conf_where(t, (int)config_setting_source_line(
						      one)));
		}
	}
}

/* A line NAME = WORD: texts need quotes, which is soon forgotten. */
static void suggest_quotes(struct conf *c, const char *line, const char *end)
{
	size_t name = strspn(line, NAME_BYTES), word;
	const char *at = line + name + strspn(line + name, " \t");

	if (!name || at >= end || !strchr("=:", *at))
		return;
	at += 1 + strspn(at + 1, " \t");
	word = strcspn(at, " \t;,\"\r\n{}[]()");
	if (word && at + word <= end && !strchr("0123456789+-.", *at))
		report_suggest(c->report, "%.*s = \"%.*s\"", (int)name, line,
			       (int)word, at);
}

/* What libconfig could not parse: the finding, and the error. */
static int syntax_error(struct conf *c, const struct conf_text *t,
			const config_t *config, struct err *e)
{
	int line = config_error_line(config);
	struct origin at = conf_where(t, line);
	const char *text = t->text, *end;

	for (int i = 1; i < line && text; i++) {
		text = strchr(text, '\n');
		text += text != NULL;
	}
	text = text ? text + strspn(text, " \t") : "";
	end = strchrnul(text, '\n');
	report_add(c->report, "conf-syntax", ERROR, "", &at,
		   "%s at or before '%.*s'", config_error_text(config),
		   (int)(end - text < 80 ? end - text : 80), text);
	suggest_quotes(c, text, end);
	return err_set(e, CODE_USAGE, "%s:%d: %s", at.file, at.line,
		       c->report->list[c->report->count - 1].message);
}

int conf_bind(struct conf *c, const struct conf_text *t, struct err *e)
{
	config_t config;
	int bad = 0;

	config_init(&config);
	if (config_read_string(&config, t->text)) {
		config_setting_t *root = config_root_setting(&config);

		for (int i = 0; i < config_setting_length(root); i++)
			bind_top(c, t,
				 config_setting_get_elem(root, (unsigned)i));
	} else {
		bad = syntax_error(c, t, &config, e);
	}
	config_destroy(&config);
	return bad;
}

static void wrong_set(struct conf *c, const char *set, const char *what)
{
	struct origin at = {ORIGIN_GIVEN, "--set", 0, NULL};

	report_add(c->report, "conf-set", ERROR, "", &at, "'%.200s': %s", set,
		   what);
}

/* A list of words without their quotes, with them; NULL: it is none. */
static const char *quoted_list(const char *value, struct arena *a)
{
	size_t len = strlen(value);
	const char *out = "[", *end = value + len - 1;

	if (len < 3 || !strchr("[(", *value) || !strchr("])", *end) ||
	    strchr(value, '"'))
		return NULL;
	for (const char *at = value + 1; at < end;) {
		at += strspn(at, " ,");
		len = strcspn(at, ",");
		if (at + len > end)
			len = (size_t)(end - at);
		while (len && at[len - 1] == ' ')
			len--;
		if (len)
			out = arena_printf(a, "%s%s\"%.*s\"", out,
					   out[1] ? ", " : "", (int)len, at);
		at += len + strcspn(at + len, ",");
	}
	return arena_printf(a, "%s]", out);
}

/* The VALUE of a set that is no value: what F wants instead. */
static void wrong_value(struct conf *c, const char *set, const struct field *f,
			const char *value)
{
	const char *list = NULL;

	if (!f) {
		wrong_set(c, set, "the value cannot be read");
		return;
	}
	wrong_set(c, set,
		  arena_printf(c->arena, "wants %s, not '%.100s'", type_text(f),
			       value));
	if (f->type == FIELD_TEXTS)
		list = quoted_list(value, c->arena);
	if (list)
		report_suggest(c->report, "'%.*s%s'", (int)(value - set), set,
			       list);
}

/* Whether VALUE may stand without quotes for this row. */
static bool is_bare(const struct field *f, const char *value)
{
	return (f->type == FIELD_TEXT || f->type == FIELD_ENUM ||
		f->type == FIELD_TEXTS) &&
	       !strchr("\"([", *value);
}

/* A line of a config file that says NAME = VALUE. */
static const char *set_line(struct arena *a, const struct field *f,
			    const char *name, const char *value)
{
	const struct field as_text = {.type = FIELD_TEXT};

	if (is_bare(f, value))
		value = field_text(&as_text, &value, a);
	return arena_printf(a, "%s = %s;\n", name, value);
}

/* Bind the one setting of LINE to group T (or report T's lack of it). */
static void bind_line(struct conf *c, struct conf_target *t,
		      const struct field *f, const char *set, const char *line)
{
	struct origin at = {ORIGIN_GIVEN, "--set", 0, NULL};
	struct conf_text text;
	config_t config;
	struct err e;

	if (conf_load_string(&text, "--set", line, c->arena, c->report, &e))
		return;
	config_init(&config);
	if (config_read_string(&config, text.text) &&
	    config_setting_length(config_root_setting(&config)) == 1)
		bind_setting(c, t,
			     config_setting_get_elem(
				     config_root_setting(&config), 0),
			     at);
	else
		wrong_value(c, set, f, strchr(set, '=') + 1);
	config_destroy(&config);
}

/*
 * The row that NAME is meant as: T's, or that of another group, which
 * bind_stranger tells.  What is none is read as a text: its name is the fault.
 */
static const struct field *set_field(struct conf *c, struct conf_target *t,
				     const char *name)
{
	static const struct field as_text = {.type = FIELD_TEXT};
	int row = field_find(t->group, name);

	if (row < 0)
		t = owner(c, name, &row);
	return t ? &t->group->fields[row] : &as_text;
}

void conf_bind_set(struct conf *c, const char *set)
{
	const char *equals = strchr(set, '='), *dot = strchr(set, '.');
	struct origin at = {ORIGIN_GIVEN, "--set", 0, NULL};
	const char *group, *name;
	const struct field *f;
	struct conf_target *t;

	if (!equals || !dot || dot == set || dot + 1 >= equals || !equals[1]) {
		wrong_set(c, set, "wants GROUP.NAME=VALUE");
		return;
	}
	group = arena_strndup(c->arena, set, (size_t)(dot - set));
	name = arena_strndup(c->arena, dot + 1, (size_t)(equals - dot) - 1);
	t = target_find(c, group);
	if (!t) {
		unknown_group(c, group, &at);
		return;
	}
	if (!strcmp(equals + 1, "unset") && field_find(t->group, name) >= 0) {
		field_reset(t->group, t->base, field_find(t->group, name),
			    c->arena);
		return;
	}
	f = set_field(c, t, name);
	bind_line(c, t, f, set, set_line(c->arena, f, name, equals + 1));
}
