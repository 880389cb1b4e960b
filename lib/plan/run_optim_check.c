/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/run_rule.h"

#define AT RUN_AT

/* SAMPLES and STEPS say the same of a schedule. */
static void check_unit(const struct run *run, const char *path,
		       const void *value, int64_t samples, int64_t steps,
		       struct report *r)
{
	int64_t batch = run->global_batch_size;

	if (!IS_SET(samples) || !samples)
		return;
	if (!IS_SET(run->train_samples))
		report_add(r, "run-units", ERROR, path,
			   field_from(&run_group, run, value),
			   "a schedule in samples needs train_samples");
	else if (IS_SET(batch) && IS_SET(steps) && steps != samples / batch)
		report_add(r, "run-units", ERROR, path,
			   field_from(&run_group, run, value),
			   "%" PRId64 " samples / global_batch_size %" PRId64
			   " = %" PRId64 " steps, but %" PRId64 " are given",
			   samples, batch, samples / batch, steps);
}

static void check_units(const struct run *run, struct report *r)
{
	check_unit(run, "run.lr_decay_samples", &run->lr_decay_samples,
		   run->lr_decay_samples, run->lr_decay_iters, r);
	check_unit(run, "run.lr_warmup_samples", &run->lr_warmup_samples,
		   run->lr_warmup_samples, run->lr_warmup_iters, r);
	check_unit(run, "run.lr_wsd_decay_samples", &run->lr_wsd_decay_samples,
		   run->lr_wsd_decay_samples, run->lr_wsd_decay_iters, r);
	if (run->override_opt_param_scheduler &&
	    run->use_checkpoint_opt_param_scheduler)
		report_add(r, "run-scheduler", ERROR,
			   AT(use_checkpoint_opt_param_scheduler),
			   "override_opt_param_scheduler and "
			   "use_checkpoint_opt_param_scheduler contradict each "
			   "other");
}

static void check_state(const struct run *run, struct report *r)
{
	bool other = run->main_grads_dtype || run->main_params_dtype ||
		     run->exp_avg_dtype || run->exp_avg_sq_dtype;

	if (run->use_precision_aware_optimizer && run->optimizer != OPT_ADAM)
		report_add(r, "run-state", ERROR,
			   AT(use_precision_aware_optimizer),
			   "only optimizer \"adam\" keeps its state in other "
			   "precisions");
	else if (other && !run->use_precision_aware_optimizer) {
		report_add(r, "run-state", ERROR,
			   AT(use_precision_aware_optimizer),
			   "gradients, main parameters and moments are in fp32 "
			   "without use_precision_aware_optimizer");
		report_suggest(r, "use_precision_aware_optimizer = true");
	}
	if (run->min_loss_scale > run->initial_loss_scale) {
		report_add(r, "run-loss-scale", ERROR, AT(min_loss_scale),
			   "min_loss_scale %g is above initial_loss_scale %g",
			   run->min_loss_scale, run->initial_loss_scale);
		report_suggest(r, "min_loss_scale = %.15g",
			       run->initial_loss_scale);
	}
	if (!run->qk_clip)
		return;
	if (run->qk_clip_alpha <= 0 || run->qk_clip_alpha >= 1 ||
	    run->qk_clip_threshold <= 0)
		report_add(r, "run-clip", ERROR, AT(qk_clip),
			   "qk_clip wants qk_clip_alpha %g between 0 and 1 and "
			   "qk_clip_threshold %g above 0",
			   run->qk_clip_alpha, run->qk_clip_threshold);
}

static void check_decoupled(const struct run *run, struct report *r)
{
	if (isnan(run->decoupled_lr) && !isnan(run->decoupled_min_lr))
		report_add(r, "run-decoupled", ERROR, AT(decoupled_min_lr),
			   "decoupled_min_lr needs decoupled_lr");
	else if (run->decoupled_min_lr > run->decoupled_lr)
		report_add(r, "run-decoupled", ERROR, AT(decoupled_min_lr),
			   "decoupled_min_lr %g is above decoupled_lr %g",
			   run->decoupled_min_lr, run->decoupled_lr);
}

static void check_checkpoints(const struct run *run, struct report *r)
{
	int64_t keep = run->save_retain_interval, save = run->save_interval;

	if (IS_SET(run->ckpt_step) && !run->load)
		report_add(r, "run-step", ERROR, AT(ckpt_step),
			   "ckpt_step %" PRId64 " needs load", run->ckpt_step);
	if (!IS_SET(keep) || (IS_SET(save) && keep % save == 0))
		return;
	if (!IS_SET(save)) {
		report_add(r, "run-retain", ERROR, AT(save_retain_interval),
			   "save_retain_interval %" PRId64
			   " needs save_interval",
			   keep);
		report_suggest(r, "save_interval = %" PRId64, keep);
		return;
	}
	report_add(r, "run-retain", ERROR, AT(save_retain_interval),
		   "save_retain_interval %" PRId64
		   " is not a multiple of save_interval %" PRId64,
		   keep, save);
	report_suggest(r, "save_retain_interval = %" PRId64,
		       (keep + save - 1) / save * save);
}

void run_check_optimizer(const struct run *run, struct report *r)
{
	check_units(run, r);
	check_state(run, r);
	check_decoupled(run, r);
	check_checkpoints(run, r);
}
