/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/prog.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "lib/plan/prog_build.h"
#include "lib/plan/rope.h"

/* Scratch of the CPU's reductions, at most. */
#define SCRATCH_BYTES ((int64_t)4 << 20)

/* The previous stage's or the next one's place in GROUP_PP. */
static int neighbour(const struct build *b, int step)
{
	int pp = b->in->grid->pp;

	return (b->in->slice->at.pp + step + pp) % pp;
}

/* Both ends of a message name it by where it starts and what it is of. */
static int message_tag(const struct build *b, bool backward, int stage)
{
	int stages = b->in->stages->count, states = 1 + b->out->depths;

	return ((b->mb * stages + stage) * 2 + backward) * states + b->depth;
}

static int stage_number(const struct build *b)
{
	return b->stage->vp * b->in->stages->pp + b->stage->pp;
}

/* Wait for the oldest messages sent this way until KEEP are under way. */
static void sent_wait(struct build *b, bool backward, int keep)
{
	struct sends *q = &b->sent[backward];

	for (; q->count > keep; q->count--) {
		struct in_flight *x = &q->list[q->first];

		emit_wait(b, x->op);
		buf_free(b, &x->buf);
		q->first = (q->first + 1) % b->sends_most;
	}
}

int stage_send(struct build *b, const struct buf *x, bool backward)
{
	int i = emit_comm(b, PROG_SEND, GROUP_PP, TYPE_ELEM, buf_ref(x), NO_REF,
			  b->rows * b->C);
	struct op *op = &b->list->op[i];

	op->peer = neighbour(b, backward ? -1 : 1);
	op->tag = message_tag(b, backward, stage_number(b));
	return i;
}

static void send(struct build *b, struct buf x, bool backward)
{
	struct sends *q = &b->sent[backward];
	int i;

	sent_wait(b, backward, b->sends_most - 1);
	i = stage_send(b, &x, backward);
	q->list[(q->first + q->count++) % b->sends_most] =
		(struct in_flight){i, x};
}

struct buf stage_receive(struct build *b, bool backward)
{
	struct buf x = buf_new(b, FAMILY_ACT, b->rows * b->C);
	int op = emit_comm(b, PROG_RECV, GROUP_PP, TYPE_ELEM, NO_REF,
			   buf_ref(&x), b->rows * b->C);
	int from = stage_number(b) + (backward ? 1 : -1);

	b->list->op[op].peer = neighbour(b, backward ? 1 : -1);
	b->list->op[op].tag = message_tag(b, backward, from);
	emit_wait(b, op);
	return x;
}

static struct chunk_saved *saved_of(struct build *b)
{
	return &b->saved[b->mb * b->in->stages->vp + b->chunk];
}

static bool is_first(const struct build *b)
{
	return b->stage == b->in->stages->stage;
}

/* What the last stage before this one with a final norm has made, or this. */
static bool has_states(const struct build *b)
{
	return b->stage->final_norm || stage_gets_states(b);
}

static void save_room(struct build *b, struct chunk_saved *v)
{
	size_t depths = (size_t)b->out->depths;

	v->layer = arena_alloc(b->a, (size_t)b->stage->num_layers + 1,
			       sizeof(*v->layer));
	v->depth = arena_alloc(b->a, depths + 1, sizeof(*v->depth));
	v->h = arena_alloc(b->a, depths + 1, sizeof(*v->h));
	v->dh = arena_alloc(b->a, depths + 1, sizeof(*v->dh));
	for (size_t k = 0; k <= depths; k++)
		v->h[k] = v->dh[k] = NO_BUF;
}

