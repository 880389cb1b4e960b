/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of the GPU's tables, their own and cuDNN's: small shapes against
 * cpu_f64, with poisoned outputs and scratch between guard bands; large ones
 * of cuDNN's against themselves, bit by bit, and against the own kernel.
 *
 *	g-attn [--only TEXT] [SEED]
 */
#include "kernels/attn_cudnn.h"
#include "test/gpu-test.h"

static struct kern_attn_dims dims_new(int64_t B, int64_t T, int64_t H,
				      int64_t G, int64_t D,
				      enum kern_attn backend)
{
	struct kern_attn_dims d = {};

	d.B = B;
	d.T = T;
	d.H = H;
	d.G = G;
	d.D = d.Dv = D;
	d.scale = 1.2 / sqrt((double)D);
	d.heads = H + 3;
	d.head0 = 2;
	d.backend = backend;
	return d;
}

/* A few documents of any length in each of B samples of T tokens. */
static struct arr *documents(int64_t B, int64_t T)
{
	std::vector<int32_t> doc;

	for (int64_t n = 0; n < B * T; n++)
		doc.push_back(n % T && rnd32() % 40 ? doc[(size_t)n - 1]
						    : (int32_t)(n % T));
	return ints_of(doc.data(), B * T);
}

/* Each op of K against cpu_f64's, which gives the backward's o and lse. */
static void test_small(const struct kern &k, enum type t,
		       const struct kern_attn_dims &d, double p)
{
	const struct kern &cpu = kern_cpu_f64;
	int64_t N = d.B * d.T, row = kern_attn_row(&d);
	bool learned = d.sink == KERN_SINK_LEARNED;
	char name[160];

	drop_set(p, 1000);
	struct kern_attn_dims dr = d, dd = d;

	dr.drop = drop_ref;
	dd.drop = drop_dev;
	snprintf(name, sizeof(name),
		 "B %ld T %ld H %ld G %ld D %ld %ld p %g window %ld sink %d "
		 "docs %d%s",
		 (long)d.B, (long)d.T, (long)d.H, (long)d.G, (long)d.D,
		 (long)d.Dv, p, (long)d.window, (int)d.sink, d.docs,
		 d.backend == KERN_ATTN_CUDNN ? " cudnn" : "");
	std::vector<double> work(cpu.attn_scratch(&dr) / sizeof(double));
	std::vector<double> sinks = randoms(d.H, 2);
	struct arr *scratch = scratch_new(k.attn_scratch(&dd));
	struct arr *o = out(t, N * d.H * d.Dv);
	struct arr *lse = out(F32, d.B * d.H * d.T);
	struct arr *qkv = in(t, N * row), *doc = documents(d.B, d.T);
	struct arr *sink = with(t, sinks, false);
	std::vector<int32_t> starts = doc->ints;
	std::vector<double> o_ref, lse_ref, qkv_ref = qkv->ref;
	const int32_t *begin = d.docs ? starts.data() : NULL;

	o->tol = tol_of(t, 3e-6, 5e-3);
	lse->tol = 3e-6;
	check(
		[&] {
			cpu.attn_fwd(NULL, ref(o), ref(lse), ref(qkv),
				     learned ? ref(sink) : NULL, begin,
				     work.data(), &dr);
			o_ref = o->ref;
			lse_ref = lse->ref;
		},
		[&] {
			k.attn_fwd(queue, dev(o), dev(lse), dev(qkv),
				   learned ? dev(sink) : NULL,
				   d.docs ? (const int32_t *)dev(doc) : NULL,
				   dev(scratch), &dd);
		},
		"%s attn_fwd %s", k.name, name);
	scratch = scratch_new(k.attn_scratch(&dd));
	qkv = with(t, qkv_ref, false);
	o = with(t, o_ref, false);
	lse = with(F32, lse_ref, false);
	sink = with(t, sinks, false);
	doc = ints_of(starts.data(), N);
	struct arr *dout = in(t, N * d.H * d.Dv), *dqkv = out(t, N * row);
	struct arr *dsink = inout(F32, d.H);

	dqkv->tol = tol_of(t, 5e-6, 6e-3);
	dsink->tol = tol_of(t, 5e-6, 1e-3);
	check(
		[&] {
			cpu.attn_bwd(NULL, ref(dqkv),
				     learned ? ref(dsink) : NULL, ref(dout),
				     ref(o), ref(lse), ref(qkv),
				     learned ? ref(sink) : NULL, begin,
				     work.data(), &dr);
		},
		[&] {
			k.attn_bwd(queue, dev(dqkv),
				   learned ? dev(dsink) : NULL, dev(dout),
				   dev(o), dev(lse), dev(qkv),
				   learned ? dev(sink) : NULL,
				   d.docs ? (const int32_t *)dev(doc) : NULL,
				   dev(scratch), &dd);
		},
		"%s attn_bwd %s", k.name, name);
}

