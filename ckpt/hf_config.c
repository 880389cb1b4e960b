/* SPDX-License-Identifier: Apache-2.0 */
/* The texts beside the weights: config.json both ways, tokenizers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/hf.h"
#include "ckpt/io.h"
#include "lib/plan/hf_write.h"

static const struct {
	const char *name;
	enum ckpt_dtype type;
	const char *torch;
} dtypes[] = {
	{"F32", CKPT_F32, "float32"},
	{"F64", CKPT_F64, "float64"},
	{"BF16", CKPT_BF16, "bfloat16"},
	{"F16", CKPT_F16, "float16"},
};

enum { DTYPES = sizeof(dtypes) / sizeof(*dtypes) };

bool hf_dtype(const char *name, enum ckpt_dtype *type)
{
	for (int i = 0; i < DTYPES; i++)
		if (!strcmp(dtypes[i].name, name)) {
			*type = dtypes[i].type;
			return true;
		}
	return false;
}

static int dtype_row(enum ckpt_dtype type)
{
	int i = 0;

	while (dtypes[i].type != type)
		i++;
	return i;
}

const char *hf_dtype_name(enum ckpt_dtype type)
{
	return dtypes[dtype_row(type)].name;
}

/* The object in FILE, or NULL. */
static json_t *load(const char *file, struct arena *a)
{
	json_t *root;
	struct err e;
	char *text;

	if (io_read_text(file, HF_CONFIG_MAX, a, &text, &e))
		return NULL;
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(root))
		return root;
	json_decref(root);
	return NULL;
}

/* The family that FILE names, or NULL. */
static const char *family_of(const char *file, struct arena *a)
{
	json_t *root = load(file, a);
	const char *type =
		json_string_value(json_object_get(root, "model_type"));

	type = type ? arena_strdup(a, type) : NULL;
	json_decref(root);
	return type;
}

static int finish(const char *file, struct config *c, struct report *r,
		  struct err *e)
{
	size_t errors;

	shape_finalize(&c->shape);
	shape_check(&c->shape, r);
	errors = report_count(r, ERROR);
	if (!errors)
		return 0;
	return err_set(e, CODE_CONFIG, "%s has %zu error%s", file, errors,
		       plural((long long)errors));
}

int hf_config_read(const char *file, struct config *c,
		   const struct hf_names **names, struct arena *a,
		   struct report *r, struct err *e)
{
	const char *type;

	if (config_load_as(CONFIG_HF, file, NULL, 0, a, c, r, e) ||
	    finish(file, c, r, e))
		return -1;
	type = family_of(file, a);
	*names = type ? hf_names(type) : NULL;
	if (!*names || !weights_known(&c->shape))
		return err_set(e, CODE_CKPT,
			       "%s: the tensors of model_type '%.100s' are not "
			       "known here, those of %s are",
			       file, type ? type : "", hf_names_all(a));
	return 0;
}

/* Two positive numbers, or what blocks are where nothing is said. */
static bool read_block(const json_t *list, int64_t block[2])
{
	block[0] = block[1] = 128;
	if (!list)
		return true;
	for (size_t i = 0; i < 2; i++)
		block[i] = json_integer_value(json_array_get(list, i));
	return json_array_size(list) == 2 && block[0] > 0 && block[1] > 0;
}

int hf_config_block(const char *file, int64_t block[2], struct arena *a,
		    struct err *e)
{
	json_t *root = load(file, a);
	json_t *q = json_object_get(root, "quantization_config");
	const char *method =
		json_string_value(json_object_get(q, "quant_method"));
	int bad = 0;

	if (!read_block(json_object_get(q, "weight_block_size"), block))
		bad = err_set(e, CODE_CKPT,
			      "%s: quantization_config.weight_block_size is "
			      "not two numbers from 1 on",
			      file);
	else if (json_is_object(q) && (!method || strcmp(method, "fp8") != 0))
		bad = err_set(e, CODE_CKPT,
			      "%s: quantization_config.quant_method '%.40s' is "
			      "not known here, only fp8 is",
			      file, method ? method : "");
	json_decref(root);
	return bad;
}

const char *hf_config_difference(const struct shape *theirs,
				 const struct shape *ours, struct arena *a)
{
	struct shape *same = arena_alloc(a, 1, sizeof(*same));

	*same = *ours;
	same->seq_length = theirs->seq_length;
	same->rotary_interleaved = theirs->rotary_interleaved;
	if (ours->multi_latent_attention) { /* has heads of its own */
		same->num_query_groups = theirs->num_query_groups;
		same->kv_channels = theirs->kv_channels;
	}
	if (ours->position_embedding_type != POS_LEARNED)
		same->max_position_embeddings = theirs->max_position_embeddings;
	return head_difference(theirs, same, a);
}

