/* SPDX-License-Identifier: Apache-2.0 */
/* The mlp half of a layer: dense, a mixture of experts, or none. */
#include "lib/plan/work_rule.h"

static const double act_rate = 0.85;

/* One mlp, or COUNT experts: TOKENS each of IN elements through WIDTH. */
struct mlp {
	unsigned modules,
		act; /* of all of it, and of the activation's output */
	double count, tokens, in, width;
	enum weight_class cls;
	bool bias;
};

static void work_times(struct work *x, double count, enum weight_class cls)
{
	x->count = count;
	x->cls = cls;
	for (int i = 0; i < 2; i++)
		x->flops[i] *= count;
	x->keep *= count;
	x->grad *= count;
	x->params *= count;
}

/* A product of each expert, and its bias's gradient. */
static struct work *add_product(struct works *w, const struct work_dims *d,
				const struct mlp *m, double out, double in,
				bool keep)
{
	int first = w->count;
	struct work *x =
		work_gemm(w, d, m->modules, m->tokens, out, in, m->bias, keep);

	work_times(x, m->count, m->cls);
	for (int i = first + 1; i < w->count; i++)
		w->list[i].bytes[1] *= m->count;
	return x;
}

static void add_mlp(struct works *w, const struct work_dims *d,
		    const struct mlp *m)
{
	const struct shape *s = &d->config->shape;
	double fc1 = m->width * (s->gated_linear_unit ? 2 : 1);
	double all = m->count * m->tokens * m->width, wide;
	struct work *x;

	x = add_product(w, d, m, fc1, m->in, true);
	x->part = x->keep;
	x->away_part = m->cls == CLASS_EXPERT ? AWAY_ACT : 0;
	wide = m->count * m->tokens * fc1;
	x = work_bytes(w, m->modules | m->act, (all + wide) * d->elem,
		       (all + 2 * wide) * d->elem, act_rate);
	x->keep = x->part = all * d->input;
	x->grad = all * d->elem;
	add_product(w, d, m, m->in, m->width, false);
}

/* Tokens to the ranks that have their experts, and back. */
static void add_dispatch(struct works *w, const struct work_dims *d,
			 double rows, double width)
{
	double topk = (double)d->config->shape.moe_router_topk;
	bool all =
		d->config->spec.moe_token_dispatcher_type == DISPATCH_ALLGATHER;
	double sent = rows * width * d->elem * (all ? 1 : topk);

	int first = w->count;

	if (d->ep > 1)
		work_comm(w, all ? PROG_ALL_GATHER : WORK_EXCHANGE, GROUP_EP,
			  sent, 2, 2);
	if (d->etp > 1) {
		work_comm(w, PROG_ALL_GATHER, GROUP_ETP,
			  rows * topk * width * d->elem, 1, 1);
		work_comm(w, PROG_REDUCE_SCATTER, GROUP_ETP,
			  rows * topk * width * d->elem, 1, 1);
	}
	while (first < w->count)
		w->list[first++].modules = MODULE_MOE;
}

/* Copying rows into the order of experts, and their sum back. */
static void add_permute(struct works *w, const struct work_dims *d, double rows,
			double tokens, double width)
{
	double moved = (rows + tokens) * width * d->elem;
	struct work *x = work_bytes(w, MODULE_MOE, 2 * moved, 3 * moved, 0.5);

	x->ops[0] = x->ops[1] = 4;
	x->keep = x->part = tokens * width * d->input;
	x->away_part = AWAY_FC1;
	x->grad = tokens * width * d->elem;
}

static void add_router(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	double experts = (double)s->num_moe_experts;
	struct work *x = work_gemm(w, d, MODULE_MOE, d->rows, experts, d->C,
				   s->add_bias_linear, false);

	x->keep = x->part = 2 * d->rows * experts * d->sum;
	work_bytes(w, MODULE_MOE, 4 * d->rows * experts * d->sum,
		   4 * d->rows * experts * d->sum, 0.3)
		->ops[0] = 3;
}

static void add_shared(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	double width = (double)s->moe_shared_expert_intermediate_size;
	const struct mlp m = {
		.modules = MODULE_MOE | MODULE_SHARED,
		.count = 1,
		.tokens = d->N,
		.in = d->C,
		.width = width / d->tp,
		.bias = s->add_bias_linear,
	};

	if (!IS_SET(s->moe_shared_expert_intermediate_size))
		return;
	work_gather(w, d);
	add_mlp(w, d, &m);
	work_reduce(w, d);
	if (s->moe_shared_expert_gate)
		work_bytes(w, m.modules, d->rows * d->C * d->elem,
			   3 * d->rows * d->C * d->elem, 0.6)
			->params = d->C;
}

/* Balanced: every expert has as many tokens, at most its capacity. */
static double tokens_of(const struct work_dims *d, double rows)
{
	const struct shape *s = &d->config->shape;
	double n = rows * (double)s->moe_router_topk;

	if (s->moe_expert_capacity_factor < 1 ||
	    d->config->spec.moe_pad_expert_input_to_capacity)
		n *= s->moe_expert_capacity_factor;
	return n;
}

static void add_experts(struct works *w, const struct work_dims *d)
{
	const struct shape *s = &d->config->shape;
	bool latent = IS_SET(s->moe_latent_size);
	double width = latent ? (double)s->moe_latent_size : d->C;
	double local = (double)s->num_moe_experts / d->ep;
	/* Without sp every tp rank has all rows, and sends its share. */
	double rows = d->sp ? d->rows : d->N / d->tp;
	double tokens = tokens_of(d, rows) * d->etp;
	struct mlp m = {
		.modules = MODULE_MOE,
		.act = MODULE_MOE_ACT,
		.count = local,
		.tokens = tokens / local,
		.in = width,
		.width = (double)s->moe_ffn_hidden_size / d->etp,
		.cls = CLASS_EXPERT,
		.bias = s->add_bias_linear,
	};

	add_router(w, d);
	if (latent)
		work_gemm(w, d, MODULE_MOE, d->rows, width, d->C,
			  s->add_bias_linear, true);
	add_dispatch(w, d, rows, width);
	add_permute(w, d, rows, tokens, width);
	add_mlp(w, d, &m);
	if (latent)
		work_gemm(w, d, MODULE_MOE, d->rows, d->C, width,
			  s->add_bias_linear, true);
	add_shared(w, d);
}

void works_mlp(struct works *w, const struct work_dims *d, int64_t layer)
{
	const struct shape *s = &d->config->shape;
	int64_t width = shape_layer_ffn(s, layer);
	struct mlp m = {
		.modules = MODULE_MLP,
		.count = 1,
		.tokens = d->N,
		.in = d->C,
		.width = (double)width / d->tp,
		.bias = s->add_bias_linear,
	};

	if (!shape_is_moe(s, layer) && !width)
		return;
	work_norm(w, d, 0, d->rows, d->C)->away_rest = AWAY_MLP_NORM;
	if (shape_is_moe(s, layer)) {
		add_experts(w, d);
		return;
	}
	if (width < 0) { /* a linear layer in its place, whole everywhere */
		work_gemm(w, d, 0, d->rows, d->C, d->C, s->add_bias_linear,
			  false);
		return;
	}
	work_gather(w, d);
	add_mlp(w, d, &m);
	work_reduce(w, d);
}
