/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/sum.h"

#include <string.h>

void sum_plan(struct sum_rank *out, const struct plan *p)
{
	const struct prog_list *l = &p->prog.train;

	*out = (struct sum_rank){
		.parameters =
			p->prog.bytes[FAMILY_PARAM] / (int64_t)p->prog.elem,
	};
	memcpy(out->bytes, p->prog.bytes, sizeof(out->bytes));
	for (int i = 0; i < l->count; i++) {
		const struct op *op = &l->op[i];
		struct sum_comm *comm;

		out->ops[op->code]++;
		out->flops[op->kind] += op->flops;
		if (op->code != OP_COMM)
			continue;
		comm = &out->comm[op->group][op->comm];
		comm->ops++;
		comm->bytes += op->bytes;
	}
}

int64_t sum_bytes(const struct sum_rank *r)
{
	int64_t n = 0;

	for (int f = 0; f < FAMILIES; f++)
		n += r->bytes[f];
	return n;
}

bool sum_knows(const struct sum *s, int family)
{
	return s->planned || (s->counted && family <= FAMILY_OPTIM);
}

/* With all other coordinates 0 only copies of embeddings do not count. */
static void count_weights(struct sum *s, const struct weights *w,
			  const struct slice *slice, struct arena *a)
{
	bool *seen = arena_alloc(a, (size_t)w->count, sizeof(*seen));

	for (int i = 0; i < slice->params; i++) {
		const struct param *p = &slice->param[i];
		int stage = p->chunk * s->stages.pp + slice->at.pp;

		for (int k = 0; k < p->pieces; k++) {
			const struct piece *x =
				&slice->piece[p->first_piece + k];

			if (x->replica == 0 && !seen[x->weight] && !p->counts)
				s->stage[stage].parameters +=
					weight_elements(&w->list[x->weight]);
			seen[x->weight] = true;
		}
	}
}

static void count_flops(struct sum *s, const struct plan *p)
{
	const struct prog_list *l = &p->prog.train;

	for (int i = 0; i < l->count; i++) {
		const struct op *op = &l->op[i];
		struct sum_stage *st;

		if (op->mb != 0)
			continue;
		st = &s->stage[op->chunk * s->stages.pp + p->slice.at.pp];
		*(op->backward ? &st->backward : &st->forward) += op->flops;
	}
}

/* Pipeline rank PP, as its rank with all other coordinates 0. */
static int sum_pp(struct sum *s, int pp, struct err *e)
{
	int rank = grid_rank(&s->grid, (struct coord){.pp = pp});
	struct arena a;
	struct plan p;
	int bad = 0;

	if (arena_open(&a, e))
		return -1;
	if (s->planned)
		bad = plan_build(&p, s->config, s->grid.world, rank, &a, e);
	else
		bad = plan_slice(&p, s->config, s->grid.world, rank, &a, e);
	if (!bad) {
		count_weights(s, &p.weights, &p.slice, &a);
		sum_plan(&s->rank[pp], &p);
		count_flops(s, &p);
	}
	arena_close(&a);
	return bad;
}

static void simulate(struct sum *s, struct arena *a)
{
	int pp = s->stages.pp, vp = s->stages.vp, count = s->stages.count;
	int group = (int)s->config->place.microbatch_group_size_per_vp_stage;
	double *time = arena_alloc(a, 2 * (size_t)count, sizeof(*time));

	for (int r = 0; r < pp; r++)
		sched_build(&s->sched[r], pp, r, vp, s->microbatches, group, a);
	for (int i = 0; i < count; i++) {
		time[i] = s->stage[i].forward;
		time[count + i] = s->stage[i].backward;
	}
	sched_simulate(&s->sim, s->sched, pp, vp, time, time + count, 0, a);
}

/* What of the plan can be known. */
static void know(struct sum *s, struct arena *a)
{
	struct report r = {.arena = a};

	s->planned = !config_unserved(s->config, &r) &&
		     !plan_unserved(s->config, s->grid.world, &r);
	s->counted = weights_known(&s->config->shape);
}

int sum_build(struct sum *out, const struct config *config, int world,
	      struct arena *a, struct err *e)
{
	const struct run *run = &config->run;

	*out = (struct sum){.config = config};
	if (grid_build(&out->grid, &config->place, world, e) ||
	    stages_build(&out->stages, &config->place, &config->shape, a, e))
		return -1;
	know(out, a);
	out->microbatches = (int)run_microbatches(run, out->grid.dp);
	out->rank = arena_alloc(a, (size_t)out->grid.pp, sizeof(*out->rank));
	out->sched = arena_alloc(a, (size_t)out->grid.pp, sizeof(*out->sched));
	out->stage =
		arena_alloc(a, (size_t)out->stages.count, sizeof(*out->stage));
	for (int pp = 0; pp < out->grid.pp && out->counted; pp++)
		if (sum_pp(out, pp, e))
			return -1;
	if (out->planned)
		simulate(out, a);
	return 0;
}

static const struct {
	const char *name;
	unsigned axes;
} group_table[SUM_GROUPS] = {
	[SUM_TP] = {"tp", AXES(AXIS_TP)},
	[SUM_CP] = {"cp", AXES(AXIS_CP)},
	[SUM_DP] = {"dp", AXES(AXIS_DP)},
	[SUM_DP_CP] = {"dp_cp", AXES_DP_CP},
	[SUM_EP] = {"ep", AXES(AXIS_EP)},
	[SUM_ETP] = {"etp", AXES(AXIS_ETP)},
	[SUM_EDP] = {"edp", AXES(AXIS_EDP)},
	[SUM_PP] = {"pp", AXES(AXIS_PP)},
	[SUM_EMBEDDING] = {"embedding", AXES(AXIS_PP)},
};

const char *sum_group_name(int group)
{
	return group_table[group].name;
}

int sum_group(const struct sum *s, int group, int rank, int *ranks)
{
	bool tied = s->config->shape.share_embeddings_and_output_weights;
	int me, kept = 0;
	int n = grid_group(&s->grid, rank, group_table[group].axes, ranks, &me);

	if (group != SUM_EMBEDDING)
		return n;
	if (!stages_embedding(&s->stages, tied, me))
		return 0;
	for (int pp = 0; pp < n; pp++)
		if (stages_embedding(&s->stages, tied, pp))
			ranks[kept++] = ranks[pp];
	return kept;
}

bool sum_group_first(const struct sum *s, int group, int rank)
{
	struct coord c = grid_coord(&s->grid, rank);

	switch (group) {
	case SUM_TP: return c.tp == 0;
	case SUM_CP: return c.cp == 0;
	case SUM_DP: return c.dp == 0;
	case SUM_DP_CP: return c.dp == 0 && c.cp == 0;
	case SUM_EP: return c.ep == 0;
	case SUM_ETP: return c.etp == 0;
	case SUM_EDP: return c.edp == 0;
	default: return c.pp == 0;
	}
}
