/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors: what is read, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt/io.h"
#include "ckpt/safetensors.h"

static char dir[64];
static struct arena arena;

static void write_file(const char *name, const void *data, size_t n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* A file of this header, which says it has LEN bytes, and PAYLOAD bytes. */
static size_t make(char *out, const char *header, uint64_t len, size_t payload)
{
	size_t n = strlen(header);

	for (int i = 0; i < 8; i++)
		out[i] = (char)(len >> 8 * i);
	memcpy(out + 8, header, n);
	for (size_t i = 0; i < payload; i++)
		out[8 + n + i] = (char)i;
	return 8 + n + payload;
}

static void put(const char *name, const char *header, size_t payload)
{
	char data[4096];

	write_file(name, data, make(data, header, strlen(header), payload));
}

static int setup(void **state)
{
	struct err e;

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/u-safetensors.XXXXXX");
	return !mkdtemp(dir) || arena_open(&arena, &e);
}

static int teardown(void **state)
{
	(void)state;
	arena_close(&arena);
	io_remove(dir);
	return 0;
}

static int try(struct safe *s, struct err *e)
{
	int rc = safe_open(s, dir, &arena, e);

	if (rc)
		safe_close(s);
	return rc;
}

static void refused(const char *why, enum code code)
{
	struct safe s;
	struct err e = {0};

	assert_int_equal(try(&s, &e), -1);
	assert_int_equal(e.code, code);
	if (!strstr(e.text, why))
		fail_msg("'%s' is not in '%s'", why, e.text);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}"
#define B "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}"

static void test_reads(void **state)
{
	struct safe s;
	struct err e;
	const struct safe_tensor *t;
	char two[2];

	(void)state;
	put(SAFE_FILE, "{\"__metadata__\":{\"format\":\"pt\"}," B "," A "}  ",
	    26);
	assert_int_equal(try(&s, &e), 0);
	assert_int_equal(s.count, 2);
	t = safe_find(&s, "a");
	assert_non_null(t);
	assert_int_equal(t->ndim, 2);
	assert_int_equal(t->dim[1], 3);
	assert_string_equal(safe_shape(t->dim, t->ndim, &arena), "(2, 3)");
	t = safe_find(&s, "b");
	assert_non_null(t);
	assert_int_equal(t->bytes, 2);
	assert_int_equal(safe_read(&s, t, 0, 2, two, &e), 0);
	assert_memory_equal(two, "\x18\x19", 2);
	assert_null(safe_find(&s, "c"));
	safe_close(&s);
	put(SAFE_FILE, "{}", 0);
	assert_int_equal(try(&s, &e), 0);
	assert_int_equal(s.count, 0);
	assert_null(safe_find(&s, "a"));
	safe_close(&s);
}

static void test_headers(void **state)
{
#define ONE(dtype, shape, offsets)                     \
	"{\"a\":{\"dtype\":" dtype ",\"shape\":" shape \
	",\"data_offsets\":" offsets "}}"
	static const struct {
		const char *header;
		size_t payload;
		const char *why;
	} cases[] = {
		{"", 0, "the header is no object"},
		{"[]", 0, "the header is no object"},
		{"{\"a\":", 0, "the header is no object"},
		{"{\"a\":1}", 0, "wants a dtype"},
		{"{" A "," A "}", 24, "duplicate"},
		{ONE("\"F32\"", "[2,3]", "[0]"), 24, "wants a dtype"},
		{ONE("\"F32\"", "[2,3]", "[0,24,0]"), 24, "wants a dtype"},
		{ONE("\"F32\"", "[2,3]", "[0.0,24]"), 24, "wants a dtype"},
		{ONE("\"F32\"", "[2,-3]", "[0,24]"), 24, "wants a dtype"},
		{ONE("\"F32\"", "[1,1,1,1,6]", "[0,24]"), 24, "wants a dtype"},
		{ONE("\"F32\"", "\"6\"", "[0,24]"), 24, "wants a dtype"},
		{ONE("1", "[2,3]", "[0,24]"), 24, "wants a dtype"},
		{ONE("\"F33\"", "[2,3]", "[0,24]"), 24, "none that is known"},
		{ONE("\"F32\"", "[4611686018427387904,4]", "[0,24]"), 24,
		 "none that is known"},
		{ONE("\"F32\"", "[2,3]", "[0,28]"), 28, "needs 24 bytes"},
		{ONE("\"F32\"", "[2,3]", "[24,0]"), 24, "needs 24 bytes"},
		{ONE("\"F32\"", "[2,3]", "[0,24]"), 23, "of 23"},
		{ONE("\"F32\"", "[2,3]",
		     "[9223372036854775783,"
		     "9223372036854775807]"),
		 24, "of 24"},
		{ONE("\"F32\"", "[2,3]", "[0,99999999999999999999]"), 24,
		 "the header is no object"},
		{ONE("\"F32\"", "[2,3]", "[4,28]"), 28, "a hole"},
		{ONE("\"F32\"", "[2,3]", "[0,24]"), 25,
		 "1 bytes behind the last tensor"},
		{"{" A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
		 "\"data_offsets\":[20,24]}}",
		 24, "they overlap"},
		{"{\"a\\u0007\":{\"dtype\":\"F32\",\"shape\":[],"
		 "\"data_offsets\":[0,4]}}",
		 4, "control character"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put(SAFE_FILE, cases[i].header, cases[i].payload);
		refused(cases[i].why, CODE_CKPT);
	}
}

static void test_lengths(void **state)
{
	char data[256] = {0};

	(void)state;
	write_file(SAFE_FILE, "", 0);
	refused("0 bytes are no safetensors file", CODE_CKPT);
	write_file(SAFE_FILE, "1234567", 7);
	refused("7 bytes are no safetensors file", CODE_CKPT);
	write_file(SAFE_FILE, data, make(data, "{}", 3, 0));
	refused("a header of 3 bytes, in a file of 10", CODE_CKPT);
	write_file(SAFE_FILE, data, make(data, "{}", UINT64_C(4) << 30, 0));
	refused("a header of 4294967296 bytes", CODE_CKPT);
	write_file(SAFE_FILE, data, make(data, "{}", UINT64_MAX, 0));
	refused("a header of 18446744073709551615 bytes", CODE_CKPT);
}

#define C "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

static void put_index(const char *text)
{
	write_file(SAFE_INDEX, text, strlen(text));
}

static void test_index(void **state)
{
	struct safe s;
	struct err e;

	(void)state;
	put("x", "{" A "}", 24);
	put("y", "{" C "}", 4);
	put_index("{\"weight_map\":{\"a\":\"x\",\"c\":\"y\"}}");
	assert_int_equal(try(&s, &e), 0);
	assert_int_equal(s.files, 2);
	assert_string_equal(s.file[safe_find(&s, "c")->file], "y");
	safe_close(&s);
	put_index("{\"weight_map\":{\"a\":\"x\",\"c\":\"x\"}}");
	refused("tensor 'c' is not in x", CODE_CKPT);
	put_index("{\"weight_map\":{\"a\":\"x\"}, \"c\": 1}");
	assert_int_equal(try(&s, &e), 0);
	safe_close(&s);
	put("x", "{" A "," B "}", 26);
	refused("tensor 'b' is not in " SAFE_INDEX, CODE_CKPT);
	put("y", "{" A "}", 24);
	put_index("{\"weight_map\":{\"a\":\"x\",\"b\":\"y\"}}");
	refused("tensor 'a' is in", CODE_CKPT);
	put_index("{\"weight_map\":{\"a\":\"z\"}}");
	refused("cannot open", CODE_CKPT);
	put_index("{\"weight_map\":{\"a\":\"../x\"}}");
	refused("the name of a file in the same folder", CODE_CKPT);
	put_index("{\"weight_map\":{\"a\":3}}");
	refused("the name of a file in the same folder", CODE_CKPT);
	put_index("{\"weight_map\":[]}");
	refused("no weight_map", CODE_CKPT);
	put_index("{\"weight_map\":");
	refused(SAFE_INDEX ":1:", CODE_CKPT);
}

/* Any bytes: read, or refused with a text. */
static void test_mutations(void **state)
{
	static const char header[] = "{" A "," B "}";
	char good[4096], data[4096];
	size_t len = make(good, header, strlen(header), 26);
	uint64_t x = 1;
	int read = 0;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct safe s;
		struct err e = {0};
		size_t n = len;

		memcpy(data, good, len);
		for (int k = 0; k < 3; k++) {
			x = x * UINT64_C(6364136223846793005) + 1;
			data[(x >> 33) % len] = (char)(x >> 25);
		}
		if (i % 7 == 0)
			n = (x >> 40) % (len + 1);
		write_file(SAFE_FILE, data, n);
		if (!try(&s, &e)) {
			read++;
			safe_close(&s);
			continue;
		}
		assert_int_equal(e.code, CODE_CKPT);
		assert_true(*e.text);
	}
	assert_true(read > 0 && read < 3000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_reads), TEST(test_headers),	TEST(test_lengths),
		TEST(test_index), TEST(test_mutations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
