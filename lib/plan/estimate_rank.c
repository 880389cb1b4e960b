/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank holds, and what it does between two steps' micro-batches. */
#include <math.h>
#include <string.h>

#include "lib/plan/estimate_rule.h"
#include "lib/plan/rope.h"

static int64_t at_most(int64_t n, int64_t most)
{
	return n < most ? n : most;
}

/* The chunk of forward slot I, as sched_build orders them. */
static int chunk_of(const struct pipeline *p, int64_t i)
{
	int64_t whole = p->group * p->vp, first = i / whole * p->group;

	if (p->vp == 1)
		return 0;
	return (int)(i % whole / at_most(p->m - first, p->group));
}

/* Forward slots before the first backward, as sched_build has them. */
static int64_t warmup_of(const struct pipeline *p, int r)
{
	int64_t w = p->pp - r - 1;

	if (p->vp > 1)
		w = 2 * w + (p->vp - 1) * p->group;
	return at_most(w, p->m * p->vp);
}

/* Bytes that live and die with micro-batches, at the peak. */
static double live_peak(const struct pipeline *p, const struct stage_cost *cost,
			int r)
{
	int64_t w = warmup_of(p, r), total = p->m * p->vp;
	/* Then everything repeats itself. */
	int64_t most = at_most(total, w + 2 * p->group * p->vp + 2);
	double live = 0, peak = 0;

	for (int64_t i = 0; i < w; i++) {
		const struct stage_cost *f = &cost[chunk_of(p, i) * p->pp + r];

		live += f->keep;
		peak = fmax(peak, live + f->extra[0]);
	}
	for (int64_t i = 0; i < most; i++) {
		const struct stage_cost *b;

		if (w + i < total) {
			b = &cost[chunk_of(p, w + i) * p->pp + r];
			live += b->keep;
			peak = fmax(peak, live + b->extra[0]);
		}
		b = &cost[(p->vp - 1 - chunk_of(p, i)) * p->pp + r];
		peak = fmax(peak, live + b->extra[1]);
		live -= b->keep;
	}
	return peak;
}

/* Attention's scratch and the table of rope. */
static double standing(const struct estimator *s)
{
	const struct config *c = s->dims.config;
	const struct shape *shape = &c->shape;
	int64_t groups, last = 0, tp = s->dims.tp;
	struct kern_attn_dims d;
	double table = s->dims.T * 2 * (double)rope_pairs(shape), most = 0;

	for (int64_t n = 0; n < shape->num_layers; n++, last = groups) {
		groups = shape_layer_groups(shape, n);
		if (groups < 1 || groups == last)
			continue;
		d = prog_attn_dims(c, shape->num_attention_heads / tp,
				   groups < tp ? 1 : groups / tp, 0);
		d.T /= s->dims.cp;
		most = fmax(most, (double)prog_attn_scratch(c, &d));
	}
	return table * s->dims.sum + most;
}

double estimate_peak(const struct estimator *s, const struct pipeline *p,
		     const struct stage_cost *cost, int r)
{
	/* Messages that are still on their way, in both directions. */
	int ways = (p->pp > 1) * (1 + (p->vp > 1 || (r && r < p->pp - 1)));
	/* Holes of one micro-batch that the next one's buffers leave. */
	double holes = 0;

	for (int v = 0; v < p->vp && warmup_of(p, r); v++)
		holes = fmax(holes, cost[v * p->pp + r].extra[1] - s->stream);
	return standing(s) + live_peak(p, cost, r) + holes +
	       (double)(ways * (p->group - p->pp + 1)) * s->stream;
}

double estimate_buffers(const struct estimator *s)
{
	const struct work_dims *d = &s->dims;
	const struct config *c = d->config;
	double bytes = d->sp ? d->N * d->C * d->elem : 0, tokens;

	if (d->ep > 1) {
		tokens = d->rows * (double)c->shape.moe_router_topk * d->etp;
		bytes = fmax(bytes, 2 * tokens * d->C * d->elem);
	}
	if (c->place.data_parallel_sharding_strategy >=
	    SHARD_OPTIM_GRADS_PARAMS)
		for (int i = 0; i < CLASSES; i++)
			bytes += s->largest[i] * (2 * d->elem + d->sum);
	return bytes;
}

