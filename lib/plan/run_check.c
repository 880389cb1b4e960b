/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/grid.h"
#include "lib/plan/place.h"
#include "lib/plan/run_rule.h"

#define AT RUN_AT

static bool given(const struct run *run, const void *value)
{
	return field_from(&run_group, run, value)->kind == ORIGIN_GIVEN;
}

static bool growing(const struct run *run)
{
	return run->weight_decay_incr_style != INCR_CONSTANT;
}

/* Interleaved pipelines work in groups of micro-batches; M 0: not known. */
static void check_groups(const struct run *run, const struct place *p,
			 int64_t m, struct report *r)
{
	int64_t n = p->microbatch_group_size_per_vp_stage;
	int64_t pp = p->pipeline_model_parallel_size;
	int64_t vp = p->virtual_pipeline_model_parallel_size;

	if (!IS_SET(vp) || vp == 1)
		return;
	if (n < pp) {
		report_add(r, "run-group", ERROR,
			   "place.microbatch_group_size_per_vp_stage",
			   field_from(&place_group, p,
				      &p->microbatch_group_size_per_vp_stage),
			   "a group of %" PRId64
			   " micro-batch%s is below pipeline_model_parallel_"
			   "size %" PRId64 ", with %" PRId64 " virtual stages",
			   n, n == 1 ? "" : "es", pp, vp);
		report_suggest(r, "%" PRId64, pp);
	} else if (m && n > m) {
		report_add(r, "run-group", ERROR, AT(global_batch_size),
			   "%" PRId64
			   " micro-batch%s less than one group of %" PRId64
			   ", with %" PRId64 " virtual stages",
			   m, m == 1 ? " is" : "es are", n, vp);
		report_suggest(r, "at least %" PRId64 " micro-batches", n);
	} else if (m && m % n && m % n < pp) {
		report_add(r, "run-group-rest", ERROR, AT(global_batch_size),
			   "%" PRId64 " micro-batches %% group %" PRId64
			   " = %" PRId64 ", which is neither 0 nor at least "
			   "pipeline_model_parallel_size %" PRId64,
			   m, n, m % n, pp);
		report_suggest(r, "%" PRId64 " micro-batches", m / n * n);
		report_suggest(r, "%" PRId64 " micro-batches", m / n * n + n);
	}
}

/* Batches; world-free what can be said without the world. */
static void check_batch(const struct run *run, const struct place *p,
			int64_t world, struct report *r)
{
	int64_t micro = run->micro_batch_size, batch = run->global_batch_size;
	int64_t dp = 1, m;
	struct grid g;
	struct err e;

	if (!IS_SET(micro)) {
		if (!given(run, &run->micro_batch_size))
			report_add(r, "run-required", ERROR,
				   AT(micro_batch_size),
				   "must be given: samples that a rank works "
				   "on at once");
		return;
	}
	if (world && grid_build(&g, p, world, &e))
		return;
	if (world)
		dp = g.dp;
	run_check_batches(run, dp, r);
	if (!IS_SET(batch)) {
		check_groups(run, p, 0, r);
		return;
	}
	m = batch / (micro * dp);
	if (batch % (micro * dp) && m && run->decrease_batch_size_if_needed) {
		report_add(r, "run-batch-lowered", NOTE, AT(global_batch_size),
			   "global_batch_size %" PRId64
			   " is lowered to %" PRId64
			   ", a multiple of micro_batch_size %" PRId64
			   " x dp %" PRId64,
			   batch, m * micro * dp, micro, dp);
	} else if (batch % (micro * dp)) {
		report_add(r, "run-batch", ERROR, AT(global_batch_size),
			   "global_batch_size %" PRId64
			   " is not a multiple of micro_batch_size %" PRId64
			   " x dp %" PRId64 " = %" PRId64,
			   batch, micro, dp, micro * dp);
		if (m)
			report_suggest(r, "global_batch_size = %" PRId64,
				       m * micro * dp);
		report_suggest(r, "global_batch_size = %" PRId64,
			       (m + 1) * micro * dp);
		return;
	}
	check_groups(run, p, world ? m : 0, r);
}