/* Windows, sinks, documents, and values of another width than keys. */
static void test_more(const struct kern &k, enum type t, enum kern_attn who)
{
	static const int64_t shapes[][6] = {
		{2, 100, 4, 2, 64, 64},	  {1, 257, 2, 1, 128, 128},
		{2, 65, 2, 2, 24, 16},	  {1, 300, 3, 1, 20, 20},
		{2, 130, 2, 2, 192, 128}, {1, 99, 2, 2, 16, 40},
	};
	static const int64_t windows[] = {0, 1, 31, 64, 1000};

	for (int i = 0; i < 30; i++) {
		const int64_t *s = shapes[i % 6];
		struct kern_attn_dims d =
			dims_new(s[0], s[1], s[2], s[3], s[4], who);

		d.Dv = s[5];
		d.window = windows[i % 5];
		d.sink = (enum kern_sink)(i % 3);
		d.docs = i / 2 % 2;
		test_small(k, t, d, i % 7 == 0 ? 0.2 : 0);
	}
}

static void test_smalls(const struct kern &k, enum type t, enum kern_attn who)
{
	static const int64_t shapes[][5] = {
		{1, 1, 1, 1, 8},      {2, 100, 4, 2, 64},  {2, 65, 6, 2, 80},
		{1, 257, 2, 1, 128},  {2, 260, 4, 2, 128}, {1, 130, 2, 2, 256},
		{1, 91, 3, 1, 20},    {2, 64, 2, 2, 16},   {3, 77, 4, 2, 96},
		{2, 1000, 4, 2, 64},  {3, 1000, 2, 2, 64}, {1, 1024, 2, 1, 128},
		{2, 1000, 4, 1, 128},
	};

	for (const int64_t *s : shapes) {
		struct kern_attn_dims d =
			dims_new(s[0], s[1], s[2], s[3], s[4], who);

		test_small(k, t, d, 0);
		if (who == KERN_ATTN_OWN || s[1] == 100)
			test_small(k, t, d, 0.2);
	}
}

/* Gradients that fp16 cannot hold are infinite or no numbers, never less. */
static void test_overflow(int64_t D, enum kern_attn who)
{
	const struct kern &k = kern_cuda_fp16;
	struct kern_attn_dims d = dims_new(1, 100, 2, 1, D, who);
	int64_t N = d.B * d.T, row = kern_attn_row(&d);
	struct arr *scratch = scratch_new(k.attn_scratch(&d));
	struct arr *o = out(FP16, N * d.H * D), *lse = out(F32, d.H * N);
	struct arr *qkv = in(FP16, N * row), *dqkv = out(FP16, N * row);
	std::vector<double> large((size_t)(N * d.H * D), 6e4);
	struct arr *dout = with(FP16, large, false);

	k.attn_fwd(queue, dev(o), dev(lse), dev(qkv), NULL, NULL, dev(scratch),
		   &d);
	k.attn_bwd(queue, dev(dqkv), NULL, dev(dout), dev(o), dev(lse),
		   dev(qkv), NULL, NULL, dev(scratch), &d);
	result(finite(o) && !finite(dqkv),
	       "%s attn_bwd D %ld%s too large a gradient shows", k.name,
	       (long)D, who == KERN_ATTN_CUDNN ? " cudnn" : "");
	release();
}

/* Numbers in (-1.7, 1.7). */
template <typename T>
static __global__ void random_kernel(T *p, size_t n, uint32_t seed)
{
	size_t step = (size_t)gridDim.x * blockDim.x;
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; i < n; i += step) {
		uint32_t h = ((uint32_t)i + seed) * 2654435761u;

		h ^= h >> 15;
		h *= 2246822519u;
		h ^= h >> 13;
		p[i] = (T)((float)(int32_t)h * 0x1.b4p-31f);
	}
}

/* How X differs from Y: elements, and the squares of x - y and y. */
struct difference {
	unsigned long long elements;
	double d, y;
};

