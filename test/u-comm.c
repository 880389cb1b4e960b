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

static void put(enum comm_type type, void *buf, int64_t i, double x)
{
	if (type == COMM_F32)
		((float *)buf)[i] = (float)x;
	else
		((double *)buf)[i] = x;
}

static size_t size_of(enum comm_type type)
{
	return type == COMM_F32 ? sizeof(float) : sizeof(double);
}

/* What a reduction over ranks 0 .. size - 1 must give at I. */
static double expected(enum comm_op op, enum comm_type type, int size,
		       int64_t i)
{
	double acc = value(0, i), x;

	if (type == COMM_F32)
		acc = (float)acc;
	for (int r = 1; r < size; r++) {
		x = type == COMM_F32 ? (float)value(r, i) : value(r, i);
		if (op == COMM_MAX)
			acc = x > acc ? x : acc;
		else if (type == COMM_F32)
			acc = (float)acc + (float)x;
		else
			acc = acc + x;
	}
	return acc;
}

static void check_equal(enum comm_type type, const void *got, int64_t i,
			double want)
{
	double w64 = want;
	float w32 = (float)want;
	size_t size = size_of(type);
	const void *w = type == COMM_F32 ? (void *)&w32 : (void *)&w64;

	if (!memcmp((const char *)got + (size_t)i * size, w, size))
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
		put(type, send, i, value(me, i));
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

	(void)state;
	for (int o = 0; o < 3; o++)
		for (int i = 0; i < 9; i++)
			for (int k = 0; k < 8; k++) {
				int64_t n = counts[i];
				int64_t few = boot.world + n / 7;
				int64_t room = k & 1 ? few : n + boot.world;

				check_reduction(ops[o],
						k & 2 ? COMM_F64 : COMM_F32, n,
						room, k & 4);
			}
}

static void scratch_of_one_element_a_rank_suffices(void **state)
{
	(void)state;
	check_reduction(COMM_SUM, COMM_F32, 37, boot.world, true);
	check_reduction(COMM_REDUCE_SCATTER, COMM_F64, 37, boot.world, true);
	check_reduction(COMM_SUM, COMM_F64, 300000, 1 << 20, false);
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

/* Round the ring: several messages in flight, tags out of order. */
static void messages_find_their_tags(void **state)
{
	int size = boot.world, right = (boot.rank + 1) % size;
	int left = (boot.rank + size - 1) % size;
	int64_t n[] = {0, 3, 200000, 17};
	double *out[4], *in[4];
	struct comm_req send[4], recv[4];

	(void)state;
	if (size == 1)
		return;
	for (int k = 0; k < 4; k++) {
		out[k] = malloc((size_t)n[k] * sizeof(double) + 1);
		in[k] = malloc((size_t)n[k] * sizeof(double) + 1);
		for (int64_t i = 0; i < n[k]; i++)
			out[k][i] = value(boot.rank + 10 * k, i);
		send[k] = (struct comm_req){.op = COMM_SEND,
					    .group = world,
					    .type = COMM_F64,
					    .send = out[k],
					    .n = n[k],
					    .peer = right,
					    .tag = k,
					    .name = "to the right"};
		recv[k] = send[k];
		recv[k].op = COMM_RECV;
		recv[k].recv = in[k];
		recv[k].peer = left;
	}
	for (int k = 0; k < 4; k++)
		must(comm_start(&send[k], &err));
	for (int k = 3; k >= 0; k--)
		must(comm_start(&recv[k], &err));
	for (int k = 0; k < 4; k++) {
		must(comm_wait(&recv[k], &err));
		must(comm_wait(&send[k], &err));
		for (int64_t i = 0; i < n[k]; i++)
			check_equal(COMM_F64, in[k], i,
				    value(left + 10 * k, i));
		free(out[k]);
		free(in[k]);
	}
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
	must(comm_group_open(comm, "other", ranks, n, n - 1 - boot.rank, &other,
			     &err));
	assert_int_equal(comm_group_size(other), n);
	assert_int_equal(comm_group_me(other), n - 1 - boot.rank);
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

static void helpers_sum_and_meet(void **state)
{
	double x[2] = {1, boot.rank};
	int n = boot.world;

	(void)state;
	must(comm_sum(world, x, 2, &err));
	assert_true(x[0] == n && x[1] == n * (n - 1) / 2);
	must(comm_barrier(world, &err));
	must(comm_sum(NULL, x, 2, &err));
	assert_true(x[0] == n);
	must(comm_barrier(NULL, &err));
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
		cmocka_unit_test(messages_find_their_tags),
		cmocka_unit_test(a_wait_moves_everything),
		cmocka_unit_test(helpers_sum_and_meet),
		cmocka_unit_test(signals_stay_ours),
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
