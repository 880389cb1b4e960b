/* SPDX-License-Identifier: Apache-2.0 */
/* The residual addition, LayerNorm and RMSNorm, forward and backward. */
#include "test/kern-test.h"

static int64_t N, C;

static const uint64_t key[2] = {11, 3};

/* One case: which options are on, its inputs, and what it should give. */
static struct {
	struct kern_norm_dims dims;
	struct kern_drop drop;
	bool branch_on, bias_on;
	double *x, *branch, *bias, *w, *b, *dy, *dres;
	double *xout, *y, *stat;
} c;

static void make_case(int bits, int64_t rows, int64_t columns)
{
	bool layer = bits & 1;

	N = rows;
	C = columns;
	c.dims = (struct kern_norm_dims){
		N, C, layer ? KERN_LAYERNORM : KERN_RMSNORM, bits & 2, 1e-5};
	c.branch_on = bits & 4;
	c.bias_on = bits & 8;
	c.drop = (struct kern_drop){
		.p = bits & 16 ? 0.4 : 0, .key = key, .site = 2, .row0 = 5};
	c.x = rnd_new(N * C, 2);
	c.branch = rnd_new(N * C, 1);
	c.bias = rnd_new(C, 1);
	c.w = rnd_new(C, 1);
	c.b = rnd_new(C, 1);
	c.dy = rnd_new(N * C, 1);
	c.dres = rnd_new(N * C, 1);
}

/* xout, one element after the other; the drop op has a test of its own. */
static void naive_resid(void)
{
	c.xout = zeros(N * C);
	for (int64_t i = 0; i < N * C; i++)
		c.xout[i] = c.branch[i] + (c.bias_on ? c.bias[i % C] : 0);
	kern_cpu_f64.drop(NULL, c.xout, c.xout, N, C, &c.drop);
	for (int64_t i = 0; i < N * C; i++)
		c.xout[i] += c.x[i];
}

static void naive_norm(const double *x)
{
	c.y = zeros(N * C);
	c.stat = zeros(2 * N);
	for (int64_t n = 0; n < N; n++) {
		const double *xn = x + n * C;
		double mean = 0, square = 0;

		for (int64_t i = 0; i < C && c.dims.kind == KERN_LAYERNORM; i++)
			mean += xn[i] / C;
		for (int64_t i = 0; i < C; i++)
			square += (xn[i] - mean) * (xn[i] - mean) / C;
		c.stat[2 * n] = mean;
		c.stat[2 * n + 1] = 1 / sqrt(square + c.dims.eps);
		for (int64_t i = 0; i < C; i++) {
			double gain = c.w[i] + (c.dims.zero_centered ? 1 : 0);

			c.y[n * C + i] =
				(xn[i] - mean) * c.stat[2 * n + 1] * gain;
			if (c.dims.kind == KERN_LAYERNORM)
				c.y[n * C + i] += c.b[i];
		}
	}
}

static void check_forward(const struct kern *k)
{
	void *y = vec_new(k, NULL, N * C), *stat = vec_new(k, NULL, 2 * N);
	void *xout = vec_new(k, NULL, N * C), *res = vec_new(k, NULL, N * C);
	void *x = vec_new(k, c.x, N * C);
	void *branch = c.branch_on ? vec_new(k, c.branch, N * C) : NULL;
	void *bias = c.bias_on ? vec_new(k, c.bias, C) : NULL;
	void *b = c.dims.kind == KERN_LAYERNORM ? vec_new(k, c.b, C) : NULL;

	k->norm_fwd(NULL, y, branch ? xout : NULL, stat, x, branch, bias,
		    vec_new(k, c.w, C), b, &c.dims, &c.drop);
	check_close("y", k, y, c.y, N * C, tolerance(k));
	check_close("stat", k, stat, c.stat, 2 * N, tolerance(k));
	if (!branch)
		return;
	check_close("xout", k, xout, c.xout, N * C, tolerance(k));
	k->resid(NULL, res, x, branch, bias, N, C, &c.drop);
	assert_memory_equal(res, xout, (size_t)(N * C) * k->size);
	k->resid(NULL, x, x, branch, bias, N, C, &c.drop);
	assert_memory_equal(x, xout, (size_t)(N * C) * k->size);
}

