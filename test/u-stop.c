/* SPDX-License-Identifier: Apache-2.0 */
/* Reasons to stop: signals, the stop file, the time. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/plan/field.h"
#include "lib/train/stop.h"

static char folder[] = "/tmp/tri-stop.XXXXXX";
static struct stop stop;
static struct err err;
static char text[200];

static int enter(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int leave(void **state)
{
	(void)state;
	return rmdir(folder);
}

static void nothing_asks_to_stop(void **state)
{
	(void)state;
	assert_int_equal(stop_open(&stop, folder, UNSET, &err), 0);
	assert_int_equal(stop_requested(&stop), STOP_NO);
	assert_string_equal(stop_text(&stop, text, sizeof(text)), "");
	stop_close(&stop);
}

static void each_signal_asks_once_or_twice(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(stop_open(&stop, NULL, UNSET, &err), 0);
		raise(signals[i]);
		assert_int_equal(stop_requested(&stop), STOP_SIGNAL);
		raise(SIGTERM); /* while saving, say: nothing more */
		assert_int_equal(stop_requested(&stop), STOP_SIGNAL);
		assert_int_equal(stop.signal, signals[i]);
		stop_close(&stop);
	}
	assert_string_equal(stop_text(&stop, text, sizeof(text)),
			    "signal 12 (User defined signal 2)");
}

/* How a child ends that raises these signals. */
static int end_of(const int *signals)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		stop_open(&stop, NULL, UNSET, &err);
		while (*signals)
			raise(*signals++);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_third_signal_or_a_second_int_ends(void **state)
{
	(void)state;
	assert_int_equal(end_of((int[]){SIGTERM, SIGTERM, 0}), 0);
	assert_int_equal(end_of((int[]){SIGINT, SIGTERM, 0}), 0);
	assert_int_equal(end_of((int[]){SIGUSR1, SIGTERM, SIGUSR2, 0}),
			 SIGUSR2);
	assert_int_equal(end_of((int[]){SIGINT, SIGINT, 0}), SIGINT);
}

static void signals_are_given_back(void **state)
{
	struct sigaction act;

	(void)state;
	assert_int_equal(stop_open(&stop, NULL, UNSET, &err), 0);
	stop_close(&stop);
	sigaction(SIGTERM, NULL, &act);
	assert_true(act.sa_handler == SIG_DFL);
}

static void the_stop_file_is_seen(void **state)
{
	char name[64];
	FILE *f;

	(void)state;
	snprintf(name, sizeof(name), "%s/stop", folder);
	f = fopen(name, "w");
	fclose(f);
	assert_int_equal(stop_open(&stop, folder, UNSET, &err), 0);
	assert_int_equal(stop_requested(&stop), STOP_FILE);
	assert_non_null(strstr(stop_text(&stop, text, sizeof(text)), name));
	unlink(name);
	assert_int_equal(stop_requested(&stop), STOP_FILE);
	stop_close(&stop);
}

static void the_time_is_over(void **state)
{
	(void)state;
	assert_int_equal(stop_open(&stop, folder, 1, &err), 0);
	assert_int_equal(stop_requested(&stop), STOP_NO);
	stop.begun -= 60;
	assert_int_equal(stop_requested(&stop), STOP_TIME);
	assert_string_equal(stop_text(&stop, text, sizeof(text)),
			    "1 minutes are over");
	stop_close(&stop);
}

static void a_folder_too_long_is_refused(void **state)
{
	static char name[5000];

	(void)state;
	memset(name, 'x', sizeof(name) - 1);
	assert_int_equal(stop_open(&stop, name, UNSET, &err), -1);
	assert_int_equal(err.code, CODE_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_asks_to_stop),
		cmocka_unit_test(each_signal_asks_once_or_twice),
		cmocka_unit_test(a_third_signal_or_a_second_int_ends),
		cmocka_unit_test(signals_are_given_back),
		cmocka_unit_test(the_stop_file_is_seen),
		cmocka_unit_test(the_time_is_over),
		cmocka_unit_test(a_folder_too_long_is_refused),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
