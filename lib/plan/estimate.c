/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/estimate.h"

#include <math.h>
#include <string.h>

#include "lib/plan/estimate_rule.h"
#include "lib/plan/gpu.h"
#include "lib/plan/slice.h"

/* All that one estimate is made of. */
struct making {
	struct estimate *out;
	const struct config *c;
	const struct cluster *cl;
	struct grid grid;
	struct stages stages;
	struct machine machine;
	struct estimator s;
	struct pipeline pipe;
	struct weights weights;	 /* if they are known */
	struct stage_cost *cost; /* by stage */
	struct arena *a;
};

int64_t estimate_bytes(const struct estimate_rank *r)
{
	int64_t n = 0;

	for (int f = 0; f < FAMILIES; f++)
		n += r->bytes[f];
	return n;
}

double estimate_flops(const struct config *c)
{
	struct config one = *c;
	struct work_dims d;
	struct works w;
	double layer = 0, all = 0, head;
	int64_t kind = 0;

	one.place.tensor_model_parallel_size = 1;
	one.place.context_parallel_size = 1;
	one.place.expert_model_parallel_size = 1;
	one.place.expert_tensor_parallel_size = 1;
	one.run.micro_batch_size = 1;
	work_dims(&d, &one);
	head = 2 * d.N * d.C *
	       (double)place_padded_vocab(&c->place, c->shape.vocab_size);
	for (int64_t n = 0; n < c->shape.num_layers + c->shape.mtp_num_layers;
	     n++) {
		if (!n || work_layer_kind(&c->shape, n) != kind) {
			works_layer(&w, &d, n);
			layer = 0;
			for (int i = 0; i < w.count; i++)
				layer += w.list[i].flops[0];
			kind = work_layer_kind(&c->shape, n);
		}
		all += layer;
	}
	all += head * (double)(1 + c->shape.mtp_num_layers);
	return 3 * all * (double)c->run.global_batch_size;
}

/*
 * Seconds between two micro-batches: the busiest rank's work on one, or what
 * the way of one from rank 0 and back takes over as many as it lets out.
 */
static double cycle_of(const struct pipeline *p, const struct stage_cost *cost)
{
	double most = 0, after = 0, kept = 0;

	for (int r = 0; r < p->pp; r++) {
		double rank = 0;

		for (int v = 0; v < p->vp; v++)
			rank += cost[v * p->pp + r].time[0] +
				cost[v * p->pp + r].time[1];
		most = fmax(most, rank);
	}
	/* Each chunk of rank 0 waits for all stages behind it. */
	for (int i = p->pp * p->vp - 1; i >= 0; i--) {
		after += cost[i].time[0] + cost[i].time[1];
		if (i % p->pp == 0)
			kept += after;
	}
	if (p->vp == 1)
		return fmax(most, kept / p->pp);
	return fmax(most,
		    kept / (double)(2 * p->pp - 1 + (p->vp - 1) * p->group));
}

double estimate_pipeline(const struct pipeline *p,
			 const struct stage_cost *cost)
{
	double cycle = cycle_of(p, cost), way = 0;

	for (int i = 0; i < p->pp * p->vp; i++)
		way += cost[i].time[0] + cost[i].time[1];
	if (p->vp == 1)
		return (double)(p->m - 1) * cycle + way;
	return (double)p->m * cycle + fmax(way - cycle, 0) / p->vp;
}

/* What the plan of the weights says of a rank's flat buffers. */
static int count_slice(struct making *b, int pp, double params[CLASSES],
		       double *own, double *packed, struct err *e)
{
	double sum_tp = 0, sum_kv = 0;
	struct arena a = {0};
	struct slice s;

	if (arena_open(&a, e))
		return -1;
	slice_build(&s, &b->c->shape, &b->c->place, &b->grid, &b->stages,
		    &b->weights, (struct coord){.pp = pp}, &a);
	for (int c = 0; c < CLASSES; c++)
		params[c] = (double)s.flat[c].buckets.elements;
	*own = (double)s.own;
	for (int i = 0; i < s.params; i++) {
		const struct param *x = &s.param[i];

		sum_tp += x->sum_tp ? (double)(x->rows * x->cols) : 0;
		if (x->sum_kv)
			sum_kv += (double)((x->rows - x->kv_row) * x->cols *
					   (s.kv_ranks / x->kv_copies));
	}
	/* a buffer ends at a multiple of 64 bytes */
	*packed = ceil(fmax(sum_tp, sum_kv) * b->s.dims.sum / 64) * 64;
	arena_close(&a);
	return 0;
}

