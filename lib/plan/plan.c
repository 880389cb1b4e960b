/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/plan.h"

#include <string.h>

int plan_slice(struct plan *out, const struct config *config, int world,
	       int rank, struct arena *a, struct err *e)
{
	memset(out, 0, sizeof(*out));
	out->config = config;
	out->rank = rank;
	if (grid_build(&out->grid, &config->place, world, e))
		return -1;
	if (stages_build(&out->stages, &config->place, &config->shape, a, e))
		return -1;
	weights_build(&out->weights, &config->shape, a);
	slice_build(&out->slice, &config->shape, &config->place, &out->grid,
		    &out->stages, &out->weights, grid_coord(&out->grid, rank),
		    a);
	prog_state(&out->prog, &out->slice, &config->spec);
	return 0;
}

/* What the programs of a plan that is sliced follow from. */
static struct prog_input input(const struct plan *p)
{
	return (struct prog_input){
		.config = p->config,
		.grid = &p->grid,
		.stages = &p->stages,
		.weights = &p->weights,
		.slice = &p->slice,
	};
}

int plan_gen_build(struct plan *out, struct prog_gen *gen,
		   const struct config *config, const struct gen_size *size,
		   int world, int rank, struct arena *a, struct err *e)
{
	struct prog_input in;

	if (plan_slice(out, config, world, rank, a, e))
		return -1;
	in = input(out);
	return prog_gen_build(gen, &out->prog, &in, size, a, e);
}

int plan_build(struct plan *out, const struct config *config, int world,
	       int rank, struct arena *a, struct err *e)
{
	struct prog_input in;

	if (plan_slice(out, config, world, rank, a, e))
		return -1;
	in = input(out);
	return prog_build(&out->prog, &in, a, e);
}

/* The place in its file of one of the settings that prog_check names. */
static const struct origin *origin_of(const struct config *c, const char *path)
{
	if (!strcmp(path, "run.micro_batch_size"))
		return field_from(&run_group, &c->run,
				  &c->run.micro_batch_size);
	if (!strcmp(path, "run.global_batch_size"))
		return field_from(&run_group, &c->run,
				  &c->run.global_batch_size);
	return field_from(&place_group, &c->place,
			  &c->place.microbatch_group_size_per_vp_stage);
}

bool plan_unserved(const struct config *config, int64_t world, struct report *r)
{
	const char *setting;
	struct stages st;
	struct grid g;
	struct err e;

	if (grid_build(&g, &config->place, world, &e) ||
	    stages_build(&st, &config->place, &config->shape, r->arena, &e) ||
	    !prog_check(config, &g, &st, &setting, &e))
		return false;
	report_add(r, "served-step", WARNING, setting,
		   origin_of(config, setting), "%s", e.text);
	return true;
}

/* Consecutive tp ranks, COPIES at a time. */
static int kv_group(const struct plan *p, int *ranks, int *me)
{
	int copies = p->slice.kv_ranks, at;
	int n = grid_group(&p->grid, p->rank, AXES(AXIS_TP), ranks, &at);

	if (n < copies)
		return 0;
	memmove(ranks, ranks + at / copies * copies,
		(size_t)copies * sizeof(*ranks));
	*me = at % copies;
	return copies;
}

/* The pipeline ranks with a copy of the embedding, if there are several. */
static int embedding_group(const struct plan *p, bool tied, int *ranks, int *me)
{
	int at, kept = 0;
	int n = grid_group(&p->grid, p->rank, AXES(AXIS_PP), ranks, &at);

	if (stages_embeddings(&p->stages, tied) < 2 ||
	    !stages_embedding(&p->stages, tied, at))
		return 0;
	for (int pp = 0; pp < n; pp++) {
		if (!stages_embedding(&p->stages, tied, pp))
			continue;
		if (pp == at)
			*me = kept;
		ranks[kept++] = ranks[pp];
	}
	return kept;
}

/* The other groups: the axes along which their members differ. */
static const unsigned group_axes[PROG_GROUPS] = {
	[GROUP_TP] = AXES(AXIS_TP),   [GROUP_CP] = AXES(AXIS_CP),
	[GROUP_DP_CP] = AXES_DP_CP,   [GROUP_PP] = AXES(AXIS_PP),
	[GROUP_EP] = AXES(AXIS_EP),   [GROUP_ETP] = AXES(AXIS_ETP),
	[GROUP_EDP] = AXES(AXIS_EDP),
};

bool plan_has_group(const struct plan *p, int group)
{
	const struct shape *s = &p->config->shape;
	const struct grid *g = &p->grid;
	bool experts = s->num_moe_experts > 0;

	switch (group) {
	case GROUP_TP: return g->tp > 1;
	case GROUP_KV: return p->slice.kv_ranks > 1;
	case GROUP_CP: return g->cp > 1;
	case GROUP_DP_CP: return g->dp * g->cp > 1;
	case GROUP_EP: return experts && g->ep > 1;
	case GROUP_ETP: return experts && g->etp > 1;
	case GROUP_EDP: return experts && g->edp > 1;
	case GROUP_PP: return g->pp > 1;
	case GROUP_EMBED:
		return stages_embeddings(
			       &p->stages,
			       s->share_embeddings_and_output_weights) > 1;
	case GROUP_LOOKUP:
		return s->position_embedding_type == POS_LEARNED &&
		       stages_embeddings(&p->stages, false) > 1;
	default: return g->world > 1;
	}
}

int plan_group(const struct plan *p, int group, int *ranks, int *me)
{
	bool tied = p->config->shape.share_embeddings_and_output_weights;

	if (group == GROUP_KV)
		return kv_group(p, ranks, me);
	if (group == GROUP_EMBED || group == GROUP_LOOKUP)
		return embedding_group(p, tied && group == GROUP_EMBED, ranks,
				       me);
	if (group != GROUP_WORLD)
		return grid_group(&p->grid, p->rank, group_axes[group], ranks,
				  me);
	for (int i = 0; i < p->grid.world; i++)
		ranks[i] = i;
	*me = p->rank;
	return p->grid.world;
}
