/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl: what a row says, and what a restart leaves of the file. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/train/metrics.h"

static char folder[] = "/tmp/tri-metrics.XXXXXX";
static char path[64];
static struct err err;

static int enter(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
	return 0;
}

static int leave(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void write_file(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *read_file(void)
{
	static char text[4096];
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	return text;
}

static void assert_begins(const char *want)
{
	const char *text = read_file();

	if (strncmp(text, want, strlen(want)))
		fail_msg("'%s' does not begin with '%s'", text, want);
}

static void append(int64_t after, const struct metrics_row *row)
{
	struct metrics m;

	/* no progress line within the test's output */
	assert_int_equal(metrics_open(&m, folder, after, 1000, 1000, &err), 0);
	m.terminal = false;
	assert_int_equal(metrics_write(&m, row, &err), 0);
	metrics_close(&m);
}

static void a_row_is_one_object(void **state)
{
	struct metrics_row row = {
		.step = 7,
		.loss = 2.5,
		.grad_norm = 0.5,
		.mtp_grad_norm = NAN,
		.lr = 0.25,
		.tokens = 1024,
		.tokens_per_second = 64,
		.tflops = 0.125,
		.mfu = NAN,
		.step_ms = 16,
		.memory_bytes = 4096,
		.eval_loss = NAN,
	};

	(void)state;
	unlink(path);
	append(6, &row);
	assert_string_equal(read_file(),
			    "{\"step\": 7, \"loss\": 2.5, \"grad_norm\": 0.5, "
			    "\"lr\": 0.25, \"tokens\": 1024, "
			    "\"tokens_per_second\": 64, \"tflops\": 0.125, "
			    "\"mfu\": null, \"step_ms\": 16, "
			    "\"memory_bytes\": 4096}\n");
	row.eval_loss = INFINITY; /* which JSON cannot say */
	append(6, &row);
	assert_non_null(strstr(read_file(), ", \"eval_loss\": null}\n"));
}

static void experts_have_their_own(void **state)
{
	struct metrics_row row = {
		.step = 7,
		.eval_loss = NAN,
		.moe = {.there = true, .aux = 0.25, .z = 0.5, .load = 1.5},
	};

	(void)state;
	unlink(path);
	append(6, &row);
	assert_non_null(strstr(read_file(),
			       ", \"moe\": {\"aux\": 0.25, \"z\": 0.5, "
			       "\"load\": 1.5}}\n"));
}

static void scales_and_detached_depths_are_told(void **state)
{
	struct metrics_row row = {
		.step = 7,
		.grad_norm = NAN,
		.mtp_grad_norm = 0.5,
		.eval_loss = NAN,
		.loss_scale = 1024,
		.skipped = true,
	};

	(void)state;
	unlink(path);
	append(6, &row);
	assert_non_null(strstr(read_file(), "\"grad_norm\": null"));
	assert_non_null(strstr(read_file(), ", \"mtp_grad_norm\": 0.5, "
					    "\"loss_scale\": 1024, "
					    "\"skipped\": true}\n"));
}

/* Later rows, half a row and noise go; a row without its newline stays one. */
static void a_restart_drops_what_is_later(void **state)
{
	struct metrics_row row = {.step = 3, .mfu = NAN, .eval_loss = NAN};

	(void)state;
	write_file("{\"step\": 1}\n{\"step\": 3}\nnoise\n{\"step\": 2}");
	append(2, &row);
	assert_begins("{\"step\": 1}\n{\"step\": 2}\n{\"step\": 3, ");
	write_file("{\"step\": 1}\n{\"step\": 2, \"lo");
	append(2, &row);
	assert_begins("{\"step\": 1}\n{\"step\": 3, ");
}

static void others_write_nothing(void **state)
{
	struct metrics_row row = {.step = 1};
	struct metrics m;

	(void)state;
	unlink(path);
	assert_int_equal(metrics_open(&m, NULL, 0, 1, 1, &err), 0);
	assert_int_equal(metrics_write(&m, &row, &err), 0);
	metrics_close(&m);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_folder_that_is_gone_is_an_error(void **state)
{
	struct metrics m;

	(void)state;
	assert_int_equal(metrics_open(&m, "/nonexistent", 0, 1, 1, &err), -1);
	assert_int_equal(err.code, CODE_STORAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_row_is_one_object),
		cmocka_unit_test(experts_have_their_own),
		cmocka_unit_test(scales_and_detached_depths_are_told),
		cmocka_unit_test(a_restart_drops_what_is_later),
		cmocka_unit_test(others_write_nothing),
		cmocka_unit_test(a_folder_that_is_gone_is_an_error),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
