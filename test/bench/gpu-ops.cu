/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of the GPU's ops in bf16, beside the floor: the bytes that must move
 * at 4.3 TB/s or the products at 770 TFLOP/s, as measured on an H200.
 *
 *	gpu-ops [model | attention]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "kernels/attn_cudnn.h"
#include "kernels/kern_cuda.h"

static struct queue *queue;
static struct err error;
static uint64_t *key;
static struct kern_drop dropout;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, error.text);
	exit(1);
}

static void drop_set(double p)
{
	dropout = {p, key, 7, 0};
}

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
		      double p, enum kern_attn backend)
{
	const struct kern &k = kern_cuda_bf16;
	struct kern_attn_dims d = {};
	double flops = 2.0 * (double)(B * H * T * T * D);
	int64_t N = B * T;
	char name[64];

	drop_set(p);
	d.B = B;
	d.T = T;
	d.H = H;
	d.G = G;
	d.D = d.Dv = D;
	d.scale = 1 / sqrt((double)D);
	d.heads = H;
	d.drop = dropout;
	d.backend = backend;
	area_used = 0;
	void *qkv = room(2 * N * (H + 2 * G) * D), *o = room(2 * N * H * D);
	void *dout = room(2 * N * H * D), *dqkv = room(2 * N * (H + 2 * G) * D);
	void *lse = room(4 * B * H * T), *scratch = room(k.attn_scratch(&d));

	snprintf(name, sizeof(name), "attn_fwd %ldx%ld/%ld T%ld D%ld%s%s", B, H,
		 G, T, D, p > 0 ? " drop" : "",
		 backend == KERN_ATTN_CUDNN ? " cudnn" : "");
	timed(name, 0, flops,
	      [&] { k.attn_fwd(queue, o, lse, qkv, NULL, NULL, scratch, &d); });
	memcpy(name + 5, "bwd", 3);
	timed(name, 0, 2.5 * flops,
	      [&] { k.attn_bwd(queue, dqkv, NULL, dout, o, lse, qkv, NULL, NULL, scratch, &d); });
}

/* A model's dims; GATED ones are Llama's, the others GPT-2's. */
struct model {
	int64_t N, C, F, V;
	bool gated;
};

static void time_rows(const struct model &m)
{
	const struct kern &k = kern_cuda_bf16;
	int64_t N = m.N, C = m.C;
	enum kern_norm kind = m.gated ? KERN_RMSNORM : KERN_LAYERNORM;
	struct kern_norm_dims nd = {N, C, kind, false, 1e-5};
	double NC = 2.0 * (double)(N * C);

	area_used = 0;
	void *x = room(2 * N * C), *b = room(2 * N * C), *y = room(2 * N * C);
	void *xo = room(2 * N * C), *st = room(8 * N), *w = room(2 * C);
	void *dw = room(4 * C), *w2 = m.gated ? NULL : room(2 * C);
	void *db = m.gated ? NULL : room(4 * C);

	timed("norm_fwd+resid", 4 * NC, 0, [&] {
		k.norm_fwd(queue, y, xo, st, x, b, NULL, w, w2, &nd, &dropout);
	});
	timed("norm_bwd+dres", 4 * NC, 0,
	      [&] { k.norm_bwd(queue, xo, dw, db, y, b, x, st, w, &nd); });
	timed("resid", 3 * NC, 0,
	      [&] { k.resid(queue, xo, x, b, NULL, N, C, &dropout); });
}

static void time_mlp(const struct model &m)
{
	const struct kern &k = kern_cuda_bf16;
	int64_t N = m.N, C = m.C, F = m.F, Fx = F * (1 + m.gated);
	double NF = 2.0 * (double)(N * F), mul = 2.0 * (double)(N * C * Fx);
	enum kern_act act = m.gated ? KERN_SILU : KERN_GELU_TANH;

	area_used = 0;
	void *x = room(2 * N * C), *y = room(2 * N * C), *h = room(2 * N * F);
	void *f = room(2 * N * Fx), *g = room(2 * N * Fx);
	void *w = room(2 * Fx * C), *dw = room(4 * Fx * C);
	void *b = m.gated ? NULL : room(2 * Fx), *db = room(4 * Fx);

	timed("linear_fwd up", 0, mul,
	      [&] { k.linear_fwd(queue, f, x, w, b, N, Fx, C); });
	timed("linear_bwd_x up", 0, mul,
	      [&] { k.linear_bwd_x(queue, y, f, w, N, Fx, C); });
	timed("linear_bwd_w up", 0, mul,
	      [&] { k.linear_bwd_w(queue, dw, f, x, N, Fx, C); });
	timed("bias_bwd up", 2.0 * (double)(N * Fx), 0,
	      [&] { k.bias_bwd(queue, db, f, N, Fx); });
	timed("act_fwd", NF * (2 + m.gated), 0,
	      [&] { k.act_fwd(queue, h, f, N, F, act, m.gated); });
	timed("act_bwd", NF * (3 + 2 * m.gated), 0,
	      [&] { k.act_bwd(queue, g, h, f, N, F, act, m.gated); });
}

