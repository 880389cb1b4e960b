/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: what is allocated is zero, aligned, apart, and stays where it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
/* after those: */
#include <cmocka.h>

#include "lib/base/arena.h"

static bool is_all(const char *p, size_t n, char c)
{
	return n == 0 || (p[0] == c && !memcmp(p, p + 1, n - 1));
}

/* From nothing to more than any piece, in an order that leaves rests. */
static void test_pieces(void **state)
{
	static const size_t sizes[] = {1,	0,	   15,	    16,
				       1 << 20, 3,	   9 << 20, 100,
				       1 << 16, 200 << 20, 7,	    33 << 20};
	enum { N = 600, SIZES = sizeof(sizes) / sizeof(*sizes) };
	static char *at[N];
	static size_t len[N];
	struct arena a = {0};
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	for (int i = 0; i < N; i++) {
		len[i] = i < SIZES ? sizes[i] : (size_t)(i * 7919 % 40000);
		at[i] = arena_alloc(&a, len[i], 1);
		assert_int_equal((uintptr_t)at[i] % 16, 0);
		assert_true(is_all(at[i], len[i], 0));
		memset(at[i], i | 1, len[i]);
	}
	for (int i = 0; i < N; i++)
		assert_true(is_all(at[i], len[i], (char)(i | 1)));
	arena_close(&a);
	assert_null(a.base);
	arena_close(&a);
}

static void test_array(void **state)
{
	struct arena a = {0};
	size_t cap = 0;
	int *list = NULL;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	for (int i = 0; i < 1000000; i++) {
		list = arena_grow(&a, list, (size_t)i, &cap, sizeof(*list));
		list[i] = i;
	}
	for (int i = 0; i < 1000000; i++)
		assert_int_equal(list[i], i);
	arena_close(&a);
}

/* What a child that takes all memory there is in STEP bytes ends with. */
static int exhaust(size_t count, size_t step)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct rlimit limit = {512 << 20, 512 << 20};
		struct arena a;
		struct err e;

		close(STDERR_FILENO);
		if (setrlimit(RLIMIT_AS, &limit) || arena_open(&a, &e))
			_exit(100);
		for (;;)
			arena_alloc(&a, count, step);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_exhausted(void **state)
{
	(void)state;
#ifdef __SANITIZE_ADDRESS__
	return; /* its shadow is beyond any limit */
#endif
	assert_int_equal(exhaust(1, 100), CODE_LAUNCH);
	assert_int_equal(exhaust(3, 5 << 20), CODE_LAUNCH);
	assert_int_equal(exhaust(SIZE_MAX, 1), CODE_LAUNCH);
	assert_int_equal(exhaust(SIZE_MAX - 20, 1), CODE_LAUNCH);
	assert_int_equal(exhaust(SIZE_MAX / 2, 3), CODE_LAUNCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_array),
		cmocka_unit_test(test_exhausted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
