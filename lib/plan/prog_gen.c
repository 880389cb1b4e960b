/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/prog_gen.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/attn_plan.h"
#include "lib/plan/place.h"
#include "lib/plan/prog_build.h"
#include "lib/plan/prog_gen_build.h"

/*
 * A pass of more tokens, or choices of experts, is beyond the kernels' int32;
 * a cache of more tokens, times the widest layer, beyond 63 bits.
 */
enum { TOKENS_MAX = 1 << 24, CHOICES_MAX = 1 << 28 };
#define CACHE_MAX ((int64_t)1 << 32)

static int check_size(const struct prog_input *in, const struct gen_size *size,
		      struct err *e)
{
	const struct shape *s = &in->config->shape;
	int64_t choices =
		s->num_moe_experts ? s->moe_router_topk * in->grid->ep : 1;
	int64_t most = TOKENS_MAX / GEN_PROMPT_MAX;

	if (most > CHOICES_MAX / GEN_PROMPT_MAX / choices)
		most = CHOICES_MAX / GEN_PROMPT_MAX / choices;
	if (most > CACHE_MAX / size->room)
		most = CACHE_MAX / size->room;
	if (size->slots <= most)
		return 0;
	return err_set(e, CODE_CONFIG,
		       "run.micro_batch_size: %" PRId64 " texts of %" PRId64
		       " tokens at a time are too many to plan: at most "
		       "%" PRId64,
		       size->slots, size->room, most);
}

int prog_gen_check(const struct config *c, struct err *e)
{
	if (c->place.context_parallel_size == 1)
		return 0;
	return err_set(e, CODE_CONFIG,
		       "--generate does not run yet: a "
		       "place.context_parallel_size above 1");
}

/* The depths of stages before this one. */
static int depths_before(const struct build *b)
{
	const struct stage *st = b->in->stages->stage;
	int n = 0;

	for (; st < b->stage; st++)
		n += (int)st->mtp_layers;
	return n;
}

/* Room for a layer's keys and values; depths have their own. */
static void cache_room(struct build *b, int64_t layer)
{
	int64_t n;

	b->layer = layer;
	if (shape_layer_groups(&b->in->config->shape, layer) < 1)
		return;
	layer_dims(b);
	n = b->B * b->G * b->gen->room;
	b->gen->cache[layer] =
		(struct cache_room){buf_new(b, FAMILY_ACT, n * b->D),
				    buf_new(b, FAMILY_ACT, n * b->Dv)};
}

/* Of all layers of this rank. */
static void cache_rooms(struct build *b)
{
	const struct stages *st = b->in->stages;
	int64_t layers = b->in->config->shape.num_layers;

	b->gen->cache = arena_alloc(b->a, (size_t)(layers + b->out->depths + 1),
				    sizeof(*b->gen->cache));
	for (int i = b->in->slice->at.pp; i < st->count; i += st->pp) {
		b->stage = &st->stage[i];
		for (int64_t n = 0; n < b->stage->num_layers; n++)
			cache_room(b, b->stage->first_layer + n);
		for (int64_t n = 0; n < b->stage->mtp_layers && b->gen->depths;
		     n++)
			cache_room(b, layers + depths_before(b) + n);
	}
}

/* Logits of the rows of H that are picked, of every tp rank. */
static void logits(struct build *b, const struct buf *h)
{
	struct gen_build *g = b->gen;
	int64_t rows = b->B * (b->depth ? 1 : g->out->rows);
	int64_t V = g->out->vocab_rows;
	struct buf y = buf_new(b, FAMILY_ACT, rows * b->C), mine;
	struct ref to = g->out->logits;

	emit(b, OP_EMBED_FWD, KIND_FORWARD,
	     REFS(buf_ref(&y), g->out->pick, buf_ref(h)),
	     DIMS(rows, b->C, 0, b->N));
	mine = b->tp > 1 ? buf_new(b, FAMILY_ACT, rows * V) : NO_BUF;
	emit(b, OP_LINEAR_FWD, KIND_FORWARD,
	     REFS(b->tp > 1 ? buf_ref(&mine) : to, buf_ref(&y), head_weight(b),
		  NO_REF),
	     DIMS(rows, V, b->C))
		->flops = 2.0 * (double)rows * (double)V * (double)b->C;
	if (b->tp > 1)
		emit_collective(b, PROG_ALL_GATHER, GROUP_TP, TYPE_ELEM,
				buf_ref(&mine), to, rows * V);
	buf_free(b, &mine);
	buf_free(b, &y);
}