static void forward(void **state)
{
	(void)state;
	for (int bits = 0; bits < 32; bits++) {
		/* narrow, and wider than the ops' blocks */
		make_case(bits, bits % 3 ? 7 : 3, bits % 3 ? 29 : 2100);
		naive_resid();
		naive_norm(c.branch_on ? c.xout : c.x);
		EACH_TABLE(k)
		{
			check_forward(k);
		}
		keep_none(NULL);
	}
}

/* The sum of dy y + dres x, whose gradient norm_bwd gives. */
static double loss(void)
{
	static double y[7 * 29], stat[2 * 7];
	bool layer = c.dims.kind == KERN_LAYERNORM;

	kern_cpu_f64.norm_fwd(NULL, y, NULL, stat, c.x, NULL, NULL, c.w,
			      layer ? c.b : NULL, &c.dims, NULL);
	return dot(y, c.dy, N * C) + dot(c.x, c.dres, N * C);
}

static void run_bwd(const struct kern *k, void *dx, void *dw, void *db,
		    bool with_dres, bool in_place)
{
	void *y = vec_new(k, NULL, N * C), *stat = vec_new(k, NULL, 2 * N);
	void *x = vec_new(k, c.x, N * C), *w = vec_new(k, c.w, C);
	void *b = db ? vec_new(k, c.b, C) : NULL;
	void *dres = with_dres ? vec_new(k, c.dres, N * C) : NULL;

	if (in_place) {
		k->copy(NULL, dx, dres, bytes_of(k, N * C));
		dres = dx;
	}
	k->norm_fwd(NULL, y, NULL, stat, x, NULL, NULL, w, b, &c.dims, NULL);
	k->norm_bwd(NULL, dx, dw, db, vec_new(k, c.dy, N * C), dres, x, stat, w,
		    &c.dims);
}

static void backward(void **state)
{
	(void)state;
	for (int bits = 0; bits < 4; bits++) {
		bool layer = bits & 1;
		double *dw = zeros(C), *db = zeros(C), *dx;

		make_case(bits, 7, 29);
		dx = vec_new(&kern_cpu_f64, NULL, N * C);
		run_bwd(&kern_cpu_f64, dx, dw, layer ? db : NULL, true, false);
		check_grad("x", c.x, dx, N * C, loss);
		check_grad("w", c.w, dw, C, loss);
		if (layer)
			check_grad("b", c.b, db, C, loss);
	}
}

/*
 * f32 agrees with f64; dres in place and absent; dw and db accumulate; rows
 * are wider than the ops' blocks.
 */
static void check_variants(const struct kern *k, bool layer)
{
	double *dx = zeros(N * C), *dw = zeros(C), *db = zeros(C);
	double *was = rnd_new(C, 1);
	void *dxk = vec_new(k, NULL, N * C), *same = vec_new(k, NULL, N * C);
	void *dwk = vec_new(k, was, C), *dbk = vec_new(k, was, C);

	run_bwd(&kern_cpu_f64, dx, dw, layer ? db : NULL, true, false);
	run_bwd(k, dxk, dwk, layer ? dbk : NULL, true, false);
	for (int64_t i = 0; i < C; i++) {
		dw[i] += was[i];
		db[i] += was[i];
	}
	check_close("dx", k, dxk, dx, N * C, tolerance(k));
	check_close("dw", k, dwk, dw, C, tolerance(k));
	check_close("db", k, dbk, db, C, tolerance(k));
	run_bwd(k, same, dwk, layer ? dbk : NULL, true, true);
	assert_memory_equal(same, dxk, (size_t)(N * C) * k->size);
	run_bwd(k, dxk, dwk, layer ? dbk : NULL, false, false);
	for (int64_t i = 0; i < N * C; i++)
		dx[i] -= c.dres[i];
	check_close("dx", k, dxk, dx, N * C, tolerance(k));
}

static void backward_variants(void **state)
{
	(void)state;
	for (int bits = 0; bits < 4; bits++) {
		make_case(bits, 5, 601);
		EACH_TABLE(k)
		{
			check_variants(k, bits & 1);
		}
	}
}

