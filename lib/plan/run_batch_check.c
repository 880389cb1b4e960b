/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/run_rule.h"

#define AT RUN_AT

static void check_schedule(const struct run *run, int64_t dp, struct report *r)
{
	struct batch_step step[BATCH_STEPS_MAX];
	int n = run_batch_steps(run->step_batch_size_schedule, step);
	int64_t unit = run->micro_batch_size * dp;

	if (n < 1) {
		report_add(r, "run-batch-steps", ERROR,
			   AT(step_batch_size_schedule),
			   "'%.100s' is not TOKENS:SAMPLES ... with suffixes "
			   "K M B T",
			   run->step_batch_size_schedule);
		report_suggest(r, "\"0:32 1B:64 10B:128\"");
		return;
	}
	for (int i = 0; i < n; i++)
		if (i ? step[i].from <= step[i - 1].from : step[i].from != 0) {
			report_add(r, "run-batch-steps", ERROR,
				   AT(step_batch_size_schedule),
				   "entry %d begins at %" PRId64
				   " tokens; the first begins at 0 and each at "
				   "more than the one before",
				   i + 1, step[i].from);
			return;
		} else if (!step[i].samples || step[i].samples % unit) {
			report_add(r, "run-batch-steps", ERROR,
				   AT(step_batch_size_schedule),
				   "entry %d: %" PRId64
				   " samples are not a multiple of "
				   "micro_batch_size %" PRId64 " x dp %" PRId64
				   " = %" PRId64,
				   i + 1, step[i].samples,
				   run->micro_batch_size, dp, unit);
			if (step[i].samples > unit)
				report_suggest(r, "%" PRId64 " samples",
					       step[i].samples / unit * unit);
			report_suggest(r, "%" PRId64 " samples",
				       (step[i].samples / unit + 1) * unit);
			return;
		}
	if (run->global_batch_size != step[n - 1].samples ||
	    run->decrease_batch_size_if_needed)
		report_add(r, "run-batch-ways", ERROR,
			   AT(step_batch_size_schedule),
			   "a schedule of sizes goes with neither "
			   "decrease_batch_size_if_needed nor another "
			   "global_batch_size than its last, %" PRId64,
			   step[n - 1].samples);
}

static void check_evaluation(const struct run *run, int64_t dp,
			     struct report *r)
{
	int64_t batch = run->eval_global_batch_size;
	int64_t micro = run->eval_micro_batch_size;

	if (!IS_SET(batch) || !IS_SET(micro) || batch % (micro * dp) == 0 ||
	    (batch == run->global_batch_size && micro == run->micro_batch_size))
		return;
	report_add(r, "run-eval-batch", ERROR, AT(eval_global_batch_size),
		   "eval_global_batch_size %" PRId64
		   " is not a multiple of eval_micro_batch_size %" PRId64
		   " x dp %" PRId64 " = %" PRId64,
		   batch, micro, dp, micro * dp);
	if (batch > micro * dp)
		report_suggest(r, "eval_global_batch_size = %" PRId64,
			       batch / (micro * dp) * micro * dp);
	report_suggest(r, "eval_global_batch_size = %" PRId64,
		       (batch / (micro * dp) + 1) * micro * dp);
}

void run_check_batches(const struct run *run, int64_t dp, struct report *r)
{
	if (run->step_batch_size_schedule)
		check_schedule(run, dp, r);
	check_evaluation(run, dp, r);
}
