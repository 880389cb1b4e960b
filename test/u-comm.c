/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives.  Alone this tests groups of one; t3010 runs it under mpirun
 * over several ranks, where every rank computes what must come out, bit by
 * bit.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/half.h"
#include "test/comm-test.h"

static const int ours[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

static void must(int rc)
{
	if (!rc)
		return;
	print_message("# rank %d: %s\n", boot.rank, err.text);
	fail();
}

/* A value of rank R at place I: any, but of widely different sizes. */
static double value(int r, int64_t i)
{
	uint64_t x = (uint64_t)(r + 1) * 0x9E3779B97F4A7C15 ^
		     (uint64_t)i * 0xBF58476D1CE4E5B9;

	x ^= x >> 31;
	x *= 0x94D049BB133111EB;
	x ^= x >> 29;
	return ((double)(int64_t)x / 1e18) * (double)(1ull << (x % 40));
}

static size_t size_of(enum comm_type type)
{
	static const size_t sizes[] = {[COMM_F32] = sizeof(float),
				       [COMM_F64] = sizeof(double),
				       [COMM_BF16] = sizeof(uint16_t),
				       [COMM_FP16] = sizeof(uint16_t)};

	return sizes[type];
}

static void put(enum comm_type type, void *buf, int64_t i, double x)
{
	switch (type) {
	case COMM_F32: ((float *)buf)[i] = (float)x; break;
	case COMM_F64: ((double *)buf)[i] = x; break;
	case COMM_BF16: ((uint16_t *)buf)[i] = bf16_round((float)x); break;
	case COMM_FP16: ((uint16_t *)buf)[i] = fp16_round((float)x); break;
	}
}

/* The value as rank R holds it: fp16 reaches from 2^-24 to 65504. */
static double held(enum comm_type type, int r, int64_t i)
{
	double x = value(r, i);

	switch (type) {
	case COMM_F32: return (float)x;
	case COMM_F64: return x;
	case COMM_BF16: return bf16_widen(bf16_round((float)x));
	case COMM_FP16: return fp16_widen(fp16_round((float)(x * 0x1p-28)));
	}
	return 0;
}

/*
 * What a reduction over ranks 0 .. size - 1 must give at I, before it is
 * rounded to the type: elements of 16 bits are added up as floats.
 */
static double expected(enum comm_op op, enum comm_type type, int size,
		       int64_t i)
{
	double acc = held(type, 0, i), x;

	for (int r = 1; r < size; r++) {
		x = held(type, r, i);
		if (op == COMM_MAX)
			acc = x > acc ? x : acc;
		else if (type == COMM_F64)
			acc = acc + x;
		else
			acc = (float)acc + (float)x;
	}
	return acc;
}

static void check_equal(enum comm_type type, const void *got, int64_t i,
			double want)
{
	union {
		double f64;
		float f32;
		uint16_t half;
	} bits;
	size_t size = size_of(type);

	put(type, &bits, 0, want);
	if (!memcmp((const char *)got + (size_t)i * size, &bits, size))
		return;
	print_message("# rank %d: element %lld\n", boot.rank, (long long)i);
	fail();
}

static void run(struct comm_req *req)
{
	must(comm_start(req, &err));
	must(comm_wait(req, &err));
}

/* One reduction of every kind; SCRATCH elements, IN_PLACE or not. */
static void check_reduction(enum comm_op op, enum comm_type type, int64_t n,
			    int64_t scratch, bool in_place)
{
	int size = boot.world, me = boot.rank;
	int64_t all = op == COMM_REDUCE_SCATTER ? n * size : n;
	int64_t first = op == COMM_REDUCE_SCATTER ? n * me : 0;
	size_t elem = size_of(type);
	char *send = calloc((size_t)all + 1, elem);
	char *own = calloc((size_t)n + 1, elem);
	void *room = malloc((size_t)scratch * elem);
	char *recv = in_place ? send + (size_t)first * elem : own;
	struct comm_req req = {.op = op,
			       .group = world,
			       .type = type,
			       .send = send,
			       .recv = recv,
			       .n = n,
			       .scratch = room,
			       .scratch_bytes = (size_t)scratch * elem,
			       .name = "test"};

	for (int64_t i = 0; i < all; i++)
		put(type, send, i, held(type, me, i));
	run(&req);
	for (int64_t i = 0; i < n; i++)
		check_equal(type, recv, i, expected(op, type, size, first + i));
	free(send);
	free(own);
	free(room);
}

static void reductions_have_the_bits_of_rank_order(void **state)
{
	static const int64_t counts[] = {0,    1,    2,	   3,	 5,
					 1023, 1024, 4099, 70001};
	static const enum comm_op ops[] = {COMM_SUM, COMM_MAX,
					   COMM_REDUCE_SCATTER};
	static const enum comm_type types[] = {COMM_F32, COMM_F64, COMM_BF16,
					       COMM_FP16};

	(void)state;
	for (int o = 0; o < 3; o++)
		for (int i = 0; i < 9; i++)
			for (int k = 0; k < 16; k++) {
				int64_t n = counts[i];
				int64_t few = boot.world + n / 7;
				int64_t room = k & 1 ? few : n + boot.world;

				check_reduction(ops[o], types[k / 4], n, room,
						k & 2);
			}
}

static void scratch_of_one_element_a_rank_suffices(void **state)
{
	(void)state;
	check_reduction(COMM_SUM, COMM_F32, 37, boot.world, true);
	check_reduction(COMM_REDUCE_SCATTER, COMM_F64, 37, boot.world, true);
	check_reduction(COMM_SUM, COMM_F64, 300000, 1 << 20, false);
	check_reduction(COMM_SUM, COMM_BF16, 37, boot.world, true);
}

static void a_nan_wins_in_max(void **state)
{
	double x[3] = {boot.rank, 1, -1}, room[3 * 64];
	struct comm_req req = {.op = COMM_MAX,
			       .group = world,
			       .type = COMM_F64,
			       .send = x,
			       .recv = x,
			       .n = 3,
			       .scratch = room,
			       .scratch_bytes = sizeof(room),
			       .name = "test"};

	(void)state;
	if (boot.rank == boot.world - 1)
		x[1] = 0.0 / 0.0;
	if (boot.rank == 0)
		x[2] = 0.0 / 0.0;
	run(&req);
	assert_true(x[0] == boot.world - 1);
	assert_true(x[1] != x[1]);
	assert_true(x[2] != x[2]);
}

static void all_gather_in_and_out_of_place(void **state)
{
	static const int64_t counts[] = {0, 1, 7, 50000};
	int size = boot.world, me = boot.rank;

	(void)state;
	for (int k = 0; k < 8; k++) {
		int64_t n = counts[k / 2];
		float *recv = calloc((size_t)(n * size) + 1, sizeof(*recv));
		float *own = calloc((size_t)n + 1, sizeof(*own));
		float *send = k % 2 ? recv + n * me : own;
		struct comm_req req = {.op = COMM_ALL_GATHER,
				       .group = world,
				       .send = send,
				       .recv = recv,
				       .n = n,
				       .name = "test"};

		for (int64_t i = 0; i < n; i++)
			send[i] = (float)value(me, i);
		run(&req);
		for (int64_t i = 0; i < n * size; i++)
			check_equal(COMM_F32, recv, i,
				    value((int)(i / n), i % n));
		free(recv);
		free(own);
	}
}

enum { MESSAGES = 6, LONGEST = 200000 };

/* Message K of rank R: even ones go to the right, odd ones to the left. */
static struct comm_req message(struct comm_group *g, bool send, int k,
			       double *buf)
{
	static const int64_t n[MESSAGES] = {3, LONGEST, 0, 17, 4099, 1};
	int step = send == (k % 2 == 0) ? 1 : boot.world - 1;

	return (struct comm_req){.op = send ? COMM_SEND : COMM_RECV,
				 .group = g,
				 .type = COMM_F64,
				 .send = buf,
				 .recv = buf,
				 .n = n[k],
				 .peer = (boot.rank + step) % boot.world,
				 .tag = k,
				 .name = "message"};
}

/* Both ways round the ring, every receive posted before any send. */
static void messages_go_both_ways(void **state)
{
	static double out[MESSAGES][LONGEST], in[MESSAGES][LONGEST];
	struct comm_req send[MESSAGES], recv[MESSAGES];
	struct comm_group *ring;
	int ranks[64];

	(void)state;
	for (int r = 0; r < boot.world; r++)
		ranks[r] = r;
	must(comm_group_open(comm, "ring", COMM_RING, ranks, boot.world,
			     boot.rank, &ring, &err));
	for (int k = 0; k < MESSAGES && boot.world > 1; k++) {
		recv[k] = message(ring, false, k, in[k]);
		must(comm_start(&recv[k], &err));
	}
	for (int k = 0; k < MESSAGES && boot.world > 1; k++) {
		send[k] = message(ring, true, k, out[k]);
		for (int64_t i = 0; i < send[k].n; i++)
			out[k][i] = value(boot.rank + 10 * k, i);
		must(comm_start(&send[k], &err));
	}
	for (int k = MESSAGES - 1; k >= 0 && boot.world > 1; k--) {
		must(comm_wait(&recv[k], &err));
		must(comm_wait(&send[k], &err));
		for (int64_t i = 0; i < recv[k].n; i++)
			check_equal(COMM_F64, in[k], i,
				    value(recv[k].peer + 10 * k, i));
	}
	comm_group_close(ring);
}

/*
 * Two reductions in flight over different groups, waited for in opposite
 * order by even and odd ranks: each wait must move both.
 */
static void a_wait_moves_everything(void **state)
{
	int ranks[64], n = boot.world;
	struct comm_group *other;
	enum { N = 3000 };
	double *x[2], *room[2];
	struct comm_req req[2];

	(void)state;
	for (int r = 0; r < n; r++)
		ranks[r] = n - 1 - r;
	must(comm_group_open(comm, "other", COMM_COLLECTIVES, ranks, n,
			     n - 1 - boot.rank, &other, &err));
	assert_int_equal(comm_group_size(other), n);
	for (int k = 0; k < 2; k++) {
		x[k] = malloc(N * sizeof(double));
		room[k] = malloc(100 * sizeof(double));
		for (int i = 0; i < N; i++)
			x[k][i] = k ? boot.rank : 1;
		req[k] =
			(struct comm_req){.op = COMM_SUM,
					  .group = k ? other : world,
					  .type = COMM_F64,
					  .send = x[k],
					  .recv = x[k],
					  .n = N,
					  .scratch = room[k],
					  .scratch_bytes = 100 * sizeof(double),
					  .name = "test"};
		must(comm_start(&req[k], &err));
	}
	for (int k = 0; k < 2; k++)
		must(comm_wait(&req[(k + boot.rank) % 2], &err));
	for (int k = 0; k < 2; k++) {
		assert_true(x[k][N - 1] == (k ? n * (n - 1) / 2 : n));
		free(x[k]);
		free(room[k]);
	}
	comm_group_close(other);
}

/* A group of the lower ranks, which the upper ones call for as outsiders. */
static void outsiders_call_for_groups_too(void **state)
{
	int ranks[64], n = boot.world / 2, me = boot.rank;
	bool in = me < n;
	double x = me, room[64];
	struct comm_group *lower;
	struct comm_req req = {.op = COMM_SUM,
			       .type = COMM_F64,
			       .send = &x,
			       .recv = &x,
			       .n = 1,
			       .scratch = room,
			       .scratch_bytes = sizeof(room),
			       .name = "test"};

	(void)state;
	for (int r = 0; r < n; r++)
		ranks[r] = r;
	for (int use = COMM_COLLECTIVES; use <= COMM_RING; use++) {
		must(comm_group_open(comm, "lower", (enum comm_use)use, ranks,
				     in ? n : 0, in ? me : 0, &lower, &err));
		assert_true(in == (lower != NULL));
		if (in && use == COMM_COLLECTIVES) {
			assert_int_equal(comm_group_size(lower), n);
			req.group = lower;
			run(&req);
			assert_true(x == n * (n - 1) / 2);
		}
		comm_group_close(lower);
	}
}

static void gather_keeps_every_byte(void **state)
{
	static const size_t sizes[] = {0, 1, 3, 4, 4097};
	static unsigned char mine[4097], all[64 * 4097];

	(void)state;
	for (int k = 0; k < 5; k++) {
		size_t bytes = sizes[k], n = (size_t)boot.world;

		for (size_t i = 0; i < bytes; i++)
			mine[i] = (unsigned char)(i * 7 + (size_t)boot.rank);
		memset(all, 0xa5, sizeof(all));
		must(comm_gather(world, mine, bytes, all, &err));
		for (size_t r = 0; r < n; r++)
			for (size_t i = 0; i < bytes; i++)
				assert_int_equal(all[r * bytes + i],
						 (unsigned char)(i * 7 + r));
		assert_int_equal(all[n * bytes], 0xa5);
		must(comm_gather(NULL, "abc", 3, all, &err));
		assert_memory_equal(all, "abc", 3);
	}
}

/* On hosts nothing runs that would have to be asked for. */
static void a_check_finds_nothing(void **state)
{
	(void)state;
	must(comm_check(comm, &err));
}

static void on_signal(int sig)
{
	(void)sig;
}

/* Open MPI and PMIx leave alone what was set before they started. */
static void signals_stay_ours(void **state)
{
	struct sigaction act;

	(void)state;
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		sigaction(ours[i], NULL, &act);
		assert_true(act.sa_handler == on_signal);
	}
}

