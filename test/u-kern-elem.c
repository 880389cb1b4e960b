/* SPDX-License-Identifier: Apache-2.0 */
/* Whole arrays: clear, copy. */
#include "test/kern-test.h"

static const int64_t sizes[] = {0, 1, 3, 1000, 1027, 40001};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void check_size(const struct kern *k, int64_t n)
{
	double *x = rnd_new(n, 1), *none = zeros(n);
	void *xk = vec_new(k, x, n), *yk = vec_new(k, NULL, n);

	k->zero(NULL, yk, bytes_of(k, n));
	check_close("zero", k, yk, none, n, 0);
	yk = vec_new(k, NULL, n);
	k->copy(NULL, yk, xk, bytes_of(k, n));
	check_close("copy", k, yk, x, n, 0);
}

static void values(void **state)
{
	(void)state;
	EACH_TABLE(k)
	{
		for (int i = 0; i < SIZES; i++)
			check_size(k, sizes[i]);
	}
}

/* Nothing past the end is touched. */
static void ends(void **state)
{
	double x[5] = {1, 2, 3, 4, 5}, want[5] = {0, 0, 0, 4, 5};

	(void)state;
	EACH_TABLE(k)
	{
		void *y = vec_new(k, x, 5);

		k->zero(NULL, y, bytes_of(k, 3));
		check_close("zero", k, y, want, 5, 0);
		k->copy(NULL, y, vec_new(k, x, 5), bytes_of(k, 3));
		check_close("copy", k, y, x, 5, 0);
	}
}

enum { BIG = 50001 };

static struct {
	void *x, *y;
} big;

static void run_big(const struct kern *k)
{
	k->zero(NULL, big.y, bytes_of(k, BIG));
	k->copy(NULL, big.y, big.x, bytes_of(k, BIG));
}

static void threads(void **state)
{
	double *x = rnd_new(BIG, 1);

	(void)state;
	EACH_TABLE(k)
	{
		big.x = vec_new(k, x, BIG);
		big.y = vec_new(k, NULL, BIG);
		check_threads(run_big, k, big.y, BIG * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(values), UNIT(ends),
					   UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
