/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention with grouped heads and dropout, forward and backward. */
#include "test/kern-test.h"

static const uint64_t key[2] = {5, 8};

/*
 * B, T, H, G, D, Dv: one token, odd widths, blocks of queries just filled;
 * narrower and wider values.
 */
static const int64_t shapes[][6] = {
	{1, 1, 1, 1, 1, 1},   {2, 5, 4, 2, 6, 6},    {1, 64, 3, 1, 7, 7},
	{2, 65, 2, 2, 8, 8},  {2, 67, 4, 2, 9, 5},   {1, 70, 3, 3, 12, 8},
	{1, 66, 2, 2, 4, 11}, {1, 130, 6, 2, 16, 16}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static struct {
	struct kern_attn_dims d;
	int64_t n_qkv, n_o, n_lse;
	double *qkv, *dout, *o, *lse, *dqkv;
	double *sink, *dsink; /* of KERN_SINK_LEARNED */
	int32_t *doc;
} c;

/* Plain attention, its sinks, documents, and learned sinks in documents. */
enum extra { PLAIN, ZERO, LEARNED, DOCS, BOTH, EXTRAS };

static void make_case(const int64_t shape[6], double p)
{
	struct kern_attn_dims *d = &c.d;

	*d = (struct kern_attn_dims){
		.B = shape[0],
		.T = shape[1],
		.H = shape[2],
		.G = shape[3],
		.D = shape[4],
		.Dv = shape[5],
		.scale = 1.3 / sqrt((double)shape[4]),
		.drop = {.p = p, .key = key, .site = 4, .row0 = 3},
		.heads = shape[2]};
	c.n_qkv = d->B * d->T * ((d->H + d->G) * d->D + d->G * d->Dv);
	c.n_o = d->B * d->T * d->H * d->Dv;
	c.n_lse = d->B * d->H * d->T;
	c.qkv = rnd_new(c.n_qkv, 2);
	c.dout = rnd_new(c.n_o, 1);
}

static void make_extra(enum extra extra)
{
	c.sink = c.dsink = NULL;
	c.doc = NULL;
	c.d.sink = extra == ZERO		       ? KERN_SINK_ZERO
		   : extra == LEARNED || extra == BOTH ? KERN_SINK_LEARNED
						       : KERN_SINK_NONE;
	if (c.d.sink == KERN_SINK_LEARNED)
		c.sink = rnd_new(c.d.H, 3);
	if (extra != DOCS && extra != BOTH)
		return;
	/* a few of any length in each sample */
	c.doc = keep((size_t)(c.d.B * c.d.T) * sizeof(*c.doc));
	for (int64_t n = 0; n < c.d.B * c.d.T; n++)
		c.doc[n] = n % c.d.T && rnd() < 0.9 ? c.doc[n - 1]
						    : (int32_t)(n % c.d.T);
}

static const void *sink_of(const struct kern *k)
{
	return c.sink ? vec_new(k, c.sink, c.d.H) : NULL;
}

/* The offset in qkv of row N's query head H, or of its key or value. */
static int64_t at_group(int64_t n, int64_t h)
{
	int64_t per = c.d.H / c.d.G, width = (per + 1) * c.d.D + c.d.Dv;

	return (n * c.d.G + h / per) * width;
}

static int64_t at_q(int64_t n, int64_t h)
{
	return at_group(n, h) + h % (c.d.H / c.d.G) * c.d.D;
}

static int64_t at_k(int64_t n, int64_t h)
{
	return at_group(n, h) + c.d.H / c.d.G * c.d.D;
}

static int64_t at_v(int64_t n, int64_t h)
{
	return at_k(n, h) + c.d.D;
}

/* The factor of query I of head H of sample B for every key, by one op. */
static void drop_factors(double *f, int64_t b, int64_t i, int64_t h)
{
	struct kern_drop d = c.d.drop;
	double one[1] = {1};

	for (int64_t j = 0; j < c.d.T; j++) {
		d.row0 = ((c.d.drop.row0 + b * c.d.T + i) * c.d.heads +
			  c.d.head0 + h) *
				 c.d.T +
			 j;
		kern_cpu_f64.drop(NULL, f + j, one, 1, 1, &d);
	}
}

/* Whether query I of sample B sees key J. */
static bool sees(int64_t b, int64_t i, int64_t j)
{
	return j <= i && (!c.d.window || i - j < c.d.window) &&
	       (!c.doc || c.doc[b * c.d.T + i] <= j);
}

/* p = e^(scale q k) for query I of head H of sample B; return the sum. */
static double naive_weights(double *p, int64_t b, int64_t i, int64_t h)
{
	const double *q = c.qkv + at_q(b * c.d.T + i, h);
	double z = 0;

	for (int64_t j = 0; j < c.d.T; j++) {
		p[j] = 0;
		if (sees(b, i, j))
			p[j] = exp(
				c.d.scale *
				dot(q, c.qkv + at_k(b * c.d.T + j, h), c.d.D));
		z += p[j];
	}
	if (c.d.sink != KERN_SINK_NONE)
		z += exp(c.sink ? c.sink[h] : 0);
	return z;
}

/* o and lse as the formula reads; p becomes the softmax. */
static void naive_query(double *p, double *f, int64_t b, int64_t i, int64_t h)
{
	int64_t Dv = c.d.Dv, n = b * c.d.T + i;
	double z = naive_weights(p, b, i, h), *o = c.o + (n * c.d.H + h) * Dv;

	drop_factors(f, b, i, h);
	c.lse[(b * c.d.H + h) * c.d.T + i] = log(z);
	for (int64_t j = 0; j <= i; j++) {
		p[j] /= z;
		for (int64_t x = 0; x < Dv; x++)
			o[x] += f[j] * p[j] * c.qkv[at_v(b * c.d.T + j, h) + x];
	}
}

static void naive_query_bwd(const double *p, const double *f, int64_t b,
			    int64_t i, int64_t h)
{
	int64_t D = c.d.D, Dv = c.d.Dv, n = b * c.d.T + i, q = at_q(n, h);
	const double *dout = c.dout + (n * c.d.H + h) * Dv;
	double sum = 0;

	for (int64_t j = 0; j <= i; j++)
		sum += p[j] * f[j] *
		       dot(dout, c.qkv + at_v(b * c.d.T + j, h), Dv);
	if (c.sink)
		c.dsink[h] -= sum * exp(c.sink[h] -
					c.lse[(b * c.d.H + h) * c.d.T + i]);
	for (int64_t j = 0; j <= i; j++) {
		int64_t kj = at_k(b * c.d.T + j, h), v = kj + D;
		double ds = p[j] * (f[j] * dot(dout, c.qkv + v, Dv) - sum) *
			    c.d.scale;

		for (int64_t x = 0; x < Dv; x++)
			c.dqkv[v + x] += f[j] * p[j] * dout[x];
		for (int64_t x = 0; x < D; x++) {
			c.dqkv[q + x] += ds * c.qkv[kj + x];
			c.dqkv[kj + x] += ds * c.qkv[q + x];
		}
	}
}

static void naive(void)
{
	double *p = zeros(c.d.T), *f = zeros(c.d.T);

	c.o = zeros(c.n_o);
	c.lse = zeros(c.n_lse);
	c.dqkv = zeros(c.n_qkv);
	c.dsink = c.sink ? zeros(c.d.H) : NULL;
	for (int64_t b = 0; b < c.d.B; b++)
		for (int64_t h = 0; h < c.d.H; h++)
			for (int64_t i = 0; i < c.d.T; i++) {
				naive_query(p, f, b, i, h);
				naive_query_bwd(p, f, b, i, h);
			}
}

static void *scratch_new(const struct kern *k, const struct kern_attn_dims *d)
{
	size_t size = k->attn_scratch(d);
	void *s = keep(size);

	memset(s, 0xff, size); /* NaN */
	return s;
}

static void check_values(const struct kern *k)
{
	void *o = vec_new(k, NULL, c.n_o), *lse = vec_new(k, NULL, c.n_lse);
	void *qkv = vec_new(k, c.qkv, c.n_qkv);
	void *dqkv = vec_new(k, NULL, c.n_qkv), *dsink = NULL;
	double *ones = zeros(c.d.H);

	for (int64_t h = 0; h < c.d.H; h++)
		ones[h] = 1;
	k->attn_fwd(NULL, o, lse, qkv, sink_of(k), c.doc, scratch_new(k, &c.d),
		    &c.d);
	check_close("o", k, o, c.o, c.n_o, tolerance(k));
	check_close("lse", k, lse, c.lse, c.n_lse, tolerance(k));
	if (c.sink)
		dsink = vec_new(k, ones, c.d.H);
	k->attn_bwd(NULL, dqkv, dsink, vec_new(k, c.dout, c.n_o), o, lse, qkv,
		    sink_of(k), c.doc, scratch_new(k, &c.d), &c.d);
	check_close("dqkv", k, dqkv, c.dqkv, c.n_qkv, tolerance(k));
	for (int64_t h = 0; h < c.d.H && c.sink; h++)
		ones[h] += c.dsink[h];
	if (c.sink)
		check_close("dsink", k, dsink, ones, c.d.H, tolerance(k));
}

/* All that came before, the query alone, parts of a block, more than there is. */
static const int64_t windows[] = {0, 1, 3, 64, 65, 100, 1000};
enum { WINDOWS = sizeof(windows) / sizeof(windows[0]) };

static void values(void **state)
{
	(void)state;
	for (int s = 0; s < SHAPES * WINDOWS; s++)
		for (int p = 0; p < 4; p++) {
			make_case(shapes[s / WINDOWS], 0.3 * (p % 2));
			c.d.window = windows[s % WINDOWS];
			make_extra(p < 2 ? PLAIN : 1 + (s + p) % (EXTRAS - 1));
			naive();
			EACH_TABLE(k)
			{
				check_values(k);
			}
			keep_none(NULL);
		}
}

static void *work;

static double loss(void)
{
	kern_cpu_f64.attn_fwd(NULL, c.o, c.lse, c.qkv, c.sink, c.doc, work,
			      &c.d);
	return dot(c.o, c.dout, c.n_o);
}

static void differences(void **state)
{
	static const int64_t shape[6] = {2, 9, 4, 2, 3, 5};
	const struct kern *k = &kern_cpu_f64;

	(void)state;
	for (int p = 0; p < 2 * EXTRAS; p++) {
		double *dqkv;

		make_case(shape, 0.25 * (p % 2));
		make_extra(p / 2);
		c.dsink = c.sink ? vec_new(k, NULL, c.d.H) : NULL;
		c.o = vec_new(k, NULL, c.n_o);
		c.lse = vec_new(k, NULL, c.n_lse);
		dqkv = vec_new(k, NULL, c.n_qkv);
		work = scratch_new(k, &c.d);
		loss();
		for (int64_t h = 0; h < c.d.H && c.sink; h++)
			c.dsink[h] = 0;
		k->attn_bwd(NULL, dqkv, c.dsink, c.dout, c.o, c.lse, c.qkv,
			    c.sink, c.doc, work, &c.d);
		check_grad("qkv", c.qkv, dqkv, c.n_qkv, loss);
		if (c.sink)
			check_grad("sink", c.sink, c.dsink, c.d.H, loss);
	}
}

/* Changing token J leaves the outputs before it alone, to the bit. */
static void causality(void **state)
{
	static const int64_t shape[6] = {1, 150, 2, 1, 5, 5};

	(void)state;
	make_case(shape, 0.2);
	EACH_TABLE(k)
	{
		int64_t row = c.n_qkv / c.d.T, orow = c.n_o / c.d.T;
		void *qkv = vec_new(k, c.qkv, c.n_qkv);
		void *lse = vec_new(k, NULL, c.n_lse);
		void *o = vec_new(k, NULL, c.n_o);
		char *was = vec_new(k, NULL, c.n_o);
		size_t at;

		k->attn_fwd(NULL, was, lse, qkv, NULL, NULL,
			    scratch_new(k, &c.d), &c.d);
		for (int64_t j = c.d.T - 1; j > 0; j -= 37) {
			for (int64_t i = j * row; i < (j + 1) * row; i++)
				set(k, qkv, i, 3 * rnd());
			k->attn_fwd(NULL, o, lse, qkv, NULL, NULL,
				    scratch_new(k, &c.d), &c.d);
			at = (size_t)(j * orow) * k->size;
			assert_memory_equal(o, was, at);
			assert_memory_not_equal((char *)o + at, was + at,
						(size_t)orow * k->size);
		}
	}
}

/* A rank with the groups from G0 on gives those heads of the whole. */
static void check_part(const struct kern *k, const void *o, int64_t g0)
{
	struct kern_attn_dims part = c.d;
	int64_t N = c.d.B * c.d.T, per = c.d.H / c.d.G, Dv = c.d.Dv;
	int64_t width = (per + 1) * c.d.D + Dv, skip = g0 * width;
	void *qkv = vec_new(k, NULL, N * width), *lse, *po;

	part.G = 1;
	part.H = per;
	part.head0 = g0 * per;
	lse = vec_new(k, NULL, part.B * per * part.T);
	po = vec_new(k, NULL, N * per * Dv);
	for (int64_t i = 0; i < N * width; i++)
		set(k, qkv, i,
		    c.qkv[i / width * c.d.G * width + skip + i % width]);
	k->attn_fwd(NULL, po, lse, qkv, NULL, NULL, scratch_new(k, &part),
		    &part);
	for (int64_t i = 0; i < N * per * Dv; i++) {
		int64_t n = i / (per * Dv), x = i % (per * Dv);
		double whole = get(k, o, (n * c.d.H + part.head0) * Dv + x);

		assert_true(fabs(get(k, po, i) - whole) <= tolerance(k));
	}
}

static void cut_heads(void **state)
{
	static const int64_t shape[6] = {2, 20, 6, 3, 4, 6};

	(void)state;
	make_case(shape, 0.4);
	EACH_TABLE(k)
	{
		void *o = vec_new(k, NULL, c.n_o);

		k->attn_fwd(NULL, o, vec_new(k, NULL, c.n_lse),
			    vec_new(k, c.qkv, c.n_qkv), NULL, NULL,
			    scratch_new(k, &c.d), &c.d);
		for (int64_t g = 0; g < c.d.G; g++)
			check_part(k, o, g);
	}
}

/* The scratch depends on nothing but the dims. */
static void scratch(void **state)
{
	(void)state;
	make_case(shapes[SHAPES - 1], 0);
	EACH_TABLE(k)
	{
		size_t size;

		kern_cpu_init(1);
		size = k->attn_scratch(&c.d);
		kern_cpu_init(3);
		assert_int_equal(k->attn_scratch(&c.d), size);
		assert_true(size > 0);
	}
	kern_cpu_init(2);
}

static struct {
	void *qkv, *dout, *out;
} big;

/* out: o, lse, dqkv */
static void run_big(const struct kern *k)
{
	char *o = big.out, *lse = o + (size_t)c.n_o * k->size;
	char *dqkv = lse + (size_t)c.n_lse * k->size;

	k->attn_fwd(NULL, o, lse, big.qkv, NULL, NULL, work, &c.d);
	k->attn_bwd(NULL, dqkv, NULL, big.dout, o, lse, big.qkv, NULL, NULL,
		    work, &c.d);
}

/* One (sample, group) and many. */
static void threads(void **state)
{
	static const int64_t wide[2][6] = {{1, 200, 4, 1, 24, 24},
					   {3, 70, 6, 3, 12, 20}};

	(void)state;
	for (int i = 0; i < 2; i++)
		EACH_TABLE(k)
		{
			int64_t n;

			make_case(wide[i], 0.1);
			n = c.n_o + c.n_lse + c.n_qkv;
			big.qkv = vec_new(k, c.qkv, c.n_qkv);
			big.dout = vec_new(k, c.dout, c.n_o);
			big.out = vec_new(k, NULL, n);
			work = scratch_new(k, &c.d);
			check_threads(run_big, k, big.out, (size_t)n * k->size);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {UNIT(values),    UNIT(differences),
					   UNIT(causality), UNIT(cut_heads),
					   UNIT(scratch),   UNIT(threads)};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
