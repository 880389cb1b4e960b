/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks as texts, and whom they are about. */
#include "lib/plan/hook.h"

#include "test/config-test.h"

static struct hook parsed(const char *text)
{
	struct hook h;
	struct err e;

	assert_int_equal(hook_parse(&h, text, &e), 0);
	return h;
}

static void test_forms(void **state)
{
	struct hook h = parsed("init_std:0.5:layers/*/fc1:w");

	(void)state;
	assert_int_equal(h.kind, HOOK_INIT_STD);
	assert_true(h.value == 0.5);
	assert_string_equal(h.pattern, "layers/*/fc1:w");
	h = parsed("init_constant:-1e-3:*");
	assert_int_equal(h.kind, HOOK_INIT_CONSTANT);
	assert_true(h.value == -1e-3);
	assert_string_equal(parsed("log_parameters").pattern, "*");
	assert_string_equal(parsed("log_parameters:x").pattern, "x");
	assert_int_equal(parsed("freeze:a.b").kind, HOOK_FREEZE);
	h = parsed("ex.fill:1:2");
	assert_int_equal(h.kind, HOOK_PLUGIN);
	assert_string_equal(h.pattern, "1:2");
	assert_string_equal(parsed("ex.fill").pattern, "");
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"",	      "freeze",		 "freeze:",
		"freezes:*",  "init_std:1",	 "init_std:1:",
		"init_std:*", "init_std:-1:*",	 "init_std:nan:*",
		"init_std",   "init_constant:*", "init_constant:inf:*",
	};
	struct hook h;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(hook_parse(&h, bad[i], &e), -1);
		assert_int_equal(e.code, CODE_CONFIG);
	}
}

static void test_frozen(void **state)
{
	const char *const list[] = {"log_parameters", "freeze:embed/*",
				    "init_constant:0:head/*",
				    "freeze:layers/000[0-1]/*"};
	const struct spec s = {.pre_wrap_hooks = {list, 4}};

	(void)state;
	assert_true(hook_freezes(&s, "embed/tok"));
	assert_true(hook_freezes(&s, "layers/0001/mlp/fc1/w"));
	assert_false(hook_freezes(&s, "layers/0002/mlp/fc1/w"));
	assert_false(hook_freezes(&s, "head/out"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_forms),
		TEST(test_refused),
		TEST(test_frozen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
