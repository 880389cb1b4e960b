/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op of the GPU's tables against cpu_f64: fresh random inputs, poisoned
 * outputs between guard bands, each run twice and compared bit by bit.
 *
 *	g-kern [--time] [SEED]
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "kernels/kern_cuda.h"

enum type { F32, BF16, F64, I32 };
static const size_t type_size[] = {4, 2, 8, 4};

#define GUARD 256 /* bytes before and behind each array, kept at 0xa5 */

/* An array on both sides: REF for cpu_f64, DEV on the device. */
struct arr {
	enum type type;
	bool out;
	int64_t n;
	size_t bytes;
	double tol;
	std::vector<double> ref;
	std::vector<int32_t> ints;
	std::vector<char> init, got;
	char *dev;
};

static struct queue *queue;
static struct err error;
static std::vector<struct arr *> arrays;
static int tests, failures;
static uint64_t state;

static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, error.text);
	exit(1);
}

static uint32_t rnd32(void)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)(state >> 32);
}

/* About normal: the sum of four uniform numbers, deviation 1. */
static double rnd(void)
{
	double s = 0;

	for (int i = 0; i < 4; i++)
		s += (double)rnd32() * 0x1p-32 - 0.5;
	return s * 1.7320508;
}

static double rounded(enum type t, double x)
{
	if (t == F32)
		return (double)(float)x;
	if (t == BF16)
		return (double)(float)(bf16)(float)x;
	return x;
}

static void put(enum type t, void *p, int64_t i, double x)
{
	if (t == F32)
		((float *)p)[i] = (float)x;
	else if (t == BF16)
		((bf16 *)p)[i] = (bf16)(float)x;
	else
		((double *)p)[i] = x;
}

static double get(enum type t, const void *p, int64_t i)
{
	if (t == F32)
		return (double)((const float *)p)[i];
	if (t == BF16)
		return (double)(float)((const bf16 *)p)[i];
	return ((const double *)p)[i];
}

static void upload(struct arr *a)
{
	std::vector<char> all(a->bytes + 2 * GUARD, (char)0xa5);

	memcpy(all.data() + GUARD, a->init.data(), a->bytes);
	if (device_copy(queue, a->dev - GUARD, all.data(), all.size(),
			&error) ||
	    device_queue_wait(queue, &error))
		die("upload");
}

static struct arr *arr_new(enum type t, int64_t n, bool out)
{
	struct arr *a = new struct arr();

	a->type = t;
	a->n = n;
	a->out = out;
	a->bytes = (size_t)n * type_size[t];
	a->tol = t == BF16 ? 3e-3 : t == F64 ? 1e-6 : 2e-6;
	a->init.resize(a->bytes + 1);
	a->dev = (char *)device_alloc(a->bytes + 2 * GUARD, &error);
	if (!a->dev)
		die("allocate");
	a->dev += GUARD;
	arrays.push_back(a);
	return a;
}

static struct arr *with(enum type t, const std::vector<double> &x, bool out)
{
	struct arr *a = arr_new(t, (int64_t)x.size(), out);

	for (int64_t i = 0; i < a->n; i++) {
		a->ref.push_back(rounded(t, x[i]));
		put(t, a->init.data(), i, a->ref[i]);
	}
	upload(a);
	return a;
}

static std::vector<double> randoms(int64_t n, double scale)
{
	std::vector<double> x((size_t)n);

	for (double &v : x)
		v = rnd() * scale;
	return x;
}

static struct arr *in(enum type t, int64_t n, double scale = 1)
{
	return with(t, randoms(n, scale), false);
}

/* Read and written. */
static struct arr *inout(enum type t, int64_t n, double scale = 1)
{
	return with(t, randoms(n, scale), true);
}

/* Only written: NaN before. */
static struct arr *out(enum type t, int64_t n)
{
	struct arr *a = arr_new(t, n, true);

	a->ref.assign((size_t)n, NAN);
	memset(a->init.data(), 0xff, a->bytes);
	upload(a);
	return a;
}

static struct arr *ints(int64_t n, int32_t lo, int32_t hi)
{
	struct arr *a = arr_new(I32, n, false);

	for (int64_t i = 0; i < n; i++) {
		uint32_t r = rnd32();

		if (rnd32() % 4 == 0)
			r %= 3; /* some come often */
		a->ints.push_back(lo + (int32_t)(r % (uint32_t)(hi - lo)));
	}
	memcpy(a->init.data(), a->ints.data(), a->bytes);
	upload(a);
	return a;
}

