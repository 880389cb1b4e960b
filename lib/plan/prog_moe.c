/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts in the place of a layer's mlp.  Every tp rank routes all rows, so
 * that all agree without a word; it has a part of each expert's width.  The
 * router's gradient is of this rank's rows alone under sequence parallelism,
 * else of all on every rank: what weight.h calls token_partial.
 *
 * The ranks of ep have some experts each.  All gather the rows and logits of
 * all, route them all, and have what their experts make of them; the sums go
 * back to whose rows they are.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "lib/plan/prog_build.h"

/* The names of shape.h are the kernels' too. */
_Static_assert((int)SCORE_SOFTMAX == (int)KERN_SOFTMAX &&
		       (int)SCORE_SIGMOID == (int)KERN_SIGMOID &&
		       (int)SCORE_SQRTSOFTPLUS == (int)KERN_SQRTSOFTPLUS,
	       "moe_router_score_function and enum kern_score differ");

/* The coefficient of one of the ways of balancing. */
static double balance(const struct run *r, const char *type)
{
	const struct texts *types = &r->moe_router_load_balancing_type;
	double sum = 0;

	for (int i = 0; i < types->count; i++)
		if (!strcmp(types->item[i], type))
			sum += r->moe_aux_loss_coeff.item[i];
	return sum;
}

/* Tokens of a micro-batch that an expert takes: model-numerics 2.9. */
static int64_t capacity(const struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	double fair = (double)(b->N * s->moe_router_topk) /
		      (double)s->num_moe_experts;
	double most = ceil(fair * s->moe_expert_capacity_factor);

	/* no factor, or one below 0: all; more than all is all, too */
	if (!(most >= 0) || most > (double)b->N)
		return 0;
	return (int64_t)most;
}