/* The decoder's layers of this stage, and what goes on from them. */
static void layers_forward(struct build *b, struct chunk_saved *v)
{
	const struct stage *st = b->stage;
	struct stream s = {.owned = true, .branch = NO_BUF, .bias = NO_REF};

	s.x = is_first(b) ? embed_forward(b) : stage_receive(b, false);
	for (int64_t n = 0; n < st->num_layers; n++) {
		b->layer = b->drawn_for = st->first_layer + n;
		layer_forward(b, &s, &v->layer[n]);
	}
	b->layer = -1;
	if (!st->final_norm) {
		stream_settle(b, &s);
		send(b, s.x, false);
		return;
	}
	v->h[0] = stream_norm(b, &s, PART_FINAL_NORM_W, PART_FINAL_NORM_B,
			      &v->last.stat);
	v->last.x = s.x;
	forget(b, &v->last.x);
	forget(b, &v->last.stat);
}

/* A state that a depth's backward needs goes on as a copy. */
static void send_state(struct build *b, struct buf h, bool keep)
{
	struct buf copy = h;

	if (keep) {
		copy = buf_new(b, FAMILY_ACT, b->rows * b->C);
		emit(b, OP_COPY, KIND_COMM, REFS(buf_ref(&copy), buf_ref(&h)),
		     DIMS(h.bytes));
	}
	send(b, copy, false);
}

static void forward(struct build *b)
{
	const struct stage *st = b->stage;
	struct chunk_saved *v = saved_of(b);
	int depths = b->train ? (int)st->mtp_layers : 0;

	b->layer = -1;
	b->depth = 0;
	save_room(b, v);
	if (!stage_gets_states(b))
		layers_forward(b, v);
	else
		for (; b->depth < states_in(b); b->depth++)
			v->h[b->depth] = stage_receive(b, false);
	if (!has_states(b))
		return;
	for (b->depth = 1; b->depth <= depths; b->depth++)
		depth_forward(b, v);
	for (b->depth = 0; b->depth < states_out(b); b->depth++) {
		struct buf *h = &v->h[b->depth];
		bool keep = b->train && depth_keeps(b);

		if (st->loss)
			v->dh[b->depth] = head_loss(b, *h);
		else
			send_state(b, *h, keep);
		if (st->loss && !keep)
			buf_free(b, h);
	}
	b->depth = 0;
}

static void layers_backward(struct build *b, struct chunk_saved *v,
			    struct buf *dx)
{
	const struct stage *st = b->stage;

	for (int64_t n = st->num_layers - 1; n >= 0; n--) {
		b->layer = b->drawn_for = st->first_layer + n;
		layer_backward(b, dx, &v->layer[n]);
	}
	b->layer = -1;
	if (is_first(b))
		embed_backward(b, dx);
	else
		send(b, *dx, true);
}

static void backward(struct build *b)
{
	const struct stage *st = b->stage;
	struct chunk_saved *v = saved_of(b);
	struct buf dx;

	b->layer = -1;
	b->depth = 0;
	if (!has_states(b)) {
		dx = stage_receive(b, true);
		layers_backward(b, v, &dx);
		return;
	}
	for (; b->depth < states_out(b) && !st->loss; b->depth++)
		v->dh[b->depth] = stage_receive(b, true);
	for (b->depth = (int)st->mtp_layers; b->depth > 0; b->depth--)
		depth_backward(b, v);
	if (st->final_norm) {
		dx = buf_new(b, FAMILY_ACT, b->rows * b->C);
		norm_input(b, b->norm, &dx, NO_REF, &v->dh[0],
			   PART_FINAL_NORM_W, PART_FINAL_NORM_B, &v->last);
		layers_backward(b, v, &dx);
		return;
	}
	for (; b->depth < states_in(b); b->depth++)
		send(b, v->dh[b->depth], true);
	b->depth = 0;
}

static void run_slot(struct build *b, const struct sched_slot *x)
{
	const struct stages *stages = b->in->stages;
	const struct grid *g = b->in->grid;
	const struct slice *s = b->in->slice;

	b->mb = x->mb;
	b->chunk = x->chunk;
	b->stage = &stages->stage[x->chunk * stages->pp + s->at.pp];
	/* Sample (mb, dp rank, b) of the global batch. */
	b->row0 = ((int64_t)x->mb * g->dp + s->at.dp) * b->N;
	b->backward = x->backward;
	if (x->backward)
		backward(b);
	else
		forward(b);
}

