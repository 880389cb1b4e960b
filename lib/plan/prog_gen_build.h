/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of prog_gen_build share; private to lib/plan/prog*.c. */
#ifndef PLAN_PROG_GEN_BUILD_H
#define PLAN_PROG_GEN_BUILD_H

#include "lib/plan/prog_build.h"
#include "lib/plan/prog_gen.h"

/* A layer's keys and values, (slots, G, room, D) each. */
struct cache_room {
	struct buf keys, values;
};

struct gen_build {
	struct prog_gen *out;
	int64_t room;
	int depths;
	struct cache_room *cache; /* by layer, then depth: b->drawn_for */
};

/* Experts take every token that wants them, whatever the batch. */
void gen_keep_all(struct build *b);
/* The learned positions POS of X's rows. */
void gen_positions(struct build *b, struct ref x, struct ref pos);
/* From qkv to o: rope, if TURNS, and attention to the cache. */
void gen_attention(struct build *b, const struct kern_attn_dims *dims,
		   bool turns, struct layer_saved *v);

#endif
