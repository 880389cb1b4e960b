/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation's ops against those of training: a sequence that comes in pieces
 * gets what it gets as a whole.
 */
#include "test/kern-test.h"

/* T, H, G, D: grouped heads, odd widths, more than a block of queries. */
static const int64_t shapes[][4] = {
	{5, 4, 2, 6}, {40, 3, 1, 7}, {70, 2, 2, 8}, {150, 6, 2, 16}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]), SAMPLES = 3 };

/* One token at a time, odd pieces, and pieces above a block. */
static const int64_t pieces[] = {1, 3, 64, 100};
enum { PIECES = sizeof(pieces) / sizeof(pieces[0]) };

static const int64_t windows[] = {0, 1, 3, 64, 1000};
enum { WINDOWS = sizeof(windows) / sizeof(windows[0]) };

/* The whole: dims, its inputs, the attention it gets by attn_fwd. */
struct whole {
	struct kern_attn_dims d;
	int64_t row, out, R;
	double *raw;
	void *table, *o;
};

/* Angles need not be any real ones. */
static void whole_new(struct whole *w, const struct kern *k,
		      const int64_t shape[4], int64_t window)
{
	struct kern_attn_dims *d = &w->d;
	void *qkv, *lse, *scratch;

	*d = (struct kern_attn_dims){.B = SAMPLES,
				     .T = shape[0],
				     .H = shape[1],
				     .G = shape[2],
				     .D = shape[3],
				     .Dv = shape[3],
				     .scale = 1.3 / sqrt((double)shape[3]),
				     .heads = shape[1],
				     .window = window};
	w->row = (d->H + 2 * d->G) * d->D;
	w->out = d->H * d->D;
	w->R = d->D / 2;
	w->raw = rnd_new(d->B * d->T * w->row, 2);
	w->table = vec_new(k, rnd_new(d->T * 2 * w->R, 1), d->T * 2 * w->R);
	w->o = vec_new(k, NULL, d->B * d->T * w->out);
	qkv = vec_new(k, w->raw, d->B * d->T * w->row);
	lse = vec_new(k, NULL, d->B * d->T * d->H);
	scratch = keep(k->attn_scratch(d));
	k->rope(NULL, qkv, w->table, d, w->R, false, 1);
	k->attn_fwd(NULL, w->o, lse, qkv, scratch, d);
}

/* What a generation has beside: the cache, where each sample is. */
struct pieced {
	int64_t room;
	void *keys, *values, *scratch;
	int32_t pos[SAMPLES];
};

static void pieced_new(struct pieced *p, const struct kern *k,
		       const struct whole *w)
{
	struct kern_attn_dims d = w->d;
	int64_t n;

	p->room = d.T;
	n = d.B * d.G * p->room * d.D;
	p->keys = vec_new(k, NULL, n);
	p->values = vec_new(k, NULL, n);
	n = (int64_t)kern_attn_at_scratch(&d, p->room, k->size);
	p->scratch = keep((size_t)n);
	memset(p->scratch, 0xff, (size_t)n);
	/* samples are at different places */
	for (int b = 0; b < SAMPLES; b++)
		p->pos[b] = 0;
}

/* Token T of sample B; behind the end there is padding: anything finite. */
static double raw(const struct whole *w, int64_t b, int64_t t, int64_t i)
{
	return t < w->d.T ? w->raw[(b * w->d.T + t) * w->row + i] : 7;
}

/*
 * The next N tokens of each sample; every sample but the first moves on by
 * fewer of them, as if the others had been padding.
 */
static void step(struct pieced *p, const struct kern *k, const struct whole *w,
		 int64_t n)
{
	struct kern_attn_dims d = w->d;
	void *qkv = vec_new(k, NULL, d.B * n * w->row);
	void *o = vec_new(k, NULL, d.B * n * w->out);

	d.T = n;
	for (int64_t i = 0; i < d.B * n * w->row; i++) {
		int64_t b = i / (n * w->row), t = i / w->row % n;

		set(k, qkv, i, raw(w, b, p->pos[b] + t, i % w->row));
	}
	k->rope_at(NULL, qkv, w->table, p->pos, &d, w->R, false, p->room);
	k->attn_at(NULL, o, p->keys, p->values, qkv, p->pos, p->scratch, &d,
		   p->room);
	for (int64_t i = 0; i < d.B * n * w->out; i++) {
		int64_t b = i / (n * w->out), t = p->pos[b] + i / w->out % n;
		int64_t at = (b * w->d.T + t) * w->out + i % w->out;
		double want = t < w->d.T ? get(k, w->o, at) : 0;

		if (!(fabs(get(k, o, i) - want) <= 4 * tolerance(k)))
			fail_msg("%s sample %lld token %lld: %.17g, want %.17g",
				 k->name, (long long)b, (long long)t,
				 get(k, o, i), want);
	}
	for (int b = 0; b < SAMPLES; b++)
		p->pos[b] += (int32_t)(n > b ? n - b : 1);
}

static void values(void **state)
{
	(void)state;
	for (int i = 0; i < SHAPES * WINDOWS * PIECES; i++)
		EACH_TABLE(k)
		{
			int64_t n = pieces[i % PIECES];
			struct whole w;
			struct pieced p;

			whole_new(&w, k, shapes[i / PIECES / WINDOWS],
				  windows[i / PIECES % WINDOWS]);
			pieced_new(&p, k, &w);
			/* the slowest sample reaches the end */
			while (p.pos[0] < w.d.T || p.pos[SAMPLES - 1] < w.d.T)
				step(&p, k, &w, n);
			keep_none(NULL);
		}
}

/* What is wrong behind a sample's position is written over in time. */
static void goes_back(void **state)
{
	(void)state;
	EACH_TABLE(k)
	{
		struct whole w;
		struct pieced p;

		whole_new(&w, k, shapes[1], 0);
		pieced_new(&p, k, &w);
		step(&p, k, &w, 20);
		for (int b = 0; b < SAMPLES; b++)
			p.pos[b] = 3 * b;
		step(&p, k, &w, 7);
		step(&p, k, &w, 30);
	}
}

static void positions(void **state)
{
	enum { B = 3, T = 4, C = 5, ROOM = 9 };
	const int32_t pos[B] = {0, 6, 9};

	(void)state;
	EACH_TABLE(k)
	{
		double *w = rnd_new(ROOM * C, 1), *y0 = rnd_new(B * T * C, 1);
		void *y = vec_new(k, y0, B * T * C);

		k->pos_at(NULL, y, vec_new(k, w, ROOM * C), pos, B, T, C, ROOM,
			  2);
		for (int i = 0; i < B * T * C; i++) {
			int p = pos[i / C / T] + i / C % T;
			int at = p + 2 < ROOM ? p + 2 : 0;
			double more = p < ROOM ? w[at * C + i % C] : 0;

			assert_true(fabs(get(k, y, i) - y0[i] - more) <=
				    tolerance(k));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(values), UNIT(goes_back),
					   UNIT(positions)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