/* Micro-batches that go through one chunk before the next one's turn. */
static int group_of(const struct config *c, const struct stages *st)
{
	int64_t n = c->place.microbatch_group_size_per_vp_stage;

	return IS_SET(n) && st->vp > 1 ? (int)n : st->pp;
}

static void list_slots(struct build *b)
{
	const struct stages *st = b->in->stages;
	int m = b->list->microbatches;
	struct sched sched;

	b->saved = arena_alloc(b->a, (size_t)m * (size_t)st->vp,
			       sizeof(*b->saved));
	for (int i = 0; i < 2; i++)
		b->sent[i] = (struct sends){
			.list = arena_alloc(b->a, (size_t)b->sends_most,
					    sizeof(*b->sent[i].list))};
	sched_build(&sched, st->pp, b->in->slice->at.pp, st->vp, m,
		    group_of(b->in->config, st), b->a);
	for (int i = 0; i < sched.count; i++)
		if (b->train || !sched.slot[i].backward)
			run_slot(b, &sched.slot[i]);
	b->backward = false;
	sent_wait(b, false, 0);
	sent_wait(b, true, 0);
}

static void build_train(struct build *b)
{
	b->list = &b->out->train;
	b->cap = 0;
	b->train = true;
	b->mb = b->chunk = -1;
	b->layer = -1;
	emit(b, OP_ZERO, KIND_OPTIM, REFS(((struct ref){0, FAMILY_GRAD})),
	     DIMS(b->out->bytes[FAMILY_GRAD]));
	moe_begin(b);
	list_slots(b);
	step_finish(b);
}

static void build_eval(struct build *b)
{
	b->list = &b->out->eval;
	b->cap = 0;
	b->train = false;
	list_slots(b);
	b->mb = b->chunk = -1;
	step_metrics(b);
}

int64_t prog_comm_scratch(const struct config *c, int world)
{
	const struct place *p = &c->place;
	int64_t bytes = shape_parameters(&c->shape) *
			(int64_t)spec_param_bytes(&c->spec) /
			(p->tensor_model_parallel_size *
			 p->pipeline_model_parallel_size);

	if (world == 1 || c->spec.device == DEVICE_CUDA)
		return 0;
	bytes = bytes < SCRATCH_BYTES ? bytes : SCRATCH_BYTES;
	return bytes < 64 * world ? 64 * world : (bytes + 63) / 64 * 64;
}

int64_t host_room(struct prog *p, int64_t bytes)
{
	int64_t at = p->bytes[FAMILY_HOST];

	p->bytes[FAMILY_HOST] = at + (bytes + 63) / 64 * 64;
	return at;
}

void prog_state(struct prog *out, const struct slice *s,
		const struct spec *spec)
{
	int64_t all = s->elements, own = s->own, state;
	int64_t elem = (int64_t)spec_param_bytes(spec);
	int64_t sum = (int64_t)spec_sum_bytes(spec);

	memset(out, 0, sizeof(*out));
	out->elem = (size_t)elem;
	out->sum = (size_t)sum;
	out->optim_elements = s->sharding >= SHARD_OPTIM ? own : all;
	out->bytes[FAMILY_PARAM] =
		elem * (s->sharding >= SHARD_OPTIM_GRADS_PARAMS ? own : all);
	out->bytes[FAMILY_GRAD] =
		sum * (s->sharding >= SHARD_OPTIM_GRADS ? own : all);
	state = out->optim_elements * sum;
	out->master = elem < sum ? 0 : -1;
	out->m = elem < sum ? state : 0;
	out->v = out->m + state;
	out->bytes[FAMILY_OPTIM] = out->v + state;
}