static void check_length(const struct run *run, struct report *r)
{
	int64_t iters = run->train_iters, samples = run->train_samples;
	int64_t batch = run->global_batch_size;

	if (IS_SET(samples) && IS_SET(batch) && samples < batch) {
		report_add(r, "run-samples", ERROR, AT(train_samples),
			   "train_samples %" PRId64
			   " are less than one global_batch_size %" PRId64,
			   samples, batch);
		report_suggest(r, "train_samples = %" PRId64, batch);
	}
	if (IS_SET(iters) && IS_SET(samples) &&
	    (!IS_SET(batch) || iters != samples / batch))
		report_add(r, "run-length", ERROR, AT(train_iters),
			   "train_iters %" PRId64 " and train_samples %" PRId64
			   " are both given; give one of them",
			   iters, samples);
	if (!IS_SET(iters) && !IS_SET(samples))
		report_add(r, "run-length-unset", WARNING, AT(train_iters),
			   "neither train_iters nor train_samples is given: "
			   "train-worker would not know when to end");
}

static void check_rate(const struct run *run, struct report *r)
{
	if (isnan(run->lr)) {
		if (!given(run, &run->lr))
			report_add(r, "run-lr-unset", WARNING, AT(lr),
				   "lr is not given: train-worker needs it");
		return;
	}
	if (run->min_lr > run->lr) {
		report_add(r, "run-lr-order", ERROR, AT(min_lr),
			   "min_lr %g is above lr %g", run->min_lr, run->lr);
		report_suggest(r, "min_lr = %.3g", run->lr / 10);
	}
	if (run->lr_warmup_init > run->lr)
		report_add(r, "run-lr-order", ERROR, AT(lr_warmup_init),
			   "lr_warmup_init %g is above lr %g",
			   run->lr_warmup_init, run->lr);
}

static void check_schedule(const struct run *run, struct report *r)
{
	int64_t decay = run->lr_decay_iters, wsd = run->lr_wsd_decay_iters;
	bool fraction = !isnan(run->lr_warmup_fraction);

	if (fraction && (run->lr_warmup_iters || run->lr_warmup_samples))
		report_add(r, "run-warmup-ways", ERROR, AT(lr_warmup_fraction),
			   "lr_warmup_fraction %g and lr_warmup_iters %" PRId64
			   " are both given; give one of them",
			   run->lr_warmup_fraction, run->lr_warmup_iters);
	if (fraction && run->lr_warmup_fraction >= 1)
		report_add(r, "run-warmup", ERROR, AT(lr_warmup_fraction),
			   "lr_warmup_fraction %g leaves nothing of the "
			   "decay: it must be at least 0 and below 1",
			   run->lr_warmup_fraction);
	if (IS_SET(decay) && run->lr_warmup_iters >= decay) {
		report_add(r, "run-warmup", ERROR, AT(lr_warmup_iters),
			   "lr_warmup_iters %" PRId64
			   " is not below lr_decay_iters %" PRId64,
			   run->lr_warmup_iters, decay);
		report_suggest(r, "lr_warmup_iters = %" PRId64, decay / 10);
	}
	if (run->lr_decay_style != LR_WSD)
		return;
	if (IS_SET(wsd) && (!IS_SET(decay) || wsd <= decay))
		return;
	if (!IS_SET(wsd))
		report_add(r, "run-wsd", ERROR, AT(lr_wsd_decay_iters),
			   "lr_decay_style \"WSD\" needs lr_wsd_decay_iters");
	else
		report_add(r, "run-wsd", ERROR, AT(lr_wsd_decay_iters),
			   "lr_wsd_decay_iters %" PRId64
			   " is above lr_decay_iters %" PRId64,
			   wsd, decay);
	if (IS_SET(decay))
		report_suggest(r, "lr_wsd_decay_iters = %" PRId64,
			       (decay + 9) / 10);
}

