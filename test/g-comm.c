/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between GPUs: srun or mpirun -n N g-comm [MODE], or alone, where
 * every rank computes what must come out and prints TAP; exit 1 if something
 * else did.  MODE absent: the last rank does not come, exit 6; wrong: a
 * message that a chain has no way for, exit 6.
 */
#include <stdarg.h>
#include <unistd.h>

#include "lib/base/half.h"
#include "test/gpu-comm-test.h"

static int tests, failures;
static double host[MOST];

static void ok(bool passed, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void ok(bool passed, const char *fmt, ...)
{
	char name[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	failures += !passed;
	printf("%sok %d - rank %d of %d: %s\n", passed ? "" : "not ", ++tests,
	       boot.rank, boot.world, name);
	fflush(stdout);
}

/* --- numbers that every type holds, as do their sums over 16 ranks --------- */

static const size_t size_of[] = {
	[COMM_F32] = 4, [COMM_F64] = 8, [COMM_BF16] = 2, [COMM_FP16] = 2};
static const char *const type_name[] = {[COMM_F32] = "fp32",
					[COMM_F64] = "fp64",
					[COMM_BF16] = "bf16",
					[COMM_FP16] = "fp16"};

static double value(int r, int64_t i)
{
	return (double)((i * 7 + r * 5 + i / 11) % 15 - 7);
}

static void put(enum comm_type type, void *buf, int64_t i, double x)
{
	float f = (float)x;

	switch (type) {
	case COMM_F64: ((double *)buf)[i] = x; break;
	case COMM_F32: ((float *)buf)[i] = f; break;
	case COMM_BF16: ((uint16_t *)buf)[i] = bf16_round(f); break;
	case COMM_FP16: ((uint16_t *)buf)[i] = fp16_round(f); break;
	}
}

static double get(enum comm_type type, const void *buf, int64_t i)
{
	switch (type) {
	case COMM_F64: return ((const double *)buf)[i];
	case COMM_F32: return (double)((const float *)buf)[i];
	case COMM_BF16: return (double)bf16_widen(((const uint16_t *)buf)[i]);
	default: return (double)fp16_widen(((const uint16_t *)buf)[i]);
	}
}

static double expected(enum comm_op op, int size, int64_t n, int64_t i)
{
	double acc;

	if (op == COMM_ALL_GATHER)
		return value(size > 1 ? (int)(i / n) : boot.rank, i % n);
	if (op == COMM_REDUCE_SCATTER)
		i += n * (size > 1 ? boot.rank : 0);
	acc = value(size > 1 ? 0 : boot.rank, i);
	for (int r = 1; r < size; r++) {
		double x = value(r, i);

		acc = op == COMM_MAX ? (x > acc ? x : acc) : acc + x;
	}
	return acc;
}

/* Let QUEUE be busy for a while. */
static void delay(void)
{
	for (int i = 0; i < 40; i++)
		end(device_copy(queue, room[2], room[1], MOST * sizeof(double),
				&err));
}

/*
 * N elements of TYPE over G.  The queue is kept busy, so the operation must
 * wait for what is in front of it; what is sent is overwritten right behind.
 */
static bool check_collective(struct comm_group *g, enum comm_op op,
			     enum comm_type type, int64_t n, bool in_place)
{
	int size = comm_group_size(g), me = size > 1 ? boot.rank : 0;
	int64_t sent = op == COMM_REDUCE_SCATTER ? n * size : n;
	int64_t got = op == COMM_ALL_GATHER ? n * size : n;
	int64_t part = (int64_t)size_of[type] * n * me;
	size_t bytes = (size_t)(sent > got ? sent : got) * size_of[type];
	bool gather = op == COMM_ALL_GATHER;
	char *send = room[0] + (gather && in_place ? part : 0);
	char *recv = in_place ? room[0] : room[1];
	struct comm_req req = {.op = op,
			       .group = g,
			       .type = type,
			       .send = send,
			       .n = n,
			       .queue = queue,
			       .name = "test"};

	if (in_place && op == COMM_REDUCE_SCATTER)
		recv += part;
	req.recv = recv;
	for (int64_t i = 0; i < sent; i++)
		put(type, host, i, value(boot.rank, i));
	end(device_fill(queue, room[0], 0xff, bytes, &err));
	end(device_fill(queue, room[1], 0xff, bytes, &err));
	delay();
	end(device_fill(queue, recv, 0xff, (size_t)got * size_of[type], &err));
	end(device_copy(queue, send, host, (size_t)sent * size_of[type], &err));
	start_and_wait(&req);
	if (!in_place)
		end(device_fill(queue, room[0], 0xff, bytes, &err));
	end(device_copy(queue, host, recv, (size_t)got * size_of[type], &err));
	end(device_queue_wait(queue, &err));
	for (int64_t i = 0; i < got; i++)
		if (get(type, host, i) != expected(op, size, n, i))
			return false;
	return true;
}

static void check_collectives(struct comm_group *g)
{
	static const int64_t counts[] = {0, 1, 3, 1023, 70001};
	static const char *const names[] = {
		[COMM_SUM] = "sum",
		[COMM_MAX] = "max",
		[COMM_REDUCE_SCATTER] = "reduce-scatter",
		[COMM_ALL_GATHER] = "all-gather",
	};

	for (int op = COMM_SUM; op <= COMM_ALL_GATHER; op++)
		for (int type = COMM_F32; type <= COMM_FP16; type++) {
			bool passed = true;

			for (int k = 0; k < 10; k++)
				passed &=
					check_collective(g, (enum comm_op)op,
							 (enum comm_type)type,
							 counts[k / 2], k % 2);
			ok(passed, "%s of %s over %d", names[op],
			   type_name[type], comm_group_size(g));
		}
}

/* Sums of any floats: not known, but the same each time. */
static void check_repeats(void)
{
	enum { N = 300007 };
	static float first[N], again[N];
	struct comm_req req = {.op = COMM_SUM,
			       .group = world,
			       .send = room[0],
			       .recv = room[1],
			       .n = N,
			       .queue = queue,
			       .name = "test"};
	bool same = true;
	uint32_t x = 1 + (uint32_t)boot.rank;

	for (int i = 0; i < N; i++) {
		x = x * 1664525 + 1013904223;
		first[i] = (float)(int32_t)x / (float)(1 + x % 1000);
	}
	end(device_copy(queue, room[0], first, sizeof(first), &err));
	for (int k = 0; k < 20; k++) {
		end(device_fill(queue, room[1], 0xff, sizeof(first), &err));
		start_and_wait(&req);
		end(device_copy(queue, k ? again : first, room[1],
				sizeof(first), &err));
		end(device_queue_wait(queue, &err));
		same &= !k || !memcmp(first, again, sizeof(first));
	}
	ok(same, "20 sums have the same bits");
}

/* Two groups in flight, started in another order by odd ranks. */
static void check_two_groups(void)
{
	struct comm_req req[2];
	double got[2], want = boot.world * (boot.world - 1) / 2.0;
	double mine = boot.rank;

	for (int k = 0; k < 2; k++) {
		req[k] = (struct comm_req){.op = COMM_SUM,
					   .group = k ? other : world,
					   .type = COMM_F64,
					   .send = room[k],
					   .recv = room[k],
					   .n = 1,
					   .queue = queue,
					   .name = "test"};
		end(device_copy(queue, room[k], &mine, sizeof(mine), &err));
	}
	for (int k = 0; k < 2; k++)
		end(comm_start(&req[(k + boot.rank) % 2], &err));
	for (int k = 0; k < 2; k++) {
		end(comm_wait(&req[k], &err));
		end(device_copy(queue, &got[k], room[k], sizeof(mine), &err));
	}
	end(device_queue_wait(queue, &err));
	ok(got[0] == want && got[1] == want, "two groups at a time");
}

/* --- messages ------------------------------------------------------------- */

enum { MESSAGES = 8, LONGEST = 40 << 20 };

static const int64_t lengths[MESSAGES] = {3,	5,    LONGEST, LONGEST,
					  4099, 4099, 1,       0};

static float *message_room(const struct comm_req *req)
{
	float *p = device_alloc((size_t)req->n * sizeof(float), &err);

	end(p ? 0 : -1);
	return p;
}

static bool check_message(const struct comm_req *req, float *buf)
{
	end(device_copy(queue, buf, req->recv, (size_t)req->n * sizeof(float),
			&err));
	end(device_queue_wait(queue, &err));
	for (int64_t i = 0; i < req->n; i++)
		if (buf[i] != (float)(req->peer * 100 + req->tag + i % 9999))
			return false;
	return true;
}

static void check_ring(void)
{
	struct comm_req send[MESSAGES], recv[MESSAGES];
	float *buf = malloc(LONGEST * sizeof(*buf));

	end(buf ? 0 : err_set(&err, CODE_FINDINGS, "no memory"));
	for (int k = 0; k < MESSAGES; k++) {
		recv[k] = message(ring, false, k, lengths[k]);
		recv[k].recv = message_room(&recv[k]);
		send[k] = message(ring, true, k, lengths[k]);
		send[k].send = message_room(&send[k]);
		for (int64_t i = 0; i < send[k].n; i++)
			buf[i] = (float)(boot.rank * 100 + k + i % 9999);
		end(device_copy(queue, (void *)send[k].send, buf,
				(size_t)send[k].n * sizeof(*buf), &err));
	}
	for (int k = 0; k < MESSAGES; k++)
		end(comm_start(&recv[k], &err));
	for (int k = 0; k < MESSAGES; k++)
		end(comm_start(&send[k], &err));
	for (int k = 0; k < MESSAGES; k++) {
		end(comm_wait(&recv[k], &err));
		end(comm_wait(&send[k], &err));
		ok(check_message(&recv[k], buf), "message %d of the ring, %lld",
		   k, (long long)recv[k].n);
		device_free(recv[k].recv);
		device_free((void *)send[k].send);
	}
	free(buf);
}

/* Down the chain and up again: each rank adds one. */
static void check_chain(void)
{
	int me = boot.rank, last = boot.world - 1;
	double x = 0;
	struct comm_req req = {.group = chain,
			       .type = COMM_F64,
			       .send = room[0],
			       .recv = room[0],
			       .n = 1,
			       .queue = queue,
			       .name = "chain"};

	for (int up = 0; up < 2; up++) {
		int from = up ? me + 1 : me - 1, to = up ? me - 1 : me + 1;

		req.tag = up;
		if (from >= 0 && from <= last) {
			req.op = COMM_RECV;
			req.peer = from;
			start_and_wait(&req);
			end(device_copy(queue, &x, room[0], sizeof(x), &err));
			end(device_queue_wait(queue, &err));
		}
		x++;
		end(device_copy(queue, room[0], &x, sizeof(x), &err));
		if (to >= 0 && to <= last) {
			req.op = COMM_SEND;
			req.peer = to;
			start_and_wait(&req);
		}
	}
	end(device_queue_wait(queue, &err));
	ok(x == 2 * boot.world - me, "down the chain and up: %g", x);
}

/* Odd and even ranks apart: a sum, and a message round each ring. */
static void check_halves(void)
{
	int ranks[64], n = 0, me = boot.rank / 2, want = 0;
	struct comm_group *sums, *half;
	double got[2] = {0, 0}, mine = boot.rank;
	struct comm_req req = {.type = COMM_F64,
			       .send = room[0],
			       .recv = room[1],
			       .n = 1,
			       .queue = queue,
			       .name = "half"};

	for (int r = boot.rank % 2; r < boot.world; r += 2) {
		want += r;
		ranks[n++] = r;
	}
	end(comm_group_open(comm, "half", COMM_COLLECTIVES, ranks, n, me, &sums,
			    &err));
	end(comm_group_open(comm, "half", COMM_RING, ranks, n, me, &half,
			    &err));
	end(device_copy(queue, room[0], &mine, sizeof(mine), &err));
	req.group = sums;
	start_and_wait(&req);
	end(device_copy(queue, &got[0], room[1], sizeof(mine), &err));
	got[1] = ranks[(me + n - 1) % n];
	if (n > 1) {
		struct comm_req recv = req;

		req.group = recv.group = half;
		req.op = COMM_SEND;
		req.peer = (me + 1) % n;
		recv.op = COMM_RECV;
		recv.peer = (me + n - 1) % n;
		end(comm_start(&recv, &err));
		end(comm_start(&req, &err));
		end(comm_wait(&recv, &err));
		end(comm_wait(&req, &err));
		end(device_copy(queue, &got[1], room[1], sizeof(mine), &err));
	}
	end(device_queue_wait(queue, &err));
	comm_group_close(sums);
	comm_group_close(half);
	ok(got[0] == want && got[1] == ranks[(me + n - 1) % n],
	   "half the ranks: %g, %g", got[0], got[1]);
}

/* --- the host's ------------------------------------------------------------ */

static void check_gather(void)
{
	static const size_t sizes[] = {0, 1, 3, 4, 4097};
	static unsigned char mine[4097], all[64 * 4097];
	bool passed = true;

	for (int k = 0; k < 5; k++) {
		size_t bytes = sizes[k];

		for (size_t i = 0; i < bytes; i++)
			mine[i] = (unsigned char)(i * 7 + (size_t)boot.rank);
		end(comm_gather(world, mine, bytes, all, &err));
		for (size_t r = 0; r < (size_t)boot.world; r++)
			for (size_t i = 0; i < bytes; i++)
				passed &= all[r * bytes + i] ==
					  (unsigned char)(i * 7 + r);
	}
	ok(passed, "gather between hosts");
}

static void poll_until(struct comm_req *req)
{
	int rc;

	while (!(rc = comm_test(req, &err)))
		end(comm_check(comm, &err));
	end(rc < 0 ? -1 : 0);
}

/* As many operations under way as a step has, and their ends asked for. */
static void check_many(void)
{
	enum { N = 3000 };
	static struct comm_req req[2];
	double one = 1, got;

	end(device_copy(queue, room[0], &one, sizeof(one), &err));
	for (int k = 0; k < N; k++) {
		struct comm_req *r = &req[k % 2];

		*r = (struct comm_req){.op = COMM_MAX,
				       .group = world,
				       .type = COMM_F64,
				       .send = room[0],
				       .recv = room[0],
				       .n = 1,
				       .queue = queue,
				       .name = "many"};
		end(comm_start(r, &err));
		if (k % 1000 == 999)
			poll_until(r);
		end(comm_wait(r, &err));
	}
	end(device_copy(queue, &got, room[0], sizeof(got), &err));
	end(device_queue_wait(queue, &err));
	ok(got == 1, "%d operations", N);
}

/* --- modes ---------------------------------------------------------------- */

static void test_all(void)
{
	check_collectives(self);
	check_gather();
	check_many();
	if (boot.world > 1) {
		check_collectives(world);
		check_repeats();
		check_two_groups();
		check_ring();
		check_chain();
		check_halves();
	}
	printf("1..%d\n", tests);
}

static void fail_absent(void)
{
	struct comm_req req = {.op = COMM_SUM,
			       .group = world,
			       .send = room[0],
			       .recv = room[0],
			       .n = 2,
			       .queue = queue,
			       .name = "layer 3 attn out"};

	if (boot.rank == boot.world - 1)
		sleep(60);
	start_and_wait(&req);
	for (;;)
		end(comm_check(comm, &err));
}

/* A chain has no edge from its last place to its first. */
static void fail_wrong(void)
{
	struct comm_req req = message(chain, true, 0, 1);

	if (boot.rank < boot.world - 1)
		pause();
	end(comm_start(&req, &err));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	open_all("g-comm", !strcmp(mode, "absent") ? 3 : 60);
	if (boot.world > 1 && !strcmp(mode, "absent"))
		fail_absent();
	else if (boot.world > 1 && !strcmp(mode, "wrong"))
		fail_wrong();
	else
		test_all();
	close_all();
	return failures > 0;
}
