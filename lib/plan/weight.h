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
	PART_ENORM_W, /* of a multi-token prediction layer: of the embedding, */
	PART_ENORM_B,
	PART_HNORM_W, /* of the hidden state, */
	PART_HNORM_B,
	PART_EH_PROJ_W, /* and the projection (C, 2C) of the two */
	PART_ATTN_NORM_W,
	PART_ATTN_NORM_B,
	PART_QKV_W, /* rows by group: its query heads, then k, then v */
	PART_QKV_B,
	PART_Q_DOWN_W, /* latent attention: to the compressed query, */
	PART_KV_DOWN_W, /* and to the compressed k and v, then shared positions */
	PART_Q_UP_W, /* rows by head; without compression of the hidden state */
	PART_KV_UP_W,  /* rows by head: k without positions, then v */
	PART_Q_NORM_W, /* of heads, or latent attention's of the compressed */
	PART_Q_NORM_B,
	PART_K_NORM_W,
	PART_K_NORM_B,
	PART_SINK, /* of heads */
	PART_PROJ_W,
	PART_PROJ_B,
	PART_ATTN_LINEAR_W, /* (C, C) in the place of attention, */
	PART_ATTN_LINEAR_B,
	PART_MLP_NORM_W,
	PART_MLP_NORM_B,
	PART_MLP_LINEAR_W, /* and of the mlp */
	PART_MLP_LINEAR_B,
	PART_FC1_W, /* not gated; else gate and up are two weights */
	PART_FC1_B,
	PART_GATE_W,
	PART_GATE_B,
	PART_UP_W,
	PART_UP_B,
	PART_FC2_W,
	PART_FC2_B,
	PART_ROUTER_W,
	PART_ROUTER_B,
	PART_EXPERT_BIAS, /* steers a router's choice */
	PART_EXPERT_FC1_W,
	PART_EXPERT_FC1_B,
	PART_EXPERT_GATE_W,
	PART_EXPERT_GATE_B,
	PART_EXPERT_UP_W,
	PART_EXPERT_UP_B,
	PART_EXPERT_FC2_W,
	PART_EXPERT_FC2_B,
	PART_SHARED_ROUTER_W, /* how much of the expert that every token visits */
	PART_SHARED_FC1_W,
	PART_SHARED_FC1_B,
	PART_SHARED_GATE_W,
	PART_SHARED_GATE_B,
	PART_SHARED_UP_W,
	PART_SHARED_UP_B,
	PART_SHARED_FC2_W,
	PART_SHARED_FC2_B,
	PART_FINAL_NORM_W, /* the decoder's; also of each MTP layer */
	PART_FINAL_NORM_B,
	PART_HEAD_W,
	PARTS
};

/*
 * Who reduces its gradients and shares its optimizer state: dense weights the
 * ranks of dp x cp, experts those of edp.  tp cuts dense weights; ep deals out
 * whole experts and etp cuts each of them.
 */
enum weight_class { CLASS_DENSE, CLASS_EXPERT, CLASSES };

/* How tensor parallelism cuts it (each expert of a stack by itself). */
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

/*
 * A layer's global number: decoder layers from 0, then the layers of
 * multi-token prediction (one for all depths if they repeat it).
 */
struct weight {
	const char *name; /* on disk, and the key of its randomness */
	enum part part;
	enum weight_class cls;
	int64_t layer;	 /* global number, or -1 */
	int64_t experts; /* of a stack: all rows of the first, then ..; or 1 */
	int64_t dim[2];	 /* logical; a vector has dim[1] = 1 and ndim 1 */
	int ndim;
	enum split split;
	enum init init;
	bool decay; /* weight decay applies: matrices, not vectors */
	/*
	 * An expert bias: no parameter.  Its gradient counts tokens, which the
	 * step's end moves it by; no norm has them, AdamW leaves it alone.
	 */
	bool counts;
	/*
	 * A whole copy whose gradient each rank has only for its own tokens
	 * under sequence parallelism, and so is summed over tp.
	 */
	bool token_partial;
	/* The same for its own heads, under any tensor parallelism. */
	bool head_partial;
};

struct weights {
	struct weight *list; /* in the order of the model */
	int count;
	int64_t layers;	  /* shape_layers */
	int *layer_first; /* [layers]: the first one of each layer */
};

/*
 * Whether the weights of S are known: not those of linear and sparse attention
 * and its gates, of hyper-connections and latent experts, which only
 * shape_parameters counts so far.
 */
bool weights_known(const struct shape *s);

/* Only of known weights. */
void weights_build(struct weights *out, const struct shape *s, struct arena *a);

/* The weight PART of LAYER (-1: not in a layer), or -1 if there is none. */
int weights_find(const struct weights *w, enum part part, int64_t layer);

int64_t weight_elements(const struct weight *w);

#endif