/* What the shape does not know, from the config.json of the import. */
static void keep_ids(json_t *o, const char *old, struct arena *a)
{
	static const char *const ids[] = {"bos_token_id", "eos_token_id",
					  "pad_token_id", "unk_token_id",
					  "sep_token_id"};
	json_t *was = load(old, a);

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
		json_t *id = json_object_get(was, ids[i]);

		if (id)
			json_object_set(o, ids[i], id);
	}
	json_decref(was);
}

static int write_text(const char *path, json_t *o, struct arena *a,
		      struct err *e)
{
	char *text = json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS |
					   JSON_REAL_PRECISION(15));
	int rc;

	json_decref(o);
	if (!text)
		return err_set(e, CODE_LAUNCH, "out of memory");
	rc = io_write_text(path, arena_printf(a, "%s\n", text), e);
	free(text);
	return rc;
}

/*
 * Write the config.json of family NAMES and read it back; *WHY is how that is
 * another model, NULL if it is not one that is known here.
 */
static int try_family(const char *path, const char *old, const struct shape *s,
		      enum ckpt_dtype type, const struct hf_names *names,
		      const char **why, struct arena *a, struct err *e)
{
	struct config *back = arena_alloc(a, 1, sizeof(*back));
	json_t *o = hf_write(names->type, s), *list = json_array();
	struct report r = {.arena = a};
	const struct hf_names *same;

	json_array_append_new(list, json_string(names->architecture));
	json_object_set_new(o, "architectures", list);
	json_object_set_new(o, "torch_dtype",
			    json_string(dtypes[dtype_row(type)].torch));
	keep_ids(o, old, a);
	if (write_text(path, o, a, e))
		return -1;
	*why = hf_config_read(path, back, &same, a, &r, e)
		       ? NULL
		       : hf_config_difference(&back->shape, s, a);
	return 0;
}

int hf_config_write(const char *path, const char *old, const struct shape *s,
		    enum ckpt_dtype type, const struct hf_names **names,
		    struct arena *a, struct err *e)
{
	const char *first = family_of(old, a), *why, *best = NULL, *near = "";
	const struct hf_names *it = first ? hf_names(first) : NULL;

	for (int i = it ? -1 : 0; i < 0 || (it = hf_names_at(i)); i++) {
		*names = it;
		if (try_family(path, old, s, type, it, &why, a, e))
			return -1;
		if (why && !*why)
			return 0;
		/* The shortest difference is that of the nearest family. */
		if (why && (!best || strlen(why) < strlen(best))) {
			best = why;
			near = it->type;
		}
	}
	if (!best)
		return err_set(e, CODE_CKPT, "no family of %s is this model",
			       hf_names_all(a));
	return err_set(
		e, CODE_CKPT,
		"no family of %s is this model; the nearest, %s, differs "
		"in (there / here): %s",
		hf_names_all(a), near, best);
}

static const char *const texts[] = {
	"config.json", /* the first */
	"generation_config.json",
	"tokenizer.json",
	"tokenizer_config.json",
	"tokenizer.model",
	"vocab.json",
	"merges.txt",
	"special_tokens_map.json",
	"added_tokens.json",
	"chat_template.jinja",
};

enum { TEXTS = sizeof(texts) / sizeof(*texts) };

static int copy_texts(const char *from, const char *to, bool config,
		      struct arena *a, struct err *e)
{
	bool any = false;

	for (int i = config ? 0 : 1; i < TEXTS; i++) {
		const char *path = arena_printf(a, "%s/%s", from, texts[i]);

		if (access(path, F_OK))
			continue;
		if (!any && mkdir(to, 0777) && errno != EEXIST)
			return io_failed("create folder", to, e);
		any = true;
		if (io_copy(path, arena_printf(a, "%s/%s", to, texts[i]), e))
			return -1;
	}
	return any ? io_sync_dir(to, e) : 0;
}

int hf_texts_copy(const char *from, const char *to, bool config, struct err *e)
{
	struct arena a = {0};
	int rc;

	if (arena_open(&a, e))
		return -1;
	rc = copy_texts(from, to, config, &a, e);
	arena_close(&a);
	return rc;
}

#define TURN(type)                      \
	for (int64_t i = 0; i < n; i++) \
		((type *)to)[i * to_step] = ((const type *)from)[i * from_step];

void hf_turn(void *to, int64_t to_step, const void *from, int64_t from_step,
	     int64_t n, size_t size)
{
	if (size == 2)
		TURN(uint16_t)
	else if (size == 4)
		TURN(uint32_t)
	else
		TURN(uint64_t)
}
