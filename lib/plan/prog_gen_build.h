/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of prog_gen_build share; private to lib/plan/prog*.c. */
#ifndef PLAN_PROG_GEN_BUILD_H
#define PLAN_PROG_GEN_BUILD_H

#include "lib/plan/prog_build.h"
#include "lib/plan/prog_gen.h"

/* A layer's keys (slots, G, room, D) and values (slots, G, room, Dv). */
struct cache_room {
	struct buf keys, values;
};

struct gen_build {
	struct prog_gen *out;
	int64_t room;
	int depths;
	struct cache_room *cache; /* by layer, then depth: b->drawn_for */
};

/* The learned positions POS of X's rows. */
void gen_positions(struct build *b, struct ref x, struct ref pos);
/* QKV of latent attention, whose keys share WIDTH columns. */
void gen_latent(struct build *b, const struct buf *qkv, const struct buf *query,
		const struct buf *kv, const struct buf *shared, int64_t width);
/* From qkv to o: rope, if TURNS, and attention to the cache. */
void gen_attention(struct build *b, const struct kern_attn_dims *dims,
		   bool turns, struct layer_saved *v);

#endif