void moe_dims(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	const struct run *r = &b->in->config->run;
	double z = r->moe_z_loss_coeff,
	       scale = s->moe_router_topk_scaling_factor;
	const struct grid *g = b->in->grid;
	struct kern_moe_dims *d;

	if (!s->num_moe_experts)
		return;
	d = arena_alloc(b->a, 2, sizeof(*d));
	*d = (struct kern_moe_dims){
		.M = b->N,
		.T = b->T,
		.E = s->num_moe_experts,
		.K = s->moe_router_topk,
		.score = (enum kern_score)s->moe_router_score_function,
		.pre = s->moe_router_pre_softmax,
		.scale = isnan(scale) ? 1 : scale,
		.aux = balance(r, "aux_loss"),
		.seq_aux = balance(r, "seq_aux_loss"),
		.z = isnan(z) ? 0 : z,
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
	d->first = d->me * d->experts;
	if (IS_SET(s->moe_router_group_topk)) {
		d->groups = s->moe_router_num_groups;
		d->group_topk = s->moe_router_group_topk;
	}
	d[1] = d[0];
	if (s->mtp_use_repeated_layer && s->mtp_num_layers) {
		/* the losses of its depths count once, all their tokens */
		d[1].aux /= (double)s->mtp_num_layers;
		d[1].seq_aux /= (double)s->mtp_num_layers;
		d[1].fair *= (double)s->mtp_num_layers;
	}
	b->moe = d;
}

bool moe_has(const struct build *b)
{
	return param_ref(b, FAMILY_PARAM, PART_ROUTER_W, b->layer).family >= 0;
}

/* Those of a layer. */
static const struct kern_moe_dims *dims_of(const struct build *b, int64_t layer)
{
	return b->moe + (layer >= b->in->config->shape.num_layers);
}

static const struct kern_moe_dims *dims(const struct build *b)
{
	return dims_of(b, b->layer);
}

void moe_balance(struct build *b, int64_t layer, struct ref bias,
		 struct ref master, struct ref count, int64_t n)
{
	emit(b, OP_BALANCE, KIND_OPTIM, REFS(bias, master, count), DIMS(n))
		->moe = dims_of(b, layer);
}

/* All tokens that come here, their choices, and the rows of experts. */
static int64_t tokens(const struct build *b)
{
	return b->moe->ranks * b->moe->M;
}

static int64_t choices(const struct build *b)
{
	return tokens(b) * b->moe->K;
}

static int64_t expert_rows(const struct build *b)
{
	return kern_moe_rows(b->moe);
}

static struct ref map_row(const struct build *b, const struct buf *map)
{
	return buf_at(map, choices(b) * (int64_t)sizeof(int32_t));
}

static struct ref map_end(const struct build *b, const struct buf *map)
{
	return buf_at(map, 2 * choices(b) * (int64_t)sizeof(int32_t));
}

/* An expert's width on this rank, and its fc1's outputs there. */
static int64_t width(const struct build *b)
{
	return b->in->config->shape.moe_ffn_hidden_size / b->in->grid->etp;
}

static int64_t fc1_width(const struct build *b)
{
	return width(b) << b->in->config->shape.gated_linear_unit;
}

static struct mlp shared(const struct build *b)
{
	int64_t all = b->in->config->shape.moe_shared_expert_intermediate_size;

	return (struct mlp){PART_SHARED_FC1_W, PART_SHARED_FC2_W,
			    IS_SET(all) ? all / b->tp : 0};
}

/* Its flops are those of balanced experts. */
static void emit_experts(struct build *b, int code, const struct buf *map,
			 struct ref y, struct ref x, struct ref w, int64_t out,
			 int64_t in)
{
	int kind = code == OP_EXPERTS_FWD     ? KIND_FORWARD
		   : code == OP_EXPERTS_BWD_X ? KIND_BACKWARD
					      : KIND_WGRAD;
	int64_t rows = expert_rows(b), fair = b->moe->M * b->moe->K;

	emit(b, code, kind, REFS(y, x, w, map_end(b, map)),
	     DIMS(rows, out, in, b->moe->experts))
		->flops = 2 * (double)(rows < fair ? rows : fair) *
			  (double)out * (double)in;
}

/*
 * This rank's X (N, WIDTH) and those of the other ranks of ep, behind each
 * other; X itself if it is alone.
 */
static struct buf from_all(struct build *b, struct buf x, int64_t width)
{
	struct buf all;

	if (b->moe->ranks == 1)
		return x;
	all = buf_new(b, FAMILY_COMM, tokens(b) * width);
	emit_collective(b, PROG_ALL_GATHER, GROUP_EP, TYPE_ELEM, buf_ref(&x),
			buf_ref(&all), b->N * width);
	return all;
}

/* The sum over ep of this rank's part of X (tokens, WIDTH); frees X. */
static struct buf to_mine(struct build *b, struct buf x, int64_t width,
			  int type)
{
	struct buf mine;

	if (b->moe->ranks == 1)
		return x;
	mine = type == TYPE_SUM ? buf_sums(b, FAMILY_ACT, b->N * width)
				: buf_new(b, FAMILY_ACT, b->N * width);
	emit_collective(b, PROG_REDUCE_SCATTER, GROUP_EP, type, buf_ref(&x),
			buf_ref(&mine), b->N * width);
	buf_free(b, &x);
	return mine;
}

/* This rank's rows X (N, C), and those of ep, to the experts. */
static struct buf gather(struct build *b, struct buf x, const struct buf *map,
			 int kind)
{
	struct buf all = from_all(b, x, b->C);
	struct buf y = buf_new(b, FAMILY_ACT, expert_rows(b) * b->C);

	emit(b, OP_GATHER, kind,
	     REFS(buf_ref(&y), buf_ref(&all), map_row(b, map)),
	     DIMS(tokens(b), b->moe->K, b->C))
		->moe = b->moe;
	gather_free(b, &all, &x);
	return y;
}

/* And the sums of what comes back, of this rank's rows; frees X. */
static struct buf combine(struct build *b, struct buf *x, const struct buf *map,
			  int kind)
{
	struct buf y = buf_new(b, FAMILY_ACT, tokens(b) * b->C);

	emit(b, OP_COMBINE, kind,
	     REFS(buf_ref(&y), buf_ref(x), map_row(b, map)),
	     DIMS(tokens(b), b->moe->K, b->C))
		->moe = b->moe;
	buf_free(b, x);
	return to_mine(b, y, b->C, TYPE_ELEM);
}

static void route(struct build *b, struct ref y, struct layer_saved *v)
{
	const struct kern_moe_dims *d = dims(b);
	struct buf all;
	struct ref stat = {offsetof(struct kern_scalars, metrics[METRIC_MOE]),
			   FAMILY_HOST};

	v->logits = buf_new(b, FAMILY_ACT, d->M * d->E);
	linear_forward(b, buf_ref(&v->logits), y, PART_ROUTER_W, PART_ROUTER_B,
		       d->E, b->C);
	v->prob = buf_sums(b, FAMILY_ACT, choices(b));
	v->map = buf_bytes(b, FAMILY_ACT, 4 * kern_map_size(d));
	all = from_all(b, v->logits, d->E);
	emit(b, OP_ROUTE_FWD, KIND_FORWARD,
	     REFS(buf_ref(&v->prob), buf_ref(&v->map),
		  b->in->slice->at.tp ? NO_REF : stat, buf_ref(&all),
		  param_ref(b, FAMILY_PARAM, PART_EXPERT_BIAS, b->layer)),
	     NULL, 0)
		->moe = d;
	gather_free(b, &all, &v->logits);
	forget(b, &v->logits);
}

static void emit_act(struct build *b, int code, const struct ref *refs,
		     int count)
{
	const struct shape *s = &b->in->config->shape;

	emit(b, code, code == OP_EXPERT_ACT_FWD ? KIND_FORWARD : KIND_BACKWARD,
	     refs, count,
	     DIMS(choices(b), width(b), s->activation_func,
		  s->gated_linear_unit))
		->moe = b->moe;
}

struct buf moe_forward(struct build *b, struct buf y, struct layer_saved *v)
{
	const struct mlp m = shared(b);
	struct buf rows, out, other;

	route(b, buf_ref(&y), v);
	rows = gather(b, y, &v->map, KIND_FORWARD);
	v->fc1 = buf_new(b, FAMILY_ACT, expert_rows(b) * fc1_width(b));
	emit_experts(b, OP_EXPERTS_FWD, &v->map, buf_ref(&v->fc1),
		     buf_ref(&rows),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC1_W, b->layer),
		     fc1_width(b), b->C);
	buf_free(b, &rows);
	v->act = buf_new(b, FAMILY_ACT, expert_rows(b) * width(b));
	emit_act(b, OP_EXPERT_ACT_FWD,
		 REFS(buf_ref(&v->act), buf_ref(&v->fc1), buf_ref(&v->prob),
		      map_row(b, &v->map)));
	forget(b, &v->fc1);
	forget(b, &v->prob);
	rows = buf_new(b, FAMILY_ACT, expert_rows(b) * b->C);
	emit_experts(b, OP_EXPERTS_FWD, &v->map, buf_ref(&rows),
		     buf_ref(&v->act),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC2_W, b->layer),
		     b->C, width(b));
	forget(b, &v->act);
	out = combine(b, &rows, &v->map, KIND_FORWARD);
	forget(b, &v->map);
	if (!m.width)
		return out;
	other = mlp_forward(b, &m, buf_ref(&y), &v->shared_fc1, &v->shared_act);
	return sum_of(b, &out, &other, b->N, KIND_FORWARD);
}

