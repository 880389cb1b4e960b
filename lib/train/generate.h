/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that go on from prompts, token by token.  Every rank knows all texts
 * of all dp ranks: after each pass the last stage's ranks tell the tokens that
 * came next, so all agree on what comes then, and no result depends on the
 * layout, on how many texts run at a time, or on drafts.
 */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include "lib/train/prompts.h"
#include "lib/train/sample.h"
#include "lib/train/trainer.h"

struct gen_options {
	int64_t more; /* new tokens of each text, at most */
	struct sampler sampler;
	int64_t end; /* this token ends a text; -1: none does */
	/* the depths of multi-token prediction propose tokens, as many as
	 * there are, and the decoder judges them in one pass */
	bool speculative;
};

/* What was made of a prompt. */
struct gen_text {
	int64_t prompt;	    /* its number, from 1 */
	const int32_t *ids; /* new tokens */
	int64_t count;
	bool ended; /* by the token that ends one */
	int64_t drafts, accepted;
};

struct gen_hooks {
	void *arg;
	/* Before each run of a list: whether this rank was asked to stop. */
	bool (*run)(void *arg);
	/* On rank 0, in the order of the prompts, as soon as it can be. */
	int (*text)(void *arg, const struct gen_text *x, struct err *e);
};

/* What it took. */
struct gen_sum {
	int64_t texts, tokens; /* new ones */
	int64_t passes, drafts, accepted;
	bool stopped; /* some rank was asked to: texts are missing */
};

/*
 * What WORLD ranks are to be planned for: run.micro_batch_size texts at a time
 * on each, or fewer where there are no more.  Fails (CODE_CONFIG) for a world
 * that does not fit, or (CODE_USAGE) if OPT wants what the model has not.
 */
int gen_plan(struct gen_size *out, const struct config *c, int world,
	     const struct prompts *prompts, const struct gen_options *opt,
	     struct err *e);

/*
 * Go on with PROMPTS by T, opened for G, together with all ranks.  Fails
 * (CODE_NUMERIC) for logits that are not finite, and as the hooks do.
 */
int gen_run(struct trainer *t, const struct prog_gen *g,
	    const struct prompts *prompts, const struct gen_options *opt,
	    const struct gen_hooks *hooks, struct gen_sum *sum, struct arena *a,
	    struct err *e);

/*
 * X as a line of JSON on stdout: its ids, if BYTES as text too, and what came
 * of drafts if there were to be any.
 */
int gen_print(const struct gen_text *x, bool bytes, bool drafts,
	      struct arena *a, struct err *e);

#endif
