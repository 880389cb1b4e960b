/* SPDX-License-Identifier: Apache-2.0 */
/* What experts do with their rows: against plain sums, and differences. */
#include "test/kern-test.h"

enum { N = 15, E = 6, TOPK = 3, R = N * TOPK, C = 7, F = 5 };

/* Some expert of each has no row. */
static const int32_t ends[E] = {0, 4, 4, 20, 44, R};

static void products(void **state)
{
	double *x = rnd_new(R * C, 1), *w = rnd_new(E * F * C, 1);
	double *y = rnd_new(R * F, 1), *was = rnd_new(E * F * C, 1);

	(void)state;
	EACH_TABLE(k)
	{
		void *wk = vec_new(k, w, E * F * C), *xk = vec_new(k, x, R * C);
		void *yk = vec_new(k, y, R * F), *out = vec_new(k, NULL, R * F);
		void *dx = vec_new(k, NULL, R * C);
		void *dw = vec_new(k, was, E * F * C);
		double *y1 = zeros(R * F), *dx1 = zeros(R * C);
		double *dw1 = vec_new(&kern_cpu_f64, was, E * F * C);

		for (int64_t r = 0, e = 0; r < R; r++) {
			while (r >= ends[e])
				e++;
			for (int64_t f = 0; f < F; f++)
				for (int64_t c = 0; c < C; c++) {
					int64_t i = (e * F + f) * C + c;

					y1[r * F + f] += w[i] * x[r * C + c];
					dx1[r * C + c] += w[i] * y[r * F + f];
					dw1[i] += y[r * F + f] * x[r * C + c];
				}
		}
		k->experts_fwd(NULL, out, xk, wk, ends, R, F, C, E);
		k->experts_bwd_x(NULL, dx, yk, wk, ends, R, F, C, E);
		k->experts_bwd_w(NULL, dw, yk, xk, ends, R, F, C, E);
		check_close("y", k, out, y1, R * F, tolerance(k));
		check_close("dx", k, dx, dx1, R * C, tolerance(k));
		check_close("dw", k, dw, dw1, E * F * C, tolerance(k));
	}
}

/* Every choice of N tokens has a row of its own. */
static void deal(int32_t *row)
{
	for (int32_t i = 0; i < R; i++)
		row[i] = (i * 7 + 3) % R;
}

/* Rows go to experts and their sums come back. */
static void rows(void **state)
{
	double *x = rnd_new(N * C, 1), *y = rnd_new(R * C, 1);
	int32_t row[R];

	(void)state;
	deal(row);
	EACH_TABLE(k)
	{
		void *to = vec_new(k, NULL, R * C);
		void *back = vec_new(k, NULL, N * C);
		double *to1 = zeros(R * C), *back1 = zeros(N * C);

		for (int64_t i = 0; i < R * C; i++) {
			int64_t n = i / C / TOPK, c = i % C;
			int64_t at = row[i / C] * C + c;

			to1[at] = x[n * C + c];
			back1[n * C + c] += y[at];
		}
		k->gather(NULL, to, vec_new(k, x, N * C), row, N, TOPK, C);
		k->combine(NULL, back, vec_new(k, y, R * C), row, N, TOPK, C);
		check_close("rows", k, to, to1, R * C, 0);
		check_close("sums", k, back, back1, N * C, tolerance(k));
	}
}

static struct {
	double *x, *prob, *dy, *y;
	int32_t row[R];
	enum kern_act act;
	bool gated;
} a;

static double act_objective(void)
{
	kern_cpu_f64.expert_act_fwd(NULL, a.y, a.x, a.prob, a.row, R, F, a.act,
				    a.gated);
	return dot(a.y, a.dy, R * F);
}

static void check_act(void)
{
	const struct kern *k = &kern_cpu_f64;
	int64_t wide = R * F * (1 + a.gated);
	double *dx = vec_new(k, NULL, wide), *dp = vec_new(k, NULL, R);
	void *dx32, *dp32, *x32, *p32, *dy32;

	k->expert_act_bwd(NULL, dx, dp, a.dy, a.x, a.prob, a.row, R, F, a.act,
			  a.gated);
	check_grad("x", a.x, dx, wide, act_objective);
	check_grad("prob", a.prob, dp, R, act_objective);
	k = &kern_cpu_f32;
	dx32 = vec_new(k, NULL, wide);
	dp32 = vec_new(k, NULL, R);
	x32 = vec_new(k, a.x, wide);
	p32 = vec_new(k, a.prob, R);
	dy32 = vec_new(k, a.dy, R * F);
	k->expert_act_bwd(NULL, dx32, dp32, dy32, x32, p32, a.row, R, F, a.act,
			  a.gated);
	check_close("dx", k, dx32, dx, wide, tolerance(k));
	check_close("dprob", k, dp32, dp, R, tolerance(k));
	act_objective();
	k->expert_act_fwd(NULL, dy32, x32, p32, a.row, R, F, a.act, a.gated);
	check_close("y", k, dy32, a.y, R * F, tolerance(k));
}

static void activation(void **state)
{
	(void)state;
	a.prob = rnd_new(R, 1);
	a.dy = rnd_new(R * F, 1);
	a.y = zeros(R * F);
	deal(a.row);
	for (int i = 0; i < 10; i++) {
		a.act = (enum kern_act)(i / 2);
		a.gated = i % 2;
		a.x = rnd_new(2 * R * F, 3);
		check_act();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(products), UNIT(rows),
					   UNIT(activation)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
