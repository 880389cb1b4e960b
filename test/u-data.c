/* SPDX-License-Identifier: Apache-2.0 */
/* Data: formats, splits, order, blends, and files that are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/plan/run.h"
#include "lib/plan/shape.h"
#include "lib/train/data.h"
#include "lib/train/data_order.h"

static char folder[] = "/tmp/tri-data.XXXXXX";
static struct err err;

static int enter(void **state)
{
	(void)state;
	return mkdtemp(folder) && !chdir(folder) ? 0 : -1;
}

static int leave(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return chdir("/") || system(command);
}

/* --- writing files -------------------------------------------------------- */

static void write_file(const char *name, const void *bytes, size_t n)
{
	FILE *f = fopen(name, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void write_ids(FILE *f, int64_t from, int64_t n, int size)
{
	for (int64_t id = from; id < from + n; id++)
		assert_int_equal(fwrite(&id, (size_t)size, 1, f), 1);
}

/* Tokens 0, 1, 2 ... as bytes. */
static void write_text(const char *name, int n)
{
	FILE *f = fopen(name, "wb");

	write_ids(f, 0, n, 1);
	fclose(f);
}

static void write_llmc(const char *name, int magic, int version, int count,
		       int written)
{
	int32_t header[256] = {magic, version, count};
	FILE *f = fopen(name, "wb");

	fwrite(header, sizeof(header), 1, f);
	write_ids(f, 0, written, magic == 20240520 ? 2 : 4);
	fclose(f);
}

/*
 * DOCS documents of 3, 4, 5, 3, 4, 5 ... tokens, ids counted through; each a
 * sequence, but the last document has two.
 */
static int64_t write_megatron(const char *stem, int dtype, int size, int docs)
{
	char name[64];
	uint64_t version = 1, s = (uint64_t)docs + 1, d = s;
	int64_t at = 0;
	uint8_t code = (uint8_t)dtype;
	FILE *f;

	snprintf(name, sizeof(name), "%s.idx", stem);
	f = fopen(name, "wb");
	fwrite("MMIDIDX\0\0", 9, 1, f);
	fwrite(&version, 8, 1, f);
	fwrite(&code, 1, 1, f);
	fwrite(&s, 8, 1, f);
	fwrite(&d, 8, 1, f);
	for (int i = 0; i <= docs; i++) {
		int32_t length = 3 + i % 3;

		fwrite(&length, 4, 1, f);
	}
	for (int i = 0; i <= docs; i++) {
		int64_t offset = at * size;

		fwrite(&offset, 8, 1, f);
		at += 3 + i % 3;
	}
	for (int64_t i = 0; i <= docs; i++) {
		int64_t first = i == docs ? docs + 1 : i;

		fwrite(&first, 8, 1, f);
	}
	fclose(f);
	snprintf(name, sizeof(name), "%s.bin", stem);
	f = fopen(name, "wb");
	write_ids(f, 0, at, size);
	fclose(f);
	return at;
}

/* --- opening -------------------------------------------------------------- */

static struct shape shape_of(int64_t length, int64_t vocab)
{
	return (struct shape){.seq_length = length, .vocab_size = vocab};
}

static struct run run_of(const char *const *paths, int count)
{
	return (struct run){.data_path = {paths, count},
			    .data_format = "auto",
			    .split = "1,0,0"};
}

static struct data *open_one(const char *path, int64_t length, int64_t vocab)
{
	struct run run = run_of(&path, 1);
	struct shape shape = shape_of(length, vocab);
	struct data *d;

	if (data_open(&d, &run, &shape, DATA_TRAIN, 1, &err))
		print_message("# %s\n", err.text);
	assert_non_null(d);
	return d;
}

static void refused(const struct run *run, enum data_split split,
		    const char *text)
{
	struct shape shape = shape_of(4, 256);
	struct data *d;

	assert_int_equal(data_open(&d, run, &shape, split, 1, &err), -1);
	assert_null(d);
	assert_int_equal(err.code, CODE_USAGE);
	if (!strstr(err.text, text))
		print_message("# got: %s\n", err.text);
	assert_non_null(strstr(err.text, text));
}

static void refused_path(const char *path, const char *text)
{
	struct run run = run_of(&path, 1);

	refused(&run, DATA_TRAIN, text);
}

/* Every window of the split once, ids counted from FIRST: mark its number. */
static void all_windows(struct data *d, int64_t first, int64_t length,
			int64_t windows)
{
	int32_t *t = malloc(((size_t)length + 1) * sizeof(*t));
	bool *seen = calloc((size_t)windows, sizeof(*seen));

	assert_int_equal(data_windows(d), windows);
	for (int64_t i = 0; i < windows; i++) {
		assert_int_equal(data_sample(d, i, t, &err), 0);
		for (int64_t k = 1; k <= length; k++)
			assert_int_equal(t[k], t[0] + k);
		assert_int_equal((t[0] - first) % length, 0);
		assert_in_range((t[0] - first) / length, 0, windows - 1);
		assert_false(seen[(t[0] - first) / length]);
		seen[(t[0] - first) / length] = true;
	}
	free(seen);
	free(t);
	data_close(d);
}

static void text_is_bytes(void **state)
{
	(void)state;
	write_text("a.txt", 256);
	all_windows(open_one("a.txt", 5, 256), 0, 5, 51);
	write_text("a.txt", 6);
	all_windows(open_one("a.txt", 5, 256), 0, 5, 1);
}

static void llmc_of_both_magics(void **state)
{
	(void)state;
	write_llmc("two.bin", 20240520, 1, 1001, 1001);
	all_windows(open_one("two.bin", 10, 50257), 0, 10, 100);
	write_llmc("four.bin", 20240801, 7, 1000, 1000);
	all_windows(open_one("four.bin", 10, 128256), 0, 10, 99);
}

static void megatron_of_every_dtype_and_path(void **state)
{
	static const int kinds[][2] = {{1, 1}, {2, 1}, {3, 2},
				       {4, 4}, {5, 8}, {8, 2}};
	int64_t n;

	(void)state;
	for (int i = 0; i < 6; i++) {
		n = write_megatron("meg", kinds[i][0], kinds[i][1], 30);
		all_windows(open_one("meg", 6, 1000), 0, 6, (n - 1) / 6);
	}
	all_windows(open_one("meg.bin", 6, 1000), 0, 6, (n - 1) / 6);
	all_windows(open_one("meg.idx", 6, 1000), 0, 6, (n - 1) / 6);
}

/* Ranges follow each other, cover everything and share no token. */
static void splits_are_disjoint(void **state)
{
	static const char *const names[] = {"split.txt", "meg"};
	/* documents 0-15, 16-23, 24-29 of 30 (24 = 30 * 0.8) */
	static const int64_t begin[2][4] = {
		{0, 133, 200, 250}, {0, 16 * 4 - 1, 24 * 4, 30 * 4 + 3}};

	(void)state;
	write_text("split.txt", 250);
	write_megatron("meg", 8, 2, 30);
	for (int f = 0; f < 2; f++)
		for (int s = 0; s < DATA_SPLITS; s++) {
			struct run run = run_of(&names[f], 1);
			struct shape shape = shape_of(4, 256);
			int64_t n = begin[f][s + 1] - begin[f][s];
			struct data *d;

			run.split = "0.532, 0.268, 0.2";
			assert_int_equal(data_open(&d, &run, &shape,
						   (enum data_split)s, 1, &err),
					 0);
			all_windows(d, begin[f][s], 4, (n - 1) / 4);
		}
}

static void a_split_without_tokens_is_refused(void **state)
{
	const char *path = "split.txt";
	struct run run = run_of(&path, 1);

	(void)state;
	write_text("split.txt", 250);
	run.split = "969,30,1";
	refused(&run, DATA_TEST, "its test part has 0 of 250 tokens");
	run.split = "98,2";
	refused(&run, DATA_TEST, "its test part has 0 of 250 tokens");
	run.split = "99,1";
	refused(&run, DATA_VALID, "its valid part has 2 of 250 tokens");
	run.split = "1,x";
	refused(&run, DATA_TRAIN, "run.split = \"1,x\"");
	run.split = "1,2,3,4";
	refused(&run, DATA_TRAIN, "one to three shares");
	run.split = "0,0";
	refused(&run, DATA_TRAIN, "one to three shares");
	run.split = "2,-1";
	refused(&run, DATA_TRAIN, "one to three shares");
}

/* --- order ---------------------------------------------------------------- */

static void permutations_are_bijections(void **state)
{
	bool seen[1000];

	(void)state;
	for (int64_t n = 1; n <= 1000; n = n < 40 ? n + 1 : n + 137)
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			memset(seen, 0, sizeof(seen));
			for (int64_t i = 0; i < n; i++) {
				int64_t k = data_permute(i, n, 7, epoch, 0);

				assert_in_range(k, 0, n - 1);
				assert_false(seen[k]);
				seen[k] = true;
			}
		}
	assert_in_range(data_permute(5, (int64_t)3 << 50, 7, 0, 0), 0,
			((int64_t)3 << 50) - 1);
}

/* Each argument of the key matters, and an order is not almost sorted. */
static void permutations_depend_on_their_key(void **state)
{
	int same[4] = {0}, n = 1000;

	(void)state;
	for (int64_t i = 0; i < n; i++) {
		int64_t k = data_permute(i, n, 7, 0, 0);

		same[0] += k == data_permute(i, n, 8, 0, 0);
		same[1] += k == data_permute(i, n, 7, 1, 0);
		same[2] += k == data_permute(i, n, 7, 0, 1);
		same[3] += k < data_permute(i + 1 < n ? i + 1 : 0, n, 7, 0, 0);
	}
	for (int s = 0; s < 3; s++)
		assert_in_range(same[s], 0, 12);
	assert_in_range(same[3], 400, 600);
}

/* Sample i is the same whatever was asked before, in every epoch. */
static void samples_are_a_function_of_their_index(void **state)
{
	struct data *a, *b;
	int32_t x[5], y[5];
	int moved = 0;

	(void)state;
	write_text("a.txt", 201);
	a = open_one("a.txt", 4, 256);
	b = open_one("a.txt", 4, 256);
	for (int64_t i = 299; i >= 0; i--) {
		assert_int_equal(data_sample(a, i, x, &err), 0);
		assert_int_equal(data_sample(b, i * 7 % 300, y, &err), 0);
		assert_int_equal(data_sample(b, i, y, &err), 0);
		assert_memory_equal(x, y, sizeof(x));
		assert_int_equal(data_sample(b, (i + 50) % 300, y, &err), 0);
		moved += x[0] != y[0];
	}
	assert_in_range(moved, 270, 300);
	data_close(a);
	data_close(b);
}

/* --- blends --------------------------------------------------------------- */

static void check_blend(const double *weight, int n, int64_t upto, double slack)
{
	struct data_blend b;
	int64_t used[16] = {0}, k;
	double sum = 0;

	for (int d = 0; d < n; d++)
		sum += weight[d];
	assert_int_equal(data_blend_open(&b, weight, n, &err), 0);
	for (int64_t i = 0; i < upto; i++) {
		int d = data_blend_at(&b, i, &k);

		assert_int_equal(k, used[d]);
		used[d]++;
		for (int j = 0; j < n; j++) {
			double off = (double)used[j] -
				     weight[j] / sum * (double)(i + 1);

			if (off >= 1 + slack || off <= -1 - slack)
				print_message("# %d of %d after %lld: %g\n", j,
					      n, (long long)i, off);
			assert_true(off < 1 + slack && off > -1 - slack);
		}
	}
	data_blend_close(&b);
}

static void shares_stay_within_one_sample(void **state)
{
	static const double weights[][8] = {
		{1},
		{1, 1},
		{0.7, 0.3},
		{0.5, 0.3, 0.2},
		{1, 2, 3, 4, 5, 6, 7, 8},
		{0.9, 0.05, 0.02, 0.01, 0.01, 0.01},
		{100, 1, 1, 1, 1, 1, 1, 1},
		{0.123456, 0.654321, 0.222223},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
		int n = 0;

		while (n < 8 && weights[i][n] > 0)
			n++;
		check_blend(weights[i], n, 20000, 1e-9);
	}
}

/* Ratios with a longer period than is kept: off by 2^-20 of the index. */
static void long_periods_are_rounded(void **state)
{
	static const double weight[] = {123456789, 987654321, 31};

	(void)state;
	check_blend(weight, 3, 50000, 50000.0 * 2 / (1 << 20));
}

static void a_blend_draws_from_its_files(void **state)
{
	static const char *const paths[] = {"0.75", "low.txt", "0.25", "high"};
	struct run run = run_of(paths, 4);
	struct shape shape = shape_of(4, 400);
	unsigned char low[41] = {0};
	int from[2] = {0}, start[2][100] = {{0}};
	struct data *d;
	int32_t t[5];

	(void)state;
	for (int i = 0; i < 41; i++)
		low[i] = (unsigned char)i;
	write_file("low.txt", low, sizeof(low));
	write_megatron("high", 4, 4, 90);
	assert_int_equal(data_open(&d, &run, &shape, DATA_TRAIN, 5, &err), 0);
	for (int64_t i = 0; i < 40; i++) {
		assert_int_equal(data_sample(d, i, t, &err), 0);
		from[i % 4 == 0]++;
		start[0][t[0] / 4]++;
	}
	/* thirty draws of ten windows: three epochs of low.txt, each once */
	for (int w = 10; w < 100; w++)
		start[1][0] += start[0][w];
	assert_in_range(start[1][0], 5, 10);
	data_close(d);
}

static void blends_that_make_no_sense(void **state)
{
	static const char *const odd[] = {"1", "a.txt", "2"};
	static const char *const word[] = {"a.txt", "1"};
	static const char *const zero[] = {"0", "a.txt", "1", "a.txt"};
	static const char *const missing[] = {"1", "a.txt", "1", "nowhere"};
	struct run run = run_of(odd, 3);

	(void)state;
	write_text("a.txt", 100);
	refused(&run, DATA_TRAIN, "run.data_path has 3 entries");
	run = run_of(NULL, 0);
	refused(&run, DATA_TRAIN, "run.data_path has 0 entries");
	run = run_of(word, 2);
	refused(&run, DATA_TRAIN, "\"a.txt\" is not a weight");
	run = run_of(zero, 4);
	refused(&run, DATA_TRAIN, "weight 0 of data set 0");
	run = run_of(missing, 4);
	refused(&run, DATA_TRAIN, "data: nowhere: No such file");
}

/* --- bad files ------------------------------------------------------------ */

static void tokens_outside_of_the_vocabulary(void **state)
{
	struct data *d;
	int32_t t[201];

	(void)state;
	write_text("a.txt", 200);
	d = open_one("a.txt", 4, 199);
	for (int64_t i = 0; i < 49; i++)
		if (data_sample(d, i, t, &err)) {
			assert_int_equal(err.code, CODE_USAGE);
			assert_non_null(strstr(err.text,
					       "a.txt: token 199 is 199, "
					       "outside of the vocabulary of "
					       "199"));
			data_close(d);
			return;
		}
	data_close(d);
	write_megatron("meg", 2, 1, 60); /* int8: ids past 127 are negative */
	d = open_one("meg", 200, 256);
	assert_int_equal(data_sample(d, 0, t, &err), -1);
	assert_non_null(strstr(err.text, "token 128 is -128"));
	data_close(d);
}

static void files_that_are_missing_or_short(void **state)
{
	const char *path = "a.txt";
	struct run run = run_of(&path, 1);

	(void)state;
	refused_path("none.txt", "data: none.txt: No such file");
	refused_path("none.bin", "No such file");
	refused_path(".", "is not a file");
	mkfifo("pipe", 0600);
	refused_path("pipe", "is not a file");
	write_file("empty", "", 0);
	refused_path("empty", "is empty");
	write_text("a.txt", 4);
	refused_path("a.txt", "4 of 4 tokens");
	run.data_format = "parquet";
	refused(&run, DATA_TRAIN, "run.data_format = \"parquet\"");
	write_file("odd.bin", "some text, not a header", 23);
	refused_path("odd.bin", "neither an .idx");
}

static void llmc_headers_that_lie(void **state)
{
	const char *path = "x.bin";
	struct run run = run_of(&path, 1);

	(void)state;
	write_llmc("x.bin", 20240520, 1, 100, 99);
	refused_path("x.bin", "100 tokens, that is 1224: truncated");
	write_llmc("x.bin", 20240520, 1, -3, 0);
	refused_path("x.bin", "-3 tokens");
	write_llmc("x.bin", 20240520, 2, 9, 9);
	refused_path("x.bin", "version 2, this reads 1");
	write_file("x.bin", "\x88\xd8\x34\x01", 4);
	refused_path("x.bin", "4 bytes, the header alone has 1024");
	write_llmc("x.bin", 4711, 1, 9, 9);
	run.data_format = "llmc";
	refused(&run, DATA_TRAIN, "begins with 4711");
}

static void patch(const char *name, long at, int byte)
{
	FILE *f = fopen(name, "r+b");

	fseek(f, at, SEEK_SET);
	fputc(byte, f);
	fclose(f);
}

static void indexes_that_lie(void **state)
{
	struct stat st;

	(void)state;
	write_megatron("m", 8, 2, 9); /* ten sequences */
	stat("m.idx", &st);
	assert_int_equal(truncate("m.idx", st.st_size - 1), 0);
	refused_path("m", "do not hold the 10 sequences and 10 document");
	assert_int_equal(truncate("m.idx", 20), 0);
	refused_path("m", "does not begin with MMIDIDX");
	write_megatron("m", 8, 2, 9);
	patch("m.idx", 9, 2);
	refused_path("m", "version 2, not 1");
	write_megatron("m", 7, 4, 9);
	refused_path("m", "dtype code 7");
	write_megatron("m", 8, 2, 9);
	patch("m.idx", 25, 0x7f); /* 2^63 - something sequences */
	refused_path("m", "truncated");
	write_megatron("m", 8, 2, 9);
	patch("m.idx", 34, 7); /* sequence 0 of 7 tokens, not 3 */
	refused_path("m", "sequence 1 of 4 tokens at byte 6");
	write_megatron("m", 8, 2, 9);
	patch("m.idx", 34 + 10 * 12 + 8 * 3, 1); /* document 3 at sequence 1 */
	refused_path("m", "document 3 begins at sequence 1");
	write_megatron("m", 8, 2, 9);
	patch("m.idx", 34 + 10 * 12 + 8 * 9, 9); /* the last bound, of 10 */
	refused_path("m", "documents end at sequence 9 of 10");
	write_megatron("m", 8, 2, 9);
	stat("m.bin", &st);
	assert_int_equal(truncate("m.bin", st.st_size - 2), 0);
	refused_path("m", "truncated, or not a pair");
	unlink("m.bin");
	refused_path("m.idx", "m.bin: No such file");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_bytes),
		cmocka_unit_test(llmc_of_both_magics),
		cmocka_unit_test(megatron_of_every_dtype_and_path),
		cmocka_unit_test(splits_are_disjoint),
		cmocka_unit_test(a_split_without_tokens_is_refused),
		cmocka_unit_test(permutations_are_bijections),
		cmocka_unit_test(permutations_depend_on_their_key),
		cmocka_unit_test(samples_are_a_function_of_their_index),
		cmocka_unit_test(shares_stay_within_one_sample),
		cmocka_unit_test(long_periods_are_rounded),
		cmocka_unit_test(a_blend_draws_from_its_files),
		cmocka_unit_test(blends_that_make_no_sense),
		cmocka_unit_test(tokens_outside_of_the_vocabulary),
		cmocka_unit_test(files_that_are_missing_or_short),
		cmocka_unit_test(llmc_headers_that_lie),
		cmocka_unit_test(indexes_that_lie),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
