/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of the loss, against a trace of Megatron's DynamicGradScaler. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/plan/config.h"
#include "lib/train/scaler.h"

static struct config config(int dtype, double constant)
{
	struct config c = {.spec.params_dtype = dtype};

	c.run.loss_scale = constant;
	c.run.initial_loss_scale = 65536;
	c.run.min_loss_scale = 1;
	c.run.loss_scale_window = 4;
	c.run.hysteresis = 2;
	return c;
}

static void trace(void **state)
{
	static const struct {
		bool bad;
		double scale;
		int64_t growth, hysteresis;
	} want[] = {
		{0, 65536, 1, 2},  {1, 65536, 0, 1},  {0, 65536, 1, 1},
		{1, 32768, 0, 0},  {1, 16384, 0, -1}, {0, 16384, 1, -1},
		{0, 16384, 2, -1}, {0, 16384, 3, -1}, {0, 32768, 0, 2},
		{1, 32768, 0, 1},  {0, 32768, 1, 1},  {0, 32768, 2, 1},
		{0, 32768, 3, 1},  {0, 65536, 0, 2},  {1, 65536, 0, 1},
		{1, 32768, 0, 0},  {1, 16384, 0, -1},
	};
	struct config c = config(DTYPE_FP16, NAN);
	struct scaler s = scaler_start(&c);
	int64_t skipped = 0;

	(void)state;
	assert_true(s.scale == 65536);
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		scaler_update(&s, &c, want[i].bad);
		skipped += want[i].bad;
		assert_true(s.scale == want[i].scale);
		assert_int_equal(s.growth, want[i].growth);
		assert_int_equal(s.hysteresis, want[i].hysteresis);
		assert_int_equal(s.skipped, skipped);
	}
	assert_int_equal(s.row, 3);
}

static void least(void **state)
{
	struct config c = config(DTYPE_FP16, NAN);
	struct scaler s = scaler_start(&c);

	(void)state;
	for (int i = 0; i < 40; i++)
		scaler_update(&s, &c, true);
	assert_true(s.scale == 1);
	assert_int_equal(s.row, 40);
	scaler_update(&s, &c, false);
	assert_int_equal(s.row, 0);
	assert_int_equal(s.skipped, 40);
}

static void constant(void **state)
{
	struct config c = config(DTYPE_BF16, 128);
	struct scaler s = scaler_start(&c);

	(void)state;
	for (int i = 0; i < 9; i++)
		scaler_update(&s, &c, i < 3);
	assert_true(s.scale == 128);
	assert_int_equal(s.skipped, 3);
}

/* Only fp16 has a dynamic one, and only 16 bits have any. */
static void none(void **state)
{
	struct config c = config(DTYPE_BF16, NAN);

	(void)state;
	assert_true(scaler_start(&c).scale == 0);
	c = config(DTYPE_FP32, 128);
	assert_true(scaler_start(&c).scale == 0);
	c = config(DTYPE_FP64, NAN);
	assert_true(scaler_start(&c).scale == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trace),
		cmocka_unit_test(least),
		cmocka_unit_test(constant),
		cmocka_unit_test(none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
