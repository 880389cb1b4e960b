/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout: which elements are kept, and that no layout shows in it. */
#include "kernels/philox.h"
#include "test/kern-test.h"

static const uint64_t key[2] = {0x123456789abcdef0, 0x700000007};

/* The known answers that its authors publish. */
static void philox(void **state)
{
	static const struct {
		uint32_t ctr[4], key[2], want[4];
	} t[] = {
		{{0, 0, 0, 0},
		 {0, 0},
		 {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{~0u, ~0u, ~0u, ~0u},
		 {~0u, ~0u},
		 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};

	(void)state;
	for (int i = 0; i < 3; i++) {
		uint32_t c[4];

		memcpy(c, t[i].ctr, sizeof(c));
		philox4x32(c, t[i].key);
		assert_memory_equal(c, t[i].want, sizeof(c));
	}
}

/* What kern.h says of element ELEM, one at a time. */
static uint32_t word_one(const struct kern_drop *d, uint64_t elem)
{
	uint32_t c[4] = {(uint32_t)(elem / 4), (uint32_t)(elem / 4 >> 32),
			 d->site, (uint32_t)d->key[1]};
	uint32_t k[2] = {(uint32_t)d->key[0], (uint32_t)(d->key[0] >> 32)};

	philox4x32(c, k);
	return c[elem % 4];
}

static bool kept_one(const struct kern_drop *d, uint64_t elem)
{
	return word_one(d, elem) >= (uint32_t)(d->p * 4294967296.0);
}

static void check_choice(int64_t N, int64_t C, const struct kern_drop *d)
{
	double *x = rnd_new(N * C, 1), *want = zeros(N * C);

	for (int64_t i = 0; i < N * C; i++)
		if (kept_one(d, (uint64_t)(d->row0 * C + i)))
			want[i] = x[i] / (1 - d->p);
	EACH_TABLE(k)
	{
		void *y = vec_new(k, NULL, N * C), *z = vec_new(k, x, N * C);

		k->drop(NULL, y, vec_new(k, x, N * C), N, C, d);
		check_close("y", k, y, want, N * C, tolerance(k));
		k->drop(NULL, z, z, N, C, d);
		assert_memory_equal(y, z, (size_t)(N * C) * k->size);
	}
}

static void choice(void **state)
{
	struct kern_drop d = {.p = 0.3, .key = key, .site = 9};

	(void)state;
	check_choice(1, 1, &d);
	check_choice(5, 7, &d);
	d.row0 = 3; /* 3 * 333 is not a multiple of 4 */
	check_choice(7, 333, &d);
	d.row0 = 1234567890123; /* past 32 bits of groups of 4 */
	check_choice(3, 41, &d);
	d.p = 0.999999;
	check_choice(10, 100, &d);
	check_choice(260, 67, &d);
}

/* What kern.h says of the noise, one element at a time. */
static void noise(void **state)
{
	const struct kern_drop d = {
		.p = 0.3, .key = key, .site = 4, .row0 = 1234567890123};
	enum { N = 50, C = 41 };
	double *x = rnd_new(N * C, 1), *want = zeros(N * C);

	(void)state;
	for (int64_t i = 0; i < N * C; i++) {
		double w = word_one(&d, (uint64_t)(d.row0 * C + i));

		want[i] = x[i] * (0.7 + 0.6 * (w + 0.5) * 0x1p-32);
	}
	EACH_TABLE(k)
	{
		void *y = vec_new(k, NULL, N * C), *z = vec_new(k, x, N * C);

		k->jitter(NULL, y, vec_new(k, x, N * C), N, C, &d);
		check_close("y", k, y, want, N * C, tolerance(k));
		k->jitter(NULL, z, z, N, C, &d);
		assert_memory_equal(y, z, (size_t)(N * C) * k->size);
	}
}

static void none(void **state)
{
	struct kern_drop d = {.p = 0};
	double *x = rnd_new(35, 1);

	(void)state;
	EACH_TABLE(k)
	{
		void *y = vec_new(k, NULL, 35), *xk = vec_new(k, x, 35);

		k->drop(NULL, y, xk, 5, 7, &d);
		assert_memory_equal(y, xk, 35 * k->size);
		k->drop(NULL, xk, xk, 5, 7, &d);
		assert_memory_equal(y, xk, 35 * k->size);
	}
}

/* Return how many of N elements were kept. */
static int64_t count_kept(const struct kern_drop *d, int64_t N)
{
	const struct kern *k = &kern_cpu_f32;
	float *y = vec_new(k, NULL, N), *x = vec_new(k, NULL, N);
	int64_t count = 0;

	for (int64_t i = 0; i < N; i++)
		x[i] = 1;
	k->drop(NULL, y, x, N / 100, 100, d);
	for (int64_t i = 0; i < N; i++)
		count += y[i] != 0;
	return count;
}

/* Within five deviations of the rate asked for. */
static void rate(void **state)
{
	enum { N = 200000 };

	(void)state;
	for (int i = 1; i < 10; i++) {
		struct kern_drop d = {.p = i / 10.0, .key = key, .site = 1};
		double kept_n = (double)count_kept(&d, N);
		double deviation = sqrt(N * d.p * (1 - d.p));

		assert_true(fabs(kept_n - N * (1 - d.p)) < 5 * deviation);
	}
}

/* Rows by themselves are dropped as they are within the whole. */
static void rows(void **state)
{
	enum { N = 300, C = 61 };
	struct kern_drop d = {.p = 0.5, .key = key, .site = 3, .row0 = 5};
	double *x = rnd_new(N * C, 1);

	(void)state;
	EACH_TABLE(k)
	{
		void *xk = vec_new(k, x, N * C), *y = vec_new(k, NULL, N * C);
		char *z = vec_new(k, NULL, N * C);

		k->drop(NULL, y, xk, N, C, &d);
		for (int64_t n = 0; n < N; n += 60) {
			size_t at = (size_t)(n * C) * k->size;
			struct kern_drop part = d;

			part.row0 = d.row0 + n;
			k->drop(NULL, z + at, (char *)xk + at, 60, C, &part);
		}
		assert_memory_equal(y, z, N * C * k->size);
	}
}

/* Seed, step and site each make another choice. */
static void streams(void **state)
{
	enum { N = 400 };
	static const uint64_t seed[2] = {0x123456789abcdef1, 0x700000007};
	static const uint64_t high[2] = {0x123456799abcdef0, 0x700000007};
	static const uint64_t step[2] = {0x123456789abcdef0, 0x700000008};
	const struct kern_drop d[] = {
		{.p = 0.5, .key = key, .site = 3},
		{.p = 0.5, .key = seed, .site = 3},
		{.p = 0.5, .key = high, .site = 3},
		{.p = 0.5, .key = step, .site = 3},
		{.p = 0.5, .key = key, .site = 4},
	};
	void *y[5], *x = vec_new(&kern_cpu_f32, rnd_new(N, 1), N);

	(void)state;
	for (int i = 0; i < 5; i++) {
		y[i] = vec_new(&kern_cpu_f32, NULL, N);
		kern_cpu_f32.drop(NULL, y[i], x, 4, N / 4, &d[i]);
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(y[i], y[j], N * sizeof(float));
	}
}

static struct {
	void *x, *y;
} big;

static void run_big(const struct kern *k)
{
	struct kern_drop d = {.p = 0.1, .key = key, .row0 = 1};

	k->drop(NULL, big.y, big.x, 321, 123, &d);
}

static void threads(void **state)
{
	double *x = rnd_new(321 * 123, 1);

	(void)state;
	EACH_TABLE(k)
	{
		big.x = vec_new(k, x, 321 * 123);
		big.y = vec_new(k, NULL, 321 * 123);
		check_threads(run_big, k, big.y, 321 * 123 * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(philox), UNIT(choice), UNIT(noise),   UNIT(none),
		UNIT(rate),   UNIT(rows),   UNIT(streams), UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
