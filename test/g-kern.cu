/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of the GPU's tables but attention and experts against cpu_f64: fresh random
 * inputs, poisoned outputs between guard bands, each run twice and compared
 * bit by bit.
 *
 *	g-kern [--only TEXT] [SEED]
 */
#include "test/gpu-test.h"

static const void *ids_ref(struct arr *a)
{
	return a->ints.data();
}

static void test_embed(const struct kern &k, enum type t, int64_t C)
{
	int64_t N = 777, first = 100, rows = 301, T = 100, row0 = 37;
	struct arr *ids = ints(N, 0, 500), *y = out(t, N * C);
	struct arr *w = in(t, rows * C), *dw, *dy;

	check(
		[&] {
			CPU.embed_fwd(NULL, ref(y), (int32_t *)ids_ref(ids),
				      ref(w), N, C, first, rows);
		},
		[&] {
			k.embed_fwd(queue, dev(y), (int32_t *)dev(ids), dev(w),
				    N, C, first, rows);
		},
		"%s embed_fwd C %ld", k.name, C);
	ids = ints(N, 90, 500);
	dw = inout(F32, rows * C);
	dy = in(t, N * C);
	check(
		[&] {
			CPU.embed_bwd(NULL, ref(dw), ref(dy),
				      (int32_t *)ids_ref(ids), N, C, first,
				      rows);
		},
		[&] {
			k.embed_bwd(queue, dev(dw), dev(dy),
				    (int32_t *)dev(ids), N, C, first, rows);
		},
		"%s embed_bwd C %ld", k.name, C);
	for (int64_t shift : {0, 1, 3}) {
		y = inout(t, N * C);
		w = in(t, T * C);
		check(BOTH(k, pos_fwd, P(y), P(w), N, C, T, row0, shift),
		      "%s pos_fwd C %ld", k.name, C);
		dw = inout(F32, T * C);
		dy = in(t, N * C);
		check(BOTH(k, pos_bwd, P(dw), P(dy), N, C, T, row0, shift),
		      "%s pos_bwd C %ld", k.name, C);
		dw = inout(F32, T * C);
		dy = in(t, 30 * C);
		check(BOTH(k, pos_bwd, P(dw), P(dy), 30, C, T, 90, shift),
		      "%s pos_bwd part C %ld", k.name, C);
	}
}

static void test_drop(const struct kern &k, enum type t, int64_t C, double p)
{
	int64_t N = 131;
	struct arr *x = in(t, N * C), *y = out(t, N * C), *b, *bias;

	drop_set(p, 5);
	check(BOTH(k, drop, P(y), P(x), N, C, &drop), "%s drop C %ld p %g",
	      k.name, C, p);
	if (p > 0) {
		x = in(t, N * C);
		y = out(t, N * C);
		check(BOTH(k, jitter, P(y), P(x), N, C, &drop),
		      "%s jitter C %ld p %g", k.name, C, p);
	}
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
	struct kern_norm_dims dims = {N, C, rms ? KERN_RMSNORM : KERN_LAYERNORM,
				      zero_centered, 1e-5};
	struct arr *y = out(t, N * C);
	struct arr *xout = branch ? out(t, N * C) : NULL;
	struct arr *stat = out(F32, N * 2), *x = in(t, N * C);
	struct arr *br = branch ? in(t, N * C) : NULL;
	struct arr *bias = branch && !rms ? in(t, C) : NULL, *w = in(t, C);
	struct arr *b = rms ? NULL : in(t, C), *dx, *dw, *db, *dy, *dres;

	drop_set(branch && C % 2 ? 0.1 : 0, 3);
	stat->tol = branch ? tol_of(t, 2e-6, 3e-3) : 2e-6;
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
		y = out(F32, N * out_);
		x = in(t, N * in_);
		w = in(t, out_ * in_);
		b = with_bias ? in(t, out_) : NULL;
		check(BOTH(k, linear_sum, P(y), P(x), P(w), P(b), N, out_, in_),
		      "%s linear_sum %ld %ld %ld bias %d", k.name, N, out_, in_,
		      with_bias);
	}
	struct arr *dx = out(t, N * in_), *dy = in(t, N * out_);
	struct arr *x = in(t, N * in_), *w = in(t, out_ * in_);

	check(BOTH(k, linear_bwd_x, P(dx), P(dy), P(w), N, out_, in_),
	      "%s linear_bwd_x %ld %ld %ld", k.name, N, out_, in_);
	struct arr *dw = inout(F32, out_ * in_);

	x = in(t, N * in_);
	dy = in(t, N * out_);
	check(BOTH(k, linear_bwd_w, P(dw), P(dy), P(x), N, out_, in_),
	      "%s linear_bwd_w %ld %ld %ld", k.name, N, out_, in_);
	struct arr *db = inout(F32, out_);

	dy = in(t, N * out_);
	check(BOTH(k, bias_bwd, P(db), P(dy), N, out_), "%s bias_bwd %ld %ld",
	      k.name, N, out_);
}