template <typename T>
static __global__ void difference_kernel(struct difference *to, const T *x,
					 const T *y, size_t n)
{
	size_t step = (size_t)gridDim.x * blockDim.x;
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	unsigned long long elements = 0;
	double d = 0, square = 0;

	for (; i < n; i += step) {
		double a = (double)(float)x[i], b = (double)(float)y[i];

		elements +=
			((const uint16_t *)x)[i] != ((const uint16_t *)y)[i];
		d += (a - b) * (a - b);
		square += b * b;
	}
	atomicAdd(&to->elements, elements);
	atomicAdd(&to->d, d);
	atomicAdd(&to->y, square);
}

/* What the ops write, one behind the other: o, dqkv, lse. */
struct outputs {
	size_t o, dqkv, lse; /* bytes */
	char *at;
};

template <typename T> struct large {
	const struct kern *k;
	struct kern_attn_dims d;
	T *qkv, *dout;
	struct outputs first, again;
	char *scratch;
	size_t scratch_bytes;
	struct difference *difference;
	struct err e;
};

template <typename T> static void *room(large<T> *l, size_t bytes)
{
	void *p = device_alloc(bytes, &l->e);

	if (!p) {
		error = l->e;
		die("room");
	}
	return p;
}

template <typename T>
static void large_open(large<T> *l, const struct kern &k,
		       const struct kern_attn_dims &d)
{
	struct kern_attn_dims own = d;
	size_t tokens = (size_t)(d.B * d.T), row = (size_t)(d.H + 2 * d.G);

	l->k = &k;
	l->d = d;
	l->first.o = tokens * (size_t)(d.H * d.D) * 2;
	l->first.dqkv = tokens * row * (size_t)d.D * 2;
	l->first.lse = tokens * (size_t)d.H * 4;
	l->again = l->first;
	size_t all = l->first.o + l->first.dqkv + l->first.lse;

	l->first.at = (char *)room(l, all);
	l->again.at = (char *)room(l, all);
	l->qkv = (T *)room(l, l->first.dqkv);
	l->dout = (T *)room(l, l->first.o);
	own.backend = KERN_ATTN_OWN;
	l->scratch_bytes = k.attn_scratch(&d);
	if (l->scratch_bytes < k.attn_scratch(&own))
		l->scratch_bytes = k.attn_scratch(&own);
	l->scratch = (char *)room(l, l->scratch_bytes);
	l->difference = (struct difference *)room(l, sizeof(*l->difference));
	random_kernel<<<1024, 256, 0, queue->stream>>>(
		l->qkv, l->first.dqkv / 2, rnd32());
	random_kernel<<<1024, 256, 0, queue->stream>>>(l->dout, l->first.o / 2,
						       rnd32());
}

template <typename T> static void large_close(large<T> *l)
{
	device_free(l->first.at);
	device_free(l->again.at);
	device_free(l->qkv);
	device_free(l->dout);
	device_free(l->scratch);
	device_free(l->difference);
}

/* Forward and backward of D, from sample FIRST on. */
template <typename T>
static void large_ops(large<T> *l, const struct outputs &to,
		      const struct kern_attn_dims &d, int64_t first)
{
	const struct kern &k = *l->k;
	size_t B = (size_t)l->d.B, b = (size_t)first;
	char *o = to.at + to.o / B * b;
	char *dqkv = to.at + to.o + to.dqkv / B * b;
	char *lse = to.at + to.o + to.dqkv + to.lse / B * b;
	char *qkv = (char *)l->qkv + to.dqkv / B * b;
	char *dout = (char *)l->dout + to.o / B * b;

	k.attn_fwd(queue, o, lse, qkv, NULL, NULL, l->scratch, &d);
	k.attn_bwd(queue, dqkv, NULL, dout, o, lse, qkv, NULL, NULL, l->scratch,
		   &d);
}

template <typename T>
static void large_poison(large<T> *l, const struct outputs &to)
{
	if (device_fill(queue, to.at, 0xff, to.o + to.dqkv + to.lse, &error) ||
	    device_fill(queue, l->scratch, 0xff, l->scratch_bytes, &error))
		die("poison");
}

/* Of l->again from l->first: of o and dqkv, and of lse if BITS. */
template <typename T>
static struct difference large_compare(large<T> *l, bool bits)
{
	const struct outputs &a = l->again, &b = l->first;
	size_t n = a.o + a.dqkv + (bits ? a.lse : 0);
	struct difference found = {};

