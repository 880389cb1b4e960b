/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the visible GPUs is a rank's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/device_choice.h"

static struct err err;

static int choose(int node_rank, int count)
{
	struct boot b = {.rank = 10 + node_rank,
			 .world = 20,
			 .node_rank = node_rank,
			 .host = "n7"};

	return device_choice(&b, count, &err);
}

static void the_only_one_is_number_0(void **state)
{
	(void)state;
	for (int r = 0; r < 8; r++)
		assert_int_equal(choose(r, 1), 0);
}

static void of_several_the_launchers_number(void **state)
{
	(void)state;
	for (int r = 0; r < 8; r++)
		assert_int_equal(choose(r, 8), r);
}

static void too_few_are_an_error_of_the_launch(void **state)
{
	(void)state;
	setenv("CUDA_VISIBLE_DEVICES", "4,5", 1);
	assert_int_equal(choose(2, 2), -1);
	assert_int_equal(err.code, CODE_LAUNCH);
	assert_non_null(strstr(err.text,
			       "rank 12 is number 2 (from 0) on n7, where 2 "
			       "GPUs are visible (CUDA_VISIBLE_DEVICES 4,5)"));
	assert_non_null(strstr(err.text, "--gpus-per-task=1"));
	assert_non_null(strstr(err.text, "--gres=gpu:N"));
	assert_non_null(strstr(err.text, "--ntasks-per-node=N"));
	unsetenv("CUDA_VISIBLE_DEVICES");
	assert_int_equal(choose(0, 0), -1);
	assert_non_null(strstr(err.text, "CUDA_VISIBLE_DEVICES is not set"));
}

#ifndef TRISECT_CUDA
static void without_cuda_none_is_opened(void **state)
{
	struct boot b = {.world = 1};
	struct boot_card card = {.device = ""};

	(void)state;
	assert_int_equal(device_choice_open(&b, &card, &err), -1);
	assert_int_equal(err.code, CODE_LAUNCH);
	assert_non_null(strstr(err.text, "make CUDA=1"));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_only_one_is_number_0),
		cmocka_unit_test(of_several_the_launchers_number),
		cmocka_unit_test(too_few_are_an_error_of_the_launch),
#ifndef TRISECT_CUDA
		cmocka_unit_test(without_cuda_none_is_opened),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