/* Both ops of latent attention's heads. */
static void test_latent(const struct kern &k, enum type t, int64_t H, int64_t D,
			int64_t Dv, int64_t part, int64_t R)
{
	struct kern_attn_dims d = {};
	int64_t N = 2 * 33, wide = H * (D - part + Dv);

	d.B = 2;
	d.T = 33;
	d.H = d.G = H;
	d.D = D;
	d.Dv = Dv;
	struct arr *qkv = out(t, N * kern_attn_row(&d));
	struct arr *query = in(t, N * H * D), *kv = in(t, N * wide);
	struct arr *pos = in(t, N * part), *table = in(F32, d.T * 2 * R);

	check(BOTH(k, latent_fwd, P(qkv), P(query), P(kv), P(pos), P(table), &d,
		   part, R),
	      "%s latent_fwd H %ld D %ld Dv %ld P %ld R %ld", k.name, H, D, Dv,
	      part, R);
	struct arr *dqkv = in(t, N * kern_attn_row(&d));
	struct arr *dquery = out(t, N * H * D), *dkv = out(t, N * wide);
	struct arr *dpos = out(t, N * part);

	table = in(F32, d.T * 2 * R);
	check(BOTH(k, latent_bwd, P(dquery), P(dkv), P(dpos), P(dqkv), P(table),
		   &d, part, R),
	      "%s latent_bwd H %ld D %ld Dv %ld P %ld R %ld", k.name, H, D, Dv,
	      part, R);
}

