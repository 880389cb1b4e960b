/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's ops of a generation against cpu_f64, as g-kern does it; and that
 * a text gets the same bits whatever is beside it, and however it is cut.
 *
 *	g-gen [--only TEXT] [SEED]
 */
#include "kernels/attn_plan.h"
#include "test/gpu-test.h"

static struct kern_attn_dims dims_new(int64_t B, int64_t T, int64_t H,
				      int64_t G, int64_t D, int64_t Dv)
{
	struct kern_attn_dims d = {};

	d.B = B;
	d.T = T;
	d.H = d.heads = H;
	d.G = G;
	d.D = D;
	d.Dv = Dv;
	d.scale = 1.2 / sqrt((double)D);
	return d;
}

/* Anywhere: at 0, up to the end, partly and wholly behind it. */
static std::vector<int32_t> places(int64_t B, int64_t T, int64_t room)
{
	std::vector<int32_t> pos;

	for (int64_t b = 0; b < B; b++) {
		int64_t most = room > T ? room - T : 0;
		int64_t p = b == 0   ? rnd32() % (uint32_t)(most + 1)
			    : b == 1 ? 0
			    : b == 2 ? most
			    : b == 3 ? room - T / 2
				     : room + 5;

		pos.push_back((int32_t)p);
	}
	return pos;
}

static void test_pos(const struct kern &k, enum type t, int64_t T, int64_t C,
		     int64_t shift)
{
	int64_t B = 5, room = 90;
	std::vector<int32_t> p = places(B, T, room);
	struct arr *pos = ints_of(p.data(), B);
	struct arr *y = inout(t, B * T * C), *w = in(t, room * C);
	auto at = [&](auto P) {
		return P(pos) == ref(pos) ? p.data() : (int32_t *)P(pos);
	};

	check(BOTH(k, pos_at, P(y), P(w), at(P), B, T, C, room, shift),
	      "%s pos_at T %ld C %ld shift %ld", k.name, (long)T, (long)C,
	      (long)shift);
}

static void test_rope(const struct kern &k, enum type t, int64_t T, int64_t D,
		      int64_t R, bool interleaved)
{
	struct kern_attn_dims d = dims_new(5, T, 6, 2, D, D);
	int64_t room = 90, n = d.B * T * kern_attn_row(&d);
	std::vector<int32_t> p = places(d.B, T, room);
	struct arr *pos = ints_of(p.data(), d.B), *qkv = inout(t, n);
	struct arr *table = in(F32, room * R * 2);
	auto at = [&](auto P) {
		return P(pos) == ref(pos) ? p.data() : (int32_t *)P(pos);
	};

	check(BOTH(k, rope_at, P(qkv), P(table), at(P), &d, R, interleaved,
		   room),
	      "%s rope_at T %ld D %ld R %ld interleaved %d", k.name, (long)T,
	      (long)D, (long)R, interleaved);
}

static void test_latent(const struct kern &k, enum type t, int64_t T,
			int64_t P_, int64_t R)
{
	struct kern_attn_dims d = dims_new(5, T, 3, 3, 24, 16);
	int64_t N = d.B * T, room = 90;
	std::vector<int32_t> p = places(d.B, T, room);
	struct arr *pos = ints_of(p.data(), d.B);
	struct arr *qkv = inout(t, N * kern_attn_row(&d));
	struct arr *query = in(t, N * d.H * d.D), *shared = in(t, N * P_);
	struct arr *kv = in(t, N * d.H * (d.D - P_ + d.Dv));
	struct arr *table = R ? in(F32, room * R * 2) : NULL;
	auto at = [&](auto P) {
		return P(pos) == ref(pos) ? p.data() : (int32_t *)P(pos);
	};

	check(BOTH(k, latent_at, P(qkv), P(query), P(kv), P(shared), P(table),
		   at(P), &d, P_, R, room),
	      "%s latent_at T %ld P %ld R %ld", k.name, (long)T, (long)P_,
	      (long)R);
}

static void test_attn(const struct kern &k, enum type t,
		      const struct kern_attn_dims &d, int64_t room)
{
	int64_t N = d.B * d.T, cache = d.B * d.G * room;
	std::vector<int32_t> p = places(d.B, d.T, room);
	std::vector<char> work(kern_attn_at_scratch(&d, room, CPU.size));
	struct arr *pos = ints_of(p.data(), d.B);
	struct arr *o = out(t, N * d.H * d.Dv), *keys = inout(t, cache * d.D);
	struct arr *values = inout(t, cache * d.Dv);
	struct arr *qkv = in(t, N * kern_attn_row(&d));
	struct arr *sink = d.sink == KERN_SINK_LEARNED ? in(t, d.H, 2) : NULL;
	struct arr *scratch = scratch_new(kern_attn_at_scratch_cuda(&d, room));

	o->tol = tol_of(t, 3e-6, 5e-3);
	keys->tol = values->tol = 0;
	check(
		[&] {
			CPU.attn_at(NULL, ref(o), ref(keys), ref(values),
				    ref(qkv), ref(sink), p.data(), work.data(),
				    &d, room);
		},
		[&] {
			k.attn_at(queue, dev(o), dev(keys), dev(values),
				  dev(qkv), dev(sink), (int32_t *)dev(pos),
				  dev(scratch), &d, room);
		},
		"%s attn_at B %ld T %ld H %ld G %ld D %ld %ld room %ld "
		"window %ld sink %d",
		k.name, (long)d.B, (long)d.T, (long)d.H, (long)d.G, (long)d.D,
		(long)d.Dv, (long)room, (long)d.window, (int)d.sink);
}

