/* SPDX-License-Identifier: Apache-2.0 */
/* The layout string: what it expands to and where it is wrong. */
#include "lib/plan/layout.h"

#include "test/config-test.h"

/* Stages joined by blanks; an empty one is a dot. */
static const char *expanded(const char *text)
{
	const char **stage, *out = "";
	struct err e;
	int count, column;

	if (layout_expand(text, &arena, &stage, &count, &column, &e)) {
		assert_non_null(strstr(
			e.text, arena_printf(&arena, "column %d:", column)));
		return arena_strdup(&arena, e.text);
	}
	for (int i = 0; i < count; i++)
		out = arena_printf(&arena, "%s%s%s", out, i ? " " : "",
				   *stage[i] ? stage[i] : ".");
	return out;
}

static void test_expands(void **state)
{
	static const char *const cases[][2] = {
		{"EtL", "EtL"},
		{"E|tt|L", "E tt L"},
		{"Et*3|t,t|L", "Ettt tt L"},
		{"E|(t|)*3mL", "E t t t mL"},
		{"E(t|)*2,t*2|tL", "Et t tt tL"},
		{"E|(tt|)*2,(t|)*4,mL", "E tt tt t t t t mL"},
		{"Et || tL", "Et . tL"},
		{"Et|*3tL", "Et . . tL"},
		{"(t*2|)*2L", "tt tt L"},
		{"E((t|)*2m|)*2L", "Et t m t t m L"},
		{" ( E t ) * 2 ", "EtEt"},
		{"", "."},
		{"Et # all of it *9x\n|L", "Et L"},
		{"E/* (t| */t|/**/L # end", "Et L"},
		{"t /* * */ * /* 2 */ 3", "ttt"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(expanded(cases[i][0]), cases[i][1]);
}

static void test_is_refused(void **state)
{
	static const char *const cases[][2] = {
		{"Etx", "column 3: only E t m L | ( ) * are known"},
		{"E(t|", "column 2: this bracket is not closed"},
		{"Et)L", "column 3: this bracket was never opened"},
		{"*2t", "column 1: * has nothing before it to repeat"},
		{"Et|/* L", "column 4: this comment is not closed"},
		{"Et|/L", "column 4: only E t m L"},
		{"t*", "column 3: * wants a count of at least 1"},
		{"t*0", "column 3: * wants a count of at least 1"},
		{"t*x", "column 3: * wants a count of at least 1"},
		{"t*99999999999", "column 3: the count after * is too large"},
		{"(tt)*4096", "column 1: it expands to more than 4096 tokens"},
		{"((((t)*64)*64)*64)", "it expands to more than 4096 tokens"},
	};
	char deep[80];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_non_null(strstr(expanded(cases[i][0]), cases[i][1]));
	memset(deep, '(', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = 0;
	assert_non_null(strstr(expanded(deep), "nested too deep"));
}

static void test_the_largest(void **state)
{
	assert_int_equal(strlen(expanded("t*4096")), 4096);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_expands),
		TEST(test_is_refused),
		TEST(test_the_largest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
