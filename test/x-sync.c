/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-sync CONFIG NAME RANK: one rank of a training that never steps, in which
 * RANK (-1: none) changes its copy of the weight NAME before the check; run by
 * t5060.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/train/boot.h"
#include "lib/train/sync.h"

static struct boot boot;
static struct err err;

static void end(int rc)
{
	if (rc)
		boot_abort(&boot, err.code, err.text);
}

/* The last element of the last piece of NAME. */
static void spoil(struct trainer *t, const char *name)
{
	double *params = exec_map(&t->exec, FAMILY_PARAM, true, &err);
	int64_t at = -1;

	end(!params);
	for (int i = 0; i < t->plan.slice.pieces; i++) {
		const struct piece *p = &t->plan.slice.piece[i];

		if (!strcmp(t->plan.weights.list[p->weight].name, name))
			at = p->at + box_elements(&p->box) - 1;
	}
	if (at < 0)
		end(err_set(&err, CODE_USAGE, "this rank has no '%s'", name));
	params[at] += 1e-12;
}

int main(int argc, char **argv)
{
	const char *const sets[] = {"spec.params_dtype=\"fp64\""};
	struct report r = {0};
	struct trainer t;
	struct config c;
	struct comm *comm;
	struct arena a;

	if (argc < 4)
		return CODE_USAGE;
	end(boot_open(&boot, 30, &err) || arena_open(&a, &err));
	r.arena = &a;
	end(config_load(argv[1], sets, 1, &a, &c, &r, &err));
	config_finish(&c, boot.world, &r);
	end(comm_open(&comm, &boot, false, 30, &err) ||
	    trainer_open(&t, &c, boot.world, boot.rank, &machine_cpu, comm, &a,
			 &err));
	if (boot.rank == atoi(argv[3]))
		spoil(&t, argv[2]);
	end(sync_check(&t, &err));
	trainer_close(&t);
	comm_close(comm);
	boot_close(&boot);
	arena_close(&a);
	return 0;
}
