/* SPDX-License-Identifier: Apache-2.0 */
/* Findings and the table of checks that names them. */
#include "lib/plan/report.h"

#include <ctype.h>

#include "lib/plan/check.h"
#include "test/config-test.h"

static void test_collects(void **state)
{
	struct origin from = {ORIGIN_GIVEN, "a.cfg", 7, NULL};
	struct report r = {.arena = &arena};

	(void)state;
	report_add(&r, "place-heads", ERROR, "place.x", &from, "%d and %d", 1,
		   2);
	report_suggest(&r, "x = %d", 3);
	report_suggest_divisors(&r, "y", 12, 5);
	report_add(&r, "place-vocab-padding", NOTE, NULL, NULL, "note");
	report_add(&r, "run-lr-unset", WARNING, "run.lr", NULL, "warned");
	assert_int_equal(r.count, 3);
	assert_string_equal(r.list[0].message, "1 and 2");
	assert_string_equal(r.list[0].file, "a.cfg");
	assert_int_equal(r.list[0].line, 7);
	assert_int_equal(r.list[0].suggests, 3);
	assert_string_equal(r.list[0].suggest[0], "x = 3");
	assert_string_equal(r.list[0].suggest[1], "y = 4");
	assert_string_equal(r.list[0].suggest[2], "y = 6");
	assert_string_equal(r.list[1].path, "");
	assert_null(r.list[1].file);
	assert_int_equal(report_count(&r, NOTE), 3);
	assert_int_equal(report_count(&r, WARNING), 2);
	assert_int_equal(report_count(&r, ERROR), 1);
}

static void test_many(void **state)
{
	struct report r = {.arena = &arena};

	(void)state;
	for (int i = 0; i < 1000; i++) {
		report_add(&r, "place-heads", ERROR, "", NULL, "%d", i);
		for (int j = 0; j < 20; j++)
			report_suggest(&r, "%d", j);
	}
	assert_int_equal(r.count, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(atol(r.list[i].message), i);
	assert_int_equal(r.list[999].suggests, 8);
}

static void test_divisors_at_the_ends(void **state)
{
	struct report r = {.arena = &arena};

	(void)state;
	report_add(&r, "place-heads", ERROR, "", NULL, "one");
	report_suggest_divisors(&r, "n", 7, 100);
	report_suggest_divisors(&r, "n", 7, 1);
	assert_int_equal(r.list[0].suggests, 2);
	assert_string_equal(r.list[0].suggest[0], "n = 7");
	assert_string_equal(r.list[0].suggest[1], "n = 7");
}

static bool is_kebab(const char *id)
{
	for (; *id; id++)
		if (!islower((unsigned char)*id) && *id != '-')
			return false;
	return true;
}

static void test_check_ids(void **state)
{
	int count;
	const struct check *check = check_table(&count);

	(void)state;
	assert_true(count > 80);
	for (int i = 0; i < count; i++) {
		assert_true(is_kebab(check[i].id));
		assert_ptr_equal(check_find(check[i].id), &check[i]);
		assert_true(strlen(check[i].rule) > 10);
	}
	assert_null(check_find("no-such-check"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_collects),
		TEST(test_many),
		TEST(test_divisors_at_the_ends),
		TEST(test_check_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
