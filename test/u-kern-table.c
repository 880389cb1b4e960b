/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's tables are whole. */
#include "test/kern-test.h"

static void whole(void **state)
{
	const struct kern *const all[] = {&kern_cpu_f32, &kern_cpu_f64,
					  &kern_cpu_bf16, &kern_cpu_fp16};

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		const struct kern *k = all[i];
		const char *end = (const char *)(k + 1);

		for (const char *p = (const char *)&k->embed_fwd; p < end;
		     p += sizeof(void (*)(void))) {
			void (*op)(void);

			memcpy(&op, p, sizeof(op));
			assert_true(op != NULL);
		}
	}
	assert_string_equal(kern_cpu_f32.name, "cpu_f32");
	assert_string_equal(kern_cpu_f64.name, "cpu_f64");
	assert_int_equal(kern_cpu_f32.size, 4);
	assert_int_equal(kern_cpu_f64.size, 8);
	assert_string_equal(kern_cpu_bf16.name, "cpu_bf16");
	assert_string_equal(kern_cpu_fp16.name, "cpu_fp16");
	assert_int_equal(kern_cpu_fp16.size, 2);
	assert_int_equal(kern_cpu_fp16.sum, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(whole)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