static void *ref(struct arr *a)
{
	return a ? a->ref.data() : NULL;
}

static void *dev(struct arr *a)
{
	return a ? a->dev : NULL;
}

static void download(struct arr *a, std::vector<char> &to, bool *guarded)
{
	std::vector<char> all(a->bytes + 2 * GUARD);

	if (device_copy(queue, all.data(), a->dev - GUARD, all.size(),
			&error) ||
	    device_queue_wait(queue, &error))
		die("download");
	to.assign(all.begin() + GUARD, all.end() - GUARD);
	for (size_t i = 0; i < GUARD; i++)
		if (all[i] != (char)0xa5 ||
		    all[GUARD + a->bytes + i] != (char)0xa5)
			*guarded = false;
}

/* ||got - ref|| / ||ref||; of an array of zeros, ||got||. */
static double distance(struct arr *a)
{
	double d = 0, r = 0;

	for (int64_t i = 0; i < a->n; i++) {
		double x = get(a->type, a->got.data(), i) - a->ref[i];

		d += x * x;
		r += a->ref[i] * a->ref[i];
	}
	return sqrt(d) / (r > 0 ? sqrt(r) : 1);
}

static void release(void)
{
	for (struct arr *a : arrays) {
		device_free(a->dev - GUARD);
		delete a;
	}
	arrays.clear();
}

