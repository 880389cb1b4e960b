/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import_hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/config.h"
#include "lib/plan/hf.h"

/* Where a key's name stands in the text, by a walk over its strings. */
struct walk {
	const char *at, *end;
	int line, depth;
	const char *top; /* the key at the top whose value this is */
};

static const char *read_string(struct walk *w, struct arena *a)
{
	const char *from = ++w->at;

	for (; w->at < w->end && *w->at != '"'; w->at++)
		w->at += *w->at == '\\';
	w->at++;
	return arena_strndup(a, from, (size_t)(w->at - 1 - from));
}

static bool is_key(const struct walk *w)
{
	const char *p = w->at;

	while (p < w->end && strchr(" \t\r\n", *p))
		p++;
	return p < w->end && *p == ':';
}

static void add_key(struct hf *h, struct walk *w, const char *name)
{
	if (w->depth == 1)
		w->top = name;
	else
		name = arena_printf(h->im->arena, "%s.%s", w->top, name);
	h->key = arena_grow(h->im->arena, h->key, h->keys, &h->cap,
			    sizeof(*h->key));
	h->key[h->keys++] = (struct hf_key){name, w->line, false};
}

/* The text is JSON: jansson has said so. */
static int find_keys(struct hf *h, const char *text, size_t len)
{
	struct walk w = {.at = text, .end = text + len, .line = 1};

	while (w.at < w.end) {
		char c = *w.at;

		if (c == '"') {
			const char *name = read_string(&w, h->im->arena);

			if (w.depth && w.depth < 3 && is_key(&w))
				add_key(h, &w, name);
			if (h->keys > CONF_SETTINGS_MAX)
				return import_give_up(h->im, w.line,
						      "more than %d keys",
						      CONF_SETTINGS_MAX);
			continue;
		}
		w.depth += (c == '{' || c == '[') - (c == '}' || c == ']');
		w.line += c == '\n';
		w.at++;
	}
	return 0;
}

static struct hf_key *key_of(struct hf *h, const char *name)
{
	for (size_t i = 0; i < h->keys; i++)
		if (!strcmp(h->key[i].name, name))
			return &h->key[i];
	return NULL;
}

struct import_source hf_source(struct hf *h, const char *name)
{
	const struct hf_key *key = key_of(h, name);

	if (h->from)
		return (struct import_source){name, h->from->at};
	return (struct import_source){
		name, {ORIGIN_GIVEN, h->im->file, key ? key->line : 0, NULL}};
}

json_t *hf_get(struct hf *h, const char *name)
{
	const char *dot = strchr(name, '.');
	struct hf_key *key = key_of(h, name);
	json_t *value = h->root;

	if (key)
		key->used = true;
	if (dot) {
		value = json_object_get(value,
					arena_strndup(h->im->arena, name,
						      (size_t)(dot - name)));
		name = dot + 1;
	}
	value = json_object_get(value, name);
	return json_is_null(value) ? NULL : value;
}

static void wrong(struct hf *h, const char *name, const char *wants)
{
	struct import_source from = hf_source(h, name);

	report_add(h->im->report, "import-value", ERROR, "", &from.at,
		   "%.100s wants %s", name, wants);
}