/* The gradient of the experts' fc1, and of the probabilities of all tp. */
static struct buf experts_output(struct build *b, struct buf dy,
				 struct layer_saved *v, struct buf *dprob)
{
	struct buf dout = gather(b, dy, &v->map, KIND_BACKWARD), dact, dfc1;

	emit_experts(b, OP_EXPERTS_BWD_W, &v->map,
		     param_ref(b, FAMILY_GRAD, PART_EXPERT_FC2_W, b->layer),
		     buf_ref(&dout), buf_ref(&v->act), b->C, width(b));
	buf_free(b, &v->act);
	dact = buf_new(b, FAMILY_ACT, expert_rows(b) * width(b));
	emit_experts(b, OP_EXPERTS_BWD_X, &v->map, buf_ref(&dact),
		     buf_ref(&dout),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC2_W, b->layer),
		     b->C, width(b));
	buf_free(b, &dout);
	dfc1 = buf_new(b, FAMILY_ACT, expert_rows(b) * fc1_width(b));
	*dprob = buf_sums(b, FAMILY_ACT, choices(b));
	emit_act(b, OP_EXPERT_ACT_BWD,
		 REFS(buf_ref(&dfc1), buf_ref(dprob), buf_ref(&dact),
		      buf_ref(&v->fc1), buf_ref(&v->prob),
		      map_row(b, &v->map)));
	buf_free(b, &dact);
	buf_free(b, &v->fc1);
	buf_free(b, &v->prob);
	*dprob = to_mine(b, *dprob, b->moe->K, TYPE_SUM);
	if (b->tp > 1)
		emit_collective(b, PROG_SUM, GROUP_TP, TYPE_SUM, buf_ref(dprob),
				buf_ref(dprob), b->N * b->moe->K);
	return dfc1;
}

