/* SPDX-License-Identifier: Apache-2.0 */
/* The run's derived values. */
#include "lib/plan/run.h"

#include "test/config-test.h"

/* A run with SETTINGS on tensor 2 x pipeline 2 of WORLD ranks. */
static struct run *run_of(const char *settings, int64_t world)
{
	struct report r;
	struct config *c = config_of(
		arena_printf(&arena,
			     "shape: { num_layers = 4; }; "
			     "place: { tensor_model_parallel_size = 2; "
			     "pipeline_model_parallel_size = 2; }; "
			     "run: { micro_batch_size = 3; %s };",
			     settings),
		NULL, &r);

	assert_non_null(c);
	assert_int_equal(r.count, 0);
	place_finalize(&c->place, &c->shape);
	run_finalize(&c->run, &c->place, world);
	return &c->run;
}

static void test_batch(void **state)
{
	(void)state;
	assert_int_equal(run_of("", 16)->global_batch_size, 12);
	assert_int_equal(run_of("", 4)->global_batch_size, 3);
	assert_false(IS_SET(run_of("", 0)->global_batch_size));
	assert_false(IS_SET(run_of("", 6)->global_batch_size));
	assert_int_equal(
		run_of("global_batch_size = 24;", 0)->global_batch_size, 24);
	assert_int_equal(
		run_microbatches(run_of("global_batch_size = 24;", 16), 4), 2);
}

static void test_length(void **state)
{
	struct run *r = run_of("train_iters = 50;", 0);

	(void)state;
	assert_int_equal(r->lr_decay_iters, 50);
	r = run_of("train_iters = 50; lr_decay_iters = 40;", 0);
	assert_int_equal(r->lr_decay_iters, 40);
	r = run_of("train_samples = 100; global_batch_size = 12;", 16);
	assert_int_equal(r->train_iters, 8);
	assert_int_equal(r->lr_decay_iters, 8);
	r = run_of("train_samples = 100;", 0);
	assert_false(IS_SET(r->train_iters));
}

/* Sizes by tokens: what can be read, and what follows from the last one. */
static void test_batch_steps(void **state)
{
	static const char *const bad[] = {
		"",	 "32",	     "0:",     ":32",	 "0:a",
		"0:32x", "x:32",     "0:32 1", "-1:8",	 "0:1e3",
		"0:99B", "0:32;1:8", "0 :8",   "0:32:8", "0:32 :8"};
	struct batch_step step[BATCH_STEPS_MAX];
	const char *many = "0:1";
	struct run *r;

	(void)state;
	assert_int_equal(run_batch_steps(" 0:32, 3K:64 2B:1K ", step), 3);
	assert_int_equal(step[0].from, 0);
	assert_int_equal(step[0].samples, 32);
	assert_int_equal(step[1].from, 3000);
	assert_int_equal(step[2].from, 2000000000);
	assert_int_equal(step[2].samples, 1000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(run_batch_steps(bad[i], step), -1);
	for (int i = 1; i < BATCH_STEPS_MAX; i++)
		many = arena_printf(&arena, "%s %d:1", many, i);
	assert_int_equal(run_batch_steps(many, step), BATCH_STEPS_MAX);
	many = arena_printf(&arena, "%s 99:1", many);
	assert_int_equal(run_batch_steps(many, step), -1);
	r = run_of("step_batch_size_schedule = \"0:12 1M:24\";", 16);
	assert_int_equal(r->global_batch_size, 24);
	assert_int_equal(r->eval_global_batch_size, 24);
	assert_int_equal(r->eval_micro_batch_size, 3);
}

/* Schedules in samples become steps, unless those were given. */
static void test_samples(void **state)
{
	struct run *r = run_of("global_batch_size = 12; train_samples = 1200; "
			       "lr_decay_samples = 600; "
			       "lr_warmup_samples = 120; "
			       "lr_wsd_decay_samples = 240;",
			       0);

	(void)state;
	assert_int_equal(r->train_iters, 100);
	assert_int_equal(r->lr_decay_iters, 50);
	assert_int_equal(r->lr_warmup_iters, 10);
	assert_int_equal(r->lr_wsd_decay_iters, 20);
	r = run_of("global_batch_size = 12; lr_warmup_samples = 120; "
		   "lr_warmup_iters = 3;",
		   0);
	assert_int_equal(r->lr_warmup_iters, 3);
}

static void test_rates(void **state)
{
	struct run *r = run_of("weight_decay = 0.5; init_method_std = 0.3;", 0);

	(void)state;
	assert_true(isnan(r->lr));
	assert_true(r->start_weight_decay == 0.5);
	assert_true(r->end_weight_decay == 0.5);
	assert_true(r->embedding_init_method_std == 0.3);
	r = run_of("weight_decay_incr_style = \"linear\";", 0);
	assert_true(isnan(r->start_weight_decay));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_batch),   TEST(test_length), TEST(test_batch_steps),
		TEST(test_samples), TEST(test_rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
