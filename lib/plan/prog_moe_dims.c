/* SPDX-License-Identifier: Apache-2.0 */
/* What a config says of routers, in the kernels' terms. */
#include <math.h>
#include <string.h>

#include "lib/plan/prog_build.h"

/* The names of shape.h are the kernels' too. */
_Static_assert((int)SCORE_SOFTMAX == (int)KERN_SOFTMAX &&
		       (int)SCORE_SIGMOID == (int)KERN_SIGMOID &&
		       (int)SCORE_SQRTSOFTPLUS == (int)KERN_SQRTSOFTPLUS,
	       "moe_router_score_function and enum kern_score differ");

/*
 * Tokens of a micro-batch that an expert takes: model-numerics 2.9.  A
 * generation's go to the experts that they want, whatever the batch.
 */
static int64_t capacity(const struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	double fair = (double)(b->N * s->moe_router_topk) /
		      (double)s->num_moe_experts;
	double most = ceil(fair * s->moe_expert_capacity_factor);

	/* no factor, or one below 0: all; more than all is all, too */
	if (!(most >= 0) || most > (double)b->N || b->gen)
		return 0;
	return (int64_t)most;
}

/* The losses of a repeated layer's depths count once, all their tokens. */
static void repeat(struct kern_moe_dims *d, const struct shape *s)
{
	double depths = (double)s->mtp_num_layers;

	if (!s->mtp_use_repeated_layer || !s->mtp_num_layers)
		return;
	d->aux /= depths;
	d->seq_aux /= depths;
	d->global /= depths;
	d->fair *= depths;
}

/* Experts that make themselves equally busy, whatever the scores. */
static void set_sinkhorn(struct kern_moe_dims *d)
{
	d->sinkhorn = true;
	d->score = d->K == 1 ? KERN_SIGMOID : KERN_SOFTMAX;
	d->pre = true;
}

/* The shared expert's gate is a router to it alone. */
static void gate_dims(struct build *b)
{
	struct kern_moe_dims *d = arena_alloc(b->a, 1, sizeof(*d));

	*d = (struct kern_moe_dims){
		.M = b->N,
		.T = b->T,
		.E = 1,
		.K = 1,
		.score = KERN_SIGMOID,
		.scale = 1,
		.ranks = 1,
		.experts = 1,
	};
	b->gate = d;
}

static void set_balance(struct kern_moe_dims *d, const struct run *r)
{
	const struct texts *types = &r->moe_router_load_balancing_type;

	d->z = isnan(r->moe_z_loss_coeff) ? 0 : r->moe_z_loss_coeff;
	for (int i = 0; i < types->count; i++) {
		const char *type = types->item[i];
		double coef = r->moe_aux_loss_coeff.item[i];

		if (!strcmp(type, "aux_loss"))
			d->aux += coef;
		else if (!strcmp(type, "seq_aux_loss"))
			d->seq_aux += coef;
		else if (!strcmp(type, "global_aux_loss"))
			d->global += coef;
		else if (!strcmp(type, "sinkhorn"))
			set_sinkhorn(d);
	}
}

void moe_dims(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	const struct run *r = &b->in->config->run;
	double scale = s->moe_router_topk_scaling_factor;
	const struct grid *g = b->in->grid;
	struct kern_moe_dims *d;

	if (!s->num_moe_experts)
		return;
	d = arena_alloc(b->a, 3, sizeof(*d));
	*d = (struct kern_moe_dims){
		.M = b->N,
		.T = b->T,
		.E = s->num_moe_experts,
		.K = s->moe_router_topk,
		.score = (enum kern_score)s->moe_router_score_function,
		.pre = s->moe_router_pre_softmax,
		.scale = isnan(scale) ? 1 : scale,
		.ranks = g->ep,
		.me = b->in->slice->at.ep,
		.experts = s->num_moe_experts / g->ep,
		.capacity = capacity(b),
		.by_position = s->moe_token_drop_policy == DROP_POSITION,
		.bias_rate = r->moe_router_bias_update_rate,
		.fair = (double)(r->global_batch_size * s->seq_length *
				 s->moe_router_topk) /
			(double)s->num_moe_experts,
	};
	set_balance(d, r);
	d->first = d->me * d->experts;
	if (IS_SET(s->moe_router_group_topk)) {
		d->groups = s->moe_router_num_groups;
		d->group_topk = s->moe_router_group_topk;
	}
	d[1] = d[2] = d[0];
	repeat(&d[1], s);
	d[2].sinkhorn = false;
	b->moe = d;
	b->tally = NO_BUF;
	if (s->moe_shared_expert_gate)
		gate_dims(b);
}
