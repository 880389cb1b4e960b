/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation as data: what a rank runs to continue texts, as lists of ops over
 * planned buffers, the cache of keys and values among them.  train-worker
 * runs them in any order of passes; what is planned is what runs.
 */
#ifndef PLAN_PROG_GEN_H
#define PLAN_PROG_GEN_H

#include "lib/plan/prog.h"

/* What a generation is planned for. */
struct gen_size {
	int64_t slots;	/* texts at a time, on each dp rank */
	int64_t room;	/* tokens of the longest text, prompt included */
	int64_t prompt; /* tokens of the longest prompt */
	bool drafts; /* the depths of multi-token prediction propose tokens */
};

/*
 * One pass takes T more tokens of every slot, from any position on: through
 * the decoder, list[0], and then, if there are drafts, through each depth K,
 * list[K], which finds there what the list before has left.  Tokens behind a
 * text's end may be anything: what they leave in the cache is overwritten when
 * its turn comes, and until then nobody looks there.
 */
struct gen_pass {
	int64_t T;
	struct prog_list list[1 + KERN_DEPTHS];
};

/* Of prompts, and of what is new. */
enum { PASS_PROMPT, PASS_NEXT, PASSES };

struct prog_gen {
	struct gen_size size;
	int depths; /* that draft */
	struct gen_pass pass[PASSES];
	int64_t rows;	    /* of logits of a slot, of list[0]; else 1 */
	int64_t vocab_rows; /* columns of logits on a tp rank */
	bool scores;	    /* this rank has logits */
	/* In FAMILY_HOST, to be written before each list's run: */
	struct ref pos;	 /* int32 (slots): where T tokens begin */
	struct ref pick; /* int32 (slots, rows): which of the slots' tokens,
			    slot * T + t, logits are wanted of */
	struct ref ids;	 /* int32 (1 + depths, slots, T): list[k]'s ids, which
			    are those K places further on */
	/* In FAMILY_ACT, to be read behind it (exec_see): elements (tp, slots,
	 * rows, vocab_rows). */
	struct ref logits;
};

/*
 * The prompts' pass takes as many tokens as the longest prompt has, but no
 * more than this; the other one the next token, or with K depths the last K
 * and K drafts.
 */
enum { GEN_PROMPT_MAX = 256 };

/*
 * Fails (CODE_CONFIG) with the setting of C that train-worker cannot generate
 * with, beside those that are not served at all.
 */
int prog_gen_check(const struct config *c, struct err *e);

/*
 * The lists of the rank that owns IN->slice.  P gets what they share: its
 * families' bytes and rope's table; it has neither gradients nor an optimizer.
 */
int prog_gen_build(struct prog_gen *out, struct prog *p,
		   const struct prog_input *in, const struct gen_size *size,
		   struct arena *a, struct err *e);

#endif
