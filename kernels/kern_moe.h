/* SPDX-License-Identifier: Apache-2.0 */
/* What a router decides by, and where tokens go: a part of kern.h. */
#ifndef KERNELS_KERN_MOE_H
#define KERNELS_KERN_MOE_H

#include <stdbool.h>
#include <stdint.h>

/* Of the router's logits; the derivative of the last is sigmoid(x) / 2s. */
enum kern_score {
	KERN_SOFTMAX,
	KERN_SIGMOID,
	KERN_SQRTSOFTPLUS /* the root of log(1 + e^x) */
};

/* Experts of a layer, at most. */
enum { KERN_EXPERTS = 4096 };

/*
 * A router: model-numerics 2.9.  A token goes to the K experts with the
 * largest logits, equal ones by their number; with a bias, with the largest
 * sums of it and their score.  If GROUP_TOPK, it goes only to experts of that
 * many of GROUPS groups, those with the largest sums of their K / GROUP_TOPK
 * best scores (with their bias; of logits, with a softmax afterwards).  The
 * chosen experts' probabilities are SCALE times: a softmax over their logits;
 * or, PRE, their part of a softmax over all; or their scores, divided by the
 * sum of the chosen ones' (+ 1e-20) if K > 1.
 *
 * Losses of a micro-batch, where P are all scores divided by their sum, and
 * c(e) how many tokens would go to expert e if there were no groups and no
 * bias:
 *   AUX      E / (K M^2) sum over n, e of c(e) P(n, e)
 *   SEQ_AUX  the same in each sample, of T tokens, and their mean
 *   GLOBAL   AUX with the c(e) of a step's micro-batches so far, on all ranks,
 *            as if it were one micro-batch
 *   Z        the mean of the squares of log sum exp logits
 */
struct kern_moe_dims {
	int64_t M, T, E, K; /* M tokens of a micro-batch */
	enum kern_score score;
	bool pre; /* of KERN_SOFTMAX */
	double scale;
	int64_t groups, group_topk;	/* 0: no limit */
	double aux, seq_aux, global, z; /* coefficients */
	/*
	 * The N tokens are those of the RANKS that deal out the experts, a
	 * micro-batch each; number ME is this rank's, and experts FIRST ..
	 * FIRST + EXPERTS.
	 */
	int64_t ranks, me, first, experts;
	/* An expert takes so many tokens of a micro-batch: the most probable
	 * ones, or the first; 0: all. */
	int64_t capacity;
	bool by_position;
	/* Of a bias: its step, and how many of a step's tokens go to an
	 * expert in the mean. */
	double bias_rate, fair;
	/*
	 * Sinkhorn: a token goes to the experts with the largest logits plus
	 * log w(e), where w makes all experts equally likely for its
	 * micro-batch.
	 */
	bool sinkhorn;
};

/*
 * Where tokens go, as one array of int32: the expert of each choice (N, K);
 * its row among the rows of this rank's experts (N, K), -1 if it has none;
 * the row behind each of these experts' last (EXPERTS); and c(e) of each
 * sample (N / T, E).
 */
struct kern_map {
	int32_t *expert, *row, *end, *load;
};

static inline struct kern_map kern_map(int32_t *at,
				       const struct kern_moe_dims *d)
{
	int64_t choices = d->ranks * d->M * d->K;
	struct kern_map m = {at, at + choices, at + 2 * choices,
			     at + 2 * choices + d->experts};

	return m;
}

static inline int64_t kern_map_size(const struct kern_moe_dims *d)
{
	int64_t N = d->ranks * d->M;

	return 2 * N * d->K + d->experts + N / d->T * d->E;
}

/* The legend's R. */
static inline int64_t kern_moe_rows(const struct kern_moe_dims *d)
{
	int64_t each = d->K < d->experts ? d->K : d->experts;
	int64_t rows = d->M * each, most = d->experts * d->capacity;

	return d->ranks * (d->capacity && most < rows ? most : rows);
}

#endif
