/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/plan.h"

#include <string.h>

int plan_build(struct plan *out, const struct config *config, int world,
	       int rank, struct arena *a, struct err *e)
{
	struct prog_input in = {
		.config = config,
		.grid = &out->grid,
		.stages = &out->stages,
		.weights = &out->weights,
		.slice = &out->slice,
	};

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
	return prog_build(&out->prog, &in, a, e);
}

/* Consecutive tp ranks, COPIES at a time. */
static int kv_group(const struct plan *p, int *ranks, int *me)
{
	int copies = p->slice.kv_copies, at;
	int n = grid_group(&p->grid, p->rank, AXES(AXIS_TP), ranks, &at);

	if (n < copies)
		return 0;
	memmove(ranks, ranks + at / copies * copies,
		(size_t)copies * sizeof(*ranks));
	*me = at % copies;
	return copies;
}

static int embedding_group(const struct plan *p, int *ranks, int *me)
{
	int at, n = grid_group(&p->grid, p->rank, AXES(AXIS_PP), ranks, &at);

	if (!p->config->shape.share_embeddings_and_output_weights || n < 2 ||
	    (at != 0 && at != n - 1))
		return 0;
	ranks[1] = ranks[n - 1];
	*me = at != 0;
	return 2;
}

int plan_group(const struct plan *p, int group, int *ranks, int *me)
{
	switch (group) {
	case GROUP_TP:
		return grid_group(&p->grid, p->rank, AXES(AXIS_TP), ranks, me);
	case GROUP_KV: return kv_group(p, ranks, me);
	case GROUP_DP_CP:
		return grid_group(&p->grid, p->rank, AXES_DP_CP, ranks, me);
	case GROUP_PP:
		return grid_group(&p->grid, p->rank, AXES(AXIS_PP), ranks, me);
	case GROUP_EMBED: return embedding_group(p, ranks, me);
	default: break;
	}
	for (int i = 0; i < p->grid.world; i++)
		ranks[i] = i;
	*me = p->rank;
	return p->grid.world;
}
