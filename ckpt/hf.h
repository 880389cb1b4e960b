/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hugging Face's folders (config.json, safetensors, tokenizer) to checkpoints
 * and back, a few megabytes at a time.
 */
#ifndef CKPT_HF_H
#define CKPT_HF_H

#include <jansson.h>

#include "ckpt/hf_map.h"
#include "ckpt/tools.h"

enum {
	/* of a matrix that is stored turned; one that is larger is read
	   again for each such part */
	HF_STRIPE = 64 << 20,
	HF_CONFIG_MAX = 1 << 20,
};

/* Where a checkpoint keeps the texts that came with the model. */
#define HF_FOLDER "hf"

/*
 * What config.json (FILE) says: C's shape, finalised and checked, and the
 * family.  CODE_USAGE: it cannot be read; CODE_CONFIG: findings of R are
 * errors; CODE_CKPT: a model whose tensors are not known here.
 */
int hf_config_read(const char *file, struct config *c,
		   const struct hf_names **names, struct arena *a,
		   struct report *r, struct err *e);

/*
 * Rows and columns of FILE's quantization_config.weight_block_size; 128 of
 * both if it does not say.  CODE_CKPT: they are none, or quant_method is not
 * fp8.
 */
int hf_config_block(const char *file, int64_t block[2], struct arena *a,
		    struct err *e);

/*
 * How the model OURS differs from THEIRS, "" if it does not.  How long
 * sequences are and which channels rotate together may differ: weights are
 * put in order for that.
 */
const char *hf_config_difference(const struct shape *theirs,
				 const struct shape *ours, struct arena *a);

/*
 * Write PATH, the config.json of shape S with weights of TYPE: of the family
 * that OLD (a config.json that need not be there) names, or the first one that
 * can say S.  CODE_CKPT if none can.
 */
int hf_config_write(const char *path, const char *old, const struct shape *s,
		    enum ckpt_dtype type, const struct hf_names **names,
		    struct arena *a, struct err *e);

/*
 * Copy what there is of tokenizer files, generation_config.json and, with
 * CONFIG, config.json from folder FROM to folder TO, which is made if there is
 * any, and sync it.
 */
int hf_texts_copy(const char *from, const char *to, bool config, struct err *e);

/* N elements of SIZE (2, 4, 8), so many apart, to where they are so many. */
void hf_turn(void *to, int64_t to_step, const void *from, int64_t from_step,
	     int64_t n, size_t size);

/* What safetensors call a type ("BF16") is TYPE; false: it is none of ours. */
bool hf_dtype(const char *name, enum ckpt_dtype *type);
const char *hf_dtype_name(enum ckpt_dtype type);

/*
 * Write the model of folder DIR as step 0 of the run RUN_DIR: weights alone,
 * whole or not at all, in the widest of the types that its files have.
 * CONFIG (may be NULL) is a config of ours whose shape is recorded instead; it
 * must be the same model.  FORCE and RUN_DIR are as for ckpt_reshard.
 */
int ckpt_import_hf(const char *dir, const char *config, const char *run_dir,
		   bool force, const struct ckpt_watch *watch, struct arena *a,
		   struct report *r, struct err *e);

/*
 * Write the weights of C as the folder DIR, which must be empty if it is
 * there, in files of at most SHARD bytes (but at least a tensor); whole or not
 * at all.  All of C is read, its checksums compared.
 */
int ckpt_export_hf(struct ckpt *c, const char *dir, int64_t shard,
		   const struct ckpt_watch *watch, struct err *e);

#endif