static void test_rope(const struct kern &k, enum type t, int64_t D, int64_t R,
		      bool interleaved, int sign)
{
	struct kern_attn_dims d = {};

	d.B = 3;
	d.T = 41;
	d.H = 6;
	d.G = 2;
	d.D = d.Dv = D;
	struct arr *qkv = inout(t, d.B * d.T * (d.H + 2 * d.G) * D);
	struct arr *table = in(F32, d.T * R * 2);

	check(BOTH(k, rope, P(qkv), P(table), &d, R, interleaved, sign),
	      "%s rope D %ld R %ld%s sign %d", k.name, D, R,
	      interleaved ? " interleaved" : "", sign);
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
	/* a loss is scaled in fp16, or its gradients vanish */
	struct arr *coef = in(F64, 1, t == FP16 ? 1024 : 1);
	struct arr *right = inout(F64, 1);
	struct arr *labels = ints(N, -20, (int32_t)(V + 150));

	loss->tol = 2e-6;
	auto run = [&](const struct kern &k, struct queue *q, auto P,
		       const int32_t *l) {
		k.ce_max(q, P(m), P(logits), N, V, valid);
		k.ce_sums(q, P(sums), P(logits), P(m), l, N, V, valid, first);
		k.ce_grad(q, (double *)P(loss), (double *)P(right), P(logits),
			  P(m), P(sums), l, (const double *)P(coef), N, V,
			  valid, first);
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
	if (t != F32)
		low = out(t, n);
	memcpy(hd->init.data(), &h, sizeof(h));
	upload(hd);
	check(
		[&] {
			CPU.adamw(NULL, ref(p), NULL, ref(m), ref(v), ref(g), n,
				  &h, decay);
			if (low)
				low->ref = p->ref;
		},
		[&] {
			k.adamw(queue, dev(low ? low : p), low ? dev(p) : NULL,
				dev(m), dev(v), dev(g), n,
				(const struct kern_adam *)dev(hd), decay);
		},
		"%s adamw %ld decay %d", k.name, n, decay);
	struct arr *acc = inout(F64, 1), *x = in(F32, n);

	check(BOTH(k, sumsq, (double *)P(acc), P(x), n), "%s sumsq %ld", k.name,
	      n);
}

static void test_scalars(const struct kern &k, bool counts, double clip)
{
	int64_t M = 7;
	int64_t depths = 3;
	struct kern_scalars s = {};
	std::vector<double> words(sizeof(s) / sizeof(double));

	s.key[0] = 1;
	s.key[1] = 2;
	s.clip = clip;
	s.metrics[METRIC_SUMSQ] = 2;
	s.metrics[METRIC_SUMSQ + GRADS_MTP] = 3;
	s.metrics[METRIC_TOKENS] = 5;
	s.per_token = counts;
	s.tokens = 11;
	for (int k = 0; k < 3; k++)
		s.mtp_tokens[k] = 7 + k;
	s.loss_scale = 64;
	s.stop = 1;
	memcpy(words.data(), &s, sizeof(s));
	struct arr *a = with(F64, words, true), *coef = in(F64, M);
	struct arr *loss = in(F64, M * (1 + depths));
	struct arr *share = in(F64, M * depths), *right = in(F64, M * depths);

	a->tol = 1e-14;
	check(BOTH(k, metrics, (struct kern_scalars *)P(a), (double *)P(loss),
		   (double *)P(coef), (double *)P(share), (double *)P(right), M,
		   depths, counts),
	      "%s metrics counts %d", k.name, counts);
	a = with(F64, words, true);
	a->tol = 1e-14;
	check(BOTH(k, clip, (struct kern_scalars *)P(a)),
	      "%s clip %g per token %d", k.name, clip, counts);
}

/* A gradient that fp16 cannot hold is found, and the step is skipped. */
static void test_overflow(void)
{
	const struct kern &k = kern_cuda_fp16;
	int64_t N = 48, C = 64;
	std::vector<double> large((size_t)(N * C), 6e4);
	struct kern_scalars s = {}, got;
	std::vector<double> words(sizeof(s) / sizeof(double));
	struct arr *dy = with(FP16, large, false), *w = in(FP16, C * C);
	struct arr *dx = out(FP16, N * C), *x = in(FP16, N * C);
	struct arr *dw = inout(F32, C * C), *a;

	s.loss_scale = 1024;
	memcpy(words.data(), &s, sizeof(s));
	a = with(F64, words, true);
	k.linear_bwd_x(queue, dev(dx), dev(dy), dev(w), N, C, C);
	k.linear_bwd_w(queue, dev(dw), dev(dx), dev(x), N, C, C);
	k.sumsq(queue, ((struct kern_scalars *)dev(a))->metrics + METRIC_SUMSQ,
		dev(dw), dw->n);
	k.clip(queue, (struct kern_scalars *)dev(a));
	if (device_copy(queue, &got, dev(a), sizeof(got), &error) ||
	    device_queue_wait(queue, &error))
		die("scalars");
	result(!finite(dx) && !finite(dw) && got.adam[0].skip == 1,
	       "%s too large a gradient skips the step", k.name);
	release();
}

static void test_elem(const struct kern &k, enum type t, int64_t n)
{
	struct arr *x = in(t, n), *y = out(t, n);
	int64_t bytes = n * (int64_t)type_size[t];

	check([&] { CPU.copy(NULL, ref(y), ref(x), 8 * n); },
	      [&] { k.copy(queue, dev(y), dev(x), bytes); }, "%s copy %ld",
	      k.name, n);
	struct arr *z = out(t, 3 * n);
	x = in(t, n);
	check([&] { CPU.join(NULL, ref(z), NULL, ref(x), ref(x), n, 8, 8, 8); },
	      [&] {
		      k.join(queue, dev(z), NULL, dev(x), dev(x), n,
			     type_size[t], type_size[t], type_size[t]);
	      },
	      "%s join %ld", k.name, n);
	z = in(t, 3 * n);
	y = out(t, n);
	check([&] { CPU.cut(NULL, ref(y), ref(z), n, 8, 24); },
	      [&] {
		      k.cut(queue, dev(y), dev(z), n, type_size[t],
			    3 * type_size[t]);
	      },
	      "%s cut %ld", k.name, n);
	y = out(t, n);
	check([&] { CPU.zero(NULL, ref(y), 8 * n); },
	      [&] { k.zero(queue, dev(y), bytes); }, "%s zero %ld", k.name, n);
}

/* Every shift of two micro-batches, of all rows and of those from a sixth on. */
static void test_mix(const struct kern &k, enum type t, int64_t C, bool docs,
		     bool forward)
{
	int64_t T = 24, N = 2 * T, at = docs ? 8 : 0, wide = C * type_size[t];
	auto op = forward ? CPU.mix_fwd : CPU.mix_bwd;
	auto there = forward ? k.mix_fwd : k.mix_bwd;

	drop_set(0.5, 2 * N + at);
	for (int64_t s = 0; s < 4; s++) {
		struct arr *x = in(t, N * C), *doc = ints(N, 0, 3);
		struct arr *y = forward ? inout(t, T * C) : out(t, T * C);

		check(
			[&] {
				auto d = (const int32_t *)ids_ref(doc) + at;

				op(NULL, ref(y), (double *)ref(x) + at * C,
				   docs ? d : NULL, T, 8 * C, T, s, 4,
				   &drop_ref);
			},
			[&] {
				auto d = (const int32_t *)dev(doc) + at;

				there(queue, dev(y), (char *)dev(x) + at * wide,
				      docs ? d : NULL, T, wide, T, s, 4,
				      &drop_dev);
			},
			"%s mix_%s C %ld shift %ld", k.name,
			forward ? "fwd" : "bwd", C, s);
	}
}

static void test_all(const struct kern &k, enum type t)
{
	for (int64_t C : {37, 64, 768, 2056})
		test_embed(k, t, C);
	for (int64_t C : {37, 48, 772})
		for (double p : {0.0, 0.1})
			test_drop(k, t, C, p);
	for (int64_t C : {37, 48})
		for (bool docs : {false, true})
			for (bool forward : {false, true})
				test_mix(k, t, C, docs, forward);
	for (int64_t C : {37, 768, 1000, 1027, 4096, 9000, 20000})
		for (int i = 0; i < 4; i++)
			test_norm(k, t, C, i & 1, i & 2, i == 3);
	test_linear(k, t, 1, 1, 1);
	test_linear(k, t, 33, 65, 129);
	test_linear(k, t, 100, 50, 72);
	test_linear(k, t, 1000, 768, 512);
	test_linear(k, t, 3001, 36, 40);
	for (int i = 0; i < 4; i++) {
		test_latent(k, t, 3, i & 1 ? 192 : 24, i & 2 ? 128 : 16,
			    i & 1 ? 64 : 8, i & 1 ? 32 : 3);
		test_rope(k, t, 64, i & 1 ? 32 : 16, i & 2, 1);
		test_rope(k, t, 10, i & 1 ? 5 : 3, i & 2, -1);
	}
	test_act(k, t, 33, 65);
	test_act(k, t, 100, 256);
	test_ce(k, t, 33, 1000, 977);
	test_ce(k, t, 65, 1001, 1001);
	test_ce(k, t, 9, 50304, 50257);
	for (int64_t n : {1, 1003, 100000}) {
		test_optim(k, t, n, n & 1);
		test_elem(k, t, n);
	}
	for (double clip : {0.0, 0.1, 1e3}) {
		test_scalars(k, false, clip);
		test_scalars(k, true, clip);
	}
}

int main(int argc, char **argv)
{
	if (!test_open(argc, argv))
		return 0;
	test_all(kern_cuda_f32, F32);
	test_all(kern_cuda_bf16, BF16);
	test_all(kern_cuda_fp16, FP16);
	test_overflow();
	return test_close();
}
