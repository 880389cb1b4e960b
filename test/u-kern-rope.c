/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embeddings on packed queries, keys and values. */
#include "test/kern-test.h"

enum { B = 2, T = 5, H = 6, G = 3, D = 10, ROW = (H + 2 * G) * D };
enum { SIZE = B * T * ROW };

static const struct kern_attn_dims dims = {
	.B = B, .T = T, .H = H, .G = G, .D = D, .Dv = D, .heads = H};

static struct {
	double *x, *table, *dy, *y;
	int64_t R;
	bool interleaved;
} c;

/* R frequencies, cos and sin of t / (j + 1). */
static void make_case(int64_t R, bool interleaved)
{
	c.R = R;
	c.interleaved = interleaved;
	c.x = rnd_new(SIZE, 1);
	c.dy = rnd_new(SIZE, 1);
	c.y = zeros(SIZE);
	c.table = zeros(T * R * 2);
	for (int64_t t = 0; t < T; t++)
		for (int64_t j = 0; j < R; j++) {
			double angle = (double)t / (double)(j + 1);

			c.table[(t * R + j) * 2] = cos(angle);
			c.table[(t * R + j) * 2 + 1] = sin(angle);
		}
}

/* Multiply pairs as complex numbers; group g's last head is v, untouched. */
static void naive(double *y, int sign)
{
	memcpy(y, c.x, SIZE * sizeof(*y));
	for (int64_t n = 0; n < B * T; n++)
		for (int64_t h = 0; h < H + 2 * G; h++)
			for (int64_t j = 0; j < c.R && h % 4 != 3; j++) {
				int64_t at = n * ROW + h * D;
				int64_t i = c.interleaved ? 2 * j : j;
				int64_t l = c.interleaved ? i + 1 : j + c.R;
				double angle = sign * (double)(n % T) /
					       (double)(j + 1);
				double re = c.x[at + i], im = c.x[at + l];

				y[at + i] = re * cos(angle) - im * sin(angle);
				y[at + l] = re * sin(angle) + im * cos(angle);
			}
}

static void values(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		make_case(i & 1 ? D / 2 : 3, i & 2);
		naive(c.y, i & 4 ? -1 : 1);
		EACH_TABLE(k)
		{
			void *x = vec_new(k, c.x, SIZE);

			k->rope(NULL, x, vec_new(k, c.table, T * c.R * 2),
				&dims, c.R, c.interleaved, i & 4 ? -1 : 1);
			check_close("x", k, x, c.y, SIZE, tolerance(k));
		}
	}
}

/* There and back is the identity. */
static void inverse(void **state)
{
	(void)state;
	make_case(4, false);
	EACH_TABLE(k)
	{
		void *x = vec_new(k, c.x, SIZE);
		void *table = vec_new(k, c.table, T * c.R * 2);

		k->rope(NULL, x, table, &dims, c.R, false, 1);
		k->rope(NULL, x, table, &dims, c.R, false, -1);
		check_close("x", k, x, c.x, SIZE, tolerance(k));
	}
}

static double loss(void)
{
	memcpy(c.y, c.x, SIZE * sizeof(*c.y));
	kern_cpu_f64.rope(NULL, c.y, c.table, &dims, c.R, c.interleaved, 1);
	return dot(c.y, c.dy, SIZE);
}

static void differences(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		double *dx;

		make_case(D / 2 - i, i);
		dx = vec_new(&kern_cpu_f64, c.dy, SIZE);
		kern_cpu_f64.rope(NULL, dx, c.table, &dims, c.R, c.interleaved,
				  -1);
		check_grad("x", c.x, dx, SIZE, loss);
	}
}

enum { BIG_T = 200 };

static const struct kern_attn_dims wide = {
	.B = 1, .T = BIG_T, .H = H, .G = G, .D = D, .Dv = D, .heads = H};

static struct {
	void *x, *from, *table;
} big;

static void run_big(const struct kern *k)
{
	k->copy(NULL, big.x, big.from, bytes_of(k, BIG_T * ROW));
	k->rope(NULL, big.x, big.table, &wide, 5, false, 1);
}

static void threads(void **state)
{
	(void)state;
	EACH_TABLE(k)
	{
		big.x = vec_new(k, NULL, BIG_T * ROW);
		big.from = vec_new(k, rnd_new(BIG_T * ROW, 1), BIG_T * ROW);
		big.table = vec_new(k, rnd_new(BIG_T * 10, 1), BIG_T * 10);
		check_threads(run_big, k, big.x, BIG_T * ROW * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(values), UNIT(inverse),
					   UNIT(differences), UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
