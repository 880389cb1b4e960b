/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that come one step late, as a GPU's do, on the CPU's ops: the same
 * losses, each with its step, and nothing lost before a pause or a failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/trainer.h"

enum { STEPS = 6 };

/* Results wait here until the next run has begun. */
static struct kern_scalars kept[2];
static int64_t ended, asked;

static int keep(struct exec *x, struct err *e)
{
	(void)e;
	assert_true(ended - asked < 2);
	kept[ended++ % 2] = *exec_scalars(x);
	return 0;
}

static int give(struct exec *x, struct kern_scalars *out, double *seconds,
		struct err *e)
{
	(void)x;
	(void)e;
	assert_true(asked < ended);
	*out = kept[asked++ % 2];
	*seconds = 1;
	return 0;
}

static struct machine late(void)
{
	struct machine m = machine_cpu;

	m.lag = 1;
	m.end = keep;
	m.results = give;
	ended = asked = 0;
	return m;
}

/* Tokens that differ by sample. */
static int sample(void *arg, bool valid, int64_t index, int32_t *ids,
		  int32_t *labels, struct err *e)
{
	(void)arg;
	(void)valid;
	(void)e;
	for (int i = 0; i < 12; i++) {
		ids[i] = (int32_t)((index * 7 + i * 3) % 37);
		labels[i] = (int32_t)((index * 7 + i * 3 + 3) % 37);
	}
	return 0;
}

static void open_model(struct trainer *t, struct config *c,
		       const struct machine *m, struct arena *a)
{
	const char *const sets[] = {"run.lr=0.01", "run.train_iters=100"};
	struct report r = {.arena = a};
	struct err e;

	assert_int_equal(arena_open(a, &e), 0);
	assert_int_equal(config_load("test/data/golden/llama.cfg", sets, 2, a,
				     c, &r, &e),
			 0);
	config_finish(c, 1, &r);
	assert_int_equal(report_count(&r, ERROR), 0);
	if (trainer_open(t, c, 1, 0, m, NULL, a, &e))
		fail_msg("%s", e.text);
}

/* STEPS steps; what each reported, by its number; pauses after step PAUSE. */
static void train(const struct machine *m, int pause, double *loss)
{
	struct trainer_data data = {.sample = sample};
	struct trainer_result r;
	struct config c;
	struct trainer t;
	struct arena a;
	struct err e;

	open_model(&t, &c, m, &a);
	for (int i = 1; i <= STEPS; i++) {
		double eval;

		assert_int_equal(trainer_step(&t, &data, false, &r, &e), 0);
		assert_int_equal(t.step, i);
		assert_true(r.step == i - m->lag || r.step == 0);
		if (r.step)
			loss[r.step] = r.loss;
		if (i != pause && i != STEPS)
			continue;
		assert_int_equal(trainer_settle(&t, &r, &e), 0);
		assert_int_equal(r.step, m->lag ? i : 0);
		if (r.step)
			loss[r.step] = r.loss;
		assert_int_equal(trainer_eval(&t, &data, 2, &eval, NULL, &e),
				 0);
		loss[0] = eval;
	}
	trainer_close(&t);
	arena_close(&a);
}

static void test_same_losses(void **state)
{
	double now[STEPS + 1] = {0}, then[STEPS + 1] = {0};

	(void)state;
	for (int pause = 0; pause <= STEPS; pause++) {
		const struct machine m = late();

		train(&machine_cpu, pause, now);
		train(&m, pause, then);
		assert_memory_equal(now, then, sizeof(now));
		assert_true(now[1] > 0 && now[STEPS] > 0 && now[0] > 0);
	}
}

/* A loss that is not finite is told with its own step, by either call. */
static void test_not_finite(void **state)
{
	const struct machine m = late();
	struct trainer_data data = {.sample = sample};
	struct trainer_result r;
	struct config c;
	struct trainer t;
	struct arena a;
	struct err e;
	double *weights;

	(void)state;
	for (int settle = 0; settle < 2; settle++) {
		ended = asked = 0;
		open_model(&t, &c, &m, &a);
		assert_int_equal(trainer_step(&t, &data, false, &r, &e), 0);
		assert_int_equal(trainer_settle(&t, &r, &e), 0);
		weights = exec_map(&t.exec, FAMILY_PARAM, true, &e);
		for (int64_t i = 0; i < t.plan.slice.elements; i++)
			weights[i] = NAN;
		assert_int_equal(trainer_step(&t, &data, false, &r, &e), 0);
		assert_int_equal(r.step, 0);
		assert_int_equal(
			settle ? trainer_settle(&t, &r, &e)
			       : trainer_step(&t, &data, false, &r, &e),
			-1);
		assert_int_equal(e.code, CODE_NUMERIC);
		assert_non_null(strstr(e.text, "step 2: "));
		trainer_close(&t);
		arena_close(&a);
	}
}

/* A wish to stop is heard one step later, and only once more is begun. */
static void test_stop(void **state)
{
	const struct machine m = late();
	struct trainer_data data = {.sample = sample};
	struct trainer_result r;
	struct config c;
	struct trainer t;
	struct arena a;
	struct err e;

	(void)state;
	open_model(&t, &c, &m, &a);
	assert_int_equal(trainer_step(&t, &data, true, &r, &e), 0);
	assert_false(r.stop);
	assert_int_equal(trainer_step(&t, &data, true, &r, &e), 0);
	assert_true(r.stop && r.step == 1);
	assert_int_equal(trainer_settle(&t, &r, &e), 0);
	assert_true(r.stop && r.step == 2 && t.step == 2);
	trainer_close(&t);
	arena_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_losses),
		cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
