/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/work.h"

#include <assert.h>

#include "lib/plan/place_rule.h"
#include "lib/plan/work_rule.h"

/*
 * Shares of the bandwidth that our kernels reach inside of a step on an H200
 * (test/bench/NOTES.md).
 */
static const double norm_rate[2] = {0.65, 0.28}, narrow_rate = 0.41;
static const double loss_rate = 0.76;

void work_dims(struct work_dims *d, const struct config *c)
{
	const struct place *p = &c->place;
	int low = c->spec.fp8 != FP8_NONE || c->spec.fp4 != FP4_NONE;

	*d = (struct work_dims){
		.config = c,
		.tp = (int)p->tensor_model_parallel_size,
		.cp = (int)p->context_parallel_size,
		.ep = (int)p->expert_model_parallel_size,
		.etp = (int)p->expert_tensor_parallel_size,
		.B = (double)c->run.micro_batch_size,
		.T = (double)c->shape.seq_length,
		.C = (double)c->shape.hidden_size,
		.elem = (double)spec_param_bytes(&c->spec),
		.sum = (double)spec_sum_bytes(&c->spec),
		.low = low,
	};
	d->sp = p->sequence_parallel && d->tp > 1;
	d->N = d->B * d->T / d->cp;
	d->rows = d->sp ? d->N / d->tp : d->N;
	d->input = low ? 1 : d->elem;
}

struct work *work_add(struct works *w, enum work_kind kind, unsigned modules)
{
	struct work *new = &w->list[w->count++];

	assert(w->count <= WORKS_MAX);
	*new = (struct work){
		.kind = kind, .modules = modules, .count = 1, .ops = {1, 1}};
	return new;
}

struct work *work_gemm(struct works *w, const struct work_dims *d,
		       unsigned modules, double rows, double out, double in,
		       bool bias, bool keep)
{
	struct work *x = work_add(w, WORK_GEMM, modules);

	x->rows = rows;
	x->out = out;
	x->in = in;
	x->flops[0] = 2 * rows * out * in;
	x->flops[1] = 2 * x->flops[0];
	x->ops[1] = 2;
	x->keep = keep ? rows * out * d->elem : 0;
	x->grad = rows * out * d->elem;
	x->params = out * in + (bias ? out : 0);
	x->arrays = 1 + bias;
	if (bias)
		work_bytes(w, modules, 0, rows * out * d->elem, 0.62)->ops[0] =
			0;
	return x;
}

struct work *work_bytes(struct works *w, unsigned modules, double forward,
			double backward, double rate)
{
	struct work *x = work_add(w, WORK_BYTES, modules);

	x->bytes[0] = forward;
	x->bytes[1] = backward;
	x->rate[0] = x->rate[1] = rate;
	return x;
}

/* A gain, and LayerNorm's bias. */
static double norm_params(const struct work_dims *d, double width)
{
	return d->config->shape.normalization == NORM_LAYERNORM ? 2 * width
								: width;
}

struct work *work_norm(struct works *w, const struct work_dims *d,
		       unsigned modules, double rows, double width)
{
	double all = rows * width;
	struct work *x = work_bytes(w, modules | MODULE_NORM, 4 * all * d->elem,
				    4 * all * d->elem, 0);

	x->rate[0] = norm_rate[0];
	x->rate[1] = width < 1024 ? narrow_rate : norm_rate[1];
	x->part = all * d->input;
	x->keep = all * d->elem + x->part + 2 * rows * d->sum;
	x->params = norm_params(d, width);
	x->arrays = x->params > width ? 2 : 1;
	return x;
}

void work_inner_norm(struct works *w, const struct work_dims *d,
		     unsigned modules, double rows, double width,
		     double vectors)
{
	double all = rows * width * d->elem;
	struct work *x = work_bytes(w, modules, 2 * all, 3 * all, 0);

	x->rate[0] = norm_rate[0];
	x->rate[1] = norm_rate[1];
	x->keep = all + rows * d->sum;
	x->params = vectors * norm_params(d, width);
}

void work_comm(struct works *w, int comm, int group, double size, int forward,
	       int backward)
{
	struct work *x = work_add(w, WORK_COMM, 0);

	x->comm = comm;
	x->group = group;
	x->bytes[0] = x->bytes[1] = size;
	x->ops[0] = forward;
	x->ops[1] = backward;
}

void work_gather(struct works *w, const struct work_dims *d)
{
	/* Back: of the input again for the weight gradient. */
	if (d->sp)
		work_comm(w, PROG_ALL_GATHER, GROUP_TP,
			  d->rows * d->C * d->elem, 1, 1);
}

void work_reduce(struct works *w, const struct work_dims *d)
{
	double all = d->N * d->C * d->elem;

	if (d->tp == 1)
		return;
	if (!d->sp) {
		work_comm(w, PROG_SUM, GROUP_TP, all, 1, 1);
		return;
	}
	work_comm(w, PROG_REDUCE_SCATTER, GROUP_TP, all / d->tp, 1, 1);
	work_comm(w, PROG_ALL_GATHER, GROUP_TP, all / d->tp, 0, 1);
}