#ifndef TRISECT_CUDA
static void without_cuda_there_are_no_gpus(void **state)
{
	struct boot two = {.world = 2};
	struct comm *c;
	unsigned char id[COMM_ID_BYTES];

	(void)state;
	assert_int_equal(comm_open(&c, &two, true, 1, &err), -1);
	assert_int_equal(err.code, CODE_LAUNCH);
	assert_non_null(strstr(err.text, "make CUDA=1"));
	assert_null(c);
	assert_int_equal(comm_id(id, &err), -1);
	assert_int_equal(err.code, CODE_LAUNCH);
}
#endif

static void alone_there_are_no_messages(void **state)
{
	struct comm_req req = {.op = COMM_SEND, .n = 1, .name = "lonely"};

	(void)state;
	assert_int_equal(comm_start(&req, &err), -1);
	assert_int_equal(err.code, CODE_COMM);
	assert_non_null(strstr(err.text, "lonely: send in a group of one"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reductions_have_the_bits_of_rank_order),
		cmocka_unit_test(scratch_of_one_element_a_rank_suffices),
		cmocka_unit_test(a_nan_wins_in_max),
		cmocka_unit_test(all_gather_in_and_out_of_place),
		cmocka_unit_test(messages_go_both_ways),
		cmocka_unit_test(a_wait_moves_everything),
		cmocka_unit_test(outsiders_call_for_groups_too),
		cmocka_unit_test(gather_keeps_every_byte),
		cmocka_unit_test(a_check_finds_nothing),
		cmocka_unit_test(signals_stay_ours),
#ifndef TRISECT_CUDA
		cmocka_unit_test(without_cuda_there_are_no_gpus),
#endif
		cmocka_unit_test(alone_there_are_no_messages),
	};

	int failed;

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		signal(ours[i], on_signal);
	world_open("u-comm", 30);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	world_close();
	return failed;
}