/* Run both sides and print a line of TAP; frees all arrays. */
template <typename CPU, typename GPU>
static void check(CPU cpu, GPU gpu, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
template <typename CPU, typename GPU>
static void check(CPU cpu, GPU gpu, const char *fmt, ...)
{
	bool same = true, guarded = true, close = true;
	char name[160], numbers[200] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	cpu();
	gpu();
	for (struct arr *a : arrays)
		if (a->out)
			download(a, a->got, &guarded);
	for (struct arr *a : arrays)
		if (a->out)
			upload(a);
	gpu();
	for (struct arr *a : arrays) {
		std::vector<char> again;
		size_t len = strlen(numbers);
		double d;

		if (!a->out)
			continue;
		download(a, again, &guarded);
		same = same && again == a->got;
		d = distance(a);
		close = close && d <= a->tol;
		snprintf(numbers + len, sizeof(numbers) - len, " %.1e", d);
	}
	tests++;
	failures += !(same && guarded && close);
	printf("%sok %d - %s%s%s%s%s\n", same && guarded && close ? "" : "not ",
	       tests, name, numbers, close ? "" : ", too far",
	       same ? "" : ", differs from run to run",
	       guarded ? "" : ", wrote outside");
	fflush(stdout);
	release();
}

#define CPU kern_cpu_f64
/* A call for each side: P(x) is the array's pointer there. */
#define BOTH(k, op, ...)                                            \
	[&] {                                                       \
		auto P = ref;                                       \
		auto &drop = drop_ref;             \
		(void)P, (void)drop, (void)key;                     \
		CPU.op(NULL, __VA_ARGS__);                          \
	},                                                          \
	[&] {                                                       \
		auto P = dev;                                       \
		auto &drop = drop_dev;                              \
		(void)P, (void)drop;                                \
		(k).op(queue, __VA_ARGS__);                         \
	}

static uint64_t key_ref[2];
static uint64_t *key_dev;
static struct kern_drop drop_ref, drop_dev;

static void drop_set(double p, int64_t row0)
{
	key_ref[0] = (uint64_t)rnd32() << 32 | rnd32();
	key_ref[1] = rnd32();
	if (device_copy(queue, key_dev, key_ref, sizeof(key_ref), &error) ||
	    device_queue_wait(queue, &error))
		die("key");
	drop_ref = {p, key_ref, 7, row0};
	drop_dev = {p, key_dev, 7, row0};
}

static const void *ids_ref(struct arr *a)
{
	return a->ints.data();
}

static void test_embed(const struct kern &k, enum type t, int64_t C)
{
	int64_t N = 777, first = 100, rows = 301, T = 100, row0 = 37;
	struct arr *ids = ints(N, 0, 500), *y = out(t, N * C);
	struct arr *w = in(t, rows * C), *dw, *dy;

	check([&] { CPU.embed_fwd(NULL, ref(y), (int32_t *)ids_ref(ids), ref(w),
				  N, C, first, rows); },
	      [&] { k.embed_fwd(queue, dev(y), (int32_t *)dev(ids), dev(w), N,
				C, first, rows); },
	      "%s embed_fwd C %ld", k.name, C);
	ids = ints(N, 90, 500);
	dw = inout(F32, rows * C);
	dy = in(t, N * C);
	check([&] { CPU.embed_bwd(NULL, ref(dw), ref(dy),
				  (int32_t *)ids_ref(ids), N, C, first, rows); },
	      [&] { k.embed_bwd(queue, dev(dw), dev(dy), (int32_t *)dev(ids), N,
				C, first, rows); },
	      "%s embed_bwd C %ld", k.name, C);
	y = inout(t, N * C);
	w = in(t, T * C);
	check(BOTH(k, pos_fwd, P(y), P(w), N, C, T, row0), "%s pos_fwd C %ld",
	      k.name, C);
	dw = inout(F32, T * C);
	dy = in(t, N * C);
	check(BOTH(k, pos_bwd, P(dw), P(dy), N, C, T, row0), "%s pos_bwd C %ld",
	      k.name, C);
	dw = inout(F32, T * C);
	dy = in(t, 30 * C);
	check(BOTH(k, pos_bwd, P(dw), P(dy), 30, C, T, 90),
	      "%s pos_bwd part C %ld", k.name, C);
}

static void test_drop(const struct kern &k, enum type t, int64_t C, double p)
{
	int64_t N = 131;
	struct arr *x = in(t, N * C), *y = out(t, N * C), *b, *bias;

	drop_set(p, 5);
	check(BOTH(k, drop, P(y), P(x), N, C, &drop), "%s drop C %ld p %g",
	      k.name, C, p);
	y = inout(t, N * C);
	check(BOTH(k, drop, P(y), P(y), N, C, &drop),
	      "%s drop in place C %ld p %g", k.name, C, p);
	for (int with_bias = 0; with_bias < 2; with_bias++) {
		x = in(t, N * C);
		b = in(t, N * C);
		bias = with_bias ? in(t, C) : NULL;
		y = out(t, N * C);
		check(BOTH(k, resid, P(y), P(x), P(b), P(bias), N, C, &drop),
		      "%s resid C %ld p %g bias %d", k.name, C, p, with_bias);
	}
}

static void test_norm(const struct kern &k, enum type t, int64_t C, bool rms,
		      bool branch, bool zero_centered)
{
	int64_t N = 67;
	struct kern_norm_dims dims = {N, C,
				      rms ? KERN_RMSNORM : KERN_LAYERNORM,
				      zero_centered, 1e-5};
	struct arr *y = out(t, N * C);
	struct arr *xout = branch ? out(t, N * C) : NULL;
	struct arr *stat = out(F32, N * 2), *x = in(t, N * C);
	struct arr *br = branch ? in(t, N * C) : NULL;
	struct arr *bias = branch && !rms ? in(t, C) : NULL, *w = in(t, C);
	struct arr *b = rms ? NULL : in(t, C), *dx, *dw, *db, *dy, *dres;

	drop_set(branch && C % 2 ? 0.1 : 0, 3);
	stat->tol = t == BF16 && branch ? 3e-3 : 2e-6;
	check(BOTH(k, norm_fwd, P(y), P(xout), P(stat), P(x), P(br), P(bias),
		   P(w), P(b), &dims, &drop),
	      "%s norm_fwd C %ld%s%s%s", k.name, C, rms ? " rms" : "",
	      branch ? " branch" : "", zero_centered ? " centered" : "");
	x = in(t, N * C);
	w = in(t, C);
	dy = in(t, N * C);
	stat = in(F32, N * 2, 0.5);
	dx = branch ? inout(t, N * C) : out(t, N * C);
	dres = branch ? dx : NULL;
	dw = inout(F32, C);
	db = rms ? NULL : inout(F32, C);
	check(BOTH(k, norm_bwd, P(dx), P(dw), P(db), P(dy), P(dres), P(x),
		   P(stat), P(w), &dims),
	      "%s norm_bwd C %ld%s%s%s", k.name, C, rms ? " rms" : "",
	      branch ? " residual" : "", zero_centered ? " centered" : "");
}

static void test_linear(const struct kern &k, enum type t, int64_t N,
			int64_t out_, int64_t in_)
{
	for (int with_bias = 0; with_bias < 2; with_bias++) {
		struct arr *y = out(t, N * out_), *x = in(t, N * in_);
		struct arr *w = in(t, out_ * in_);
		struct arr *b = with_bias ? in(t, out_) : NULL;

		check(BOTH(k, linear_fwd, P(y), P(x), P(w), P(b), N, out_, in_),
		      "%s linear_fwd %ld %ld %ld bias %d", k.name, N, out_, in_,
		      with_bias);
	}
	struct arr *dx = out(t, N * in_), *dy = in(t, N * out_);
	struct arr *w = in(t, out_ * in_);

	check(BOTH(k, linear_bwd_x, P(dx), P(dy), P(w), N, out_, in_),
	      "%s linear_bwd_x %ld %ld %ld", k.name, N, out_, in_);
	struct arr *dw = inout(F32, out_ * in_), *x = in(t, N * in_);

	dy = in(t, N * out_);
	check(BOTH(k, linear_bwd_w, P(dw), P(dy), P(x), N, out_, in_),
	      "%s linear_bwd_w %ld %ld %ld", k.name, N, out_, in_);
	struct arr *db = inout(F32, out_);

	dy = in(t, N * out_);
	check(BOTH(k, bias_bwd, P(db), P(dy), N, out_), "%s bias_bwd %ld %ld",
	      k.name, N, out_);
}

static void test_rope(const struct kern &k, enum type t, int64_t D, int64_t R,
		      bool interleaved, int sign)
{
	struct kern_attn_dims d = {};

	d.B = 3;
	d.T = 41;
	d.H = 6;
	d.G = 2;
	d.D = D;
	struct arr *qkv = inout(t, d.B * d.T * (d.H + 2 * d.G) * D);
	struct arr *table = in(F32, d.T * R * 2);

	check(BOTH(k, rope, P(qkv), P(table), &d, R, interleaved, sign),
	      "%s rope D %ld R %ld%s sign %d", k.name, D, R,
	      interleaved ? " interleaved" : "", sign);
}

static void test_attn(const struct kern &k, enum type t, int64_t B, int64_t T,
		      int64_t H, int64_t G, int64_t D, double p)
{
	struct kern_attn_dims d = {};
	int64_t N = B * T, row = (H + 2 * G) * D;

	drop_set(p, 1000);
	d.B = B;
	d.T = T;
	d.H = H;
	d.G = G;
	d.D = D;
	d.scale = 1.2 / sqrt((double)D);
	d.heads = H + 3;
	d.head0 = 2;
	struct kern_attn_dims dr = d, dd = d;

	dr.drop = drop_ref;
	dd.drop = drop_dev;
	std::vector<double> work(CPU.attn_scratch(&dr) / sizeof(double));
	struct arr *scratch = arr_new(F32, (int64_t)k.attn_scratch(&dd) / 4,
				      false);
	struct arr *o = out(t, N * H * D), *lse = out(F32, B * H * T);
	struct arr *qkv = in(t, N * row);
	std::vector<double> o_ref, lse_ref, qkv_ref = qkv->ref;

	o->tol = t == BF16 ? 5e-3 : 3e-6;
	lse->tol = 3e-6;
	check([&] {
		CPU.attn_fwd(NULL, ref(o), ref(lse), ref(qkv), work.data(),
			     &dr);
		o_ref = o->ref;
		lse_ref = lse->ref;
	},
	      [&] { k.attn_fwd(queue, dev(o), dev(lse), dev(qkv), dev(scratch),
			       &dd); },
	      "%s attn_fwd B %ld T %ld H %ld G %ld D %ld p %g", k.name, B, T, H,
	      G, D, p);
	scratch = arr_new(F32, (int64_t)k.attn_scratch(&dd) / 4, false);
	qkv = with(t, qkv_ref, false);
	o = with(t, o_ref, false);
	lse = with(F32, lse_ref, false);
	struct arr *dout = in(t, N * H * D), *dqkv = out(t, N * row);

	dqkv->tol = t == BF16 ? 6e-3 : 5e-6;
	check([&] { CPU.attn_bwd(NULL, ref(dqkv), ref(dout), ref(o), ref(lse),
				 ref(qkv), work.data(), &dr); },
	      [&] { k.attn_bwd(queue, dev(dqkv), dev(dout), dev(o), dev(lse),
			       dev(qkv), dev(scratch), &dd); },
	      "%s attn_bwd B %ld T %ld H %ld G %ld D %ld p %g", k.name, B, T, H,
	      G, D, p);
}

static void test_act(const struct kern &k, enum type t, int64_t N, int64_t F)
{
	for (int act = 0; act <= KERN_QUICK_GELU; act++)
		for (int gated = 0; gated < 2; gated++) {
			int64_t n = N * F * (1 + gated);
			struct arr *y = out(t, N * F), *x = in(t, n, 3);

			check(BOTH(k, act_fwd, P(y), P(x), N, F,
				   (enum kern_act)act, gated),
			      "%s act_fwd %ld %ld act %d gated %d", k.name, N,
			      F, act, gated);
			struct arr *dx = out(t, n), *dy = in(t, N * F);

			x = in(t, n, 3);
			check(BOTH(k, act_bwd, P(dx), P(dy), P(x), N, F,
				   (enum kern_act)act, gated),
			      "%s act_bwd %ld %ld act %d gated %d", k.name, N,
			      F, act, gated);
		}
}

static void test_ce(const struct kern &k, enum type t, int64_t N, int64_t V,
		    int64_t valid)
{
	int64_t first = 100;
	struct arr *m = out(F32, N), *sums = out(F32, 2 * N);
	struct arr *logits = inout(t, N * V, 4), *loss = inout(F64, 1);
	struct arr *coef = in(F64, 1);
	struct arr *labels = ints(N, -20, (int32_t)(V + 150));

	loss->tol = 2e-6;
	auto run = [&](const struct kern &k, struct queue *q, auto P,
		       const int32_t *l) {
		k.ce_max(q, P(m), P(logits), N, V, valid);
		k.ce_sums(q, P(sums), P(logits), P(m), l, N, V, valid, first);
		k.ce_grad(q, (double *)P(loss), P(logits), P(m), P(sums), l,
			  (const double *)P(coef), N, V, valid, first);
	};
	check([&] { run(CPU, NULL, ref, labels->ints.data()); },
	      [&] { run(k, queue, dev, (const int32_t *)dev(labels)); },
	      "%s ce %ld %ld valid %ld", k.name, N, V, valid);
}

static void test_optim(const struct kern &k, enum type t, int64_t n, bool decay)
{
	struct kern_adam h = {3e-3, 0.1, 0.9, 0.95, 1e-8, 0.3, 0.2, 0.7};
	struct arr *hd = arr_new(F64, sizeof(h) / 8, false);
	struct arr *p = inout(F32, n), *m = inout(F32, n, 0.1);
	struct arr *v, *g = in(F32, n), *low = NULL;
	std::vector<double> squares = randoms(n, 0.1);

	for (double &x : squares)
		x *= x;
	v = with(F32, squares, true);
	if (t == BF16)
		low = out(BF16, n);
	memcpy(hd->init.data(), &h, sizeof(h));
	upload(hd);
	check([&] {
		CPU.adamw(NULL, ref(p), ref(m), ref(v), ref(g), n, &h, decay);
		if (low)
			low->ref = p->ref;
	},
	      [&] {
		      const struct kern_adam *hp =
			      (const struct kern_adam *)dev(hd);

		      if (low)
			      kern_cuda_adamw_bf16(queue, dev(low), dev(p),
						   dev(m), dev(v), dev(g), n,
						   hp, decay);
		      else
			      k.adamw(queue, dev(p), dev(m), dev(v), dev(g), n,
				      hp, decay);
	      },
	      "%s adamw %ld decay %d", k.name, n, decay);
	struct arr *acc = inout(F64, 1), *x = in(F32, n);

	check(BOTH(k, sumsq, (double *)P(acc), P(x), n), "%s sumsq %ld", k.name,
	      n);
}

static void test_elem(const struct kern &k, enum type t, int64_t n)
{
	struct arr *x = in(t, n), *y = out(t, n);

	check(BOTH(k, copy, P(y), P(x), n), "%s copy %ld", k.name, n);
	y = out(t, n);
	check(BOTH(k, zero, P(y), n), "%s zero %ld", k.name, n);
	y = inout(t, n);
	x = in(t, n);
	check(BOTH(k, add, P(y), P(x), n), "%s add %ld", k.name, n);
	if (t != BF16)
		return;
	y = out(BF16, n);
	x = in(F32, n);
	check([&] { y->ref = x->ref; },
	      [&] { kern_cuda_cast_bf16(queue, dev(y), dev(x), n); },
	      "%s cast %ld", k.name, n);
}

static void test_all_attn(const struct kern &k, enum type t)
{
	for (int p = 0; p < 2; p++) {
		test_attn(k, t, 1, 1, 1, 1, 8, 0.2 * p);
		test_attn(k, t, 2, 100, 4, 2, 64, 0.2 * p);
		test_attn(k, t, 2, 65, 6, 2, 80, 0.2 * p);
		test_attn(k, t, 1, 257, 2, 1, 128, 0.2 * p);
		test_attn(k, t, 1, 130, 2, 2, 256, 0.2 * p);
		test_attn(k, t, 1, 91, 3, 1, 20, 0.2 * p);
		test_attn(k, t, 2, 64, 2, 2, 16, 0.2 * p);
	}
	test_attn(k, t, 2, 1000, 4, 2, 64, 0);
	test_attn(k, t, 1, 1024, 2, 1, 128, 0);
}

static void test_all(const struct kern &k, enum type t)
{
	for (int64_t C : {37, 64, 768, 2056})
		test_embed(k, t, C);
	for (int64_t C : {37, 48, 772})
		for (double p : {0.0, 0.1})
			test_drop(k, t, C, p);
	for (int64_t C : {37, 768, 1027, 4096, 9000})
		for (int i = 0; i < 4; i++)
			test_norm(k, t, C, i & 1, i & 2, i == 3);
	test_linear(k, t, 1, 1, 1);
	test_linear(k, t, 33, 65, 129);
	test_linear(k, t, 100, 50, 72);
	test_linear(k, t, 1000, 768, 512);
	test_linear(k, t, 3001, 36, 40);
	for (int i = 0; i < 4; i++) {
		test_rope(k, t, 64, i & 1 ? 32 : 16, i & 2, 1);
		test_rope(k, t, 10, i & 1 ? 5 : 3, i & 2, -1);
	}
	test_all_attn(k, t);
	test_act(k, t, 33, 65);
	test_act(k, t, 100, 256);
	test_ce(k, t, 33, 1000, 977);
	test_ce(k, t, 65, 1001, 1001);
	test_ce(k, t, 9, 50304, 50257);
	for (int64_t n : {1, 1003, 100000}) {
		test_optim(k, t, n, n & 1);
		test_elem(k, t, n);
	}
}

/* Speed, in bf16: milliseconds beside what was moved or multiplied. */
static char *area;
static size_t area_used;

static void *room(size_t bytes)
{
	void *p = area + area_used;

	area_used += (bytes + 255) / 256 * 256;
	return p;
}

static __global__ void random_kernel(uint32_t *p, size_t n)
{
	size_t step = (size_t)gridDim.x * blockDim.x;

	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
	     i += step) {
		uint32_t h = (uint32_t)i * 2654435761u;
		float x;

		h ^= h >> 15;
		h *= 2246822519u;
		h ^= h >> 13;
		x = (float)(int32_t)h * 0x1p-31f;
		h = __float_as_uint(x);
		p[i] = (h & 0xffff0000) | h >> 16; /* one float, two bf16 */
	}
}

