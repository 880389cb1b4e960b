/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/exec_op.h"

#include <assert.h>

static bool run_forward(const struct kern *k, const struct op *op,
			const struct op_args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_EMBED_FWD:
		k->embed_fwd(a->q, p[0], p[1], p[2], n[0], n[1], n[2], n[3]);
		return true;
	case OP_POS_FWD:
		k->pos_fwd(a->q, p[0], p[1], n[0], n[1], n[2], n[3], n[4]);
		return true;
	case OP_DROP:
		k->drop(a->q, p[0], p[1], n[0], n[1], &a->drop);
		return true;
	case OP_JITTER:
		k->jitter(a->q, p[0], p[1], n[0], n[1], &a->drop);
		return true;
	case OP_RESID:
		k->resid(a->q, p[0], p[1], p[2], p[3], n[0], n[1], &a->drop);
		return true;
	case OP_NORM_FWD:
		k->norm_fwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			    p[7], op->norm, &a->drop);
		return true;
	case OP_LINEAR_FWD:
		k->linear_fwd(a->q, p[0], p[1], p[2], p[3], n[0], n[1], n[2]);
		return true;
	case OP_LINEAR_SUM:
		k->linear_sum(a->q, p[0], p[1], p[2], p[3], n[0], n[1], n[2]);
		return true;
	case OP_ROPE:
		k->rope(a->q, p[0], p[1], &a->attn, n[0], n[1],
			op->flag ? -1 : 1);
		return true;
	case OP_LATENT_FWD:
		k->latent_fwd(a->q, p[0], p[1], p[2], p[3], p[4], &a->attn,
			      n[0], n[1]);
		return true;
	case OP_ATTN_FWD:
		k->attn_fwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5], &a->attn);
		return true;
	case OP_ACT_FWD:
		k->act_fwd(a->q, p[0], p[1], n[0], n[1], (enum kern_act)n[2],
			   n[3]);
		return true;
	case OP_CE_MAX:
		k->ce_max(a->q, p[0], p[1], n[0], n[1], n[2]);
		return true;
	case OP_CE_SUMS:
		k->ce_sums(a->q, p[0], p[1], p[2], p[3], n[0], n[1], n[2],
			   n[3]);
		return true;
	case OP_CE_GRAD:
		k->ce_grad(a->q, p[0], p[1], p[2], p[3], p[4], p[5], p[6], n[0],
			   n[1], n[2], n[3]);
		return true;
	default: return false;
	}
}

/* With positions that are data. */
static bool run_at(const struct kern *k, const struct op *op,
		   const struct op_args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_POS_AT:
		k->pos_at(a->q, p[0], p[1], p[2], n[0], n[1], n[2], n[3], n[4]);
		return true;
	case OP_ROPE_AT:
		k->rope_at(a->q, p[0], p[1], p[2], &a->attn, n[0], n[1], n[2]);
		return true;
	case OP_LATENT_AT:
		k->latent_at(a->q, p[0], p[1], p[2], p[3], p[4], p[5], &a->attn,
			     n[0], n[1], n[2]);
		return true;
	case OP_ATTN_AT:
		k->attn_at(a->q, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			   &a->attn, n[0]);
		return true;
	default: return false;
	}
}

static bool run_backward(const struct kern *k, const struct op *op,
			 const struct op_args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_EMBED_BWD:
		k->embed_bwd(a->q, p[0], p[1], p[2], n[0], n[1], n[2], n[3]);
		return true;
	case OP_POS_BWD:
		k->pos_bwd(a->q, p[0], p[1], n[0], n[1], n[2], n[3], n[4]);
		return true;
	case OP_NORM_BWD:
		k->norm_bwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			    p[7], op->norm);
		return true;
	case OP_LINEAR_BWD_X:
		k->linear_bwd_x(a->q, p[0], p[1], p[2], n[0], n[1], n[2]);
		return true;
	case OP_LINEAR_BWD_W:
		k->linear_bwd_w(a->q, p[0], p[1], p[2], n[0], n[1], n[2]);
		return true;
	case OP_BIAS_BWD:
		k->bias_bwd(a->q, p[0], p[1], n[0], n[1]);
		return true;
	case OP_LATENT_BWD:
		k->latent_bwd(a->q, p[0], p[1], p[2], p[3], p[4], &a->attn,
			      n[0], n[1]);
		return true;
	case OP_ATTN_BWD:
		k->attn_bwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			    p[7], p[8], &a->attn);
		return true;
	case OP_ACT_BWD:
		k->act_bwd(a->q, p[0], p[1], p[2], n[0], n[1],
			   (enum kern_act)n[2], n[3]);
		return true;
	default: return false;
	}
}