/* Zero-centred, nobody writes it after memory was cleared. */
void gain_room(struct build *b)
{
	b->no_gain = b->no_gradient = NO_BUF;
	if (!b->in->config->shape.qk_l2_norm)
		return;
	b->no_gain = buf_new(b, FAMILY_ACT, b->D);
	b->no_gradient = buf_sums(b, FAMILY_ACT, b->D);
}

void rope_room(struct build *b, int64_t rows)
{
	struct prog *p = b->out;
	struct buf table;

	p->rope = NO_REF;
	p->rope_half = rope_pairs(&b->in->config->shape);
	p->rope_rows = rows;
	if (!p->rope_half)
		return;
	table = buf_sums(b, FAMILY_ACT, rows * p->rope_half * 2);
	p->rope = buf_ref(&table);
}

/* What lies where before any op needs it. */
static void set_families(struct build *b)
{
	struct prog *p = b->out;
	const struct config *c = b->in->config;
	int64_t m = p->train.microbatches, scratch, all;

	host_room(p, sizeof(struct kern_scalars));
	p->depths = (int)c->shape.mtp_num_layers;
	all = (1 + p->depths) * m;
	p->ids = (struct ref){host_room(p, 4 * all * b->N), FAMILY_HOST};
	p->labels = (struct ref){host_room(p, 4 * all * b->N), FAMILY_HOST};
	p->loss = (struct ref){host_room(p, 8 * all), FAMILY_HOST};
	p->coef = (struct ref){host_room(p, 8 * all), FAMILY_HOST};
	p->share = p->right = p->doc = p->place = NO_REF;
	if (c->run.reset_attention_mask)
		p->doc = (struct ref){host_room(p, 4 * m * b->N), FAMILY_HOST};
	if (c->run.reset_position_ids &&
	    c->shape.position_embedding_type == POS_LEARNED)
		p->place =
			(struct ref){host_room(p, 4 * all * b->N), FAMILY_HOST};
	if (p->depths) {
		p->share = (struct ref){host_room(p, 8 * p->depths * m),
					FAMILY_HOST};
		p->right = (struct ref){host_room(p, 8 * p->depths * m),
					FAMILY_HOST};
	}
	rope_room(b, b->T);
	gain_room(b);
	b->attn_scratch = buf_bytes(b, FAMILY_ACT, attn_room(b));
	scratch = prog_comm_scratch(b->in->config, b->in->grid->world);
	b->comm_scratch = scratch ? buf_bytes(b, FAMILY_COMM, scratch) : NO_BUF;
}

int prog_served(const struct config *c, struct err *e)
{
	struct arena a;
	struct report r = {.arena = &a};
	int n;

	if (arena_open(&a, e))
		return -1;
	n = config_unserved(c, &r);
	if (n)
		err_set(e, CODE_CONFIG, "%s: %s", r.list[0].path,
			r.list[0].message);
	arena_close(&a);
	return n ? -1 : 0;
}

/*
 * Between the last pipeline rank and the first a message waits until its
 * whole group has left the chunk before; that many must be under way, or
 * everyone waits for everyone.
 */
static int sends_most(const struct config *c, const struct stages *st)
{
	int slots = group_of(c, st) - st->pp + 1, last = st->count - 1;
	bool alone = c->shape.mtp_num_layers && !st->stage[last].mtp_layers;

	/* a depth's state has a message of its own */
	return alone ? slots * (1 + (int)c->shape.mtp_num_layers) : slots;
}

/*
 * A step of more micro-batches times layers has no room in an arena; longer
 * micro-batches, times the widest layer, none in 63 bits.
 */
enum { PARTS_MAX = 1 << 17, TOKENS_MAX = 1 << 24, CHOICES_MAX = 1 << 28 };

static int check_length(const struct stages *st, int pp, int64_t m,
			struct err *e)
{
	int64_t layers = 1; /* the ends of the step */

