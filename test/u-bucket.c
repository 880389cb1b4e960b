/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets: Megatron's layout of flat buffers, and shards that tile them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "lib/plan/bucket.h"

static int64_t at(json_t *a, size_t i)
{
	return json_integer_value(json_array_get(a, i));
}

static json_t *get(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	assert_non_null(v);
	return v;
}

static void check_params(json_t *g, const struct buckets *b)
{
	json_t *ranges = get(g, "param_ranges");

	for (size_t i = 0; i < json_array_size(ranges); i++) {
		json_t *r = json_array_get(ranges, i);

		assert_int_equal(b->offset[i], at(r, 0));
		assert_int_equal(b->of[i], at(r, 2));
	}
}

static void check_shards(json_t *g, const struct buckets *b, int dp)
{
	json_t *shards = get(g, "shard_ranges");
	int64_t first, end;

	for (int i = 0; i < b->count; i++)
		for (int d = 0; d < dp; d++) {
			json_t *r = json_array_get(
				json_array_get(shards, (size_t)i), (size_t)d);

			bucket_shard(b, i, d, dp, &first, &end);
			assert_int_equal(first, at(r, 0));
			assert_int_equal(end, at(r, 1));
		}
}

static void check_golden(json_t *g, struct arena *a)
{
	json_t *sizes = get(g, "param_sizes");
	json_t *shared = get(g, "shared_embedding_index");
	json_t *buckets = get(g, "buckets");
	int n = (int)json_array_size(sizes);
	int dp = (int)json_integer_value(get(g, "dp"));
	int64_t size[64];
	bool alone[64] = {false};
	struct buckets b;

	for (int i = 0; i < n; i++)
		size[i] = at(sizes, (size_t)i);
	for (size_t i = 0; i < json_array_size(shared); i++)
		alone[at(shared, i)] = true;
	buckets_build(&b, 0, size, alone, n,
		      json_integer_value(get(g, "bucket_size")), dp, a);
	assert_int_equal(b.count, json_array_size(buckets));
	for (int i = 0; i < b.count; i++) {
		json_t *r = json_array_get(buckets, (size_t)i);

		assert_int_equal(b.list[i].first, at(r, 0));
		assert_int_equal(b.list[i].end, at(r, 1));
		assert_int_equal(b.list[i].unpadded,
				 at(get(g, "numel_unpadded"), (size_t)i));
	}
	check_params(g, &b);
	check_shards(g, &b, dp);
}

static void test_golden(void **state)
{
	json_t *all = json_load_file("test/data/golden/plan.json", 0, NULL);
	json_t *cases = get(all, "zero1");
	struct arena a;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(json_array_size(cases), 3);
	for (size_t i = 0; i < json_array_size(cases); i++)
		check_golden(json_array_get(cases, i), &a);
	arena_close(&a);
	json_decref(all);
}

static void test_one_bucket_without_overlap(void **state)
{
	const int64_t size[] = {1000, 16, 5000000, 3}, start = 64 * 7;
	const bool alone[4] = {false};
	struct buckets b, behind;
	struct arena a;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	for (int dp = 1; dp <= 9; dp++) {
		buckets_build(&b, 0, size, alone, 4, 0, dp, &a);
		assert_int_equal(b.count, 1);
		assert_int_equal(b.elements % (dp * 1), 0);
		assert_int_equal(b.elements % 128, 0);
		assert_true(b.elements >= 5001019);
		buckets_build(&behind, start, size, alone, 4, 0, dp, &a);
		assert_int_equal(behind.elements, b.elements);
		assert_int_equal(behind.list->first, b.list->first + start);
		assert_int_equal(behind.list->end, b.list->end + start);
		for (int i = 0; i < 4; i++)
			assert_int_equal(behind.offset[i], b.offset[i] + start);
	}
	arena_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_one_bucket_without_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