static void send_on(struct build *b, const struct buf *x)
{
	emit_wait(b, stage_send(b, x, false));
}

/* This stage's layers; the state behind the final norm, if it is here. */
static struct buf decode(struct build *b)
{
	const struct stage *st = b->stage;
	struct stream s = {.owned = true, .branch = NO_BUF, .bias = NO_REF};
	struct buf h, stat;

	/* a later one may have an embedding, too: for its depths */
	s.x = st == b->in->stages->stage ? embed_forward(b)
					 : stage_receive(b, false);
	for (int64_t n = 0; n < st->num_layers; n++) {
		struct layer_saved v = {0};

		b->layer = b->drawn_for = st->first_layer + n;
		layer_forward(b, &s, &v);
	}
	b->layer = -1;
	if (!st->final_norm) {
		stream_settle(b, &s);
		send_on(b, &s.x);
		buf_free(b, &s.x);
		return NO_BUF;
	}
	h = stream_norm(b, &s, PART_FINAL_NORM_W, PART_FINAL_NORM_B, &stat);
	buf_free(b, &s.x);
	buf_free(b, &stat);
	return h;
}

/* Depth b->depth, from the state of the one before. */
static struct buf predict(struct build *b, struct buf before)
{
	struct depth_saved d = {0};
	struct buf h = depth_state(b, &d, before);

	buf_free(b, &d.enorm.x);
	buf_free(b, &d.enorm.stat);
	buf_free(b, &d.hstat);
	buf_free(b, &d.z);
	buf_free(b, &d.last.x);
	buf_free(b, &d.last.stat);
	b->layer = -1;
	return h;
}

/*
 * What list b->depth does on one stage.  A state goes on from where it is
 * made to the last stage, which scores it; each stage on the way keeps it for
 * the depth after.
 */
static void on_stage(struct build *b, struct buf *h)
{
	const struct stage *st = b->stage;
	int first = depths_before(b) + 1;

	b->layer = -1;
	if (!b->depth && !stage_gets_states(b))
		h[0] = decode(b);
	else if (!stage_gets_states(b) && !st->final_norm)
		return;
	else if (!b->depth || b->depth < first)
		h[b->depth] = stage_receive(b, false);
	else if (b->depth < first + st->mtp_layers)
		h[b->depth] = predict(b, h[b->depth - 1]);
	if (h[b->depth].family < 0)
		return;
	if (st->loss)
		logits(b, &h[b->depth]);
	else
		send_on(b, &h[b->depth]);
}

