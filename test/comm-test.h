/* SPDX-License-Identifier: Apache-2.0 */
/* Every rank that a launcher started, in one group; errors end the job. */
#ifndef TEST_COMM_TEST_H
#define TEST_COMM_TEST_H

#include <stdlib.h>

#include "lib/base/log.h"
#include "lib/train/boot.h"
#include "lib/train/comm.h"

static struct boot boot;
static struct comm *comm;
static struct comm_group *world;
static struct err err;

static void end(int rc)
{
	if (rc)
		boot_abort(&boot, err.code, err.text);
}

/* TIMEOUT is of a collective; at most 64 ranks. */
static void world_open(const char *program, double timeout)
{
	struct boot_card card = {.version = "1"};
	int ranks[64];

	log_open(program, -1, LOG_INFO);
	end(boot_open(&boot, 30, &err));
	log_open(program, boot.rank, LOG_INFO);
	end(boot_exchange(&boot, &card, 30, &err));
	end(comm_open(&comm, &boot, false, timeout, &err));
	for (int r = 0; r < boot.world; r++)
		ranks[r] = r;
	end(comm_group_open(comm, "world", COMM_COLLECTIVES, ranks, boot.world,
			    boot.rank, &world, &err));
}

static void world_close(void)
{
	comm_group_close(world);
	comm_close(comm);
	boot_close(&boot);
}

#endif
