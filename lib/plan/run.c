/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/run.h"

#include "lib/plan/grid.h"
#include "lib/plan/place.h"

static void derive_int(struct run *r, int64_t *at, int64_t value,
		       const char *why)
{
	*at = value;
	field_derived(&run_group, r, at, why);
}

static void derive_float(struct run *r, double *at, double value,
			 const char *why)
{
	*at = value;
	field_derived(&run_group, r, at, why);
}

/* Data parallel size, or 0 if the world is not known or does not fit. */
static int64_t dp_of(const struct place *place, int64_t world)
{
	struct grid g;
	struct err e;

	return world && !grid_build(&g, place, world, &e) ? g.dp : 0;
}

void run_finalize(struct run *r, const struct place *place, int64_t world)
{
	int64_t dp = dp_of(place, world);

	if (!IS_SET(r->global_batch_size) && IS_SET(r->micro_batch_size) && dp)
		derive_int(r, &r->global_batch_size, r->micro_batch_size * dp,
			   "micro_batch_size * data parallel size");
	if (!IS_SET(r->eval_global_batch_size) && IS_SET(r->global_batch_size))
		derive_int(r, &r->eval_global_batch_size, r->global_batch_size,
			   "global_batch_size");
	if (!IS_SET(r->eval_micro_batch_size) && IS_SET(r->micro_batch_size))
		derive_int(r, &r->eval_micro_batch_size, r->micro_batch_size,
			   "micro_batch_size");
	if (!IS_SET(r->train_iters) && IS_SET(r->train_samples) &&
	    IS_SET(r->global_batch_size) &&
	    r->train_samples >= r->global_batch_size)
		derive_int(r, &r->train_iters,
			   r->train_samples / r->global_batch_size,
			   "train_samples / global_batch_size");
	if (!IS_SET(r->lr_decay_iters) && IS_SET(r->train_iters))
		derive_int(r, &r->lr_decay_iters, r->train_iters,
			   "train_iters");
	if (r->weight_decay_incr_style == INCR_CONSTANT) {
		if (isnan(r->start_weight_decay))
			derive_float(r, &r->start_weight_decay, r->weight_decay,
				     "weight_decay");
		if (isnan(r->end_weight_decay))
			derive_float(r, &r->end_weight_decay, r->weight_decay,
				     "weight_decay");
	}
	if (isnan(r->embedding_init_method_std))
		derive_float(r, &r->embedding_init_method_std,
			     r->init_method_std, "init_method_std");
}

int64_t run_microbatches(const struct run *run, int64_t dp)
{
	return run->global_batch_size / (run->micro_batch_size * dp);
}