/* Hyper-connections carry several residual streams and mix them. */
static void add_streams(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	double n = (double)s->mhc_num_residual_streams, maps = n * n + 2 * n;
	double all = d->rows * d->C * d->elem;

	if (!s->enable_mhc_connections)
		return;
	for (int half = 0; half < 2; half++) {
		struct work *x =
			work_gemm(w, d, 0, d->rows, maps, n * d->C, true, true);

		x->params += 3;
		x->keep += (n - 1) * all;
		work_bytes(w, 0, (2 * n + 2) * all, (3 * n + 3) * all, 0.6);
	}
}

void works_layer(struct works *w, const struct work_dims *d, int64_t layer)
{
	const struct shape *s = &d->config->shape;
	bool mtp = layer >= s->num_layers;

	w->count = 0;
	if (mtp) { /* norms of both inputs and their projection */
		work_norm(w, d, 0, d->rows, d->C);
		work_norm(w, d, 0, d->rows, d->C);
		work_gather(w, d);
		work_gemm(w, d, 0, d->N, d->C / d->tp, 2 * d->C, false, true);
	}
	works_attention(w, d, mtp ? s->num_layers - 1 : layer);
	works_mlp(w, d, mtp ? s->num_layers - 1 : layer);
	add_streams(w, d);
	if (mtp)
		work_norm(w, d, 0, d->rows, d->C);
}

/* Rows of the vocabulary on a tp rank. */
static double vocab_rows(const struct work_dims *d)
{
	const struct config *c = d->config;

	return (double)place_padded_vocab(&c->place, c->shape.vocab_size) /
	       d->tp;
}

void works_embedding(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	double all = d->N * d->C * d->elem, mine = d->rows * d->C * d->elem;
	struct work *x;

	w->count = 0;
	x = work_bytes(w, 0, 2 * all, all + 2 * d->N * d->C * d->sum, 0.5);
	x->params = vocab_rows(d) * d->C;
	x->arrays = 1;
	if (d->tp > 1)
		work_comm(w, d->sp ? PROG_REDUCE_SCATTER : PROG_SUM, GROUP_TP,
			  d->sp ? mine : all, 1, 0);
	if (d->sp)
		work_comm(w, PROG_ALL_GATHER, GROUP_TP, mine, 0, 1);
	if (s->position_embedding_type != POS_LEARNED)
		return;
	x = work_bytes(w, 0, 2 * mine, mine, 0.5);
	x->params = (double)s->max_position_embeddings * d->C;
}

void works_head(struct works *w, const struct work_dims *d, bool own)
{
	double v = vocab_rows(d), logits = d->N * v * d->elem;
	struct work_dims high = *d;
	struct work *x;

	w->count = 0;
	high.input = d->elem;
	work_norm(w, &high, 0, d->rows, d->C);
	work_gather(w, d);
	x = work_gemm(w, &high, 0, d->N, v, d->C, false, false);
	x->params = own ? x->params : 0;
	x->arrays = own;
	x->at_once = true;
	x->grad = 0;
	work_reduce(w, d);
	work_bytes(w, 0, 4 * logits, 0, loss_rate)->ops[0] = 3;
	if (d->tp > 1)
		work_comm(w, PROG_SUM, GROUP_TP, d->N * d->sum, 2, 0);
}

/* A word of a list, and what it stands for. */
struct name {
	const char *name;
	unsigned bit;
};

static unsigned bits_of(const struct texts *list, const struct name *name)
{
	unsigned bits = 0;

	for (; name->name; name++)
		if (place_names(list, name->name))
			bits |= name->bit;
	return bits;
}

unsigned work_modules(const struct place *p)
{
	static const struct name names[] = {
		{"core_attn", MODULE_CORE},
		{"layernorm", MODULE_NORM},
		{"mlp", MODULE_MLP},
		{"moe", MODULE_MOE},
		{"moe_act", MODULE_MOE_ACT},
		{"shared_experts", MODULE_SHARED},
		{"mla_up_proj", MODULE_MLA_UP},
		{"gdn_norm_out", MODULE_DELTA_NORM},
		{0},
	};

	return p->recompute_granularity == RECOMPUTE_SELECTIVE
		       ? bits_of(&p->recompute_modules, names)
		       : 0;
}

unsigned work_away(const struct place *p)
{
	static const struct name names[] = {
		{"attn_norm", AWAY_ATTN_NORM}, {"qkv_linear", AWAY_QKV},
		{"core_attn", AWAY_CORE},      {"attn_proj", AWAY_PROJ},
		{"mlp_norm", AWAY_MLP_NORM},   {"expert_fc1", AWAY_FC1},
		{"moe_act", AWAY_ACT},	       {0},
	};

	return p->fine_grained_activation_offloading
		       ? bits_of(&p->offload_modules, names)
		       : 0;
}

int64_t work_layer_kind(const struct shape *s, int64_t layer)
{
	bool mtp = layer >= s->num_layers;
	int64_t n = mtp ? s->num_layers - 1 : layer;
	uint64_t kind =
		(uint64_t)shape_layer_groups(s, n) * 0x9e3779b97f4a7c15u;

	kind ^= (uint64_t)shape_layer_ffn(s, n) * 0xc2b2ae3d27d4eb4fu;
	kind = kind << 4 | (uint64_t)mtp << 3 | shape_is_moe(s, n) << 2 |
	       shape_is_delta(s, n) << 1 | (shape_window(s, n) > 0);
	return (int64_t)kind;
}
