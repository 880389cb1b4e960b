/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which token comes next: the most likely one, or one that is drawn.  What is
 * drawn depends on the logits, the text's number and the token's position
 * alone, so on no layout and on nothing that was drawn before.
 */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct sampler {
	double temperature; /* 0: the most likely token, whatever the rest */
	int64_t top_k;	    /* only the k most likely tokens; 0: all */
	double top_p;	    /* and of these the fewest that have at least this
			       share of their probability; 1: all */
	uint64_t seed;
};

/*
 * The next token by logits (V): softmax(logits / temperature) over the tokens
 * that are left.  Of tokens with the same logit the lower ids come first.
 * WORK has room for sample_work(V) bytes.  -1: no logit is a number, or one is
 * +infinity.
 */
int64_t sample_next(const struct sampler *s, const double *logits, int64_t V,
		    int64_t text, int64_t position, void *work);
size_t sample_work(int64_t V);

/* Uniform in [0, 1), of 53 bits, for this text and position. */
double sample_uniform(uint64_t seed, int64_t text, int64_t position);

#endif
