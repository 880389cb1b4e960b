/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and numbers on command lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/cli.h"

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} good[] = {
		{"80G", (int64_t)80 << 30},
		{"80GiB", (int64_t)80 << 30},
		{"81920M", (int64_t)80 << 30},
		{"141GB", 141000000000},
		{"1.5T", (int64_t)3 << 39},
		{"2K", 2048},
		{"2KB", 2000},
		{"0.5MiB", 1 << 19},
	};
	struct err e;
	int64_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(cli_size(good[i].text, 1, INT64_MAX, &n, &e),
				 0);
		assert_int_equal(n, good[i].bytes);
	}
}

static void test_bad_sizes(void **state)
{
	static const char *const bad[] = {
		"",	"80",	"G",	 "80g",	   "80 G",   "80Gb",
		"80Gi", "-1G",	"1e3G",	 "80GiBs", "1.2.3G", "80B",
		"nanG", "infG", "0x10G", ".G",
	};
	struct err e;
	int64_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(cli_size(bad[i], 1, INT64_MAX, &n, &e), -1);
		assert_int_equal(e.code, CODE_USAGE);
		assert_non_null(strstr(e.text, bad[i]));
	}
	assert_int_equal(cli_size("2G", 1, 1 << 30, &n, &e), -1);
	assert_non_null(strstr(e.text, "2G is not between 1 and 1073741824"));
	assert_int_equal(cli_size("99999999T", 1, INT64_MAX, &n, &e), -1);
}

static void test_reals(void **state)
{
	static const char *const bad[] = {"",	 "x",	"1x",  " 1",
					  "nan", "inf", "0x1", "1,5"};
	struct err e;
	double x;

	(void)state;
	assert_int_equal(cli_real("0.7", 0, 1, &x, &e), 0);
	assert_true(x == 0.7);
	assert_int_equal(cli_real("1e-3", 0, 1, &x, &e), 0);
	assert_true(x == 1e-3);
	assert_int_equal(cli_real("1", 0, 1, &x, &e), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(cli_real(bad[i], 0, 1, &x, &e), -1);
		assert_int_equal(e.code, CODE_USAGE);
	}
	assert_int_equal(cli_real("1.01", 0, 1, &x, &e), -1);
	assert_non_null(strstr(e.text, "1.01 is not between 0 and 1"));
	assert_int_equal(cli_real("-0.1", 0, 1, &x, &e), -1);
	assert_int_equal(cli_real("1e999", 0, 1, &x, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_bad_sizes),
		cmocka_unit_test(test_reals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
