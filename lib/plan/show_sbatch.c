/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/show_text.h"

#define MIB ((int64_t)1 << 20)

/*
 * Beside what is planned: a quarter for the libraries' workspaces, and a
 * constant for the program, MPI's buffers and the page cache of the data.
 */
enum { MARGIN_PERCENT = 25, MARGIN_MIB = 512 };

/* Seconds of warning: a step, and two saves at a modest file system. */
enum { SIGNAL_SECONDS = 120, SAVE_MIB_PER_SECOND = 200 };

/* With a GPU the host holds what is saved or loaded, and a driver. */
enum { DRIVER_MIB = 2048 };

/* What a rank needs of the host, in bytes. */
static int64_t host_bytes(const struct sum *x, const struct sum_rank *r)
{
	if (x->config->spec.device != DEVICE_CUDA)
		return sum_bytes(r);
	return r->bytes[FAMILY_PARAM] + r->bytes[FAMILY_OPTIM] +
	       2 * r->bytes[FAMILY_HOST];
}

/* The largest need of any rank, in MiB. */
static int64_t task_mib(const struct sum *x)
{
	bool gpu = x->config->spec.device == DEVICE_CUDA;
	int64_t most = 0;

	for (int pp = 0; pp < x->grid.pp; pp++) {
		int64_t n = host_bytes(x, &x->rank[pp]);

		most = n > most ? n : most;
	}
	return most / 100 * (100 + MARGIN_PERCENT) / MIB + MARGIN_MIB + 1 +
	       (gpu ? DRIVER_MIB : 0);
}

/* What a node's tasks save at most: parameters and optimizer state. */
static int64_t save_mib(const struct sum *x, int per_node)
{
	int64_t most = 0;

	for (int pp = 0; pp < x->grid.pp; pp++) {
		const struct sum_rank *r = &x->rank[pp];
		int64_t n = r->bytes[FAMILY_PARAM] + r->bytes[FAMILY_OPTIM];

		most = n > most ? n : most;
	}
	return most / MIB * per_node;
}

static void put_memory(FILE *f, const struct sum *x, int per_node)
{
	bool gpu = x->config->spec.device == DEVICE_CUDA;

	fprintf(f,
		"# memory of a node: %d x (%s + %d%% + %d MiB)\n"
		"#SBATCH --mem=%" PRId64 "M\n",
		per_node, gpu ? "what is saved" : "planned", MARGIN_PERCENT,
		MARGIN_MIB + (gpu ? DRIVER_MIB : 0), per_node * task_mib(x));
}

void show_sbatch(FILE *f, const struct show *s, int per_node)
{
	const struct sum *x = s->sum;
	const struct config *c = x->config;
	int world = x->grid.world;
	int nodes = (world + per_node - 1) / per_node;
	int64_t seconds = SIGNAL_SECONDS;

	if (x->planned)
		seconds += 2 * save_mib(x, per_node) / SAVE_MIB_PER_SECOND;
	fprintf(f, "# world %s\n", text_world(x, s->a));
	fprintf(f, "#SBATCH --nodes=%d\n#SBATCH --ntasks=%d\n", nodes, world);
	fprintf(f, "#SBATCH --ntasks-per-node=%d\n", per_node);
	if (IS_SET(c->run.num_threads))
		fprintf(f, "#SBATCH --cpus-per-task=%" PRId64 "\n",
			c->run.num_threads);
	if (c->spec.device == DEVICE_CUDA)
		fputs("#SBATCH --gpus-per-task=1\n", f);
	if (x->planned)
		put_memory(f, x, per_node);
	fprintf(f,
		"# notice before the end: a step and two saves of a node at "
		"%d MiB/s\n"
		"#SBATCH --signal=USR1@%" PRId64 "\n"
		"#SBATCH --open-mode=append\n",
		SAVE_MIB_PER_SECOND, seconds);
}
