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
#include <stddef.h>

#include "lib/plan/prog_build.h"

void moe_begin(struct build *b)
{
	const struct shape *s = &b->in->config->shape;
	int64_t bytes;

	if (!b->moe || !(b->moe->global > 0))
		return;
	bytes = shape_layers(s) * s->num_moe_experts * (int64_t)sizeof(double);
	b->tally = buf_bytes(b, FAMILY_ACT, bytes);
	emit(b, OP_ZERO, KIND_OPTIM, REFS(buf_ref(&b->tally)), DIMS(bytes));
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
	return b->train ? dims_of(b, b->layer) : b->moe + 2;
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

static struct mlp shared(const struct build *b, const struct layer_saved *v)
{
	int64_t all = b->in->config->shape.moe_shared_expert_intermediate_size;
	struct mlp m = {.fc1 = PART_SHARED_FC1_W,
			.fc2 = PART_SHARED_FC2_W,
			.fc2_bias = PART_SHARED_FC2_B,
			.width = IS_SET(all) ? all / b->tp : 0,
			.gate = b->gate};

	if (b->gate) {
		m.prob = buf_ref(&v->gate.prob);
		m.row = buf_at(&v->gate.map, b->N * (int64_t)sizeof(int32_t));
	}
	return m;
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
static struct buf from_all(struct build *b, struct buf x, int64_t width,
			   int type)
{
	struct buf all;

	if (b->moe->ranks == 1)
		return x;
	all = type == TYPE_SUM ? buf_sums(b, FAMILY_COMM, tokens(b) * width)
			       : buf_new(b, FAMILY_COMM, tokens(b) * width);
	emit_collective(b, PROG_ALL_GATHER, GROUP_EP, type, buf_ref(&x),
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
	struct buf all = from_all(b, x, b->C, TYPE_ELEM);
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

/* A new (M, E): router W's logits for Y; BIAS may be PARTS. */
static struct buf logits(struct build *b, const struct kern_moe_dims *d,
			 struct ref y, enum part w, enum part bias)
{
	struct buf x = buf_sums(b, FAMILY_ACT, d->M * d->E);

	emit(b, OP_LINEAR_SUM, KIND_FORWARD,
	     REFS(buf_ref(&x), y, param_ref(b, FAMILY_PARAM, w, b->layer),
		  bias == PARTS ? NO_REF
				: param_ref(b, FAMILY_PARAM, bias, b->layer)),
	     DIMS(d->M, d->E, b->C))
		->flops = 2 * (double)d->M * (double)d->E * (double)b->C;
	return x;
}

/* Where tokens go by the logits FROM, which may be of all ranks of ep. */
static void choose(struct build *b, const struct kern_moe_dims *d,
		   struct ref from, struct ref bias, struct routed *r)
{
	r->prob = buf_sums(b, FAMILY_ACT, d->ranks * d->M * d->K);
	r->map = buf_bytes(b, FAMILY_ACT, 4 * kern_map_size(d));
	emit(b, OP_ROUTE_FWD, KIND_FORWARD,
	     REFS(buf_ref(&r->prob), buf_ref(&r->map), from, bias), NULL, 0)
		->moe = d;
}

/* The step's tokens so far of each expert, of all ranks: R's own copy. */
static void tally(struct build *b, struct routed *r)
{
	int64_t E = b->moe->E, bytes = E * (int64_t)sizeof(double);
	struct ref mine, all;

	r->tally = NO_BUF;
	if (b->tally.family < 0 || !b->train)
		return;
	mine = buf_at(&b->tally, b->layer * bytes);
	emit(b, OP_TALLY, KIND_FORWARD, REFS(mine, buf_ref(&r->map)), NULL, 0)
		->moe = b->moe;
	r->tally = buf_bytes(b, FAMILY_ACT, bytes);
	all = buf_ref(&r->tally);
	emit(b, OP_COPY, KIND_FORWARD, REFS(all, mine), DIMS(bytes));
	if (b->in->slice->flat[CLASS_DENSE].dp > 1)
		emit_collective(b, PROG_SUM, GROUP_DP_CP, TYPE_F64, all, all,
				E);
}

static bool has_noise(const struct build *b)
{
	return b->train && b->in->config->run.moe_input_jitter_eps > 0;
}

/* Y = X (ROWS, C), from row FIRST on, times the noise of a router's input. */
static void emit_noise(struct build *b, int kind, struct ref y, struct ref x,
		       int64_t first, int64_t rows)
{
	emit(b, OP_JITTER, kind, REFS(y, x), DIMS(rows, b->C))->drop =
		(struct kern_drop){
			.p = b->in->config->run.moe_input_jitter_eps,
			.site = (uint32_t)(SITES_JITTER + b->drawn_for),
			.row0 = b->row0 + first,
		};
}

/* What the router gets for Y: with noise a new one, else NO_BUF and Y. */
static struct buf noisy(struct build *b, int kind, struct ref *y, int64_t first,
			int64_t rows)
{
	struct buf x;

	if (!has_noise(b))
		return NO_BUF;
	x = buf_new(b, FAMILY_ACT, rows * b->C);
	emit_noise(b, kind, buf_ref(&x), *y, first, rows);
	*y = buf_ref(&x);
	return x;
}

static void route(struct build *b, struct ref y, struct routed *r)
{
	const struct kern_moe_dims *d = dims(b);
	struct buf input = noisy(b, KIND_FORWARD, &y, 0, b->N);
	struct buf all;
	struct ref stat = {offsetof(struct kern_scalars, metrics[METRIC_MOE]),
			   FAMILY_HOST};

	r->logits = logits(b, d, y, PART_ROUTER_W, PART_ROUTER_B);
	buf_free(b, &input);
	all = from_all(b, r->logits, d->E, TYPE_SUM);
	choose(b, d, buf_ref(&all),
	       param_ref(b, FAMILY_PARAM, PART_EXPERT_BIAS, b->layer), r);
	gather_free(b, &all, &r->logits);
	tally(b, r);
	if (b->in->slice->at.tp == 0)
		emit(b, OP_ROUTE_LOSS, KIND_FORWARD,
		     REFS(stat, buf_ref(&r->logits), buf_ref(&r->map),
			  buf_ref(&r->tally)),
		     NULL, 0)
			->moe = d;
	forget(b, &r->logits);
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

/*
 * Whether this rank adds the biases of what is summed over tp: one does, and
 * what they are multiplied by gets its gradient by them there.
 */
static bool adds_biases(const struct build *b)
{
	return b->in->slice->at.tp == 0;
}

/* Y (R, WIDTH) += the experts' biases, PROB (may be NO_REF) times. */
static void add_bias(struct build *b, struct ref y, enum part bias,
		     struct ref prob, const struct buf *map, int64_t width)
{
	struct ref of = param_ref(b, FAMILY_PARAM, bias, b->layer);

	if (of.family >= 0)
		emit(b, OP_EXPERT_BIAS_FWD, KIND_FORWARD,
		     REFS(y, of, prob, buf_ref(map)),
		     DIMS(expert_rows(b), width))
			->moe = b->moe;
}

/* Their gradients for DY, and what PROB's, DPROB (or NO_REF), gets by them. */
static void bias_gradients(struct build *b, struct ref dy, enum part bias,
			   struct ref prob, struct ref dprob,
			   const struct buf *map, int64_t width)
{
	struct ref of = param_ref(b, FAMILY_GRAD, bias, b->layer), value;

	if (of.family < 0)
		return;
	value = dprob.family < 0 ? NO_REF
				 : param_ref(b, FAMILY_PARAM, bias, b->layer);
	emit(b, OP_EXPERT_BIAS_BWD, KIND_WGRAD,
	     REFS(of, dprob, dy, value, prob, buf_ref(map)),
	     DIMS(expert_rows(b), width))
		->moe = b->moe;
}

/* What the experts make of Y. */
static struct buf experts_forward(struct build *b, struct buf y,
				  struct layer_saved *v)
{
	struct buf *map = &v->router.map;
	struct buf rows = gather(b, y, map, KIND_FORWARD), out;

	v->fc1 = buf_new(b, FAMILY_ACT, expert_rows(b) * fc1_width(b));
	emit_experts(b, OP_EXPERTS_FWD, map, buf_ref(&v->fc1), buf_ref(&rows),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC1_W, b->layer),
		     fc1_width(b), b->C);
	buf_free(b, &rows);
	add_bias(b, buf_ref(&v->fc1), PART_EXPERT_FC1_B, NO_REF, map,
		 fc1_width(b));
	v->act = buf_new(b, FAMILY_ACT, expert_rows(b) * width(b));
	emit_act(b, OP_EXPERT_ACT_FWD,
		 REFS(buf_ref(&v->act), buf_ref(&v->fc1),
		      buf_ref(&v->router.prob), map_row(b, map)));
	forget(b, &v->fc1);
	rows = buf_new(b, FAMILY_ACT, expert_rows(b) * b->C);
	emit_experts(b, OP_EXPERTS_FWD, map, buf_ref(&rows), buf_ref(&v->act),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC2_W, b->layer),
		     b->C, width(b));
	forget(b, &v->act);
	if (adds_biases(b))
		add_bias(b, buf_ref(&rows), PART_EXPERT_FC2_B,
			 buf_ref(&v->router.prob), map, b->C);
	forget(b, &v->router.prob);
	out = combine(b, &rows, map, KIND_FORWARD);
	forget(b, map);
	return out;
}

static struct buf shared_forward(struct build *b, struct ref y,
				 struct layer_saved *v)
{
	struct routed *r = &v->gate;
	struct mlp m;
	struct buf out;

	if (b->gate) {
		r->logits = logits(b, b->gate, y, PART_SHARED_ROUTER_W, PARTS);
		choose(b, b->gate, buf_ref(&r->logits), NO_REF, r);
		r->tally = NO_BUF;
		forget(b, &r->logits);
	}
	m = shared(b, v);
	out = mlp_forward(b, &m, y, &v->shared_fc1, &v->shared_act);
	if (b->gate) {
		forget(b, &r->prob);
		forget(b, &r->map);
	}
	return out;
}

struct buf moe_forward(struct build *b, struct buf y, struct layer_saved *v)
{
	struct buf out, other;

	route(b, buf_ref(&y), &v->router);
	out = experts_forward(b, y, v);
	if (!shared(b, v).width)
		return out;
	other = shared_forward(b, buf_ref(&y), v);
	return sum_of(b, &out, &other, b->N, KIND_FORWARD);
}

/* This rank's DPROB (N, K) is of its part of the width. */
static void sum_widths(struct build *b, const struct buf *dprob, int64_t K)
{
	if (b->tp > 1)
		emit_collective(b, PROG_SUM, GROUP_TP, TYPE_SUM, buf_ref(dprob),
				buf_ref(dprob), b->N * K);
}

/* The gradient of the experts' fc1, and of the probabilities of all tp. */
static struct buf experts_output(struct build *b, struct buf dy,
				 struct layer_saved *v, struct buf *dprob)
{
	bool biased = b->in->config->shape.add_bias_linear;
	struct buf dout = gather(b, dy, &v->router.map, KIND_BACKWARD), dact,
		   dfc1;

	emit_experts(b, OP_EXPERTS_BWD_W, &v->router.map,
		     param_ref(b, FAMILY_GRAD, PART_EXPERT_FC2_W, b->layer),
		     buf_ref(&dout), buf_ref(&v->act), b->C, width(b));
	buf_free(b, &v->act);
	dact = buf_new(b, FAMILY_ACT, expert_rows(b) * width(b));
	emit_experts(b, OP_EXPERTS_BWD_X, &v->router.map, buf_ref(&dact),
		     buf_ref(&dout),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC2_W, b->layer),
		     b->C, width(b));
	if (!biased)
		buf_free(b, &dout);
	dfc1 = buf_new(b, FAMILY_ACT, expert_rows(b) * fc1_width(b));
	*dprob = buf_sums(b, FAMILY_ACT, choices(b));
	emit_act(b, OP_EXPERT_ACT_BWD,
		 REFS(buf_ref(&dfc1), buf_ref(dprob), buf_ref(&dact),
		      buf_ref(&v->fc1), buf_ref(&v->router.prob),
		      map_row(b, &v->router.map)));
	buf_free(b, &dact);
	buf_free(b, &v->fc1);
	if (biased) {
		bias_gradients(b, buf_ref(&dout), PART_EXPERT_FC2_B,
			       buf_ref(&v->router.prob),
			       adds_biases(b) ? buf_ref(dprob) : NO_REF,
			       &v->router.map, b->C);
		buf_free(b, &dout);
	}
	buf_free(b, &v->router.prob);
	*dprob = to_mine(b, *dprob, b->moe->K, TYPE_SUM);
	sum_widths(b, dprob, b->moe->K);
	return dfc1;
}

/* This rank's part of the gradient of Y; frees DFC1. */
static struct buf experts_input(struct build *b, struct buf *dfc1, struct buf y,
				struct layer_saved *v)
{
	struct buf rows = gather(b, y, &v->router.map, KIND_WGRAD);

	emit_experts(b, OP_EXPERTS_BWD_W, &v->router.map,
		     param_ref(b, FAMILY_GRAD, PART_EXPERT_FC1_W, b->layer),
		     buf_ref(dfc1), buf_ref(&rows), fc1_width(b), b->C);
	bias_gradients(b, buf_ref(dfc1), PART_EXPERT_FC1_B, NO_REF, NO_REF,
		       &v->router.map, fc1_width(b));
	buf_free(b, &rows);
	rows = buf_new(b, FAMILY_ACT, expert_rows(b) * b->C);
	emit_experts(b, OP_EXPERTS_BWD_X, &v->router.map, buf_ref(&rows),
		     buf_ref(dfc1),
		     param_ref(b, FAMILY_PARAM, PART_EXPERT_FC1_W, b->layer),
		     fc1_width(b), b->C);
	buf_free(b, dfc1);
	return combine(b, &rows, &v->router.map, KIND_BACKWARD);
}

static void router_bias(struct build *b, struct ref dlogits, int64_t E)
{
	struct ref db = param_ref(b, FAMILY_GRAD, PART_ROUTER_B, b->layer);

	if (db.family >= 0)
		emit(b, OP_BIAS_BWD, KIND_WGRAD, REFS(db, dlogits),
		     DIMS(b->rows, E));
}

/* What this rank's rows of Y get through router W; frees DPROB and R. */
static struct buf router_input(struct build *b, const struct kern_moe_dims *d,
			       enum part w, struct buf *dprob, struct routed *r,
			       struct ref y)
{
	struct buf all = buf_new(b, FAMILY_ACT, d->M * d->E);
	struct buf input = NO_BUF, dy;
	struct ref coef = {offsetof(struct kern_scalars, moe_coef),
			   FAMILY_HOST};
	struct ref mine = buf_part(b, &all, b->first_row * d->E), count;

	count = param_ref(b, FAMILY_GRAD, PART_EXPERT_BIAS, b->layer);
	emit(b, OP_ROUTE_BWD, KIND_BACKWARD,
	     REFS(buf_ref(&all), w == PART_ROUTER_W ? count : NO_REF,
		  buf_ref(dprob), buf_ref(&r->logits), buf_ref(&r->map),
		  buf_ref(&r->tally), coef),
	     NULL, 0)
		->moe = d;
	buf_free(b, dprob);
	buf_free(b, &r->logits);
	buf_free(b, &r->map);
	buf_free(b, &r->tally);
	if (w == PART_ROUTER_W)
		input = noisy(b, KIND_WGRAD, &y, b->first_row, b->rows);
	linear_weight_mine(b, mine, y, w, d->E, b->C);
	buf_free(b, &input);
	if (w == PART_ROUTER_W)
		router_bias(b, mine, d->E);
	dy = linear_input_mine(b, mine, w, d->E, b->C);
	if (w == PART_ROUTER_W && has_noise(b))
		emit_noise(b, KIND_BACKWARD, buf_ref(&dy), buf_ref(&dy),
			   b->first_row, b->rows);
	buf_free(b, &all);
	return dy;
}

/* This rank's part of the gradient of Y; DGATE is that of its gate. */
static struct buf shared_backward(struct build *b, struct ref dy, struct ref y,
				  struct layer_saved *v, struct buf *dgate)
{
	struct mlp m = shared(b, v);
	struct buf dact, dfc1;

	*dgate = b->gate ? buf_sums(b, FAMILY_ACT, b->N) : NO_BUF;
	m.dprob = buf_ref(dgate);
	dact = mlp_output(b, &m, dy, &v->shared_act);
	dfc1 = mlp_act(b, &m, &dact, &v->shared_fc1);
	mlp_weight(b, &m, buf_ref(&dfc1), y);
	if (b->gate) {
		buf_free(b, &v->gate.prob);
		sum_widths(b, dgate, 1);
	}
	return mlp_input(b, &m, &dfc1);
}

struct buf moe_backward(struct build *b, struct buf dy, struct layer_saved *v)
{
	struct buf dprob, dgate = NO_BUF, dfc1, all, part, own;

	dfc1 = experts_output(b, dy, v, &dprob);
	all = gather_rows(b, v->y2);
	part = experts_input(b, &dfc1, all, v);
	if (shared(b, v).width) {
		own = shared_backward(b, buf_ref(&dy), buf_ref(&all), v,
				      &dgate);
		part = sum_of(b, &part, &own, b->N, KIND_BACKWARD);
	}
	gather_free(b, &all, &v->y2);
	part = reduce_rows(b, part);
	own = router_input(b, dims(b), PART_ROUTER_W, &dprob, &v->router,
			   buf_ref(&v->y2));
	part = sum_of(b, &part, &own, b->rows, KIND_BACKWARD);
	if (b->gate) {
		own = router_input(b, b->gate, PART_SHARED_ROUTER_W, &dgate,
				   &v->gate, buf_ref(&v->y2));
		part = sum_of(b, &part, &own, b->rows, KIND_BACKWARD);
	}
	buf_free(b, &v->y2);
	return part;
}
