/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with sizes of their own as Megatron's command line has them: JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/hf.h"
#include "lib/plan/import_megatron.h"

/* What the JSON and the flags both say must be the same. */
static const struct {
	const char *key, *field;
} both[] = {
	{"num_hidden_layers", "num_layers"},
	{"hidden_size", "hidden_size"},
	{"num_attention_heads", "num_attention_heads"},
	{"tie_word_embeddings", "share_embeddings_and_output_weights"},
	{"rope_theta", "rotary_base"},
	{"rope_scaling.factor", "rope_scaling_factor"},
	{"hidden_act", "activation_func"},
};

/* And this is how such layers are. */
static const struct hf_constant all[] = {
	{"gated_linear_unit", "true"}, {"activation_func", "silu"},
	{"normalization", "RMSNorm"},  {"position_embedding_type", "rope"},
	{"rotary_percent", "1"},       {"rope_scaling", "true"},
};

/* The value of FIELD so far, without quotes. */
static const char *value_of(struct import *im, const char *field)
{
	const struct import_setting *s = import_get(im, field);
	int group, row;
	const struct field *f = import_field(field, &group, &row);
	const char *text = s ? s->text : f->initial;

	if (!text)
		return "unset";
	if (*text != '"')
		return text;
	return arena_strndup(im->arena, text + 1, strlen(text) - 2);
}

/* Whether two texts say the same word, or the same number. */
static bool same(const char *a, const char *b)
{
	char *end_a, *end_b;
	double x = strtod(a, &end_a), y = strtod(b, &end_b);

	if (end_a == a || end_b == b)
		return !strcmp(a, b);
	return fabs(x - y) <= 1e-12 * fabs(x);
}

static bool wrong(struct hf *h, const char *field, const char *wanted)
{
	report_add(h->im->report, "import-blocks", ERROR, "", &h->from->at,
		   "%s is %.40s, but layers with sizes of their own want "
		   "%.40s",
		   field, value_of(h->im, field), wanted);
	return false;
}

/* Whether the flags say of the model what the JSON says. */
static bool agrees(struct hf *h)
{
	bool good = true;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!same(value_of(h->im, all[i].field), all[i].value))
			good = wrong(h, all[i].field, all[i].value);
	for (size_t i = 0; i < sizeof(both) / sizeof(*both); i++) {
		const char *word = hf_word(h, both[i].key);

		if (word && !same(value_of(h->im, both[i].field), word))
			good = wrong(h, both[i].field, word);
	}
	return good;
}

void import_blocks(struct import *im, const struct flag *flag)
{
	struct import_source from = import_source(im, flag);
	struct hf h = {.im = im, .from = &from};
	json_error_t e;

	h.root = json_loads(flag->values == 1 ? flag->value[0] : "",
			    JSON_REJECT_DUPLICATES, &e);
	if (!json_is_object(h.root))
		report_add(im->report, "import-value", ERROR, "", &from.at,
			   "%s wants an object { ... } of JSON%s%s", from.what,
			   h.root ? "" : ": ", h.root ? "" : e.text);
	else if (agrees(&h))
		hf_blocks(&h);
	json_decref(h.root);
}
