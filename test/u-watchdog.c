/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: when it warns, when it ends, and when neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/sys.h"
#include "lib/train/watchdog.h"
#include "lib/train/within.h"

static struct err err;
static atomic_int warned, expired;
static char said[1000];

static void describe(void *arg, char *buf, size_t size)
{
	snprintf(buf, size, "op %d", *(volatile int *)arg);
}

static void warn(void *arg, const char *text)
{
	(void)arg;
	(void)text;
	atomic_fetch_add(&warned, 1);
}

static void expire(void *arg, const char *text)
{
	(void)arg;
	if (!atomic_load(&expired))
		snprintf(said, sizeof(said), "%s", text);
	atomic_fetch_add(&expired, 1);
}

static struct watchdog *start(int *op)
{
	struct watchdog_hooks hooks = {describe, warn, expire, op};
	struct watchdog *w;

	warned = expired = 0;
	assert_int_equal(watchdog_open(&w, &hooks, &err), 0);
	return w;
}

static void pause_for(double seconds)
{
	usleep((useconds_t)(seconds * 1e6));
}

static void a_hang_is_told_twice_and_with_its_place(void **state)
{
	int op = 42;
	struct watchdog *w = start(&op);
	double begun = sys_seconds();

	(void)state;
	watchdog_phase(w, "step", 1.0);
	while (!atomic_load(&warned) && sys_seconds() < begun + 5)
		pause_for(0.01);
	assert_true(sys_seconds() - begun >= 0.5);
	assert_int_equal(atomic_load(&expired), 0);
	while (!atomic_load(&expired) && sys_seconds() < begun + 5)
		pause_for(0.01);
	assert_true(sys_seconds() - begun >= 1.0);
	pause_for(0.3);
	watchdog_close(w);
	assert_int_equal(warned, 1);
	assert_int_equal(expired, 1);
	/* later than that on a busy machine, but not without its place */
	assert_int_equal(strncmp(said, "step: ", 6), 0);
	assert_non_null(strstr(said, " s of at most 1 s, at op 42"));
}

static void progress_keeps_it_quiet(void **state)
{
	int op = 0;
	struct watchdog *w = start(&op);

	(void)state;
	for (int i = 0; i < 10; i++) {
		watchdog_phase(w, "step", 3.0);
		pause_for(0.15);
	}
	watchdog_close(w);
	assert_int_equal(warned + expired, 0);
}

static void without_a_limit_or_a_phase_it_sleeps(void **state)
{
	int op = 0;
	struct watchdog *w = start(&op);

	(void)state;
	pause_for(0.2);
	watchdog_phase(w, "step", 0.3);
	watchdog_phase(w, "interactive", 0);
	pause_for(0.5);
	watchdog_close(w);
	assert_int_equal(warned + expired, 0);
}

static void closing_is_prompt(void **state)
{
	int op = 0;
	struct watchdog *w = start(&op);
	double begun = sys_seconds();

	(void)state;
	watchdog_close(w);
	watchdog_close(NULL);
	assert_true(sys_seconds() - begun < 2);
}

static void forever(void *arg)
{
	(void)arg;
	sleep(600);
}

static void at_once(void *arg)
{
	*(int *)arg = 1;
}

static void a_call_has_a_deadline(void **state)
{
	static int done;
	double begun = sys_seconds();

	(void)state;
	assert_int_equal(within(10, at_once, &done), 0);
	assert_int_equal(done, 1);
	assert_int_equal(within(0.3, forever, NULL), -1);
	assert_true(sys_seconds() - begun >= 0.3);
	assert_true(sys_seconds() - begun < 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hang_is_told_twice_and_with_its_place),
		cmocka_unit_test(progress_keeps_it_quiet),
		cmocka_unit_test(without_a_limit_or_a_phase_it_sleeps),
		cmocka_unit_test(closing_is_prompt),
		cmocka_unit_test(a_call_has_a_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
