/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/grid.h"

#include <assert.h>
#include <inttypes.h>

#include "lib/plan/grid_rule.h"
#include "lib/plan/place.h"

/* a * b * c; sizes are bounded so that a too large product stays too large. */
static int64_t product(int64_t a, int64_t b, int64_t c)
{
	int64_t n;

	if (__builtin_mul_overflow(a, b, &n) ||
	    __builtin_mul_overflow(n, c, &n))
		return INT64_MAX;
	return n;
}

int64_t grid_dense_ranks(const struct place *p)
{
	return product(p->tensor_model_parallel_size,
		       p->pipeline_model_parallel_size,
		       p->context_parallel_size);
}

static int64_t expert_tp(const struct place *p)
{
	return IS_SET(p->expert_tensor_parallel_size)
		       ? p->expert_tensor_parallel_size
		       : p->tensor_model_parallel_size;
}

int64_t grid_expert_ranks(const struct place *p)
{
	return product(expert_tp(p), p->expert_model_parallel_size,
		       p->pipeline_model_parallel_size);
}

int grid_try(struct grid *g, const struct place *p, int64_t world,
	     const char **id, struct err *e)
{
	int64_t dense = grid_dense_ranks(p), expert = grid_expert_ranks(p);
	int64_t vp = p->virtual_pipeline_model_parallel_size;

	*id = "place-world";
	if (world < 1 || world > GRID_WORLD_MAX)
		return err_set(e, CODE_CONFIG,
			       "world %" PRId64 " is not between 1 and %d",
			       world, GRID_WORLD_MAX);
	if (world % dense)
		return err_set(e, CODE_CONFIG,
			       "world %" PRId64
			       " is not a multiple of tp %" PRId64
			       " x cp %" PRId64 " x pp %" PRId64 " = %" PRId64,
			       world, p->tensor_model_parallel_size,
			       p->context_parallel_size,
			       p->pipeline_model_parallel_size, dense);
	*id = "place-expert-world";
	if (world % expert)
		return err_set(
			e, CODE_CONFIG,
			"world %" PRId64 " is not a multiple of etp %" PRId64
			" x ep %" PRId64 " x pp %" PRId64 " = %" PRId64,
			world, expert_tp(p), p->expert_model_parallel_size,
			p->pipeline_model_parallel_size, expert);
	*g = (struct grid){
		.world = (int)world,
		.tp = (int)p->tensor_model_parallel_size,
		.cp = (int)p->context_parallel_size,
		.dp = (int)(world / dense),
		.pp = (int)p->pipeline_model_parallel_size,
		.vp = IS_SET(vp) ? (int)vp : 1,
		.ep = (int)p->expert_model_parallel_size,
		.etp = (int)expert_tp(p),
		.edp = (int)(world / expert),
		.pp_before_dp = p->use_tp_pp_dp_mapping,
	};
	*id = "place-pp-order";
	if (g->pp_before_dp && g->pp > 1 && g->dp != g->edp)
		return err_set(e, CODE_CONFIG,
			       "with use_tp_pp_dp_mapping the two grids have "
			       "different pipelines: dp %d but expert dp %d",
			       g->dp, g->edp);
	return 0;
}

int grid_build(struct grid *g, const struct place *p, int64_t world,
	       struct err *e)
{
	const char *id;

	return grid_try(g, p, world, &id, e);
}

/* An axis of a grid: ranks along it are STRIDE apart. */
struct line {
	int size, stride;
};

static struct line grid_line(const struct grid *g, enum axis axis)
{
	int inner = g->tp * g->cp, expert = g->etp * g->ep;

	switch (axis) {
	case AXIS_TP: return (struct line){g->tp, 1};
	case AXIS_CP: return (struct line){g->cp, g->tp};
	case AXIS_DP:
		return (struct line){g->dp,
				     inner * (g->pp_before_dp ? g->pp : 1)};
	case AXIS_PP:
		return (struct line){g->pp,
				     inner * (g->pp_before_dp ? 1 : g->dp)};
	case AXIS_ETP: return (struct line){g->etp, 1};
	case AXIS_EP: return (struct line){g->ep, g->etp};
	case AXIS_EDP:
		return (struct line){g->edp,
				     expert * (g->pp_before_dp ? g->pp : 1)};
	}
	assert(!"an axis");
	return (struct line){1, 1};
}

static int at_axis(const struct grid *g, int rank, enum axis axis)
{
	struct line l = grid_line(g, axis);

	return rank / l.stride % l.size;
}

struct coord grid_coord(const struct grid *g, int rank)
{
	return (struct coord){
		.tp = at_axis(g, rank, AXIS_TP),
		.cp = at_axis(g, rank, AXIS_CP),
		.dp = at_axis(g, rank, AXIS_DP),
		.pp = at_axis(g, rank, AXIS_PP),
		.ep = at_axis(g, rank, AXIS_EP),
		.etp = at_axis(g, rank, AXIS_ETP),
		.edp = at_axis(g, rank, AXIS_EDP),
	};
}

int grid_rank(const struct grid *g, struct coord at)
{
	return at.tp * grid_line(g, AXIS_TP).stride +
	       at.cp * grid_line(g, AXIS_CP).stride +
	       at.dp * grid_line(g, AXIS_DP).stride +
	       at.pp * grid_line(g, AXIS_PP).stride;
}

/* The axes of AXES in grid order, fastest first; returns their number. */
static int in_order(const struct grid *g, unsigned axes, struct line *lines)
{
	enum axis order[] = {AXIS_TP, AXIS_ETP, AXIS_CP, AXIS_EP,
			     AXIS_DP, AXIS_EDP, AXIS_PP};
	int n = 0;

	if (g->pp_before_dp) {
		order[4] = AXIS_PP;
		order[5] = AXIS_DP;
		order[6] = AXIS_EDP;
	}
	for (int i = 0; i < 7; i++)
		if (axes & AXES(order[i]))
			lines[n++] = grid_line(g, order[i]);
	return n;
}

int grid_group(const struct grid *g, int rank, unsigned axes, int *ranks,
	       int *me)
{
	struct line line[7];
	int lines = in_order(g, axes, line), count = 1, first = rank;

	for (int i = 0; i < lines; i++) {
		first -= rank / line[i].stride % line[i].size * line[i].stride;
		count *= line[i].size;
	}
	for (int n = 0; n < count; n++) {
		int rest = n, at = first;

		for (int i = 0; i < lines; i++) {
			at += rest % line[i].size * line[i].stride;
			rest /= line[i].size;
		}
		ranks[n] = at;
		if (at == rank)
			*me = n;
	}
	return count;
}