static void check_decay(const struct run *run, struct report *r)
{
	double start = run->start_weight_decay, end = run->end_weight_decay;

	if (growing(run) && (isnan(start) || isnan(end)))
		report_add(r, "run-weight-decay", ERROR,
			   AT(weight_decay_incr_style),
			   "a weight decay that changes needs "
			   "start_weight_decay and end_weight_decay");
	else if (!growing(run) &&
		 (start != run->weight_decay || end != run->weight_decay))
		report_add(r, "run-weight-decay", ERROR,
			   AT(weight_decay_incr_style),
			   "weight_decay_incr_style \"constant\" takes "
			   "weight_decay %g, not start %g and end %g",
			   run->weight_decay, start, end);
	else if (start > end)
		report_add(r, "run-weight-decay-order", ERROR,
			   AT(start_weight_decay),
			   "start_weight_decay %g is above end_weight_decay %g",
			   start, end);
}

static void check_dropout(const struct run *run, struct report *r)
{
	if (run->hidden_dropout >= 1)
		report_add(r, "run-dropout", ERROR, AT(hidden_dropout),
			   "hidden_dropout %g would keep nothing: it must be "
			   "at least 0 and below 1",
			   run->hidden_dropout);
	if (run->attention_dropout >= 1)
		report_add(r, "run-dropout", ERROR, AT(attention_dropout),
			   "attention_dropout %g would keep nothing: it must "
			   "be at least 0 and below 1",
			   run->attention_dropout);
}

/* TEXT as a whole is a number; its value. */
static bool is_number(const char *text, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end != text && !*end && isfinite(*value);
}

static void check_blend(const struct run *run, struct report *r)
{
	const struct texts *data = &run->data_path;
	double weight;

	if (data->count < 2)
		return;
	if (data->count % 2) {
		report_add(r, "run-blend", ERROR, AT(data_path),
			   "%d entries are not pairs of weight and path",
			   data->count);
		return;
	}
	for (int i = 0; i < data->count; i += 2)
		if (!is_number(data->item[i], &weight) || weight <= 0) {
			report_add(r, "run-blend", ERROR, AT(data_path),
				   "entry %d, '%.100s', is not a weight "
				   "above 0",
				   i + 1, data->item[i]);
			return;
		}
}

/* The shares of SPLIT; false if it is not one to three of them. */
static bool split_shares(const char *split, double share[3])
{
	char *end;

	for (int i = 0; i < 3; i++) {
		share[i] = strtod(split, &end);
		if (end == split || !isfinite(share[i]) || share[i] < 0)
			return false;
		if (!*end)
			return share[0] > 0;
		if (*end != ',')
			return false;
		split = end + 1;
	}
	return false;
}

static void check_data(const struct run *run, struct report *r)
{
	static const char *const formats[] = {"auto", "megatron", "llmc",
					      "text", NULL};
	double share[3] = {0};
	int i = 0;

	if (!run->data_path.count && !given(run, &run->data_path))
		report_add(r, "run-data-unset", WARNING, AT(data_path),
			   "data_path is not given: train-worker needs it");
	check_blend(run, r);
	while (formats[i] && strcmp(formats[i], run->data_format))
		i++;
	if (!formats[i]) {
		report_add(r, "run-data-format", ERROR, AT(data_format),
			   "unknown format \"%.100s\"", run->data_format);
		for (i = 0; formats[i]; i++)
			report_suggest(r, "\"%s\"", formats[i]);
	}
	if (!split_shares(run->split, share))
		report_add(r, "run-split", ERROR, AT(split),
			   "'%.100s' is not one to three shares such as "
			   "969,30,1",
			   run->split);
	else if (IS_SET(run->eval_interval) && share[1] <= 0)
		report_add(r, "run-eval-split", ERROR, AT(split),
			   "eval_interval is given but split '%.100s' has no "
			   "validation share",
			   run->split);
}

void run_check(const struct run *run, const struct place *place, int64_t world,
	       struct report *r)
{
	check_batch(run, place, world, r);
	check_length(run, r);
	check_rate(run, r);
	check_schedule(run, r);
	check_decay(run, r);
	check_dropout(run, r);
	check_data(run, r);
	run_check_optimizer(run, r);
	if (run->finetune && !run->load)
		report_add(r, "run-finetune", ERROR, AT(finetune),
			   "finetune = true needs load");
}
