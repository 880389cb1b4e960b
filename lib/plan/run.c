/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/run.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* Samples to steps, where the steps were not given. */
static void derive_steps(struct run *r, int64_t *steps, int64_t samples,
			 const char *why)
{
	if (IS_SET(samples) && samples && IS_SET(r->global_batch_size) &&
	    (!IS_SET(*steps) || !*steps))
		derive_int(r, steps, samples / r->global_batch_size, why);
}

/* What follows from the batch sizes. */
static void derive_batches(struct run *r, int64_t dp)
{
	struct batch_step step[BATCH_STEPS_MAX];
	int steps = 0;

	if (r->step_batch_size_schedule)
		steps = run_batch_steps(r->step_batch_size_schedule, step);
	if (!IS_SET(r->global_batch_size) && steps > 0)
		derive_int(r, &r->global_batch_size, step[steps - 1].samples,
			   "the last size of step_batch_size_schedule");
	else if (!IS_SET(r->global_batch_size) && IS_SET(r->micro_batch_size) &&
		 dp)
		derive_int(r, &r->global_batch_size, r->micro_batch_size * dp,
			   "micro_batch_size * data parallel size");
	if (!IS_SET(r->eval_global_batch_size) && IS_SET(r->global_batch_size))
		derive_int(r, &r->eval_global_batch_size, r->global_batch_size,
			   "global_batch_size");
	if (!IS_SET(r->eval_micro_batch_size) && IS_SET(r->micro_batch_size))
		derive_int(r, &r->eval_micro_batch_size, r->micro_batch_size,
			   "micro_batch_size");
}

void run_finalize(struct run *r, const struct place *place, int64_t world)
{
	int64_t dp = dp_of(place, world);

	derive_batches(r, dp);
	if (!IS_SET(r->train_iters) && IS_SET(r->train_samples) &&
	    IS_SET(r->global_batch_size) &&
	    r->train_samples >= r->global_batch_size)
		derive_int(r, &r->train_iters,
			   r->train_samples / r->global_batch_size,
			   "train_samples / global_batch_size");
	derive_steps(r, &r->lr_decay_iters, r->lr_decay_samples,
		     "lr_decay_samples / global_batch_size");
	derive_steps(r, &r->lr_warmup_iters, r->lr_warmup_samples,
		     "lr_warmup_samples / global_batch_size");
	derive_steps(r, &r->lr_wsd_decay_iters, r->lr_wsd_decay_samples,
		     "lr_wsd_decay_samples / global_batch_size");
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

/* "32", "1B": a number with a suffix of thousands; false: it is none. */
static bool read_count(const char **text, int64_t *n)
{
	static const char suffixes[] = "KMBT";
	const char *at;
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	errno = 0;
	*n = strtoll(*text, &end, 10);
	if (errno || *n > INT32_MAX)
		return false;
	at = *end ? strchr(suffixes, *end) : NULL;
	for (const char *s = suffixes; at && s <= at; s++)
		*n *= 1000;
	*text = end + (at != NULL);
	return *n <= (int64_t)1e18;
}

int run_batch_steps(const char *text, struct batch_step step[BATCH_STEPS_MAX])
{
	int n = 0;

	for (text += strspn(text, " ,"); *text; text += strspn(text, " ,")) {
		if (n == BATCH_STEPS_MAX || !read_count(&text, &step[n].from) ||
		    *text++ != ':' || !read_count(&text, &step[n].samples) ||
		    step[n].samples > 1 << 30 ||
		    (*text && !strchr(" ,", *text)))
			return -1;
		n++;
	}
	return n ? n : -1;
}

int64_t run_microbatches(const struct run *run, int64_t dp)
{
	return run->global_batch_size / (run->micro_batch_size * dp);
}