	for (int i = pp; i < st->count; i += st->pp)
		layers += 1 + st->stage[i].num_layers +
			  2 * st->stage[i].mtp_layers;
	if (m <= PARTS_MAX / layers)
		return 0;
	return err_set(e, CODE_CONFIG,
		       "a step of %" PRId64 " micro-batches is too long to "
		       "plan: at most %" PRId64
		       " with the layers of pipeline rank %d; raise "
		       "micro_batch_size or the world",
		       m, PARTS_MAX / layers, pp);
}

int prog_check(const struct config *c, const struct grid *g,
	       const struct stages *st, const char **setting, struct err *e)
{
	const int64_t n = c->run.micro_batch_size * c->shape.seq_length;

	*setting = "place.microbatch_group_size_per_vp_stage";
	if (2 * sends_most(c, st) + 2 > PROG_IN_FLIGHT)
		return err_set(e, CODE_CONFIG,
			       "microbatch_group_size_per_vp_stage %d is more "
			       "than %d above pipeline_model_parallel_size %d, "
			       "which train-worker does not run yet",
			       group_of(c, st), PROG_IN_FLIGHT / 2 - 2, st->pp);
	*setting = "run.micro_batch_size";
	if (n > TOKENS_MAX)
		return err_set(e, CODE_CONFIG,
			       "a micro-batch of %" PRId64
			       " tokens (micro_batch_size x seq_length) is too "
			       "long to plan: at most %d",
			       n, TOKENS_MAX);
	if (c->shape.num_moe_experts &&
	    n > CHOICES_MAX / c->shape.moe_router_topk / g->ep)
		return err_set(e, CODE_CONFIG,
			       "a micro-batch of %" PRId64
			       " tokens goes to moe_router_topk %" PRId64
			       " experts each on %d ranks of ep, too many to "
			       "plan: at most %d choices",
			       n, c->shape.moe_router_topk, g->ep, CHOICES_MAX);
	*setting = "run.global_batch_size";
	for (int pp = 0; pp < st->pp; pp++)
		if (check_length(st, pp, run_microbatches(&c->run, g->dp), e))
			return -1;
	return 0;
}

void room_for(struct build *b, const struct prog_list *l)
{
	struct prog *p = b->out;

	p->room = NO_REF;
	if (b->device || p->elem == p->sum)
		return;
	for (int i = 0; i < l->count; i++) {
		int64_t bytes = prog_op_room(&l->op[i]);

		b->room = bytes > b->room ? bytes : b->room;
	}
	p->room = (struct ref){b->pool[0].peak, FAMILY_ACT};
	p->bytes[FAMILY_ACT] = b->pool[0].peak + b->room;
}

int prog_build(struct prog *out, const struct prog_input *in, struct arena *a,
	       struct err *e)
{
	struct build b = {
		.out = out,
		.in = in,
		.a = a,
		.device = in->config->spec.device == DEVICE_CUDA,
		.B = in->config->run.micro_batch_size,
		.T = in->config->shape.seq_length,
		.sp = in->config->place.sequence_parallel && in->grid->tp > 1,
	};
	int64_t m = run_microbatches(&in->config->run, in->grid->dp);
	const char *setting;

	if (prog_served(in->config, e) ||
	    prog_check(in->config, in->grid, in->stages, &setting, e))
		return -1;
	b.sends_most = sends_most(in->config, in->stages);
	prog_state(out, in->slice, &in->config->spec);
	out->train.microbatches = out->eval.microbatches = (int)m;
	set_dims(&b);
	out->tokens = b.N;
	set_families(&b);
	build_train(&b);
	build_eval(&b);
	if (b.too_large)
		return err_set(e, CODE_CONFIG,
			       "the step's activations need more than 2^56 "
			       "bytes: lower micro_batch_size");
	out->bytes[FAMILY_ACT] = b.pool[0].peak;
	out->bytes[FAMILY_COMM] = b.pool[1].peak;
	room_for(&b, &out->train);
	room_for(&b, &out->eval);
	return 0;
}