/* dw and db in the words of the formula, past the first block of columns. */
static void columns(void **state)
{
	double *dw, *db;

	(void)state;
	make_case(1, 5, 601);
	naive_norm(c.x);
	dw = zeros(C);
	db = zeros(C);
	for (int64_t i = 0; i < N * C; i++) {
		db[i % C] += c.dy[i];
		dw[i % C] += c.dy[i] * (c.x[i] - c.stat[i / C * 2]) *
			     c.stat[i / C * 2 + 1];
	}
	EACH_TABLE(k)
	{
		void *dwk = vec_new(k, zeros(C), C);
		void *dbk = vec_new(k, zeros(C), C);

		run_bwd(k, vec_new(k, NULL, N * C), dwk, dbk, false, false);
		check_close("dw", k, dwk, dw, C, tolerance(k));
		check_close("db", k, dbk, db, C, tolerance(k));
	}
}

/* Without dres: LayerNorm's dx sums to 0; RMSNorm's is orthogonal to x. */
static void invariants(void **state)
{
	(void)state;
	for (int bits = 0; bits < 2; bits++) {
		double *dw = zeros(C), *db = zeros(C), *dx;

		make_case(bits, 7, 29);
		c.dims.eps = 0;
		dx = vec_new(&kern_cpu_f64, NULL, N * C);
		run_bwd(&kern_cpu_f64, dx, dw, bits ? db : NULL, false, false);
		for (int64_t n = 0; n < N; n++) {
			double s = 0;

			for (int64_t i = 0; i < C; i++)
				s += dx[n * C + i] *
				     (bits ? 1 : c.x[n * C + i]);
			assert_true(fabs(s) < 1e-13);
		}
	}
}

/* A row far from 0: the variance must not cancel. */
static void offset(void **state)
{
	(void)state;
	make_case(1, 7, 29);
	for (int64_t i = 0; i < N * C; i++)
		c.x[i] = (double)(float)(c.x[i] + 1000);
	naive_norm(c.x);
	EACH_TABLE(k)
	{
		void *y = vec_new(k, NULL, N * C);

		k->norm_fwd(NULL, y, NULL, vec_new(k, NULL, 2 * N),
			    vec_new(k, c.x, N * C), NULL, NULL,
			    vec_new(k, c.w, C), vec_new(k, c.b, C), &c.dims,
			    NULL);
		check_close("y", k, y, c.y, N * C, is_f32(k) ? 1e-4 : 1e-10);
	}
}

enum { BIG_N = 301, BIG_C = 131 };

static struct {
	void *x, *branch, *bias, *w, *b, *dy, *out;
} big;

/* out: y, xout, dx, stat, dw, db */
static void run_big(const struct kern *k)
{
	struct kern_norm_dims dims = {BIG_N, BIG_C, KERN_LAYERNORM, true, 1e-5};
	struct kern_drop d = {.p = 0.1, .key = key};
	size_t size = BIG_N * BIG_C * k->size;
	char *y = big.out, *xout = y + size, *dx = xout + size;
	char *stat = dx + size, *dw = stat + 2 * BIG_N * k->size;
	char *db = dw + BIG_C * k->size;

	k->zero(NULL, dw, bytes_of(k, 2 * BIG_C));
	k->norm_fwd(NULL, y, xout, stat, big.x, big.branch, big.bias, big.w,
		    big.b, &dims, &d);
	k->norm_bwd(NULL, dx, dw, db, big.dy, big.x, xout, stat, big.w, &dims);
}

static void threads(void **state)
{
	enum { ALL = 3 * BIG_N * BIG_C + 2 * BIG_N + 2 * BIG_C };

	(void)state;
	EACH_TABLE(k)
	{
		big.x = vec_new(k, rnd_new(BIG_N * BIG_C, 1), BIG_N * BIG_C);
		big.branch =
			vec_new(k, rnd_new(BIG_N * BIG_C, 1), BIG_N * BIG_C);
		big.dy = vec_new(k, rnd_new(BIG_N * BIG_C, 1), BIG_N * BIG_C);
		big.bias = vec_new(k, rnd_new(BIG_C, 1), BIG_C);
		big.w = vec_new(k, rnd_new(BIG_C, 1), BIG_C);
		big.b = vec_new(k, rnd_new(BIG_C, 1), BIG_C);
		big.out = vec_new(k, NULL, ALL);
		check_threads(run_big, k, big.out, ALL * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(forward), UNIT(backward),	 UNIT(backward_variants),
		UNIT(columns), UNIT(invariants), UNIT(offset),
		UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
