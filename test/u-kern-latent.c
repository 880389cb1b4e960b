/* SPDX-License-Identifier: Apache-2.0 */
/* Latent attention's heads, put together and taken apart. */
#include "test/kern-test.h"

/* Plain, shared and value widths of a head; two channels do not turn. */
enum { B = 2, T = 5, H = 3, PLAIN = 4, P = 6, R = 2, V = 7, D = PLAIN + P };
enum { N = B * T, HEAD = 2 * D + V, ROW = H * HEAD, KV = PLAIN + V };
enum { QUERY_SIZE = N * H * D, KV_SIZE = N * H * KV, POS_SIZE = N * P };

static const struct kern_attn_dims dims = {
	.B = B, .T = T, .H = H, .G = H, .D = D, .Dv = V, .heads = H};

static struct {
	double *query, *kv, *pos, *table, *qkv, *dqkv;
} c;

static void make_case(void)
{
	c.query = rnd_new(QUERY_SIZE, 1);
	c.kv = rnd_new(KV_SIZE, 1);
	c.pos = rnd_new(POS_SIZE, 1);
	c.dqkv = rnd_new(N * ROW, 1);
	c.qkv = zeros(N * ROW);
	c.table = zeros(T * R * 2);
	for (int64_t i = 0; i < T * R; i++) {
		double angle = (double)(i / R) / (double)(i % R + 1);

		c.table[2 * i] = 1.5 * cos(angle);
		c.table[2 * i + 1] = 1.5 * sin(angle);
	}
}

/* Channel I of X (P), turned for position T0 by the first PAIRS angles. */
static double turned(const double *x, int64_t i, int64_t t0, int64_t pairs)
{
	const double *cs = c.table + (t0 * R + i / 2) * 2;

	if (i >= 2 * pairs)
		return x[i];
	return i % 2 ? x[i] * cs[0] + x[i - 1] * cs[1]
		     : x[i] * cs[0] - x[i + 1] * cs[1];
}

static void naive(int64_t pairs)
{
	for (int64_t n = 0; n < N; n++)
		for (int64_t h = 0; h < H; h++) {
			double *y = c.qkv + n * ROW + h * HEAD;
			const double *q = c.query + (n * H + h) * D;
			const double *kv = c.kv + (n * H + h) * KV;

			for (int64_t i = 0; i < PLAIN; i++) {
				y[i] = q[i];
				y[D + i] = kv[i];
			}
			for (int64_t i = 0; i < P; i++) {
				y[PLAIN + i] =
					turned(q + PLAIN, i, n % T, pairs);
				y[D + PLAIN + i] =
					turned(c.pos + n * P, i, n % T, pairs);
			}
			for (int64_t i = 0; i < V; i++)
				y[2 * D + i] = kv[PLAIN + i];
		}
}

static void forward(void **state)
{
	(void)state;
	make_case();
	for (int64_t pairs = 0; pairs <= R; pairs += R)
		EACH_TABLE(k)
		{
			void *qkv = vec_new(k, c.qkv, N * ROW);
			void *table = vec_new(k, c.table, T * R * 2);

			naive(pairs);
			k->latent_fwd(NULL, qkv,
				      vec_new(k, c.query, QUERY_SIZE),
				      vec_new(k, c.kv, KV_SIZE),
				      vec_new(k, c.pos, POS_SIZE),
				      pairs ? table : NULL, &dims, P, pairs);
			check_close("qkv", k, qkv, c.qkv, N * ROW,
				    tolerance(k));
		}
}

static double sum_of(const double *x, const double *y, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

/* What comes in is linear in every part: <dqkv, f(x)> = <f'(dqkv), x>. */
static void transposed(void **state)
{
	const struct kern *k = &kern_cpu_f64;
	double *dq = zeros(QUERY_SIZE), *dkv = zeros(KV_SIZE);
	double *dpos = zeros(POS_SIZE), there, back;

	(void)state;
	make_case();
	naive(R);
	k->latent_bwd(NULL, dq, dkv, dpos, c.dqkv, c.table, &dims, P, R);
	there = sum_of(c.dqkv, c.qkv, N * ROW);
	back = sum_of(dq, c.query, QUERY_SIZE) + sum_of(dkv, c.kv, KV_SIZE) +
	       sum_of(dpos, c.pos, POS_SIZE);
	assert_true(fabs(there - back) < 1e-12 * N * ROW);
	/* each part by itself */
	memset(c.query, 0, QUERY_SIZE * sizeof(double));
	memset(c.kv, 0, KV_SIZE * sizeof(double));
	naive(R);
	assert_true(fabs(sum_of(c.dqkv, c.qkv, N * ROW) -
			 sum_of(dpos, c.pos, POS_SIZE)) < 1e-12 * N * ROW);
}

/* The same gradients in float. */
static void backward(void **state)
{
	const struct kern *k = &kern_cpu_f32;
	double *dq = zeros(QUERY_SIZE), *dkv = zeros(KV_SIZE);
	double *dpos = zeros(POS_SIZE);
	void *q = vec_new(k, dq, QUERY_SIZE), *kv = vec_new(k, dkv, KV_SIZE);
	void *pos = vec_new(k, dpos, POS_SIZE);

	(void)state;
	make_case();
	kern_cpu_f64.latent_bwd(NULL, dq, dkv, dpos, c.dqkv, c.table, &dims, P,
				R);
	k->latent_bwd(NULL, q, kv, pos, vec_new(k, c.dqkv, N * ROW),
		      vec_new(k, c.table, T * R * 2), &dims, P, R);
	check_close("dquery", k, q, dq, QUERY_SIZE, tolerance(k));
	check_close("dkv", k, kv, dkv, KV_SIZE, tolerance(k));
	check_close("dpos", k, pos, dpos, POS_SIZE, tolerance(k));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(forward),
		UNIT(transposed),
		UNIT(backward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