int64_t hf_int(struct hf *h, const char *name, int64_t otherwise)
{
	json_t *value = hf_get(h, name);

	if (value && !json_is_integer(value))
		wrong(h, name, "an integer");
	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

double hf_real(struct hf *h, const char *name, double otherwise)
{
	json_t *value = hf_get(h, name);

	if (value && !json_is_number(value))
		wrong(h, name, "a number");
	return json_is_number(value) ? json_number_value(value) : otherwise;
}

bool hf_true(struct hf *h, const char *name, bool otherwise)
{
	json_t *value = hf_get(h, name);

	if (value && !json_is_boolean(value))
		wrong(h, name, "true or false");
	return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

const char *hf_text(struct hf *h, const char *name, const char *otherwise)
{
	json_t *value = hf_get(h, name);

	if (value && !json_is_string(value))
		wrong(h, name, "a string");
	return json_is_string(value) ? json_string_value(value) : otherwise;
}

/* A scalar as the word that a file would have. */
static const char *word_of(struct hf *h, json_t *value)
{
	struct arena *a = h->im->arena;

	if (json_is_integer(value))
		return arena_printf(a, "%" JSON_INTEGER_FORMAT,
				    json_integer_value(value));
	if (json_is_real(value))
		return arena_printf(a, "%.17g", json_real_value(value));
	if (json_is_boolean(value))
		return json_is_true(value) ? "true" : "false";
	if (json_is_string(value))
		return arena_strdup(a, json_string_value(value));
	return json_is_array(value) ? "a list" : "an object";
}

const char *hf_word(struct hf *h, const char *name)
{
	json_t *value = hf_get(h, name);

	return value ? word_of(h, value) : NULL;
}

void hf_cannot(struct hf *h, const char *name, const char *what)
{
	struct import_source from = hf_source(h, name);

	report_add(h->im->report, "import-flag", ERROR, "", &from.at,
		   "%.100s: %.200s has no setting here", name, what);
}

static bool has(const char *field)
{
	int group, row;

	return import_field(field, &group, &row);
}

void hf_say(struct hf *h, const char *name, const char *field,
	    const char *value)
{
	if (has(field))
		import_say(h->im, field, value, hf_source(h, name));
	else
		hf_cannot(h, name, field);
}

void hf_say_run(struct hf *h, const char *name, const char *field,
		const char *value)
{
	struct import_source from = hf_source(h, name);

	if (has(field))
		import_say(h->im, field, value, from);
	else
		report_add(h->im->report, "import-run", WARNING, "", &from.at,
			   "%.100s has no setting here: training would differ",
			   name);
}

void hf_put(struct hf *h, const char *name, const char *field)
{
	json_t *value = hf_get(h, name);

	if (value)
		hf_say(h, name, field, word_of(h, value));
}

const char *hf_ints(struct hf *h, const int64_t *item, int count)
{
	const struct field as_ints = {.type = FIELD_INTS};
	struct ints list = {item, count, true};

	return field_text(&as_ints, &list, h->im->arena);
}

void hf_skip(struct hf *h, const char *const *names)
{
	for (; *names; names++)
		hf_get(h, *names);
}

static void put_rows(struct hf *h, const struct hf_family *family)
{
	const char *why = arena_printf(h->im->arena, "model_type %s", h->type);

	for (const struct hf_row *row = family->rows; row->key; row++) {
		hf_put(h, row->key, row->field);
		if (row->missing)
			import_default(h->im, row->field, row->missing, why);
	}
	for (const struct hf_constant *c = family->constants; c->field; c++) {
		if (has(c->field))
			import_default(h->im, c->field, c->value, why);
		else
			hf_cannot(h, "model_type",
				  arena_printf(h->im->arena, "%s = %s of %s",
					       c->field, c->value, h->type));
	}
}

/* The precision of the stored weights. */
static void put_dtype(struct hf *h)
{
	static const char *const names[][2] = {
		{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
	const char *key = hf_get(h, "torch_dtype") ? "torch_dtype" : "dtype";
	const char *dtype = hf_text(h, key, NULL);

	for (int i = 0; dtype && i < 3; i++)
		if (!strcmp(dtype, names[i][0]))
			hf_say(h, key, "params_dtype", names[i][1]);
}

static const char *const ignored[] = {"_name_or_path",
				      "architectures",
				      "auto_map",
				      "bos_token_id",
				      "chunk_size_feed_forward",
				      "dtype",
				      "eos_token_id",
				      "ep_size",
				      "finetuning_task",
				      "id2label",
				      "label2id",
				      "model_type",
				      "n_ctx",
				      "name_or_path",
				      "output_attentions",
				      "output_hidden_states",
				      "output_router_logits",
				      "pad_token_id",
				      "pretraining_tp",
				      "problem_type",
				      "quantization_config",
				      "return_dict",
				      "summary_activation",
				      "summary_first_dropout",
				      "summary_proj_to_labels",
				      "summary_type",
				      "summary_use_proj",
				      "task_specific_params",
				      "tokenizer_class",
				      "torch_dtype",
				      "torchscript",
				      "transformers_version",
				      "unk_token_id",
				      "use_bfloat16",
				      "use_cache",
				      "use_return_dict",
				      "gradient_checkpointing",
				      "sep_token_id",
				      "decoder_start_token_id",
				      "static_cache",
				      "target_model_type",
				      NULL};

/* A key that nobody asked for: known to say nothing here, or not known. */
static void say_unread(struct hf *h, const char *key)
{
	struct import_source from = hf_source(h, key);
	const char *const *name = ignored;

	while (*name && strcmp(*name, key))
		name++;
	if (*name)
		import_note_name(h->im, &h->im->ignored, key, from.at);
	else
		report_add(h->im->report, "import-key", WARNING, "", &from.at,
			   "'%.100s' is no key of %s that is known here: it "
			   "is left out",
			   key, h->type);
}

/* Keys inside of others count only where the outer one is read. */
static bool is_read(struct hf *h, const struct hf_key *key)
{
	const char *dot = strchr(key->name, '.');
	const struct hf_key *outer;

	if (!dot)
		return key->used;
	outer = key_of(h, arena_strndup(h->im->arena, key->name,
					(size_t)(dot - key->name)));
	return key->used || !outer || !outer->used;
}

static void say_rest(struct hf *h)
{
	for (size_t i = 0; i < h->keys; i++)
		if (!is_read(h, &h->key[i]))
			say_unread(h, h->key[i].name);
}

static void give_keys(struct hf *h)
{
	for (size_t i = 0; i < h->keys; i++) {
		struct hf_key *key = &h->key[i];
		bool used = key->used;
		json_t *value = hf_get(h, key->name);
		const char *word =
			json_is_real(value)
				? arena_printf(h->im->arena, "%.15g",
					       json_real_value(value))
			: value ? word_of(h, value)
				: "null";

		import_give(h->im, key->name, &word, 1, key->line);
		h->im->given[i].read = used;
	}
}

/* Nothing says how long the sequences are: not longer than they may be. */
static void put_length(struct hf *h)
{
	const struct field *length =
		&shape_group.fields[field_find(&shape_group, "seq_length")];
	struct import_setting *most =
		import_get(h->im, "max_position_embeddings");

	if (most && import_int(h->im, "max_position_embeddings", 0) <
			    strtoll(length->initial, NULL, 10))
		import_default(h->im, "seq_length", most->text,
			       "max_position_embeddings");
}

static int translate(struct hf *h)
{
	const struct hf_family *family;

	h->type = hf_text(h, "model_type", NULL);
	if (!h->type)
		return import_give_up(h->im, 0,
				      "no model_type: this is no config.json "
				      "of a model");
	family = hf_family(h->type);
	if (!family) {
		struct import_source from = hf_source(h, "model_type");

		report_add(h->im->report, "import-family", ERROR, "", &from.at,
			   "model_type '%.100s' is none of %s", h->type,
			   hf_families(h->im->arena));
		return err_set(h->im->err, CODE_USAGE,
			       "%s: unknown model_type '%.100s'", h->im->file,
			       h->type);
	}
	put_rows(h, family);
	put_dtype(h);
	family->more(h);
	put_length(h);
	say_rest(h);
	give_keys(h);
	import_default(h->im, "micro_batch_size", "1",
		       "a config.json says nothing of the training");
	return 0;
}

int import_hf(struct import *im, const char *text, size_t len)
{
	struct hf h = {.im = im};
	json_error_t e;
	int bad;

	h.root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (!h.root)
		return import_give_up(im, e.line, "not JSON: %s", e.text);
	if (json_is_object(h.root))
		bad = find_keys(&h, text, len) || translate(&h);
	else
		bad = import_give_up(im, 1, "wants an object { ... }");
	json_decref(h.root);
	return bad ? -1 : 0;
}
