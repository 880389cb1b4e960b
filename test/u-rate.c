/* SPDX-License-Identifier: Apache-2.0 */
/* Rates against traces of Megatron's own scheduler. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "lib/plan/run.h"
#include "lib/train/rate.h"

static json_t *golden;

static int load(void **state)
{
	(void)state;
	golden = json_load_file("test/data/golden/lr.json", 0, NULL);
	return golden ? 0 : -1;
}

static int unload(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

static double number(const char *name)
{
	return json_number_value(json_object_get(golden, name));
}

/* The run behind the traces: lengths there are in samples, batches of 8. */
static struct run golden_run(void)
{
	int64_t batch = (int64_t)number("increment");

	return (struct run){
		.global_batch_size = batch,
		.train_iters = (int64_t)number("wd_incr_steps") / batch,
		.train_samples = UNSET,
		.lr = number("max_lr"),
		.min_lr = number("min_lr"),
		.lr_decay_iters = (int64_t)number("decay") / batch,
		.lr_warmup_iters = (int64_t)number("warmup") / batch,
		.lr_warmup_fraction = NAN,
		.lr_warmup_init = number("init_lr"),
		.lr_wsd_decay_iters =
			(int64_t)number("wsd_decay_steps") / batch,
		.weight_decay = 0.5,
		.start_weight_decay = number("start_wd"),
		.end_weight_decay = number("end_wd"),
		.weight_decay_incr_style = INCR_COSINE,
	};
}

static void close_to(double got, double want, const char *what, int64_t n)
{
	if (fabs(got - want) <= 1e-15 * fabs(want))
		return;
	print_message("# %s after %lld samples: %.17g, golden %.17g\n", what,
		      (long long)n, got, want);
	fail();
}

/* Column 4: the lr of a group with half the rates. */
static void check_trace(const char *name, struct run run)
{
	struct run half = run;
	json_t *trace = json_object_get(golden, name), *row;
	size_t i;

	half.lr = 5e-4;
	half.min_lr = 5e-5;
	assert_true(json_array_size(trace) > 20);
	json_array_foreach(trace, i, row)
	{
		int64_t n = json_integer_value(json_array_get(row, 0));
		struct rate rate = rate_at(&run, n);

		close_to(rate.lr, json_number_value(json_array_get(row, 1)),
			 name, n);
		close_to(rate.weight_decay,
			 json_number_value(json_array_get(row, 2)), "decay", n);
		close_to(rate_at(&half, n).lr,
			 json_number_value(json_array_get(row, 4)), name, n);
	}
}

static void styles_equal_the_golden(void **state)
{
	static const struct {
		const char *name;
		int style, wsd;
	} traces[] = {
		{"linear", LR_LINEAR, 0},
		{"cosine", LR_COSINE, 0},
		{"constant", LR_CONSTANT, 0},
		{"inverse_square_root", LR_INVERSE_SQRT, 0},
		{"WSD_linear", LR_WSD, WSD_LINEAR},
		{"WSD_cosine", LR_WSD, WSD_COSINE},
		{"WSD_exponential", LR_WSD, WSD_EXPONENTIAL},
		{"WSD_minus_sqrt", LR_WSD, WSD_MINUS_SQRT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
		struct run run = golden_run();

		run.lr_decay_style = traces[i].style;
		run.lr_wsd_decay_style = traces[i].wsd;
		check_trace(traces[i].name, run);
	}
}

static void warmup_as_a_fraction_of_the_decay(void **state)
{
	struct run run = golden_run();

	(void)state;
	run.lr_decay_style = LR_COSINE;
	run.lr_warmup_iters = 0;
	run.lr_warmup_fraction = 0.2; /* of 160 samples */
	check_trace("cosine", run);
	run.lr_warmup_fraction = 0.01; /* 1.6 samples */
	close_to(rate_at(&run, 0).lr, 0, "lr", 0);
	close_to(rate_at(&run, 1).lr, 1e-3 / 1.6, "lr", 1);
}

static void weight_decay_styles(void **state)
{
	struct run run = golden_run();

	(void)state;
	run.weight_decay_incr_style = INCR_CONSTANT;
	close_to(rate_at(&run, 80).weight_decay, 0.5, "decay", 80);
	run.weight_decay_incr_style = INCR_LINEAR;
	close_to(rate_at(&run, 40).weight_decay, 0.01 + 0.25 * (0.1 - 0.01),
		 "decay", 40);
	close_to(rate_at(&run, 500).weight_decay, 0.1, "decay", 500);
}

/* A length that is no multiple of the batch counts in full. */
static void training_given_in_samples(void **state)
{
	struct run run = golden_run();

	(void)state;
	run.lr_decay_style = LR_LINEAR;
	run.lr_warmup_iters = 0;
	run.min_lr = 0;
	run.train_samples = 100;
	run.train_iters = run.lr_decay_iters = 12;
	close_to(rate_at(&run, 50).lr, 0.5e-3, "lr", 50);
	close_to(rate_at(&run, 100).lr, 0, "lr", 100);
	run.lr_decay_iters = 10;
	close_to(rate_at(&run, 40).lr, 0.5e-3, "lr", 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(styles_equal_the_golden),
		cmocka_unit_test(warmup_as_a_fraction_of_the_decay),
		cmocka_unit_test(weight_decay_styles),
		cmocka_unit_test(training_given_in_samples),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
