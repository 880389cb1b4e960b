/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of many: x-comm MODE, see modes[]; run by t3010 and t3030. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/sys.h"
#include "test/comm-test.h"

static void run(struct comm_req *req)
{
	end(comm_start(req, &err));
	end(comm_wait(req, &err));
}

/* --- failures: the last rank misbehaves, the others must notice ---------- */

static void sum(double *x, int n)
{
	double room[64];
	struct comm_req req = {.op = COMM_SUM,
			       .group = world,
			       .type = COMM_F64,
			       .send = x,
			       .recv = x,
			       .n = n,
			       .scratch = room,
			       .scratch_bytes = sizeof(room),
			       .name = "sum"};

	run(&req);
}

static void fail_absent(void)
{
	double x = 1;

	if (boot.rank == boot.world - 1)
		sleep(60);
	sum(&x, 1);
}

static void fail_stopped(void)
{
	double x = 1;

	if (boot.rank == boot.world - 1)
		raise(SIGSTOP);
	sum(&x, 1);
}

static void fail_killed(void)
{
	double x = 1;

	if (boot.rank == boot.world - 1)
		raise(SIGKILL);
	sum(&x, 1);
}

static void fail_kind(void)
{
	float x[2] = {0}, y[128];
	struct comm_req req = {.op = COMM_SUM,
			       .group = world,
			       .send = x,
			       .recv = x,
			       .n = 2,
			       .scratch = y,
			       .scratch_bytes = sizeof(y),
			       .name = "layer 3 attn out"};

	if (boot.rank == boot.world - 1) {
		req.op = COMM_ALL_GATHER;
		req.recv = y;
		req.scratch = NULL;
	}
	run(&req);
}

static void fail_length(void)
{
	double x[4] = {0};

	sum(x, boot.rank == boot.world - 1 ? 2 : 4);
}

/* --- more than an int counts ---------------------------------------------- */

/* What place I of rank R holds there: exact in double. */
static double mark(int r, int64_t i)
{
	return (double)i * 4 + r;
}

static double *marks(int r, int64_t n)
{
	double *x = malloc((size_t)n * sizeof(*x));

	if (!x)
		end(err_set(&err, CODE_FINDINGS, "no memory for a large test"));
	for (int64_t i = 0; i < n; i++)
		x[i] = mark(r, i);
	return x;
}

static void check_mark(double got, double want, int64_t i)
{
	if (got != want)
		end(err_set(&err, CODE_FINDINGS, "large: %g at %lld, want %g",
			    got, (long long)i, want));
}

/* Rank 0 sends 2.4 GB to rank 1. */
static void large_message(void)
{
	int64_t n = 300000000;
	double *x = boot.rank ? malloc((size_t)n * sizeof(*x)) : marks(0, n);
	struct comm_req req = {.op = boot.rank ? COMM_RECV : COMM_SEND,
			       .group = world,
			       .type = COMM_F64,
			       .send = x,
			       .recv = x,
			       .n = n,
			       .peer = 1 - boot.rank,
			       .name = "large"};

	run(&req);
	for (int64_t i = 0; i < n; i++)
		check_mark(x[i], mark(0, i), i);
	free(x);
}

/* 1.2 GB of each rank, gathered and then scattered again as a sum. */
static void large_collectives(void)
{
	int64_t n = 150000000;
	static double room[1 << 19];
	double *own = marks(boot.rank, n);
	double *all = malloc((size_t)(2 * n) * sizeof(*all));
	struct comm_req req = {.op = COMM_ALL_GATHER,
			       .group = world,
			       .type = COMM_F64,
			       .send = own,
			       .recv = all,
			       .n = n,
			       .scratch = room,
			       .scratch_bytes = sizeof(room),
			       .name = "large"};

	run(&req);
	for (int64_t i = 0; i < 2 * n; i++)
		check_mark(all[i], mark((int)(i / n), i % n), i);
	req.op = COMM_REDUCE_SCATTER;
	req.send = all;
	req.recv = own;
	run(&req);
	for (int64_t i = 0; i < n; i++)
		check_mark(own[i], 2 * mark(boot.rank, i), i);
	free(all);
	free(own);
}

static void large(void)
{
	large_message();
	large_collectives();
}

/* --- speed ---------------------------------------------------------------- */

static double best_of(enum comm_op op, int64_t n, int repeat)
{
	int64_t all = op == COMM_SUM ? n : n * boot.world;
	float *x = calloc((size_t)all, sizeof(*x));
	float *room = calloc((size_t)n, sizeof(*room));
	struct comm_req req = {.op = op,
			       .group = world,
			       .send = x,
			       .recv = x,
			       .n = n,
			       .scratch = room,
			       .scratch_bytes = (size_t)n * sizeof(*room),
			       .name = "bench"};
	double start, best = 1e9;

	if (op != COMM_SUM)
		req.recv = x + n * boot.rank;
	if (op == COMM_ALL_GATHER) {
		req.send = req.recv;
		req.recv = x;
	}
	for (int i = 0; i < repeat; i++) {
		start = sys_seconds();
		run(&req);
		start = sys_seconds() - start;
		best = start < best ? start : best;
	}
	free(x);
	free(room);
	return best;
}

static void bench(void)
{
	static const enum comm_op ops[] = {COMM_SUM, COMM_REDUCE_SCATTER,
					   COMM_ALL_GATHER};
	static const char *const names[] = {"all-reduce", "reduce-scatter",
					    "all-gather"};

	for (int o = 0; o < 3; o++)
		for (int64_t n = 1; n <= 16 << 20; n *= 16) {
			int64_t mine = o && n > boot.world ? n / boot.world : n;
			double s =
				best_of(ops[o], mine, n < 1 << 16 ? 1000 : 50);

			if (!boot.rank)
				printf("%-14s %9.1f KiB %10.1f us %7.2f GB/s\n",
				       names[o], (double)n * 4 / 1024, s * 1e6,
				       (double)n * 4 / s / 1e9);
		}
}

static const struct {
	const char *name;
	void (*act)(void);
	double timeout;
} modes[] = {
	{"absent", fail_absent, 1.5}, {"stopped", fail_stopped, 1.5},
	{"killed", fail_killed, 1.5}, {"kind", fail_kind, 1.5},
	{"length", fail_length, 1.5}, {"bench", bench, 30},
	{"large", large, 120},
};

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(mode, modes[i].name))
			continue;
		world_open("x-comm", modes[i].timeout);
		modes[i].act();
		world_close();
		return 0;
	}
	fprintf(stderr, "x-comm: no mode '%s'\n", mode);
	return CODE_USAGE;
}
