/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the model that one rank owns, as boxes of logical weights. */
#ifndef PLAN_SLICE_H
#define PLAN_SLICE_H

#include "lib/plan/bucket.h"
#include "lib/plan/grid.h"
#include "lib/plan/stage.h"
#include "lib/plan/weight.h"

/* A rectangle of a logical weight: half-open, vectors have cnt[1] = 1. */
struct box {
	int64_t off[2], cnt[2];
};

int64_t box_elements(const struct box *b);

/*
 * A box of a weight as it lies in a rank's memory: row-major and contiguous,
 * AT elements from the start of the rank's flat parameter buffer (and at the
 * same place in the gradients).
 */
struct piece {
	int weight; /* its row in the weight table */
	struct box box;
	int64_t at;
	int replica; /* 0: the one copy that counts (norm, checkpoint) */
};

/* One local array, as the kernels see it: one or more pieces, one below the
 * other, and in the vocabulary's last share rows of padding. */
struct param {
	/* gate and up share FC1, expert by expert */
	enum part part;
	int64_t layer; /* global number, or -1 */
	int chunk;     /* vp */
	enum weight_class cls;
	int64_t rows, cols;
	int64_t at; /* elements from the start of the flat buffer */
	int first_piece, pieces;
	bool decay;
	bool counts;	    /* an expert bias: weight.h */
	bool sum_tp;	    /* gradient summed over tp */
	int64_t kv_row;	    /* rows from here are copies of k and v on */
	bool sum_kv;	    /* consecutive tp ranks: summed */
	int kv_copies;	    /* tp ranks with the same */
	bool sum_embedding; /* one of the copies of the word embedding */
	bool sum_positions; /* one of the copies of the learned positions */
};

/* One class's part of the flat buffers, and who shares it. */
struct flat {
	struct buckets buckets;
	int dp; /* ranks that share it: dp * cp, or edp */
	int d;	/* this rank's place among them */
};

struct slice {
	struct coord at;
	struct param *param;
	int params;
	int *layer_first; /* [layers]: the first param of each, or -1 */
	struct piece *piece;
	int pieces;
	struct flat flat[CLASSES]; /* one behind the other */
	int64_t elements; /* of the flat buffer: padding and copies included */
	int64_t own;	  /* of them in this rank's shards */
	/*
	 * Consecutive tp ranks that exchange gradients of copies of k and v:
	 * the least multiple of all layers' kv_copies, >= 1.
	 */
	int kv_ranks;
	int sharding; /* enum place_sharding */
};

/* Whether a rank keeps optimizer state for its own shards only. */
bool slice_shards_optim(const struct slice *s);

/*
 * What the rank at coordinates AT owns, over all its virtual stages.  The
 * config must have passed its checks.
 */
void slice_build(struct slice *out, const struct shape *s,
		 const struct place *p, const struct grid *g,
		 const struct stages *stages, const struct weights *w,
		 struct coord at, struct arena *a);

/* The tp ranks that hold the same k and v of LAYER, >= 1. */
int slice_kv_copies(const struct shape *s, const struct grid *g, int64_t layer);

/* The param PART of LAYER in CHUNK, or NULL. */
const struct param *slice_find(const struct slice *s, enum part part,
			       int64_t layer, int chunk);

/*
 * The intervals of the flat buffer that the optimizer of this rank updates:
 * its share of each bucket (also without ZeRO-1, where every rank of the
 * group updates everything but counts and saves only its share).
 */
int slice_shards(const struct slice *s, int64_t (**interval)[2],
		 struct arena *a);

#endif