	if (device_fill(queue, l->difference, 0, sizeof(found), &error))
		die("clear");
	difference_kernel<<<1024, 256, 0, queue->stream>>>(
		l->difference, (T *)a.at, (T *)b.at, n / 2);
	if (device_copy(queue, &found, l->difference, sizeof(found), &error) ||
	    device_queue_wait(queue, &error))
		die("compare");
	return found;
}

/* The second run's launches are played back from a graph. */
template <typename T> static void large_captured(large<T> *l)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaStream_t s = queue->stream;

	if (kern_cudnn_prepare(queue, &l->d, std::is_same_v<T, fp16>, &error))
		die("prepare");
	large_poison(l, l->again);
	if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal))
		die("capture");
	large_ops(l, l->again, l->d, 0);
	if (cudaStreamEndCapture(s, &graph) ||
	    cudaGraphInstantiate(&exec, graph, 0) || cudaGraphLaunch(exec, s) ||
	    device_queue_wait(queue, &error))
		die("replay");
	cudaGraphExecDestroy(exec);
	cudaGraphDestroy(graph);
}

template <typename T>
static void test_large(const struct kern &k, enum type t,
		       const struct kern_attn_dims &d)
{
	large<T> l = {};
	struct kern_attn_dims other = d;
	struct difference x;
	char name[100];

	snprintf(name, sizeof(name), "%s cudnn (%ld, %ld, %ld, %ld, %ld)",
		 k.name, (long)d.B, (long)d.H, (long)d.G, (long)d.T, (long)d.D);
	if (!strstr(name, only))
		return;
	large_open(&l, k, d);
	large_captured(&l);
	large_poison(&l, l.first);
	large_ops(&l, l.first, d, 0);
	x = large_compare(&l, true);
	result(!x.elements, "%s twice, then from a graph: %llu differ", name,
	       x.elements);
	large_poison(&l, l.again);
	other.B = 1;
	for (int64_t b = 0; b < d.B; b++)
		large_ops(&l, l.again, other, b);
	x = large_compare(&l, true);
	result(!x.elements, "%s by samples, other launches: %llu differ", name,
	       x.elements);
	large_poison(&l, l.again);
	other = d;
	other.backend = KERN_ATTN_OWN;
	large_ops(&l, l.again, other, 0);
	x = large_compare(&l, false);
	result(sqrt(x.d / x.y) < tol_of(t, 0, 1e-2),
	       "%s against the own kernel: %.1e", name, sqrt(x.d / x.y));
	large_close(&l);
}

template <typename T> static void test_cudnn(const struct kern &k, enum type t)
{
	static const int64_t shapes[][5] = {
		{3, 1000, 6, 2, 64},   {64, 1024, 12, 12, 64},
		{2, 8192, 32, 8, 128}, {5, 4096, 12, 12, 64},
		{4, 1024, 8, 2, 128},  {1, 20000, 40, 40, 128},
	};
	size_t version;

	if (kern_cudnn_load(&version, &error)) {
		result(true, "%s cudnn # SKIP %s", k.name, error.text);
		return;
	}
	printf("# cuDNN %zu\n", version);
	test_smalls(k, t, KERN_ATTN_CUDNN);
	if (t == FP16)
		test_overflow(64, KERN_ATTN_CUDNN);
	for (const int64_t *s : shapes)
		test_large<T>(k, t,
			      dims_new(s[0], s[1], s[2], s[3], s[4],
				       KERN_ATTN_CUDNN));
}

int main(int argc, char **argv)
{
	if (!test_open(argc, argv))
		return 0;
	test_smalls(kern_cuda_f32, F32, KERN_ATTN_OWN);
	test_smalls(kern_cuda_bf16, BF16, KERN_ATTN_OWN);
	test_smalls(kern_cuda_fp16, FP16, KERN_ATTN_OWN);
	for (int64_t D : {20, 64, 128, 256})
		test_overflow(D, KERN_ATTN_OWN);
	test_more(kern_cuda_f32, F32, KERN_ATTN_OWN);
	test_more(kern_cuda_bf16, BF16, KERN_ATTN_CUDNN);
	test_more(kern_cuda_fp16, FP16, KERN_ATTN_CUDNN);
	test_cudnn<bf16>(kern_cuda_bf16, BF16);
	test_cudnn<fp16>(kern_cuda_fp16, FP16);
	test_small(kern_cuda_f32, F32,
		   dims_new(2, 100, 4, 2, 64, KERN_ATTN_CUDNN), 0);
	return test_close();
}
