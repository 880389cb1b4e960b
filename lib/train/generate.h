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

/* Called before each run of a list; whether this rank was asked to stop. */
struct gen_hook {
	void *arg;
	bool (*run)(void *arg);
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
 * Go on with PROMPTS by T, opened for G, together with all ranks.  Rank 0
 * prints a line of JSON on stdout for each, in their order, as soon as it can,
 * and logs how fast it went.  *STOPPED: some rank was asked to, and texts are
 * missing.  Fails (CODE_NUMERIC) for logits that are not finite.
 */
int gen_run(struct trainer *t, const struct prog_gen *g,
	    const struct prompts *prompts, const struct gen_options *opt,
	    const struct gen_hook *hook, bool *stopped, struct arena *a,
	    struct err *e);

#endif