template <typename F>
static void timed(const char *name, double bytes, double flops, F run)
{
	struct device_event *from = device_event_open(true, &error);
	struct device_event *to = device_event_open(true, &error);
	std::vector<double> all;

	for (int i = 0; i < 13; i++) {
		double ms;

		if (device_event_put(from, queue, &error))
			die(name);
		run();
		if (device_event_put(to, queue, &error) ||
		    device_queue_wait(queue, &error) ||
		    device_event_ms(&ms, from, to, &error))
			die(name);
		if (i >= 3)
			all.push_back(ms);
	}
	std::sort(all.begin(), all.end());
	double ms = all[5], floor = fmax(bytes / 4.3e9, flops / 770e9);

	printf("# %-28s %8.3f ms %7.0f GB/s %6.0f TFLOP/s  floor %7.3f  %4.1fx\n",
	       name, ms, bytes / ms * 1e-6, flops / ms * 1e-9, floor,
	       ms / floor);
	fflush(stdout);
	device_event_close(from);
	device_event_close(to);
}

static void time_attn(int64_t B, int64_t H, int64_t G, int64_t T, int64_t D,
		      double p)
{
	const struct kern &k = kern_cuda_bf16;
	struct kern_attn_dims d = {};
	double flops = 2.0 * (double)(B * H * T * T * D);
	int64_t N = B * T;
	char name[64];

	drop_set(p, 0);
	d.B = B;
	d.T = T;
	d.H = H;
	d.G = G;
	d.D = D;
	d.scale = 1 / sqrt((double)D);
	d.heads = H;
	d.drop = drop_dev;
	area_used = 0;
	void *qkv = room(2 * N * (H + 2 * G) * D), *o = room(2 * N * H * D);
	void *dout = room(2 * N * H * D), *dqkv = room(2 * N * (H + 2 * G) * D);
	void *lse = room(4 * B * H * T), *scratch = room(k.attn_scratch(&d));

	snprintf(name, sizeof(name), "attn_fwd %ldx%ld/%ld T%ld D%ld%s", B, H,
		 G, T, D, p > 0 ? " drop" : "");
	timed(name, 0, flops,
	      [&] { k.attn_fwd(queue, o, lse, qkv, scratch, &d); });
	memcpy(name + 5, "bwd", 3);
	timed(name, 0, 2.5 * flops, [&] {
		k.attn_bwd(queue, dqkv, dout, o, lse, qkv, scratch, &d);
	});
}

