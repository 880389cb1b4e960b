/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: three products and the bias, at awkward sizes. */
#include "test/kern-test.h"

static const int64_t shapes[][3] = {/* N, out, in */
				    {1, 1, 1},	 {1, 5, 3},    {7, 1, 9},
				    {5, 11, 1},	 {33, 17, 65}, {130, 67, 37},
				    {3, 601, 2}, {4, 7, 19},   {8, 13, 40},
				    {9, 13, 40}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static struct {
	int64_t N, out, in;
	double *x, *w, *b, *dy, *y;
} c;

static void make_case(const int64_t shape[3])
{
	c.N = shape[0];
	c.out = shape[1];
	c.in = shape[2];
	c.x = rnd_new(c.N * c.in, 1);
	c.w = rnd_new(c.out * c.in, 1);
	c.b = rnd_new(c.out, 1);
	c.dy = rnd_new(c.N * c.out, 1);
	c.y = zeros(c.N * c.out);
}

static void naive(void)
{
	for (int64_t n = 0; n < c.N; n++)
		for (int64_t o = 0; o < c.out; o++)
			c.y[n * c.out + o] =
				dot(c.x + n * c.in, c.w + o * c.in, c.in);
}

static void forward(void **state)
{
	(void)state;
	for (int s = 0; s < SHAPES; s++) {
		make_case(shapes[s]);
		EACH_TABLE(k)
		{
			int64_t n = c.N * c.out;
			void *y = vec_new(k, NULL, n);
			void *x = vec_new(k, c.x, c.N * c.in);
			void *w = vec_new(k, c.w, c.out * c.in);

			naive();
			k->linear_fwd(NULL, y, x, w, NULL, c.N, c.out, c.in);
			check_close("y", k, y, c.y, n, tolerance(k));
			for (int64_t i = 0; i < n; i++)
				c.y[i] += c.b[i % c.out];
			y = vec_new(k, NULL, n);
			k->linear_fwd(NULL, y, x, w, vec_new(k, c.b, c.out),
				      c.N, c.out, c.in);
			check_close("y + b", k, y, c.y, n, tolerance(k));
		}
	}
}

static double loss(void)
{
	kern_cpu_f64.linear_fwd(NULL, c.y, c.x, c.w, c.b, c.N, c.out, c.in);
	return dot(c.y, c.dy, c.N * c.out);
}

static void differences(void **state)
{
	const struct kern *k = &kern_cpu_f64;

	(void)state;
	for (int s = 0; s < SHAPES - 2; s++) {
		double *dx, *dw, *db;

		make_case(shapes[s]);
		dx = vec_new(k, NULL, c.N * c.in);
		dw = zeros(c.out * c.in);
		db = zeros(c.out);
		k->linear_bwd_x(NULL, dx, c.dy, c.w, c.N, c.out, c.in);
		k->linear_bwd_w(NULL, dw, c.dy, c.x, c.N, c.out, c.in);
		k->bias_bwd(NULL, db, c.dy, c.N, c.out);
		check_grad("x", c.x, dx, c.N * c.in, loss);
		check_grad("w", c.w, dw, c.out * c.in, loss);
		check_grad("b", c.b, db, c.out, loss);
	}
}

/* Both tables against plain loops; dw and db add to what was there. */
static void backward(void **state)
{
	(void)state;
	for (int s = 0; s < SHAPES; s++) {
		double *dx, *dw, *db, *dw0, *db0;

		make_case(shapes[s]);
		dx = zeros(c.N * c.in);
		dw0 = rnd_new(c.out * c.in, 1);
		db0 = rnd_new(c.out, 1);
		dw = vec_new(&kern_cpu_f64, dw0, c.out * c.in);
		db = vec_new(&kern_cpu_f64, db0, c.out);
		for (int64_t n = 0; n < c.N; n++)
			for (int64_t o = 0; o < c.out; o++) {
				double g = c.dy[n * c.out + o];

				db[o] += g;
				for (int64_t i = 0; i < c.in; i++) {
					dx[n * c.in + i] +=
						g * c.w[o * c.in + i];
					dw[o * c.in + i] +=
						g * c.x[n * c.in + i];
				}
			}
		EACH_TABLE(k)
		{
			void *dyk = vec_new(k, c.dy, c.N * c.out);
			void *dxk = vec_new(k, NULL, c.N * c.in);
			void *dwk = vec_new(k, dw0, c.out * c.in);
			void *dbk = vec_new(k, db0, c.out);

			k->linear_bwd_x(NULL, dxk, dyk,
					vec_new(k, c.w, c.out * c.in), c.N,
					c.out, c.in);
			k->linear_bwd_w(NULL, dwk, dyk,
					vec_new(k, c.x, c.N * c.in), c.N, c.out,
					c.in);
			k->bias_bwd(NULL, dbk, dyk, c.N, c.out);
			check_close("dx", k, dxk, dx, c.N * c.in, tolerance(k));
			check_close("dw", k, dwk, dw, c.out * c.in,
				    tolerance(k));
			check_close("db", k, dbk, db, c.out, tolerance(k));
		}
	}
}

/* The sums of a bias are taken in double: 1 + N times 2^-25. */
static void bias_in_double(void **state)
{
	enum { N = 1025 };
	float dy[N], db = 0;

	(void)state;
	for (int i = 0; i < N; i++)
		dy[i] = i ? 0x1p-25f : 1;
	kern_cpu_f32.bias_bwd(NULL, &db, dy, N, 1);
	assert_true(db == 1 + 0x1p-15f);
}

/* Large enough to be shared among threads, with ragged edges. */
enum { BIG_N = 301, BIG_OUT = 211, BIG_IN = 129 };

static struct {
	void *x, *w, *b, *y;
} big;

/* y, dx, dw and db stand one behind the other. */
static void run_big(const struct kern *k)
{
	char *dx = (char *)big.y + BIG_N * BIG_OUT * k->size;
	char *dw = dx + BIG_N * BIG_IN * k->size;
	char *db = dw + BIG_OUT * BIG_IN * k->size;

	k->zero(NULL, dw, bytes_of(k, BIG_OUT * BIG_IN + BIG_OUT));
	k->linear_fwd(NULL, big.y, big.x, big.w, big.b, BIG_N, BIG_OUT, BIG_IN);
	k->linear_bwd_x(NULL, dx, big.y, big.w, BIG_N, BIG_OUT, BIG_IN);
	k->linear_bwd_w(NULL, dw, big.y, big.x, BIG_N, BIG_OUT, BIG_IN);
	k->bias_bwd(NULL, db, big.y, BIG_N, BIG_OUT);
}

static void threads(void **state)
{
	enum { ALL = BIG_N * (BIG_OUT + BIG_IN) + BIG_OUT * (BIG_IN + 1) };

	(void)state;
	EACH_TABLE(k)
	{
		big.x = vec_new(k, rnd_new(BIG_N * BIG_IN, 1), BIG_N * BIG_IN);
		big.w = vec_new(k, rnd_new(BIG_OUT * BIG_IN, 1),
				BIG_OUT * BIG_IN);
		big.b = vec_new(k, rnd_new(BIG_OUT, 1), BIG_OUT);
		big.y = vec_new(k, NULL, ALL);
		check_threads(run_big, k, big.y, ALL * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(forward), UNIT(differences),
					   UNIT(backward), UNIT(bias_in_double),
					   UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