static int fill_rank(struct making *b, int pp, double *finish, struct err *e)
{
	struct estimate_rank *r = &b->out->rank[pp];
	double params[CLASSES] = {0}, arrays = 0, own, packed = 0, scratch;

	for (int i = pp; i < b->stages.count; i += b->stages.pp) {
		const struct stage_cost *x = &b->cost[i];

		r->forward += x->time[0];
		r->backward += x->time[1];
		for (int k = 0; k < 2; k++) {
			r->flops[k] += x->flops[k];
			params[k] += x->params[k];
		}
		arrays += x->arrays;
	}
	own = estimate_own(b->c, &b->grid, params);
	if (b->weights.count && count_slice(b, pp, params, &own, &packed, e))
		return -1;
	estimate_state(b->c, params[CLASS_DENSE] + params[CLASS_EXPERT], own,
		       r->bytes);
	r->bytes[FAMILY_ACT] =
		(int64_t)estimate_peak(&b->s, &b->pipe, b->cost, pp);
	scratch = (double)prog_comm_scratch(b->c, b->grid.world);
	r->bytes[FAMILY_COMM] =
		(int64_t)(fmax(estimate_buffers(&b->s), packed) + scratch);
	r->bytes[FAMILY_HOST] = estimate_host(&b->s, b->pipe.m);
	*finish =
		fmax(*finish, estimate_finish(&b->s, &b->grid, params, arrays));
	return 0;
}

/* Seconds of the pipeline, and what share of it the ranks wait. */
static double simulate(struct making *b, double *bubble)
{
	const struct pipeline *p = &b->pipe;
	int count = p->pp * p->vp, m = (int)p->m;
	double *time = arena_alloc(b->a, 2 * (size_t)count, sizeof(*time));
	struct estimate *out = b->out;
	double busy = 0, step;

	for (int i = 0; i < count; i++)
		for (int k = 0; k < 2; k++) {
			time[k * count + i] = b->cost[i].time[k];
			busy += b->cost[i].time[k] / p->pp;
		}
	if (p->m > PIPELINE_SLOTS_MAX / count) {
		step = estimate_pipeline(p, b->cost);
		*bubble = 1 - busy * (double)p->m / step;
		return step;
	}
	out->sched = arena_alloc(b->a, (size_t)p->pp, sizeof(*out->sched));
	for (int r = 0; r < p->pp; r++)
		sched_build(&out->sched[r], p->pp, r, p->vp, m, (int)p->group,
			    b->a);
	sched_simulate(&out->sim, out->sched, p->pp, p->vp, time, time + count,
		       0, b->a);
	*bubble = out->sim.bubble;
	return out->sim.step;
}

/* The time of a step, and what follows from it. */
static void fill_step(struct making *b, double finish)
{
	struct estimate *out = b->out;
	const struct run *run = &b->c->run;
	double bubble, pipe = simulate(b, &bubble);

	out->step = pipe + finish;
	out->bubble = bubble * pipe / out->step;
	out->tokens_per_second = (double)run->global_batch_size *
				 (double)b->c->shape.seq_length / out->step;
	out->flops_share = estimate_flops(b->c) /
			   (out->step * b->machine.gpu->bf16 * b->grid.world);
}

static int make(struct making *b, struct err *e)
{
	struct estimate *out = b->out;
	double finish = 0;

	machine_build(&b->machine, b->cl, &b->grid);
	estimator_open(&b->s, &b->c->shape, b->a);
	estimator_build(&b->s, b->c, &b->machine);
	b->pipe = (struct pipeline){
		.pp = b->stages.pp,
		.vp = b->stages.vp,
		.m = run_microbatches(&b->c->run, b->grid.dp),
		.group = b->c->place.microbatch_group_size_per_vp_stage,
	};
	if (b->pipe.vp == 1)
		b->pipe.group = b->pipe.pp;
	if (b->pipe.group > PIPELINE_GROUP_MAX)
		b->pipe.group = PIPELINE_GROUP_MAX;
	b->cost = arena_alloc(b->a, (size_t)b->stages.count, sizeof(*b->cost));
	for (int i = 0; i < b->stages.count; i++)
		estimator_stage(&b->s, &b->c->place, &b->stages.stage[i],
				&b->cost[i]);
	if (weights_known(&b->c->shape))
		weights_build(&b->weights, &b->c->shape, b->a);
	out->pp = b->stages.pp;
	out->rank = arena_alloc(b->a, (size_t)out->pp, sizeof(*out->rank));
	for (int pp = 0; pp < out->pp; pp++) {
		if (fill_rank(b, pp, &finish, e))
			return -1;
		if (estimate_bytes(&out->rank[pp]) > out->memory) {
			out->memory = estimate_bytes(&out->rank[pp]);
			out->worst = pp;
		}
	}
	fill_step(b, finish);
	return 0;
}

int estimate_build(struct estimate *out, const struct config *config,
		   const struct cluster *cl, struct arena *a, struct err *e)
{
	struct making b = {.out = out, .c = config, .cl = cl, .a = a};

	memset(out, 0, sizeof(*out));
	if (grid_build(&b.grid, &config->place, cl->world, e) ||
	    stages_build(&b.stages, &config->place, &config->shape, a, e))
		return -1;
	return make(&b, e);
}