static void time_model(int64_t N, int64_t C, int64_t F, int64_t V, bool gated)
{
	const struct kern &k = kern_cuda_bf16;
	struct kern_norm_dims nd = {N, C, gated ? KERN_RMSNORM : KERN_LAYERNORM,
				    false, 1e-5};
	double NC = 2.0 * (double)(N * C), NF = 2.0 * (double)(N * F);
	int64_t Fx = F * (1 + gated);
	struct kern_adam h = {1e-3, 0.1, 0.9, 0.95, 1e-8, 0.3, 0.2, 0.7};
	int64_t n = 124 << 20;

	printf("# N %ld C %ld F %ld V %ld%s\n", N, C, F, V,
	       gated ? " gated" : "");
	drop_set(0, 0);
	area_used = 0;
	void *x = room(2 * N * C), *b = room(2 * N * C), *y = room(2 * N * C);
	void *xo = room(2 * N * C), *st = room(8 * N), *w = room(2 * C);
	void *w2 = room(2 * C), *dw = room(4 * C), *db = room(4 * C);
	void *f = room(2 * N * Fx), *g = room(2 * N * Fx), *hh = room(2 * N * F);
	void *wf = room(2 * Fx * C), *dwf = room(4 * Fx * C);
	void *bf = room(2 * Fx), *dbf = room(4 * Fx);
	double mul = 2.0 * (double)(N * C * Fx);

	timed("norm_fwd+resid", 4 * NC, 0, [&] {
		k.norm_fwd(queue, y, xo, st, x, b, NULL, w, gated ? NULL : w2,
			   &nd, &drop_dev);
	});
	timed("norm_bwd+dres", 4 * NC, 0, [&] {
		k.norm_bwd(queue, xo, dw, gated ? NULL : db, y, b, x, st, w,
			   &nd);
	});
	timed("resid", 3 * NC, 0,
	      [&] { k.resid(queue, xo, x, b, NULL, N, C, &drop_dev); });
	timed("linear_fwd up", 0, mul, [&] {
		k.linear_fwd(queue, f, x, wf, gated ? NULL : bf, N, Fx, C);
	});
	timed("linear_bwd_x up", 0, mul,
	      [&] { k.linear_bwd_x(queue, y, f, wf, N, Fx, C); });
	timed("linear_bwd_w up", 0, mul,
	      [&] { k.linear_bwd_w(queue, dwf, f, x, N, Fx, C); });
	timed("bias_bwd up", 2.0 * (double)(N * Fx), 0,
	      [&] { k.bias_bwd(queue, dbf, f, N, Fx); });
	enum kern_act act = gated ? KERN_SILU : KERN_GELU_TANH;

	timed("act_fwd", NF * (2 + gated), 0,
	      [&] { k.act_fwd(queue, hh, f, N, F, act, gated); });
	timed("act_bwd", NF * (3 + 2 * gated), 0,
	      [&] { k.act_bwd(queue, g, hh, f, N, F, act, gated); });
	int32_t *ids = (int32_t *)room(4 * N);
	std::vector<int32_t> host((size_t)N);

	for (int32_t &id : host)
		id = (int32_t)(rnd32() % 4 ? rnd32() % (uint32_t)V
					   : rnd32() % 20);
	if (device_copy(queue, ids, host.data(), 4 * (size_t)N, &error) ||
	    device_queue_wait(queue, &error))
		die("ids");
	void *we = room(2 * V * C), *dwe = room(4 * V * C);

	timed("embed_fwd", 2 * NC, 0,
	      [&] { k.embed_fwd(queue, y, ids, we, N, C, 0, V); });
	timed("embed_bwd", 2 * NC, 0,
	      [&] { k.embed_bwd(queue, dwe, y, ids, N, C, 0, V); });
	int64_t M = N < 16384 ? N : 16384;
	void *logits = room(2 * M * V), *m = room(4 * M), *sums = room(8 * M);
	double *loss = (double *)room(8), *coef = (double *)room(8);
	double MV = 2.0 * (double)(M * V);

	timed("ce_max", MV, 0, [&] { k.ce_max(queue, m, logits, M, V, V); });
	timed("ce_sums", MV, 0,
	      [&] { k.ce_sums(queue, sums, logits, m, ids, M, V, V, 0); });
	timed("ce_grad", 2 * MV, 0, [&] {
		k.ce_grad(queue, loss, logits, m, sums, ids, coef, M, V, V, 0);
	});
	area_used = 0;
	void *p = room(2 * n), *ma = room(4 * n), *m1 = room(4 * n);
	void *m2 = room(4 * n), *gr = room(4 * n);
	struct kern_adam *hd = (struct kern_adam *)room(sizeof(h));

	if (device_copy(queue, hd, &h, sizeof(h), &error))
		die("adam");
	timed("adamw 130M", 30.0 * (double)n, 0, [&] {
		kern_cuda_adamw_bf16(queue, p, ma, m1, m2, gr, n, hd, true);
	});
	timed("sumsq 130M", 4.0 * (double)n, 0,
	      [&] { k.sumsq(queue, loss, gr, n); });
}

