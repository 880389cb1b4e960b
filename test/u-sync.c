/* SPDX-License-Identifier: Apache-2.0 */
/* Which copies differ, against every pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/sync.h"

enum { N = 12 };

static bool any_pair(const struct sync_copy *c)
{
	for (int i = 0; i < N; i++)
		for (int k = 0; k < i; k++)
			if (c[i].box && c[i].box == c[k].box &&
			    c[i].hash != c[k].hash)
				return true;
	return false;
}

static void pairs(void **state)
{
	struct sync_copy c[N];
	const struct sync_copy *a, *b;
	int differ = 0;

	(void)state;
	srand(1);
	for (int round = 0; round < 3000; round++) {
		bool want, have;

		for (int i = 0; i < N; i++)
			c[i] = (struct sync_copy){
				.box = (uint64_t)rand() % 5,
				.hash = rand() % 16 == 0,
				.rank = i,
			};
		want = any_pair(c);
		have = sync_differ(c, N, &a, &b);
		assert_int_equal(have, want);
		differ += have;
		if (!have)
			continue;
		assert_true(a->box && a->box == b->box && a->hash != b->hash);
		assert_true(a->rank < b->rank);
	}
	assert_in_range(differ, 300, 2700);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pairs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