static void test_attns(const struct kern &k, enum type t)
{
	static const int64_t shapes[][4] = {
		/* H, G, D, Dv */
		{4, 4, 16, 16},	  {8, 2, 64, 64},  {12, 1, 128, 128},
		{3, 3, 24, 16},	  {6, 2, 7, 7},	   {5, 1, 192, 128},
		{2, 1, 576, 512}, {3, 3, 300, 260}};

	for (const int64_t *s : shapes)
		for (int64_t T : {1, 3, 70})
			for (int64_t room : {80, 600}) {
				struct kern_attn_dims d =
					dims_new(5, T, s[0], s[1], s[2], s[3]);

				test_attn(k, t, d, room);
				d.window = room == 80 ? 5 : 300;
				d.sink = T == 1 ? KERN_SINK_ZERO
						: KERN_SINK_LEARNED;
				test_attn(k, t, d, room);
			}
	/* a single key, and more queries than go together */
	test_attn(k, t, dims_new(3, 1, 2, 1, 8, 8), 1);
	test_attn(k, t, dims_new(4, 256, 32, 4, 64, 64), 4096);
}

/* Sample B of n elements each on the device. */
static char *sample(struct arr *a, int64_t b, int64_t n)
{
	return a->dev + (size_t)(b * n) * type_size[a->type];
}

/* What a run leaves of O, after it was started with nothing in the cache. */
static std::vector<char> left(struct arr *o)
{
	std::vector<char> got;
	bool guarded = true;

	download(o, got, &guarded);
	if (!guarded)
		die("wrote outside");
	return got;
}

/*
 * Samples of T tokens, all at once beside each other; then each token alone,
 * in a cache of another size.
 */
static void test_alone(const struct kern &k, enum type t,
		       const struct kern_attn_dims &d)
{
	struct kern_attn_dims one = d;
	int64_t row = kern_attn_row(&d), wide = d.H * d.Dv, room = d.T + 300;
	int64_t N = d.B * d.T;
	std::vector<int32_t> zeros((size_t)d.B, 0), steps;
	struct arr *qkv = in(t, N * row), *o = out(t, N * wide);
	struct arr *again = out(t, N * wide), *sink = in(t, d.H);
	struct arr *keys = out(t, d.B * d.G * room * d.D);
	struct arr *values = out(t, d.B * d.G * room * d.Dv), *pos, *each;
	struct arr *scratch = scratch_new(kern_attn_at_scratch_cuda(&d, room));
	char name[160];

	snprintf(name, sizeof(name), "%s attn_at alone: B %ld T %ld D %ld",
		 k.name, (long)d.B, (long)d.T, (long)d.D);
	if (!strstr(name, only)) {
		release();
		return;
	}
	for (int64_t i = 0; i < d.T; i++)
		steps.push_back((int32_t)i);
	pos = ints_of(zeros.data(), d.B);
	each = ints_of(steps.data(), d.T);
	k.attn_at(queue, dev(o), dev(keys), dev(values), dev(qkv), dev(sink),
		  (int32_t *)dev(pos), dev(scratch), &d, room);
	one.B = one.T = 1;
	for (int64_t i = 0; i < N; i++)
		k.attn_at(queue, sample(again, i, wide), dev(keys), dev(values),
			  sample(qkv, i, row), dev(sink),
			  (int32_t *)sample(each, i % d.T, 1), dev(scratch),
			  &one, d.T);
	result(left(o) == left(again), "%s", name);
	release();
}

static void test_gen(const struct kern &k, enum type t)
{
	struct kern_attn_dims d = dims_new(3, 600, 6, 2, 64, 64);

	for (int64_t T : {1, 4, 70})
		for (int64_t C : {37, 768}) {
			test_pos(k, t, T, C, 0);
			test_pos(k, t, T, C, 2);
		}
	for (int64_t T : {1, 4, 70})
		for (int interleaved = 0; interleaved < 2; interleaved++) {
			test_rope(k, t, T, 64, 32, interleaved);
			test_rope(k, t, T, 64, 8, interleaved);
			test_rope(k, t, T, 10, 5, interleaved);
		}
	for (int64_t T : {1, 4, 70}) {
		test_latent(k, t, T, 8, 4);
		test_latent(k, t, T, 6, 0);
	}
	test_attns(k, t);
	test_alone(k, t, d);
	d.window = 270;
	d.sink = KERN_SINK_LEARNED;
	test_alone(k, t, d);
	test_alone(k, t, dims_new(2, 40, 3, 3, 24, 16));
}

int main(int argc, char **argv)
{
	if (!test_open(argc, argv))
		return 0;
	test_gen(kern_cuda_f32, F32);
	test_gen(kern_cuda_bf16, BF16);
	test_gen(kern_cuda_fp16, FP16);
	return test_close();
}
