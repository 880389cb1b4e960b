/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings: lookups, scattered additions, a vocabulary cut in parts. */
#include "test/kern-test.h"

enum { N = 37, C = 13, V = 11, T = 5 };

static int32_t ids[N];

static void make_ids(void)
{
	for (int n = 0; n < N; n++)
		ids[n] = n * 7 % V;
	ids[3] = -1;
	ids[4] = V;
}

static void lookup(void **state)
{
	double *w = rnd_new(V * C, 1), *want = zeros(N * C);

	(void)state;
	make_ids();
	for (int n = 0; n < N; n++)
		for (int c = 0; c < C; c++)
			if (ids[n] >= 0 && ids[n] < V)
				want[n * C + c] = w[ids[n] * C + c];
	EACH_TABLE(k)
	{
		void *y = vec_new(k, NULL, N * C);

		k->embed_fwd(NULL, y, ids, vec_new(k, w, V * C), N, C, 0, V);
		check_close("y", k, y, want, N * C, 0);
	}
}

/* The parts of a cut vocabulary add up to the whole, both ways. */
static void cut(void **state)
{
	static const int64_t from[] = {0, 4, 4, V};
	double *w = rnd_new(V * C, 1), *dy = rnd_new(N * C, 1);

	(void)state;
	make_ids();
	EACH_TABLE(k)
	{
		void *wk = vec_new(k, w, V * C), *dyk = vec_new(k, dy, N * C);
		void *whole = vec_new(k, NULL, N * C);
		void *total = vec_new(k, zeros(N * C), N * C);
		void *dwhole = vec_new(k, w, V * C);
		void *dparts = vec_new(k, w, V * C);

		k->embed_fwd(NULL, whole, ids, wk, N, C, 0, V);
		k->embed_bwd(NULL, dwhole, dyk, ids, N, C, 0, V);
		for (int r = 0; r < 3; r++) {
			size_t at = (size_t)(from[r] * C) * k->size;
			int64_t rows = from[r + 1] - from[r];
			void *y = vec_new(k, NULL, N * C);

			k->embed_fwd(NULL, y, ids, (char *)wk + at, N, C,
				     from[r], rows);
			for (int64_t i = 0; i < N * C; i++)
				set(k, total, i,
				    get(k, total, i) + get(k, y, i));
			k->embed_bwd(NULL, (char *)dparts + at, dyk, ids, N, C,
				     from[r], rows);
		}
		assert_memory_equal(whole, total, N * C * k->size);
		assert_memory_equal(dwhole, dparts, V * C * k->size);
	}
}

static void scatter(void **state)
{
	double *dy = rnd_new(N * C, 1), *want = rnd_new(V * C, 1);
	double *was = keep(V * C * sizeof(*was));

	(void)state;
	make_ids();
	memcpy(was, want, V * C * sizeof(*was));
	for (int n = 0; n < N; n++)
		for (int c = 0; c < C; c++)
			if (ids[n] >= 0 && ids[n] < V)
				want[ids[n] * C + c] += dy[n * C + c];
	EACH_TABLE(k)
	{
		void *dw = vec_new(k, was, V * C);

		k->embed_bwd(NULL, dw, vec_new(k, dy, N * C), ids, N, C, 0, V);
		check_close("dw", k, dw, want, V * C, tolerance(k));
	}
}

static void positions_at(int shift)
{
	enum { ROW0 = 13 };
	double *w = rnd_new(T * C, 1), *x = rnd_new(N * C, 1);
	double *y = zeros(N * C), *dw = zeros(T * C);

	for (int n = 0; n < N; n++)
		for (int c = 0; c < C; c++) {
			int place = (ROW0 + n) % T + shift;
			int at = (place < T ? place : 0) * C + c;

			y[n * C + c] = x[n * C + c] + w[at];
			dw[at] += x[n * C + c];
		}
	for (int i = 0; i < T * C; i++)
		dw[i] += w[i];
	EACH_TABLE(k)
	{
		void *xk = vec_new(k, x, N * C), *yk = vec_new(k, x, N * C);
		void *wk = vec_new(k, w, T * C), *dwk = vec_new(k, w, T * C);

		k->pos_fwd(NULL, yk, wk, N, C, T, ROW0, shift);
		check_close("y", k, yk, y, N * C, tolerance(k));
		k->pos_bwd(NULL, dwk, xk, N, C, T, ROW0, shift);
		check_close("dw", k, dwk, dw, T * C, tolerance(k));
	}
}

/* Those of the tokens themselves, and of tokens further on. */
static void positions(void **state)
{
	(void)state;
	for (int shift = 0; shift < 4; shift++)
		positions_at(shift);
}

/* Central differences of the sums of dy y. */
static struct {
	double *w, *dy, *y;
} g;

static double lookup_loss(void)
{
	kern_cpu_f64.embed_fwd(NULL, g.y, ids, g.w, N, C, 0, V);
	return dot(g.y, g.dy, N * C);
}

static double positions_loss(void)
{
	memset(g.y, 0, N * C * sizeof(*g.y));
	kern_cpu_f64.pos_fwd(NULL, g.y, g.w, N, C, T, 2, 1);
	return dot(g.y, g.dy, N * C);
}

static void differences(void **state)
{
	double *dw = zeros(V * C), *dpos = zeros(T * C);

	(void)state;
	make_ids();
	g.w = rnd_new(V * C, 1);
	g.dy = rnd_new(N * C, 1);
	g.y = zeros(N * C);
	kern_cpu_f64.embed_bwd(NULL, dw, g.dy, ids, N, C, 0, V);
	check_grad("w", g.w, dw, V * C, lookup_loss);
	kern_cpu_f64.pos_bwd(NULL, dpos, g.dy, N, C, T, 2, 1);
	check_grad("pos", g.w, dpos, T * C, positions_loss);
}

/* Large enough to be shared among threads. */
enum { BIG_N = 700, BIG_C = 67 };

static struct {
	void *w, *y, *dw, *wide;
	int32_t ids[BIG_N];
} big;

static void run_big(const struct kern *k)
{
	k->embed_fwd(NULL, big.y, big.ids, big.w, BIG_N, BIG_C, 0, V);
	k->pos_fwd(NULL, big.y, big.w, BIG_N, BIG_C, T, 3, 1);
	k->zero(NULL, big.dw, bytes_of(k, 2 * V * BIG_C));
	k->embed_bwd(NULL, big.dw, big.wide, big.ids, BIG_N, BIG_C, 0, V);
	k->pos_bwd(NULL, (char *)big.dw + V * BIG_C * k->size, big.wide, BIG_N,
		   BIG_C, T, 3, 1);
}

static void threads(void **state)
{
	double *w = rnd_new(V * BIG_C, 1), *wide = rnd_new(BIG_N * BIG_C, 1);

	(void)state;
	for (int n = 0; n < BIG_N; n++)
		big.ids[n] = n * n % (V + 1);
	EACH_TABLE(k)
	{
		big.w = vec_new(k, w, V * BIG_C);
		big.wide = vec_new(k, wide, BIG_N * BIG_C);
		big.y = vec_new(k, NULL, BIG_N * BIG_C);
		big.dw = vec_new(k, NULL, 2 * V * BIG_C);
		check_threads(run_big, k, big.y, BIG_N * BIG_C * k->size);
		check_threads(run_big, k, big.dw, 2 * V * BIG_C * k->size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(lookup),      UNIT(cut),
					   UNIT(scatter),     UNIT(positions),
					   UNIT(differences), UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