static bool run_moe(const struct kern *k, const struct op *op,
		    const struct op_args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_ROUTE_FWD:
		k->route_fwd(a->q, p[0], p[1], p[2], p[3], op->moe);
		return true;
	case OP_TALLY: k->tally(a->q, p[0], p[1], op->moe); return true;
	case OP_ROUTE_LOSS:
		k->route_loss(a->q, p[0], p[1], p[2], p[3], op->moe);
		return true;
	case OP_ROUTE_BWD:
		k->route_bwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			     op->moe);
		return true;
	case OP_BALANCE:
		k->balance(a->q, p[0], p[1], p[2], n[0], op->moe);
		return true;
	case OP_GATHER:
		k->gather(a->q, p[0], p[1], p[2], n[0], n[1], n[2]);
		return true;
	case OP_COMBINE:
		k->combine(a->q, p[0], p[1], p[2], n[0], n[1], n[2]);
		return true;
	case OP_EXPERTS_FWD:
		k->experts_fwd(a->q, p[0], p[1], p[2], p[3], n[0], n[1], n[2],
			       n[3]);
		return true;
	case OP_EXPERTS_BWD_X:
		k->experts_bwd_x(a->q, p[0], p[1], p[2], p[3], n[0], n[1], n[2],
				 n[3]);
		return true;
	case OP_EXPERTS_BWD_W:
		k->experts_bwd_w(a->q, p[0], p[1], p[2], p[3], n[0], n[1], n[2],
				 n[3]);
		return true;
	case OP_EXPERT_ACT_FWD:
		k->expert_act_fwd(a->q, p[0], p[1], p[2], p[3], n[0], n[1],
				  (enum kern_act)n[2], n[3]);
		return true;
	case OP_EXPERT_ACT_BWD:
		k->expert_act_bwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5],
				  n[0], n[1], (enum kern_act)n[2], n[3]);
		return true;
	case OP_EXPERT_BIAS_FWD:
		k->expert_bias_fwd(a->q, p[0], p[1], p[2], p[3], n[1], op->moe);
		return true;
	case OP_EXPERT_BIAS_BWD:
		k->expert_bias_bwd(a->q, p[0], p[1], p[2], p[3], p[4], p[5],
				   n[1], op->moe);
		return true;
	default: return false;
	}
}

static bool run_mix(const struct kern *k, const struct op *op,
		    const struct op_args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_MIX_FWD:
		k->mix_fwd(a->q, p[0], p[1], p[2], n[0], n[1], n[2], n[3], n[4],
			   &a->drop);
		return true;
	case OP_MIX_BWD:
		k->mix_bwd(a->q, p[0], p[1], p[2], n[0], n[1], n[2], n[3], n[4],
			   &a->drop);
		return true;
	default: return false;
	}
}

static bool run_flat(const struct kern *k, const struct op *op,
		     const struct op_args *a)
{
	void *const *p = a->p;
	int64_t n = a->n[0];

	switch (op->code) {
	case OP_SUMSQ: k->sumsq(a->q, p[0], p[1], n); return true;
	case OP_ADAMW:
		k->adamw(a->q, p[0], p[1], p[2], p[3], p[4], n,
			 &a->scalars->adam[a->n[1]], op->flag);
		return true;
	case OP_METRICS:
		k->metrics(a->q, p[0], p[1], p[2], p[3], p[4], n, a->n[1],
			   a->n[2]);
		return true;
	case OP_CLIP: k->clip(a->q, p[0]); return true;
	case OP_ZERO: k->zero(a->q, p[0], n); return true;
	case OP_COPY: k->copy(a->q, p[0], p[1], n); return true;
	case OP_JOIN:
		k->join(a->q, p[0], p[1], p[2], p[3], n, a->n[1], a->n[2],
			a->n[3]);
		return true;
	case OP_CUT: k->cut(a->q, p[0], p[1], n, a->n[1], a->n[2]); return true;
	default: return false;
	}
}

void op_run(const struct kern *k, const struct op *op, const struct op_args *a)
{
	bool done = run_forward(k, op, a) || run_backward(k, op, a) ||
		    run_moe(k, op, a) || run_at(k, op, a) ||
		    run_mix(k, op, a) || run_flat(k, op, a);

	assert(done);
}