static int32_t *ids_new(const struct model &m)
{
	int32_t *ids = (int32_t *)room(4 * m.N);
	std::vector<int32_t> host((size_t)m.N);

	for (int32_t &id : host)
		id = (int32_t)(rand() % 4 ? rand() % m.V : rand() % 20);
	if (device_copy(queue, ids, host.data(), 4 * (size_t)m.N, &error) ||
	    device_queue_wait(queue, &error))
		die("ids");
	return ids;
}

static void time_vocabulary(const struct model &model)
{
	const struct kern &k = kern_cuda_bf16;
	int64_t N = model.N, C = model.C, V = model.V;
	int64_t M = N < 16384 ? N : 16384;
	double NC = 2.0 * (double)(N * C), MV = 2.0 * (double)(M * V);

	area_used = 0;
	int32_t *ids = ids_new(model);
	void *y = room(2 * N * C), *w = room(2 * V * C), *dw = room(4 * V * C);
	void *logits = room(2 * M * V), *m = room(4 * M), *sums = room(8 * M);
	double *loss = (double *)room(8), *coef = (double *)room(8);

	timed("embed_fwd", 2 * NC, 0,
	      [&] { k.embed_fwd(queue, y, ids, w, N, C, 0, V); });
	timed("embed_bwd", 2 * NC, 0,
	      [&] { k.embed_bwd(queue, dw, y, ids, N, C, 0, V); });
	timed("ce_max", MV, 0, [&] { k.ce_max(queue, m, logits, M, V, V); });
	timed("ce_sums", MV, 0,
	      [&] { k.ce_sums(queue, sums, logits, m, ids, M, V, V, 0); });
	timed("ce_grad", 2 * MV, 0, [&] {
		k.ce_grad(queue, loss, NULL, logits, m, sums, ids, coef, M, V,
			  V, 0);
	});
}

static void time_optim(void)
{
	struct kern_adam h = {1e-3, 0.1, 0.9, 0.95, 1e-8, 0.3, 0.2, 0.7};
	int64_t n = 124 << 20;

	area_used = 0;
	void *p = room(2 * n), *ma = room(4 * n), *m1 = room(4 * n);
	void *m2 = room(4 * n), *gr = room(4 * n);
	double *sum = (double *)room(8);
	struct kern_adam *hd = (struct kern_adam *)room(sizeof(h));

	if (device_copy(queue, hd, &h, sizeof(h), &error))
		die("adam");
	timed("adamw 130M", 30.0 * (double)n, 0, [&] {
		kern_cuda_bf16.adamw(queue, p, ma, m1, m2, gr, n, hd, true);
	});
	timed("sumsq 130M", 4.0 * (double)n, 0,
	      [&] { kern_cuda_bf16.sumsq(queue, sum, gr, n); });
}

static void time_model(const struct model &m)
{
	printf("# N %ld C %ld F %ld V %ld%s\n", m.N, m.C, m.F, m.V,
	       m.gated ? " gated" : "");
	drop_set(0);
	time_rows(m);
	time_mlp(m);
	time_vocabulary(m);
}

/* The own kernel and cuDNN's, each with the other's heat. */
static void time_attns(void)
{
	static const int64_t shapes[][5] = {
		{64, 12, 12, 1024, 64},
		{16, 25, 25, 1024, 64},
		{2, 32, 8, 8192, 128},
	};
	bool cudnn = !kern_cudnn_load(NULL, &error);

	if (!cudnn)
		printf("# %s\n", error.text);
	for (const int64_t *s : shapes)
		for (int i = 0; i < 2; i++) {
			time_attn(s[0], s[1], s[2], s[3], s[4], 0,
				  KERN_ATTN_OWN);
			if (cudnn)
				time_attn(s[0], s[1], s[2], s[3], s[4], 0,
					  KERN_ATTN_CUDNN);
		}
	time_attn(64, 12, 12, 1024, 64, 0.1, KERN_ATTN_OWN);
	time_attn(2, 32, 8, 8192, 128, 0.1, KERN_ATTN_OWN);
}

static void area_fill(size_t size)
{
	random_kernel<<<4096, 256, 0,
			(cudaStream_t)device_queue_stream(queue)>>>(
		(uint32_t *)area, size / 4);
	if (device_queue_wait(queue, &error))
		die("fill");
}

static void time_all(const char *what)
{
	static const struct model models[] = {
		{65536, 768, 3072, 50304, false},
		{16384, 4096, 14336, 128256, true},
	};
	size_t size = (size_t)12 << 30;

	area = (char *)device_alloc(size, &error);
	if (!area)
		die("allocate");
	if (!*what || !strcmp(what, "model")) {
		for (const struct model &m : models) {
			area_fill(size);
			time_model(m);
		}
		time_optim();
	}
	if (!*what || !strcmp(what, "attention")) {
		area_fill(size);
		time_attns();
	}
	device_free(area);
}

int main(int argc, char **argv)
{
	struct device_info info;
	uint64_t seed[2] = {42, 1};

	if (device_open(0, &info, &error))
		die("open");
	queue = device_queue_open(false, &error);
	key = (uint64_t *)device_alloc(sizeof(seed), &error);
	if (!queue || !key ||
	    device_copy(queue, key, seed, sizeof(seed), &error))
		die("queue");
	printf("# %s\n", info.name);
	time_all(argc > 1 ? argv[1] : "");
	device_free(key);
	device_queue_close(queue);
	return 0;
}