static void time_all(void)
{
	size_t size = (size_t)12 << 30;

	area = (char *)device_alloc(size, &error);
	if (!area)
		die("allocate");
	random_kernel<<<4096, 256, 0, (cudaStream_t)device_queue_stream(
					     queue)>>>((uint32_t *)area,
						       size / 4);
	time_model(65536, 768, 3072, 50304, false);
	time_model(16384, 4096, 14336, 128256, true);
	if (device_queue_wait(queue, &error))
		die("time");
	random_kernel<<<4096, 256, 0, (cudaStream_t)device_queue_stream(
					     queue)>>>((uint32_t *)area,
						       size / 4);
	time_attn(64, 12, 12, 1024, 64, 0);
	time_attn(64, 12, 12, 1024, 64, 0.1);
	time_attn(2, 32, 8, 8192, 128, 0);
	device_free(area);
}

int main(int argc, char **argv)
{
	struct device_info info;
	bool timing = argc > 1 && !strcmp(argv[1], "--time");
	uint64_t seed = (uint64_t)time(NULL);

	if (!device_count()) {
		printf("1..0 # SKIP no CUDA device\n");
		return 0;
	}
	if (argc > 1 + timing)
		seed = strtoull(argv[1 + timing], NULL, 0);
	state = seed;
	kern_cpu_init(4);
	if (device_open(0, &info, &error))
		die("open");
	queue = device_queue_open(false, &error);
	key_dev = (uint64_t *)device_alloc(16, &error);
	if (!queue || !key_dev)
		die("queue");
	printf("# %s %s sm_%d%d, %ld bytes free of %ld, seed %llu\n", info.name,
	       info.id, info.major, info.minor, (long)info.free_bytes,
	       (long)info.bytes, (unsigned long long)seed);
	if (timing) {
		time_all();
	} else {
		test_all(kern_cuda_f32, F32);
		test_all(kern_cuda_bf16, BF16);
		printf("1..%d\n", tests);
	}
	device_free(key_dev);
	device_queue_close(queue);
	return failures != 0;
}