static int64_t host_room(int64_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

int64_t estimate_host(const struct estimator *s, int64_t m)
{
	const struct config *c = s->dims.config;
	int64_t depths = c->shape.mtp_num_layers, heads = 1 + depths;
	int64_t ids = 4 * m * (int64_t)s->dims.N;
	int64_t all = host_room(sizeof(struct kern_scalars)) +
		      2 * host_room(heads * ids) + 2 * host_room(8 * heads * m);

	if (c->run.reset_attention_mask)
		all += host_room(ids);
	if (c->run.reset_position_ids &&
	    c->shape.position_embedding_type == POS_LEARNED)
		all += host_room(heads * ids);
	return all + 2 * host_room(8 * depths * m);
}

/* Bytes of a state whose type is DTYPE, an index behind fp32. */
static double state_bytes(int dtype)
{
	static const double bytes[] = {4, 2, 2, 1};

	return bytes[dtype];
}

/* Bytes of an element's optimizer state, but for its master copy. */
static double moments(const struct config *c)
{
	const struct run *r = &c->run;
	double sum = (double)spec_sum_bytes(&c->spec);

	switch (r->optimizer) {
	case OPT_SGD: return r->sgd_momentum > 0 ? sum : 0;
	case OPT_MUON:
	case OPT_LION: return sum;
	case OPT_SOAP: return 4 * sum;
	default:
		if (!r->use_precision_aware_optimizer)
			return 2 * sum;
		return state_bytes(r->exp_avg_dtype) +
		       state_bytes(r->exp_avg_sq_dtype);
	}
}

/* Bytes of a parameter: with fp8 a cast copy for each way it is read. */
static double param_bytes(const struct spec *s)
{
	double elem = (double)spec_param_bytes(s);

	if (s->fp8 == FP8_NONE && s->fp4 == FP4_NONE)
		return elem;
	return s->fp8_param || s->fp4_param ? 2 : elem + 2;
}

void estimate_state(const struct config *c, double elements, double own,
		    int64_t bytes[FAMILIES])
{
	const struct run *r = &c->run;
	int sharding = c->place.data_parallel_sharding_strategy;
	bool aware = r->use_precision_aware_optimizer;
	double elem = (double)spec_param_bytes(&c->spec);
	double sum = (double)spec_sum_bytes(&c->spec);
	double grad = aware ? state_bytes(r->main_grads_dtype) : sum;
	double master = elem >= sum ? 0
			: aware	    ? state_bytes(r->main_params_dtype)
				    : sum;
	double optim = (sharding >= SHARD_OPTIM ? own : elements) *
		       (master + moments(c));

	if (c->place.optimizer_cpu_offload)
		optim *= 1 - c->place.optimizer_offload_fraction;
	bytes[FAMILY_PARAM] =
		(int64_t)((sharding >= SHARD_OPTIM_GRADS_PARAMS ? own
								: elements) *
			  param_bytes(&c->spec));
	bytes[FAMILY_GRAD] =
		(int64_t)((sharding >= SHARD_OPTIM_GRADS ? own : elements) *
			  grad);
	bytes[FAMILY_OPTIM] = (int64_t)optim;
}

double estimate_own(const struct config *c, const struct grid *g,
		    const double params[CLASSES])
{
	double instances = 1;

	if (IS_SET(c->place.num_distributed_optimizer_instances))
		instances =
			(double)c->place.num_distributed_optimizer_instances;
	return instances * (params[CLASS_DENSE] / (g->dp * g->cp) +
			    params[CLASS_EXPERT] / g->edp);
}

/* Gradients to those who update them, parameters back. */
static double reduce_seconds(const struct estimator *s, double params,
			     int group)
{
	int sharding = s->dims.config->place.data_parallel_sharding_strategy;
	struct span span = s->machine->span[group];
	double share = params / span.size, t = 0;

	if (sharding == SHARD_NONE)
		return cost_comm(s->machine, PROG_SUM, span,
				 params * s->dims.sum);
	/* Where gradients are sharded every backward scatters them. */
	if (sharding == SHARD_OPTIM)
		t = cost_comm(s->machine, PROG_REDUCE_SCATTER, span,
			      share * s->dims.sum);
	if (sharding < SHARD_OPTIM_GRADS_PARAMS)
		t += cost_comm(s->machine, PROG_ALL_GATHER, span,
			       share * s->dims.elem);
	return t;
}

/* The copies of a tied embedding at both ends of a pipeline. */
static double embedding_seconds(const struct estimator *s, const struct grid *g)
{
	struct span ends = s->machine->span[GROUP_PP];

	if (g->pp == 1 ||
	    !s->dims.config->shape.share_embeddings_and_output_weights)
		return 0;
	ends.local = ends.local >= g->pp ? 2 : 1;
	ends.size = 2;
	return cost_comm(s->machine, PROG_SUM, ends,
			 s->embedding.params[CLASS_DENSE] * s->dims.sum);
}

double estimate_finish(const struct estimator *s, const struct grid *g,
		       const double params[CLASSES], double arrays)
{
	const struct gpu *gpu = s->machine->gpu;
	const struct config *c = s->dims.config;
	bool shards = c->place.data_parallel_sharding_strategy != SHARD_NONE;
	double all = params[CLASS_DENSE] + params[CLASS_EXPERT];
	double own = estimate_own(c, g, params), mine = shards ? own : all;
	double elem = s->dims.elem, sum = s->dims.sum, t;

	t = reduce_seconds(s, params[CLASS_DENSE], GROUP_DP_CP) +
	    reduce_seconds(s, params[CLASS_EXPERT], GROUP_EDP) +
	    embedding_seconds(s, g);
	/* AdamW: gradient, moments, master copy, parameters. */
	t += cost_bytes(gpu, mine * (elem + 7 * sum), 0.75) + arrays * 5e-6;
	/* Squares for the norm, zeros for the next step. */
	t += cost_bytes(gpu, own * sum, 0.73) + arrays * 7.5e-6;
	t += cost_bytes(gpu, all * sum, 0.93);
	return t + cost_comm(s->machine, PROG_SUM,
			     s->machine->span[GROUP_WORLD], 32);
}
