/* SPDX-License-Identifier: Apache-2.0 */
/* One table of facts per weight of the whole model, free of any layout. */
#ifndef PLAN_WEIGHT_H
#define PLAN_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/arena.h"

struct shape;

/* What a weight is in its layer. */
enum part {
	PART_EMBED_TOK,
	PART_EMBED_POS,
	PART_ATTN_NORM_W,
	PART_ATTN_NORM_B,
	PART_QKV_W, /* rows by group: its query heads, then k, then v */
	PART_QKV_B,
	PART_PROJ_W,
	PART_PROJ_B,
	PART_MLP_NORM_W,
	PART_MLP_NORM_B,
	PART_FC1_W, /* not gated; else gate and up are two weights */
	PART_FC1_B,
	PART_GATE_W,
	PART_GATE_B,
	PART_UP_W,
	PART_UP_B,
	PART_FC2_W,
	PART_FC2_B,
	PART_FINAL_NORM_W,
	PART_FINAL_NORM_B,
	PART_HEAD_W,
	PARTS
};

/* How tensor parallelism cuts it. */
enum split {
	SPLIT_NONE,  /* a whole copy on every rank */
	SPLIT_ROWS,  /* axis 0 */
	SPLIT_COLS,  /* axis 1 */
	SPLIT_VOCAB, /* axis 0, in equal shares of the padded vocabulary */
	SPLIT_QKV,   /* axis 0 by heads; k and v copied when TP > groups */
};

/* How it starts: normal with a standard deviation, or a constant. */
enum init {
	INIT_NORMAL,	 /* init_method_std */
	INIT_NORMAL_OUT, /* init_method_std / sqrt(2 num_layers) */
	INIT_NORMAL_EMBED,
	INIT_ONE, /* gains; zero when they are zero-centred */
	INIT_ZERO,
};

struct weight {
	const char *name; /* on disk, and the key of its randomness */
	enum part part;
	int64_t layer;	/* global decoder layer, or -1 */
	int64_t dim[2]; /* logical; a vector has dim[1] = 1 and ndim 1 */
	int ndim;
	enum split split;
	enum init init;
	bool decay; /* weight decay applies: matrices, not vectors */
	/*
	 * A whole copy whose gradient each rank has only for its own tokens
	 * under sequence parallelism, and so is summed over tp.
	 */
	bool token_partial;
};

struct weights {
	struct weight *list; /* in the order of the model */
	int count;
	int *layer_first; /* [num_layers]: the first one of each layer */
};

void weights_build(struct weights *out, const struct shape *s, struct arena *a);

/* The weight PART of LAYER (-1: not in a layer), or -1 if there is none. */
int weights_find(const struct weights *w, enum part part, int64_t layer);

int64_t weight_elements(const struct weight *w);

#endif
