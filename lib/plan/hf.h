/* SPDX-License-Identifier: Apache-2.0 */
/* A config.json that is being translated, and the families that are known. */
#ifndef PLAN_HF_H
#define PLAN_HF_H

#include <jansson.h>

#include "lib/plan/import_set.h"

/* A key of the top, or "parent.key" one level below. */
struct hf_key {
	const char *name;
	int line;
	bool used;
};

struct hf {
	struct import *im;
	const struct import_source *from; /* of all keys, or NULL */
	json_t *root;
	const char *type; /* model_type */
	struct hf_key *key;
	size_t keys, cap;
};

/* A key that is a setting of ours. */
struct hf_row {
	const char *key, *field;
	const char *missing; /* what the family takes if it is not there */
};

struct hf_constant {
	const char *field, *value;
};

struct hf_family {
	const char *type;
	const struct hf_row *rows;
	const struct hf_constant *constants; /* of every model of the family */
	void (*more)(struct hf *h);	     /* what no table can say */
};

/* The family of model_type TYPE, or NULL. */
const struct hf_family *hf_family(const char *type);

/* All their names: "gpt2, llama, ...". */
const char *hf_families(struct arena *a);

/* The value of NAME ("rope_scaling.factor"), which counts as read, or NULL. */
json_t *hf_get(struct hf *h, const char *name);

/* Number, truth or word of NAME, or OTHERWISE. */
int64_t hf_int(struct hf *h, const char *name, int64_t otherwise);
double hf_real(struct hf *h, const char *name, double otherwise);
bool hf_true(struct hf *h, const char *name, bool otherwise);
const char *hf_text(struct hf *h, const char *name, const char *otherwise);

/* The scalar NAME as the word that a file would have, or NULL. */
const char *hf_word(struct hf *h, const char *name);

/* Where NAME stands. */
struct import_source hf_source(struct hf *h, const char *name);

/* NAME is FIELD of ours; an error if there is no such setting. */
void hf_put(struct hf *h, const char *name, const char *field);

/* FIELD is VALUE because NAME says so; an error if there is no such setting. */
void hf_say(struct hf *h, const char *name, const char *field,
	    const char *value);

/* The same, where a missing setting changes training, not the model. */
void hf_say_run(struct hf *h, const char *name, const char *field,
		const char *value);

/* NAME asks for what has no setting here. */
void hf_cannot(struct hf *h, const char *name, const char *what);

/* A list of integers as a setting's text. */
const char *hf_ints(struct hf *h, const int64_t *item, int count);

/* Names that are read but say nothing new. */
void hf_skip(struct hf *h, const char *const *names);

void hf_gpt2(struct hf *h);
void hf_llama(struct hf *h);
void hf_mistral(struct hf *h);
void hf_mixtral(struct hf *h);
void hf_qwen(struct hf *h);
void hf_qwen_moe(struct hf *h);
void hf_deepseek(struct hf *h);
void hf_nemotron(struct hf *h);

/* The sizes of block_configs, where the sizes of the model are set already. */
void hf_blocks(struct hf *h);

#endif
