/* SPDX-License-Identifier: Apache-2.0 */
/* The container: places of payloads, types, tables, the same bytes again. */
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
#include <hdf5.h>

#include "ckpt/h5.h"
#include "ckpt/io.h"

static char dir[64];

static const char *path_of(const char *name)
{
	static char path[2][128];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

static int setup(void **unused)
{
	(void)unused;
	snprintf(dir, sizeof(dir), "/tmp/u-ckpt-h5.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **unused)
{
	(void)unused;
	io_remove(dir);
	return 0;
}

static const char name[] = "/data/param/layers/0000/attn/qkv/w";
static const float payload[6] = {1, -2, 0.5, 1e-40f, 3, 4};

/* A file with one float array, its bytes put in from outside. */
static void make(const char *path)
{
	struct h5_data d = {.dtype = CKPT_F32, .ndim = 2, .dim = {2, 3}};
	struct format_row row = {.name = "layers/0000/attn/qkv/w",
				 .hi = 6,
				 .bytes = 24,
				 .role = ROLE_PARAM,
				 .ndim = 2};
	struct h5 *f;
	struct err e;
	FILE *file;

	assert_int_equal(h5_create(&f, path, &e), 0);
	assert_int_equal(h5_text_put(f, "/shape", "num_layers", "4", &e), 0);
	assert_int_equal(h5_int_put(f, "/run", "step", -7, &e), 0);
	assert_int_equal(h5_data_add(f, name, &d, &e), 0);
	assert_int_equal(h5_rows_add(f, 1, &e), 0);
	file = fopen(path, "r+");
	assert_non_null(file);
	fseek(file, d.at, SEEK_SET);
	assert_int_equal(fwrite(payload, sizeof(payload), 1, file), 1);
	fclose(file);
	row.at = d.at;
	assert_int_equal(h5_rows_write(f, 0, 1, &row, &e), 0);
	assert_int_equal(h5_finish(f, &e), 0);
	h5_close(f);
}

/* HDF5 itself reads what was written past it. */
static void test_payload(void **unused)
{
	float got[6] = {0};
	hid_t file, set;

	(void)unused;
	make(path_of("payload.h5"));
	file = H5Fopen(path_of("payload.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
	set = H5Dopen2(file, name, H5P_DEFAULT);
	assert_true(H5Dread(set, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
			    got) >= 0);
	H5Dclose(set);
	H5Fclose(file);
	assert_memory_equal(got, payload, sizeof(got));
}

static void test_read_back(void **unused)
{
	struct arena a = {0};
	struct format_row row;
	struct h5_data d;
	const char *text;
	int64_t n;
	struct h5 *f;
	struct err e;

	(void)unused;
	assert_int_equal(arena_open(&a, &e), 0);
	make(path_of("back.h5"));
	assert_int_equal(h5_open(&f, path_of("back.h5"), &e), 0);
	assert_int_equal(h5_data_find(f, name, &d, &e), 0);
	assert_int_equal(d.dtype, CKPT_F32);
	assert_int_equal(d.ndim, 2);
	assert_int_equal(d.dim[1], 3);
	assert_int_equal(h5_rows_count(f, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(h5_rows_read(f, 0, 1, &row, &e), 0);
	assert_string_equal(row.name, "layers/0000/attn/qkv/w");
	assert_int_equal(row.at, d.at);
	assert_int_equal(h5_data_count(f, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(h5_int_get(f, "/run", "step", &n, &e), 0);
	assert_int_equal(n, -7);
	assert_int_equal(h5_text_get(f, "/shape", "num_layers", &a, &text, &e),
			 0);
	assert_string_equal(text, "4");
	/* What is not there is an error with the file's name. */
	assert_int_equal(h5_text_get(f, "/shape", "heads", &a, &text, &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "back.h5"));
	assert_int_equal(h5_int_get(f, "/shape", "num_layers", &n, &e), -1);
	assert_int_equal(h5_data_find(f, "/data/param/none", &d, &e), -1);
	h5_close(f);
	arena_close(&a);
}

static void test_types(void **unused)
{
	struct h5 *f;
	struct err e;

	(void)unused;
	assert_int_equal(h5_create(&f, path_of("types.h5"), &e), 0);
	for (int i = 0; format_dtype(i); i++) {
		struct h5_data d = {.dtype = (enum ckpt_dtype)i,
				    .ndim = 1,
				    .dim = {5}},
			       got;
		char set[32];

		snprintf(set, sizeof(set), "/data/%s", format_dtype(i));
		assert_int_equal(h5_data_add(f, set, &d, &e), 0);
		assert_int_equal(h5_data_find(f, set, &got, &e), 0);
		assert_int_equal(got.dtype, d.dtype);
		assert_int_equal(got.at, d.at);
	}
	h5_close(f);
}

/* Two bfloat16 bit patterns as HDF5 understands our type. */
static void test_bfloat16(void **unused)
{
	struct h5_data d = {.dtype = CKPT_BF16, .ndim = 1, .dim = {2}};
	const uint16_t bits[2] = {0x3fc0, 0xc000};
	float got[2] = {0};
	hid_t file, set;
	struct h5 *f;
	struct err e;
	FILE *raw;

	(void)unused;
	assert_int_equal(h5_create(&f, path_of("bf16.h5"), &e), 0);
	assert_int_equal(h5_data_add(f, "/data/x", &d, &e), 0);
	assert_int_equal(h5_finish(f, &e), 0);
	h5_close(f);
	raw = fopen(path_of("bf16.h5"), "r+");
	assert_non_null(raw);
	fseek(raw, d.at, SEEK_SET);
	assert_int_equal(fwrite(bits, sizeof(bits), 1, raw), 1);
	fclose(raw);
	file = H5Fopen(path_of("bf16.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
	set = H5Dopen2(file, "/data/x", H5P_DEFAULT);
	assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL,
			    H5P_DEFAULT, got) >= 0);
	H5Dclose(set);
	H5Fclose(file);
	assert_true(got[0] == 1.5f && got[1] == -2.0f);
}

/* A large payload starts on a page. */
static void test_alignment(void **unused)
{
	struct h5_data d = {.dtype = CKPT_F32, .ndim = 1, .dim = {100000}};
	struct h5 *f;
	struct err e;

	(void)unused;
	assert_int_equal(h5_create(&f, path_of("align.h5"), &e), 0);
	assert_int_equal(h5_data_add(f, "/data/x", &d, &e), 0);
	assert_int_equal(d.at % 4096, 0);
	h5_close(f);
}

static void test_same_bytes(void **unused)
{
	char command[512];

	(void)unused;
	make(path_of("one.h5"));
	sleep(1); /* a time that was tracked would differ */
	make(path_of("two.h5"));
	snprintf(command, sizeof(command), "cmp %s %s", path_of("one.h5"),
		 path_of("two.h5"));
	assert_int_equal(system(command), 0);
}

/* A file whose writer died, and a file that is none. */
static void test_unfinished(void **unused)
{
	struct h5_data d = {.dtype = CKPT_F32, .ndim = 1, .dim = {4}};
	struct h5 *f, *again;
	struct err e;

	(void)unused;
	assert_int_equal(h5_create(&f, path_of("half.h5"), &e), 0);
	assert_int_equal(h5_data_add(f, "/data/x", &d, &e), 0);
	assert_int_equal(h5_create(&again, path_of("half.h5"), &e), -1);
	assert_int_equal(e.code, CODE_STORAGE);
	h5_close(f);
	assert_int_equal(io_write_text(path_of("text.h5"), "no hdf5", &e), 0);
	assert_int_equal(h5_open(&f, path_of("text.h5"), &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_int_equal(h5_open(&f, path_of("none.h5"), &e), -1);
	assert_int_equal(h5_create(&f, path_of("no/such/folder.h5"), &e), -1);
	assert_int_equal(e.code, CODE_STORAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_payload),
		cmocka_unit_test(test_read_back),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_bfloat16),
		cmocka_unit_test(test_alignment),
		cmocka_unit_test(test_same_bytes),
		cmocka_unit_test(test_unfinished),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