static void build_pass(struct build *b, struct gen_pass *pass)
{
	const struct stages *st = b->in->stages;
	int pp = b->in->slice->at.pp, depths = b->gen->depths;
	struct buf h[KERN_DEPTHS + 1];

	for (int k = 0; k <= depths; k++)
		h[k] = NO_BUF;
	b->T = pass->T;
	set_dims(b);
	for (b->depth = 0; b->depth <= depths; b->depth++) {
		b->list = &pass->list[b->depth];
		b->list->microbatches = 1;
		b->cap = 0;
		for (b->chunk = 0; b->chunk < st->vp; b->chunk++) {
			b->stage = &st->stage[b->chunk * st->pp + pp];
			on_stage(b, h);
		}
	}
	for (int k = 0; k <= depths; k++)
		buf_free(b, &h[k]);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static size_t scratch_of(const struct build *b, const struct kern_attn_dims *d)
{
	if (b->in->config->spec.device == DEVICE_CUDA)
		return kern_attn_at_scratch_cuda(d, b->gen->room);
	return kern_attn_at_scratch(d, b->gen->room, b->out->sum);
}

/* Bytes of the scratch of attention to the cache, of any layer. */
static int64_t cached_room(const struct build *b)
{
	int64_t most = 0;

	for (int i = 0; i < b->kinds; i++)
		most = larger(most,
			      (int64_t)scratch_of(b, &b->kind[i].attn[0]));
	return most;
}

/* What lies where for all lists. */
static void set_families(struct build *b)
{
	struct prog_gen *g = b->gen->out;
	struct prog *p = b->out;
	const struct config *c = b->in->config;
	int64_t slots = b->B, rows = slots * g->rows, scratch;
	struct buf mine;
	int64_t V = place_padded_vocab(&c->place, c->shape.vocab_size);

	host_room(p, sizeof(struct kern_scalars));
	g->pos = (struct ref){host_room(p, 4 * slots), FAMILY_HOST};
	g->pick = (struct ref){host_room(p, 4 * rows), FAMILY_HOST};
	g->ids = (struct ref){host_room(p, 4 * (1 + g->depths) * slots * b->T),
			      FAMILY_HOST};
	p->ids = g->ids; /* where embeddings look for them */
	g->vocab_rows = V / b->tp;
	mine = g->scores ? buf_new(b, FAMILY_ACT, rows * V) : NO_BUF;
	g->logits = buf_ref(&mine);
	rope_room(b, b->gen->room);
	gain_room(b);
	b->attn_scratch = buf_bytes(b, FAMILY_ACT, cached_room(b));
	scratch = prog_comm_scratch(c, b->in->grid->world);
	b->comm_scratch = scratch ? buf_bytes(b, FAMILY_COMM, scratch) : NO_BUF;
}

/* Which passes there are, and what a rank has of them. */
static void set_passes(struct prog_gen *g, const struct prog_input *in)
{
	const struct stages *st = in->stages;
	int64_t next, prompt = g->size.prompt;

	g->depths = g->size.drafts ? (int)in->config->shape.mtp_num_layers : 0;
	g->rows = 1 + g->depths;
	next = g->depths ? 2 * g->depths : 1;
	g->pass[PASS_NEXT].T = next;
	g->pass[PASS_PROMPT].T =
		larger(next, prompt < GEN_PROMPT_MAX ? prompt : GEN_PROMPT_MAX);
	g->scores = in->slice->at.pp == st->stage[st->count - 1].pp;
}

int prog_gen_build(struct prog_gen *out, struct prog *p,
		   const struct prog_input *in, const struct gen_size *size,
		   struct arena *a, struct err *e)
{
	struct gen_build g = {.out = out, .room = size->room};
	struct build b = {.out = p, .in = in, .a = a, .gen = &g};

	if (prog_gen_check(in->config, e) || prog_served(in->config, e) ||
	    check_size(in, size, e))
		return -1;
	memset(out, 0, sizeof(*out));
	out->size = *size;
	set_passes(out, in);
	prog_state(p, in->slice, &in->config->spec);
	p->bytes[FAMILY_GRAD] = p->bytes[FAMILY_OPTIM] = 0;
	p->depths = (int)in->config->shape.mtp_num_layers;
	g.depths = out->depths;
	b.B = size->slots;
	b.T = out->pass[PASS_PROMPT].T;
	set_dims(&b);
	set_families(&b);
	cache_rooms(&b);
	for (int i = 0; i < PASSES; i++)
		build_pass(&b, &out->pass[i]);
	if (b.too_large)
		return err_set(e, CODE_CONFIG,
			       "the cache needs more than 2^56 bytes: lower "
			       "micro_batch_size");
	p->bytes[FAMILY_ACT] = b.pool[0].peak;
	p->bytes[FAMILY_COMM] = b.pool[1].peak;
	for (int i = 0; i < PASSES; i++)
		for (int k = 0; k <= out->depths; k++)
			room_for(&b, &out->pass[i].list[k]);
	return 0;
}
