/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the GPU's ops share: arrays that lie on both sides, and a
 * check that runs both, prints TAP and counts.
 */
#ifndef TEST_GPU_TEST_H
#define TEST_GPU_TEST_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vector>

#include "kernels/kern_cuda.h"

enum type { F32, BF16, FP16, F64, I32 };
static const size_t type_size[] = {4, 2, 2, 8, 4};

#define GUARD 256 /* bytes before and behind each array, kept at 0xa5 */

/* An array on both sides: REF for cpu_f64, DEV on the device. */
struct arr {
	enum type type;
	bool out, scratch; /* written; what is in it does not matter */
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
static const char *only = ""; /* the tests with this in their name */
static uint64_t state;
static uint64_t key_ref[2];
static uint64_t *key_dev;
static struct kern_drop drop_ref, drop_dev;

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
	if (t == FP16)
		return (double)(float)(fp16)(float)x;
	return x;
}

static void put(enum type t, void *p, int64_t i, double x)
{
	if (t == F32)
		((float *)p)[i] = (float)x;
	else if (t == BF16)
		((bf16 *)p)[i] = (bf16)(float)x;
	else if (t == FP16)
		((fp16 *)p)[i] = (fp16)(float)x;
	else
		((double *)p)[i] = x;
}

static double get(enum type t, const void *p, int64_t i)
{
	if (t == F32)
		return (double)((const float *)p)[i];
	if (t == BF16)
		return (double)(float)((const bf16 *)p)[i];
	if (t == FP16)
		return (double)(float)((const fp16 *)p)[i];
	if (t == I32)
		return (double)((const int32_t *)p)[i];
	return ((const double *)p)[i];
}

/* F32 for float, BF for bf16, and for fp16, with three bits more, BF / 8. */
static double tol_of(enum type t, double f32, double bf)
{
	return t == F32 ? f32 : t == BF16 ? bf : bf / 8;
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
	/* bf16: half a unit of the last place, should one element count */
	a->tol = t == F64 ? 1e-6 : t == I32 ? 0 : tol_of(t, 2e-6, 4e-3);
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
static inline struct arr *inout(enum type t, int64_t n, double scale = 1)
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

/* NaN too, and not compared. */
static inline struct arr *scratch_new(size_t bytes)
{
	struct arr *a = out(F32, (int64_t)(bytes / sizeof(float)));

	a->out = false;
	a->scratch = true;
	return a;
}

/* Those very numbers. */
static inline struct arr *ints_of(const int32_t *x, int64_t n)
{
	struct arr *a = arr_new(I32, n, false);

	a->ints.assign(x, x + n);
	memcpy(a->init.data(), x, a->bytes);
	upload(a);
	return a;
}

static inline struct arr *ints(int64_t n, int32_t lo, int32_t hi)
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

static struct arr *alive(struct arr *a)
{
	if (a && !a->dev)
		die("an array of an earlier check");
	return a;
}

static void *ref(struct arr *a)
{
	return alive(a) ? a->ref.data() : NULL;
}

static void *dev(struct arr *a)
{
	return alive(a) ? a->dev : NULL;
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

/* Whether each element, on the device, is a finite number. */
static inline bool finite(struct arr *a)
{
	bool guarded = true;

	download(a, a->got, &guarded);
	for (int64_t i = 0; i < a->n; i++)
		if (!isfinite(get(a->type, a->got.data(), i)))
			return false;
	return guarded;
}

/* Every check has arrays of its own: these can no longer be had. */
static void release(void)
{
	for (struct arr *a : arrays) {
		device_free(a->dev - GUARD);
		*a = {};
	}
	arrays.clear();
}

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

/* A line of TAP. */
static void result(bool good, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void result(bool good, const char *fmt, ...)
{
	va_list ap;

	tests++;
	failures += !good;
	printf("%sok %d - ", good ? "" : "not ", tests);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

/* Run both sides and print a line of TAP; frees all arrays. */
template <typename C, typename G>
static void check(C cpu, G gpu, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
template <typename C, typename G>
static void check(C cpu, G gpu, const char *fmt, ...)
{
	bool same = true, guarded = true, close = true;
	char name[160], numbers[200] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	cpu(); /* what it finds may be the next test's input */
	if (!strstr(name, only)) {
		release();
		return;
	}
	gpu();
	for (struct arr *a : arrays)
		if (a->out || a->scratch) {
			download(a, a->got, &guarded);
			upload(a);
		}
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
	result(same && guarded && close, "%s%s%s%s%s", name, numbers,
	       close ? "" : ", too far",
	       same ? "" : ", differs from run to run",
	       guarded ? "" : ", wrote outside");
	release();
}

#define CPU kern_cpu_f64
/* A call for each side: P(x) is the array's pointer there. */
#define BOTH(k, op, ...)                            \
	[&] {                                       \
		auto P = ref;                       \
		auto &drop = drop_ref;              \
		(void)P, (void)drop;                \
		CPU.op(NULL, __VA_ARGS__);          \
	},                                          \
		[&] {                               \
			auto P = dev;               \
			auto &drop = drop_dev;      \
			(void)P, (void)drop;        \
			(k).op(queue, __VA_ARGS__); \
		}

/* Take the options, open the first device; false if there is none. */
static bool test_open(int argc, char **argv)
{
	struct device_info info;
	uint64_t seed = (uint64_t)time(NULL);

	if (!device_count()) {
		printf("1..0 # SKIP no CUDA device\n");
		return false;
	}
	if (argc > 2 && !strcmp(argv[1], "--only"))
		only = argv[2];
	if (argc > 1 + 2 * (*only != 0))
		seed = strtoull(argv[argc - 1], NULL, 0);
	state = seed;
	kern_cpu_init(4);
	if (device_open(0, &info, &error))
		die("open");
	queue = device_queue_open(false, &error);
	key_dev = (uint64_t *)device_alloc(sizeof(key_ref), &error);
	if (!queue || !key_dev)
		die("queue");
	printf("# %s %s sm_%d%d, %ld bytes free of %ld, seed %llu\n", info.name,
	       info.id, info.major, info.minor, (long)info.free_bytes,
	       (long)info.bytes, (unsigned long long)seed);
	return true;
}

/* The program's exit code. */
static int test_close(void)
{
	printf("1..%d\n", tests);
	device_free(key_dev);
	device_queue_close(queue);
	return failures != 0;
}

#endif
