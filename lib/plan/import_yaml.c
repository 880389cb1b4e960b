/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that knows libyaml. */
#include <string.h>
#include <yaml.h>

#include "lib/plan/import_words.h"

enum { DEPTH_MAX = 16, ANCHORS_MAX = 256 };

/* Only scalars are kept under their anchors: nothing can grow by aliases. */
struct anchor {
	const char *name, *text;
};

struct reader {
	struct import *im;
	yaml_parser_t parser;
	yaml_event_t event; /* the one that is looked at */
	bool held;	    /* it is there */
	const char *text;
	struct anchor anchor[ANCHORS_MAX];
	int anchors, depth;
	struct flags top, *out;
	bool has_args;
};

static int line_of(const struct reader *r)
{
	return (int)r->event.start_mark.line + 1;
}

/* The line of a byte that is no text. */
static int line_at(const char *text, size_t offset)
{
	int line = 1;

	for (size_t i = 0; i < offset && text[i]; i++)
		line += text[i] == '\n';
	return line;
}

static int fail(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	int line = p->error == YAML_READER_ERROR
			   ? line_at(r->text, p->problem_offset)
			   : (int)p->problem_mark.line + 1;

	return import_give_up(r->im, line, "not YAML: %s%s%s",
			      p->problem ? p->problem : "out of memory",
			      p->context ? ", " : "",
			      p->context ? p->context : "");
}

static int next(struct reader *r)
{
	if (r->held)
		yaml_event_delete(&r->event);
	r->held = yaml_parser_parse(&r->parser, &r->event);
	return r->held ? 0 : fail(r);
}

static const char *scalar(struct reader *r)
{
	return arena_strndup(r->im->arena,
			     (const char *)r->event.data.scalar.value,
			     r->event.data.scalar.length);
}

static void keep_anchor(struct reader *r)
{
	const char *name = (const char *)r->event.data.scalar.anchor;

	if (name && r->anchors < ANCHORS_MAX)
		r->anchor[r->anchors++] = (struct anchor){
			arena_strdup(r->im->arena, name), scalar(r)};
}

/* The text of a scalar, or of the scalar that an alias stands for; or NULL. */
static const char *value(struct reader *r)
{
	const char *name;

	if (r->event.type == YAML_SCALAR_EVENT) {
		keep_anchor(r);
		return scalar(r);
	}
	if (r->event.type != YAML_ALIAS_EVENT)
		return NULL;
	name = (const char *)r->event.data.alias.anchor;
	for (int i = r->anchors; i-- > 0;)
		if (!strcmp(r->anchor[i].name, name))
			return r->anchor[i].text;
	return NULL;
}

static int strange(struct reader *r, const char *key)
{
	return import_give_up(r->im, line_of(r),
			      "'%.80s' wants a value or a list of values, not "
			      "a mapping, a list of lists or an alias of such",
			      key);
}

/* Over the node that begins here, however it nests. */
static int skip_node(struct reader *r)
{
	int depth = 0;

	for (;;) {
		switch (r->event.type) {
		case YAML_MAPPING_START_EVENT:
		case YAML_SEQUENCE_START_EVENT: depth++; break;
		case YAML_MAPPING_END_EVENT:
		case YAML_SEQUENCE_END_EVENT: depth--; break;
		case YAML_SCALAR_EVENT: keep_anchor(r); break;
		default: break;
		}
		if (depth > DEPTH_MAX)
			return import_give_up(r->im, line_of(r),
					      "nested more than %d deep",
					      DEPTH_MAX);
		if (!depth)
			return 0;
		if (next(r))
			return -1;
	}
}