/* This rank's part of the gradient of Y; frees DFC1. */
static struct buf experts_input(struct build *b, struct buf *dfc1, struct buf y,
				struct layer_saved *v)
{
	struct buf rows = gather(b, y, &v->map, KIND_WGRAD);

	emit_experts(b, OP_EXPERTS_BWD_W, &v->map,
		     param_ref(b, FAMILY_GRAD, PART_EXPERT_FC1_W, b->layer),
		     buf_ref(dfc1), buf_ref(&rows), fc1_width(b), b->C);
	buf_free(b, &rows);
	rows = buf_new(b, FAMILY_ACT, expert_rows(b) * b->C);
	emit_experts(b, OP_EXPERTS_BWD_X, &v->map, buf_ref(&rows),
		     buf_ref(dfc1),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC1_W, b->layer),
		     fc1_width(b), b->C);
	buf_free(b, dfc1);
	return combine(b, &rows, &v->map, KIND_BACKWARD);
}

/* What this rank's rows get through the router; frees DPROB. */
static struct buf router_input(struct build *b, struct buf *dprob,
			       struct layer_saved *v)
{
	const struct kern_moe_dims *d = dims(b);
	struct buf all = buf_new(b, FAMILY_ACT, d->M * d->E), dy;
	struct ref coef = {offsetof(struct kern_scalars, moe_coef),
			   FAMILY_HOST};
	struct ref mine = buf_part(b, &all, b->first_row * d->E);

	emit(b, OP_ROUTE_BWD, KIND_BACKWARD,
	     REFS(buf_ref(&all),
		  param_ref(b, FAMILY_GRAD, PART_EXPERT_BIAS, b->layer),
		  buf_ref(dprob), buf_ref(&v->logits), buf_ref(&v->map), coef),
	     NULL, 0)
		->moe = d;
	buf_free(b, dprob);
	buf_free(b, &v->logits);
	buf_free(b, &v->map);
	linear_weight_mine(b, mine, buf_ref(&v->y2), PART_ROUTER_W, d->E, b->C);
	dy = linear_input_mine(b, mine, PART_ROUTER_W, d->E, b->C);
	buf_free(b, &all);
	return dy;
}

struct buf moe_backward(struct build *b, struct buf dy, struct layer_saved *v)
{
	const struct mlp m = shared(b);
	struct buf dprob, dfc1, dact, all, part, own;

	dfc1 = experts_output(b, dy, v, &dprob);
	all = gather_rows(b, v->y2);
	part = experts_input(b, &dfc1, all, v);
	if (m.width) {
		dact = mlp_output(b, &m, buf_ref(&dy), &v->shared_act);
		dfc1 = mlp_act(b, &m, &dact, &v->shared_fc1);
		mlp_weight(b, &m, buf_ref(&dfc1), buf_ref(&all));
		own = mlp_input(b, &m, &dfc1);
		part = sum_of(b, &part, &own, b->N, KIND_BACKWARD);
	}
	gather_free(b, &all, &v->y2);
	part = reduce_rows(b, part);
	own = router_input(b, &dprob, v);
	buf_free(b, &v->y2);
	return sum_of(b, &part, &own, b->rows, KIND_BACKWARD);
}
