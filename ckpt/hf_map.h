/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our weights and Hugging Face's tensors: a table of names for each family,
 * and what it says of one model, as runs of rows.
 */
#ifndef CKPT_HF_MAP_H
#define CKPT_HF_MAP_H

#include "lib/plan/shape.h"
#include "lib/plan/weight.h"

/* How a tensor lies in a weight; 0: as it is. */
enum {
	HF_Q = 1, /* the query heads of attn/qkv, all one behind the other */
	HF_K = 2,
	HF_V = 4,
	HF_QKV = HF_Q | HF_K | HF_V, /* the three one behind the other */
	HF_HEAD = 8,		     /* one head, whose channels are rotated */
	HF_TURNED = 16,		     /* (inputs, outputs): GPT-2's Conv1D */
	HF_DEPTHS = 32, /* again in each layer of multi-token prediction */
};

/*
 * OURS and THEIRS have a % where the layer's number stands, of multi-token
 * prediction's too, which go on from the decoder's; a second one in THEIRS is
 * the expert's: each has a tensor of its own.
 */
struct hf_name {
	const char *ours, *theirs;
	int how;
};

struct hf_names {
	const char *type;	  /* model_type */
	const char *architecture; /* what transformers calls it */
	const char *prefix;	  /* that files of the bare model leave out */
	const struct hf_name *const *tables; /* ended by NULL */
	const char *const *ignored; /* their names of what is no weight */
};

/* The family of TYPE, or the one at place I; NULL if there is none. */
const struct hf_names *hf_names(const char *type);
const struct hf_names *hf_names_at(int i);

/* All their types: "gpt2, llama, ..". */
const char *hf_names_all(struct arena *a);

/* Whether NAME is of no weight: masks and tables that are computed. */
bool hf_is_ignored(const struct hf_names *names, const char *name);

/*
 * Rows ROW, ROW + STEP, .. of a weight are the ROWS outputs from AT on of a
 * tensor.
 */
struct hf_piece {
	int tensor;
	int64_t row, step, at, rows;
};

/* A tensor as it lies in a file: of OUTS outputs from INS inputs. */
struct hf_tensor {
	const char *name;
	int weight;
	int copy_of; /* the tensor that it repeats, or -1 */
	int64_t dim[2];
	int ndim;
	bool turned;
	int64_t outs, ins;
	int64_t first, end; /* its pieces; of a copy the other's */
};

struct hf_map {
	struct hf_tensor *tensor;
	int tensors;
	struct hf_piece *piece; /* weight by weight, tensor by tensor */
	int64_t pieces;
	int64_t *weight_first; /* the pieces of each weight, and the end */
	struct arena *arena;
	size_t tensor_cap, piece_cap;
};

/*
 * All tensors of the model S with weights W.  A weight that the family has no
 * name for is an error (CODE_CKPT).
 */
int hf_map_build(struct hf_map *m, const struct hf_names *names,
		 const struct shape *s, const struct weights *w,
		 struct arena *a, struct err *e);

#endif
