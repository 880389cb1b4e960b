/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ops of a generation are others than those of a step. */
#include "lib/plan/prog_gen_build.h"

void gen_positions(struct build *b, struct ref x, struct ref pos)
{
	emit(b, OP_POS_AT, KIND_FORWARD, REFS(x, pos, b->gen->out->pos),
	     DIMS(b->B, b->T, b->C,
		  b->in->config->shape.max_position_embeddings, b->depth));
}

static void emit_rope(struct build *b, const struct kern_attn_dims *dims,
		      struct ref qkv)
{
	emit(b, OP_ROPE_AT, KIND_FORWARD,
	     REFS(qkv, b->out->rope, b->gen->out->pos),
	     DIMS(b->out->rope_half, b->in->config->shape.rotary_interleaved,
		  b->gen->room))
		->attn = dims;
}

void gen_latent(struct build *b, const struct buf *qkv, const struct buf *query,
		const struct buf *kv, const struct buf *shared, int64_t width)
{
	emit(b, OP_LATENT_AT, KIND_FORWARD,
	     REFS(buf_ref(qkv), buf_ref(query), buf_ref(kv), buf_ref(shared),
		  b->out->rope, b->gen->out->pos),
	     DIMS(width, b->out->rope_half, b->gen->room))
		->attn = b->attn[0];
}

void gen_attention(struct build *b, const struct kern_attn_dims *dims,
		   bool turns, struct layer_saved *v)
{
	const struct cache_room *c = &b->gen->cache[b->drawn_for];
	struct op *op;

	if (turns)
		emit_rope(b, dims, buf_ref(&v->qkv));
	v->o = buf_new(b, FAMILY_ACT, b->N * b->H * b->Dv);
	v->lse = NO_BUF;
	op = emit(b, OP_ATTN_AT, KIND_FORWARD,
		  REFS(buf_ref(&v->o), buf_ref(&c->keys), buf_ref(&c->values),
		       buf_ref(&v->qkv), b->gen->out->pos,
		       buf_ref(&b->attn_scratch)),
		  DIMS(b->gen->room));
	op->attn = dims;
	op->flops = 2 * (double)b->N * (double)b->gen->room *
		    (double)(b->H * (b->D + b->Dv));
}
