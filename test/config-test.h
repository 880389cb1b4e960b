/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of configs share: an arena a test, configs as texts. */
#ifndef TEST_CONFIG_TEST_H
#define TEST_CONFIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after those: */
#include <cmocka.h>

#include "lib/plan/config.h"

/* The arena of the running test. */
static struct arena arena;

static int arena_setup(void **state)
{
	struct err e;

	(void)state;
	return arena_open(&arena, &e);
}

static int arena_teardown(void **state)
{
	(void)state;
	arena_close(&arena);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, arena_setup, arena_teardown)

/* A file of TEXT, to be unlinked. */
static inline const char *file_of(const char *text)
{
	char *name = arena_strdup(&arena, "/tmp/tri-XXXXXX");
	int fd = mkstemp(name);
	size_t len = strlen(text);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	close(fd);
	return name;
}

/* TEXT read as a config with at most one --set; findings go to R. */
static inline struct config *config_of(const char *text, const char *set,
				       struct report *r)
{
	struct config *c = arena_alloc(&arena, 1, sizeof(*c));
	const char *file = file_of(text);
	struct err e;
	int bad;

	*r = (struct report){.arena = &arena};
	bad = config_load(file, &set, set != NULL, &arena, c, r, &e);
	unlink(file);
	return bad ? NULL : c;
}

#endif
