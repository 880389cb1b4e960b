/* SPDX-License-Identifier: Apache-2.0 */
/* Speed between GPUs: srun or mpirun -n N gpu-comm. */
#include "test/gpu-comm-test.h"

static double seconds_of(enum comm_op op, int64_t bytes, int repeat)
{
	struct comm_req req = {.op = op,
			       .group = world,
			       .type = COMM_BF16,
			       .n = bytes / 2,
			       .queue = queue,
			       .name = "bench"};
	char *buf = device_alloc((size_t)bytes, &err);
	double start = 0;

	end(buf ? 0 : -1);
	if (op == COMM_ALL_GATHER || op == COMM_REDUCE_SCATTER)
		req.n /= boot.world;
	req.send = req.recv = buf;
	if (op == COMM_ALL_GATHER)
		req.send = buf + 2 * req.n * boot.rank;
	if (op == COMM_REDUCE_SCATTER)
		req.recv = buf + 2 * req.n * boot.rank;
	for (int k = -5; k < repeat; k++) {
		if (k == 0) {
			end(device_queue_wait(queue, &err));
			start = sys_seconds();
		}
		start_and_wait(&req);
	}
	end(device_queue_wait(queue, &err));
	start = sys_seconds() - start;
	device_free(buf);
	return start / repeat;
}

/* Both ways between neighbours at once. */
static double seconds_of_messages(int64_t bytes, int repeat)
{
	char *buf = device_alloc((size_t)bytes * 4, &err);
	struct comm_req req[4];
	double start = 0;

	end(buf ? 0 : -1);
	for (int k = -5; k < repeat; k++) {
		if (k == 0) {
			end(device_queue_wait(queue, &err));
			start = sys_seconds();
		}
		for (int i = 0; i < 4; i++) {
			req[i] = message(ring, i > 1, i % 2, bytes / 4);
			req[i].send = req[i].recv = buf + i * bytes;
			end(comm_start(&req[i], &err));
		}
		for (int i = 0; i < 4; i++)
			end(comm_wait(&req[i], &err));
	}
	end(device_queue_wait(queue, &err));
	start = sys_seconds() - start;
	device_free(buf);
	return start / repeat;
}

static void bench_all(void)
{
	static const char *const names[] = {
		[COMM_SUM] = "all-reduce",
		[COMM_REDUCE_SCATTER] = "reduce-scatter",
		[COMM_ALL_GATHER] = "all-gather",
	};
	double share = (boot.world - 1.0) / boot.world;

	for (int64_t kib = 4; kib <= 1 << 20; kib *= 16) {
		int64_t bytes = kib * 1024;
		int repeat = kib < 4096 ? 500 : 20;
		double s;

		for (int op = COMM_SUM; op <= COMM_ALL_GATHER; op++) {
			if (op == COMM_MAX)
				continue;
			s = seconds_of((enum comm_op)op, bytes, repeat);
			if (!boot.rank)
				printf("%-16s %8lld KiB %9.1f us, bus %6.1f "
				       "GB/s\n",
				       names[op], (long long)kib, s * 1e6,
				       (op == COMM_SUM ? 2 : 1) * share *
					       (double)bytes / s / 1e9);
		}
		s = seconds_of_messages(bytes, repeat);
		if (!boot.rank)
			printf("%-16s %8lld KiB %9.1f us, each way %6.1f "
			       "GB/s\n",
			       "messages", (long long)kib, s * 1e6,
			       (double)bytes / s / 1e9);
		fflush(stdout);
	}
}

int main(void)
{
	struct device_info info;
	int number;

	open_all("gpu-comm", 60);
	number = device_choice(&boot, device_count(), &err);
	end(device_open(number, &info, &err));
	printf("rank %d: %s, %lld MiB in use\n", boot.rank, info.name,
	       (long long)((info.bytes - info.free_bytes) >> 20));
	if (boot.world > 1)
		bench_all();
	close_all();
	return 0;
}
