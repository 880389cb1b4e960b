/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank that a launcher started, each with a GPU; errors end the job. */
#ifndef TEST_GPU_COMM_TEST_H
#define TEST_GPU_COMM_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/train/boot.h"
#include "lib/train/comm.h"
#include "lib/train/device_choice.h"

enum { MOST = 1 << 20 }; /* doubles in each of room[] */

static struct boot boot;
static struct comm *comm;
static struct comm_group *world, *other, *ring, *chain, *self;
static struct queue *queue;
static struct err err;
static char *room[3]; /* device memory */

static void end(int rc)
{
	if (rc)
		boot_abort(&boot, err.code, err.text);
}

static struct comm_group *open_group(const char *name, enum comm_use use,
				     bool reversed, bool outside)
{
	struct comm_group *g;
	int ranks[64], n = boot.world, me = boot.rank;

	for (int r = 0; r < n; r++)
		ranks[r] = reversed ? n - 1 - r : r;
	end(comm_group_open(comm, name, use, ranks, outside ? 0 : n,
			    reversed ? n - 1 - me : me, &g, &err));
	return g;
}

/* TIMEOUT is of an operation. */
static void open_all(const char *program, double timeout)
{
	struct boot_card card = {.version = "1"};
	int me;

	log_open(program, -1, LOG_INFO);
	end(boot_open(&boot, 60, &err));
	log_open(program, boot.rank, LOG_INFO);
	end(device_choice_open(&boot, &card, &err));
	end(boot_exchange(&boot, &card, 60, &err));
	end(comm_open(&comm, &boot, true, timeout, &err));
	me = boot.rank;
	world = open_group("world", COMM_COLLECTIVES, false, false);
	other = open_group("other", COMM_COLLECTIVES, true, false);
	ring = open_group("ring", COMM_RING, false, false);
	chain = open_group("chain", COMM_CHAIN, false, false);
	end(comm_group_open(comm, "self", COMM_COLLECTIVES, &me, 1, 0, &self,
			    &err));
	/* nobody is in this one */
	if (open_group("none", COMM_RING, false, true))
		end(err_set(&err, CODE_FINDINGS, "a group for an outsider"));
	queue = device_queue_open(false, &err);
	end(queue ? 0 : -1);
	for (int i = 0; i < 3; i++) {
		room[i] = device_alloc(MOST * sizeof(double), &err);
		end(room[i] ? 0 : -1);
	}
}

static void close_all(void)
{
	struct comm_group *groups[] = {world, other, ring, chain, self};

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		comm_group_close(groups[i]);
	comm_close(comm);
	for (int i = 0; i < 3; i++)
		device_free(room[i]);
	device_queue_close(queue);
	boot_close(&boot);
}

static void start_and_wait(struct comm_req *req)
{
	end(comm_start(req, &err));
	end(comm_wait(req, &err));
}

/* Message K: even ones go to the next place, odd ones to the one before. */
static struct comm_req message(struct comm_group *g, bool send, int k,
			       int64_t n)
{
	int step = send == (k % 2 == 0) ? 1 : boot.world - 1;

	return (struct comm_req){.op = send ? COMM_SEND : COMM_RECV,
				 .group = g,
				 .n = n,
				 .peer = (boot.rank + step) % boot.world,
				 .tag = k,
				 .queue = queue,
				 .name = "message"};
}

#endif