static int read_list(struct reader *r, struct flag *flag)
{
	struct words all = {.arena = r->im->arena};
	const char *text;

	while (!next(r)) {
		if (r->event.type == YAML_SEQUENCE_END_EVENT) {
			flag->value = arena_alloc(r->im->arena, all.count + 1,
						  sizeof(*flag->value));
			for (size_t i = 0; i < all.count; i++)
				flag->value[flag->values++] = all.list[i].text;
			return 0;
		}
		text = value(r);
		if (!text)
			return strange(r, flag->name);
		if (all.count == WORDS_MAX)
			return import_give_up(r->im, line_of(r),
					      "a list of more than %d values",
					      WORDS_MAX);
		word_add(&all, (struct word){.text = text});
	}
	return -1;
}

/* true: the flag alone; false: no flag at all; null: no value. */
static void read_scalar(struct reader *r, struct flag *flag, const char *text)
{
	bool plain = r->event.type == YAML_ALIAS_EVENT ||
		     r->event.data.scalar.plain_implicit;

	if (plain && !strcasecmp(text, "false"))
		flag->off = true;
	else if (plain && (!strcasecmp(text, "true") || !*text ||
			   !strcmp(text, "~") || !strcasecmp(text, "null")))
		return;
	flag->value = arena_alloc(r->im->arena, 1, sizeof(*flag->value));
	flag->value[flag->values++] = text;
}

/* The value of a key that is a flag. */
static int read_flag(struct reader *r, const char *key, int line,
		     struct flags *out)
{
	struct flag flag = {.name = key, .line = line};
	const char *text;

	if (r->im->keys && r->event.type != YAML_SCALAR_EVENT) {
		static const char *const some[] = {"..."};

		flag.value = (const char **)some;
		flag.values = 1;
		if (skip_node(r))
			return -1;
	} else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
		if (read_list(r, &flag))
			return -1;
	} else {
		text = value(r);
		if (!text)
			return strange(r, key);
		read_scalar(r, &flag, text);
	}
	flag_add(r->im, out, flag);
	return 0;
}

/* A mapping: flags go to OUT, MODEL_ARGS of the top to its own place. */
static int read_mapping(struct reader *r, bool top, struct flags *out)
{
	const char *key;
	int line, bad;

	while (!next(r)) {
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		key = value(r);
		line = line_of(r);
		if (!key)
			return import_give_up(r->im, line,
					      "a key that is no plain text");
		if (next(r))
			return -1;
		if (!strcmp(key, "<<"))
			return import_give_up(r->im, line,
					      "the merge key << is not read: "
					      "write the flags out");
		if (top && !strcmp(key, "MODEL_ARGS") &&
		    r->event.type == YAML_MAPPING_START_EVENT) {
			r->has_args = true;
			bad = read_mapping(r, false, r->out);
		} else if (*key == '-' || r->im->keys) {
			bad = read_flag(r, key, line, out);
		} else if (top) {
			bad = skip_node(r);
		} else {
			bad = import_give_up(r->im, line,
					     "'%.80s' is no flag: flags begin "
					     "with --",
					     key);
		}
		if (bad)
			return -1;
	}
	return -1;
}

static int read_document(struct reader *r)
{
	if (next(r) || next(r) || next(r)) /* stream, document, its node */
		return -1;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return import_give_up(r->im, line_of(r),
				      "wants a mapping of flags, or of "
				      "MODEL_ARGS to one");
	if (read_mapping(r, true, &r->top))
		return -1;
	if (!r->has_args)
		*r->out = r->top;
	if (!r->out->count)
		return import_give_up(r->im, 0, "%s",
				      r->im->keys ? "no keys"
						  : "no MODEL_ARGS and no "
						    "--flag at the top");
	return 0;
}

int import_yaml(struct import *im, const char *text, size_t len,
		struct flags *out)
{
	struct reader *r = arena_alloc(im->arena, 1, sizeof(*r));
	int bad;

	r->im = im;
	r->text = text;
	r->out = out;
	if (!yaml_parser_initialize(&r->parser))
		arena_exhausted();
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, (const unsigned char *)text,
				     len);
	bad = read_document(r);
	if (r->held)
		yaml_event_delete(&r->event);
	yaml_parser_delete(&r->parser);
	return bad;
}
