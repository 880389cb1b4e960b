/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times every op at the sizes of a small model:
 * ops [f32|f64 [threads [dropout]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kern.h"

enum {
	LAYERS = 8,
	B = 8,
	T = 256,
	C = 512,
	H = 8,
	D = 64,
	F = 2048,
	V = 32000,
	N = B * T,
	QKV = 3 * C,
	CHUNK = 512, /* rows of logits at a time */
	PARAMS = LAYERS * (4 * C * C + 2 * C * F) + 2 * V * C
};

/* One buffer serves all the places that may share contents. */
static struct {
	void *x, *y, *z, *w, *dw, *qkv, *dqkv, *wide, *dwide, *logits, *stat;
	void *lse, *scratch, *p, *m, *v, *g, *table, *sums;
	int32_t *ids;
} a;

static uint64_t key[2] = {1, 2};
static struct kern_drop drop = {.key = key};
static struct kern_norm_dims norm = {N, C, KERN_RMSNORM, false, 1e-5};
static struct kern_attn_dims attn = {
	.B = B, .T = T, .H = H, .G = H, .D = D, .Dv = D, .scale = 0.125, .heads = H};
static const struct kern_adam adam = {1e-4, 0.1, 0.9, 0.95,
				      1e-8, 0.1, 0.1, 1.0};

static void embed_fwd(const struct kern *k)
{
	k->embed_fwd(NULL, a.x, a.ids, a.w, N, C, 0, V);
}

static void embed_bwd(const struct kern *k)
{
	k->embed_bwd(NULL, a.dw, a.x, a.ids, N, C, 0, V);
}

static void drop_fwd(const struct kern *k)
{
	k->drop(NULL, a.y, a.x, N, C, &drop);
}

static void norm_fwd(const struct kern *k)
{
	k->norm_fwd(NULL, a.y, a.z, a.stat, a.x, a.x, NULL, a.w, NULL, &norm,
		    &drop);
}

static void norm_bwd(const struct kern *k)
{
	k->norm_bwd(NULL, a.z, a.dw, NULL, a.y, a.z, a.x, a.stat, a.w, &norm);
}

static void qkv_fwd(const struct kern *k)
{
	k->linear_fwd(NULL, a.qkv, a.x, a.w, NULL, N, QKV, C);
}

static void qkv_bwd_x(const struct kern *k)
{
	k->linear_bwd_x(NULL, a.y, a.qkv, a.w, N, QKV, C);
}

static void qkv_bwd_w(const struct kern *k)
{
	k->linear_bwd_w(NULL, a.dw, a.qkv, a.x, N, QKV, C);
}

static void proj_fwd(const struct kern *k)
{
	k->linear_fwd(NULL, a.y, a.x, a.w, NULL, N, C, C);
}

static void proj_bwd_x(const struct kern *k)
{
	k->linear_bwd_x(NULL, a.y, a.x, a.w, N, C, C);
}

static void proj_bwd_w(const struct kern *k)
{
	k->linear_bwd_w(NULL, a.dw, a.y, a.x, N, C, C);
}

static void fc1_fwd(const struct kern *k)
{
	k->linear_fwd(NULL, a.wide, a.x, a.w, NULL, N, F, C);
}

static void fc1_bwd_x(const struct kern *k)
{
	k->linear_bwd_x(NULL, a.y, a.wide, a.w, N, F, C);
}

static void fc1_bwd_w(const struct kern *k)
{
	k->linear_bwd_w(NULL, a.dw, a.wide, a.x, N, F, C);
}

static void fc2_fwd(const struct kern *k)
{
	k->linear_fwd(NULL, a.y, a.wide, a.w, NULL, N, C, F);
}

static void fc2_bwd_x(const struct kern *k)
{
	k->linear_bwd_x(NULL, a.dwide, a.x, a.w, N, C, F);
}

static void fc2_bwd_w(const struct kern *k)
{
	k->linear_bwd_w(NULL, a.dw, a.x, a.wide, N, C, F);
}

static void bias_bwd(const struct kern *k)
{
	k->bias_bwd(NULL, a.dw, a.wide, N, F);
}

static void rope(const struct kern *k)
{
	k->rope(NULL, a.qkv, a.table, &attn, D / 2, false, 1);
}

static void attn_fwd(const struct kern *k)
{
	k->attn_fwd(NULL, a.x, a.lse, a.qkv, NULL, NULL, a.scratch, &attn);
}

static void attn_bwd(const struct kern *k)
{
	k->attn_bwd(NULL, a.dqkv, NULL, a.x, a.x, a.lse, a.qkv, NULL, NULL, a.scratch, &attn);
}

static void gelu_fwd(const struct kern *k)
{
	k->act_fwd(NULL, a.dwide, a.wide, N, F, KERN_GELU, false);
}

static void gelu_bwd(const struct kern *k)
{
	k->act_bwd(NULL, a.dwide, a.wide, a.wide, N, F, KERN_GELU, false);
}

static void swiglu_fwd(const struct kern *k)
{
	k->act_fwd(NULL, a.dwide, a.wide, N, F / 2, KERN_SILU, true);
}

static void swiglu_bwd(const struct kern *k)
{
	k->act_bwd(NULL, a.dwide, a.qkv, a.wide, N, F / 2, KERN_SILU, true);
}

static void head_fwd(const struct kern *k)
{
	k->linear_fwd(NULL, a.logits, a.x, a.w, NULL, CHUNK, V, C);
}

static void head_bwd_x(const struct kern *k)
{
	k->linear_bwd_x(NULL, a.y, a.logits, a.w, CHUNK, V, C);
}

static void head_bwd_w(const struct kern *k)
{
	k->linear_bwd_w(NULL, a.dw, a.logits, a.x, CHUNK, V, C);
}

static void ce_max(const struct kern *k)
{
	k->ce_max(NULL, a.lse, a.logits, CHUNK, V, V);
}

static void ce_sums(const struct kern *k)
{
	k->ce_sums(NULL, a.sums, a.logits, a.lse, a.ids, CHUNK, V, V, 0);
}

static void ce_grad(const struct kern *k)
{
	static const double coef = 1e-3;
	static double loss;

	k->ce_grad(NULL, &loss, a.logits, a.lse, a.sums, a.ids, &coef, CHUNK, V,
		   V, 0);
}

static void sumsq(const struct kern *k)
{
	double acc = 0;

	k->sumsq(NULL, &acc, a.g, PARAMS);
}

static void adamw(const struct kern *k)
{
	k->adamw(NULL, a.p, NULL, a.m, a.v, a.g, PARAMS, &adam, true);
}

static void zero(const struct kern *k)
{
	k->zero(NULL, a.dw, PARAMS * (int64_t)k->size);
}

static void copy(const struct kern *k)
{
	k->copy(NULL, a.p, a.g, PARAMS * (int64_t)k->size);
}

/*
 * COUNT: how often a step of the model runs it; ELEMS: elements moved from
 * and to memory; FLOPS: twice the multiplications.
 */
static const struct op {
	const char *name;
	void (*run)(const struct kern *k);
	double count, elems, flops;
} ops[] = {
	{"embed_fwd", embed_fwd, 1, 2.0 * N *C, 0},
	{"embed_bwd", embed_bwd, 1, 3.0 * N *C, 0},
	{"drop", drop_fwd, 0, 2.0 * N *C, 0},
	{"norm_fwd", norm_fwd, 2 * LAYERS + 1, 4.0 * N *C, 0},
	{"norm_bwd", norm_bwd, 2 * LAYERS + 1, 4.0 * N *C, 0},
	{"qkv fwd", qkv_fwd, LAYERS, 0, 2.0 * N *C *QKV},
	{"qkv bwd_x", qkv_bwd_x, LAYERS, 0, 2.0 * N *C *QKV},
	{"qkv bwd_w", qkv_bwd_w, LAYERS, 0, 2.0 * N *C *QKV},
	{"rope", rope, 2 * LAYERS, 4.0 * N *C, 0},
	{"attn_fwd", attn_fwd, LAYERS, 0, 2.0 * N *T *C},
	{"attn_bwd", attn_bwd, LAYERS, 0, 5.0 * N *T *C},
	{"proj fwd", proj_fwd, LAYERS, 0, 2.0 * N *C *C},
	{"proj bwd_x", proj_bwd_x, LAYERS, 0, 2.0 * N *C *C},
	{"proj bwd_w", proj_bwd_w, LAYERS, 0, 2.0 * N *C *C},
	{"fc1 fwd", fc1_fwd, LAYERS, 0, 2.0 * N *C *F},
	{"fc1 bwd_x", fc1_bwd_x, LAYERS, 0, 2.0 * N *C *F},
	{"fc1 bwd_w", fc1_bwd_w, LAYERS, 0, 2.0 * N *C *F},
	{"act_fwd gelu", gelu_fwd, LAYERS, 2.0 * N *F, 0},
	{"act_bwd gelu", gelu_bwd, LAYERS, 3.0 * N *F, 0},
	{"act_fwd swiglu", swiglu_fwd, 0, 1.5 * N *F, 0},
	{"act_bwd swiglu", swiglu_bwd, 0, 2.5 * N *F, 0},
	{"fc2 fwd", fc2_fwd, LAYERS, 0, 2.0 * N *C *F},
	{"fc2 bwd_x", fc2_bwd_x, LAYERS, 0, 2.0 * N *C *F},
	{"fc2 bwd_w", fc2_bwd_w, LAYERS, 0, 2.0 * N *C *F},
	{"bias_bwd", bias_bwd, 0, 1.0 * N *F, 0},
	{"head fwd", head_fwd, N / CHUNK, 0, 2.0 * CHUNK *C *V},
	{"ce_max", ce_max, N / CHUNK, 1.0 * CHUNK *V, 0},
	{"ce_sums", ce_sums, N / CHUNK, 1.0 * CHUNK *V, 0},
	{"ce_grad", ce_grad, N / CHUNK, 2.0 * CHUNK *V, 0},
	{"head bwd_x", head_bwd_x, N / CHUNK, 0, 2.0 * CHUNK *C *V},
	{"head bwd_w", head_bwd_w, N / CHUNK, 0, 2.0 * CHUNK *C *V},
	{"sumsq", sumsq, 1, 1.0 * PARAMS, 0},
	{"adamw", adamw, 1, 7.0 * PARAMS, 0},
	{"zero", zero, 1, 1.0 * PARAMS, 0},
	{"copy", copy, 0, 2.0 * PARAMS, 0},
};

enum { OPS = sizeof(ops) / sizeof(ops[0]) };

/* N elements between -1 and 1. */
static void *make(const struct kern *k, int64_t n)
{
	void *x = aligned_alloc(64, (n * k->size + 63) / 64 * 64);
	uint64_t s = 12345;

	if (!x)
		abort();
	for (int64_t i = 0; i < n; i++) {
		double r;

		s = s * 6364136223846793005 + 1442695040888963407;
		r = (double)(int32_t)(s >> 32) * 0x1p-31;
		if (k->size == sizeof(float))
			((float *)x)[i] = (float)r;
		else
			((double *)x)[i] = r;
	}
	return x;
}

/* Rotations by the angle 1, which keep what is rotated over and over. */
static void *make_table(const struct kern *k)
{
	void *x = make(k, T * D);

	for (int i = 0; i < T * D; i++)
		if (k->size == sizeof(float))
			((float *)x)[i] = i % 2 ? 0.841470985f : 0.540302306f;
		else
			((double *)x)[i] = i % 2 ? 0.841470985 : 0.540302306;
	return x;
}

static void make_all(const struct kern *k)
{
	a.x = make(k, N * C);
	a.y = make(k, N * C);
	a.z = make(k, N * C);
	a.w = make(k, (int64_t)V * C);
	a.dw = make(k, PARAMS);
	a.qkv = make(k, N * QKV);
	a.dqkv = make(k, N * QKV);
	a.wide = make(k, (int64_t)N * F);
	a.dwide = make(k, (int64_t)N * F);
	a.logits = make(k, (int64_t)CHUNK * V);
	a.stat = make(k, 2 * N);
	a.lse = make(k, N * H);
	a.sums = make(k, 2 * N);
	a.table = make_table(k);
	a.scratch = make(k, (int64_t)(k->attn_scratch(&attn) / k->size));
	a.p = make(k, PARAMS);
	a.m = make(k, PARAMS);
	a.v = make(k, PARAMS);
	a.g = make(k, PARAMS);
	a.ids = malloc(N * sizeof(*a.ids));
	if (!a.ids)
		abort();
	for (int i = 0; i < N; i++)
		a.ids[i] = (int32_t)((int64_t)i * 7919 % V);
	memset(a.v, 0, PARAMS * k->size);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The least of several runs, in seconds: others share the machine. */
static double least(const struct op *op, const struct kern *k)
{
	double best = 1e9, begin = now();

	op->run(k);
	for (int i = 0; i < 3 || (i < 50 && now() - begin < 0.7); i++) {
		double t = now();

		op->run(k);
		t = now() - t;
		if (t < best)
			best = t;
	}
	return best;
}

int main(int argc, char **argv)
{
	const struct kern *k = &kern_cpu_f32;
	double t[OPS], step = 0;

	if (argc > 1 && !strcmp(argv[1], "f64"))
		k = &kern_cpu_f64;
	kern_cpu_init(argc > 2 ? (int)strtol(argv[2], NULL, 10) : 2);
	if (argc > 3)
		drop.p = attn.drop.p = strtod(argv[3], NULL);
	attn.drop.key = key;
	make_all(k);
	for (int i = 0; i < OPS; i++) {
		t[i] = least(&ops[i], k);
		step += t[i] * ops[i].count;
	}
	printf("%-16s %9s %8s %9s %6s\n", k->name, "ms", "GB/s", "GFLOP/s",
	       "share");
	for (int i = 0; i < OPS; i++)
		printf("%-16s %9.3f %8.1f %9.1f %5.1f%%\n", ops[i].name,
		       1e3 * t[i], 1e-9 * ops[i].elems * (double)k->size / t[i],
		       1e-9 * ops[i].flops / t[i],
		       100 * t[i] * ops[i].count / step);
	printf("%-16s %9.1f ms for %d tokens\n", "step", 1e3 * step, N);
	return 0;
}
