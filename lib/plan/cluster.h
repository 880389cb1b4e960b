/* SPDX-License-Identifier: Apache-2.0 */
/* What a job would run on, as far as that is known before it is queued. */
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct config;
struct gpu;
struct report;

/* 0 in any of them: not known. */
struct cluster {
	int64_t world; /* ranks, one on a GPU */
	int64_t nodes, gpus_per_node;
	int64_t gpu_memory; /* bytes of one GPU */
	const struct gpu
		*gpu; /* whose times are predicted; NULL: gpu.h's first */
};

/* GPUs of a node where nobody said how many. */
enum { CLUSTER_PER_NODE = 8 };

/*
 * The share of a GPU's memory that a plan may fill: the rest is for the
 * context, the libraries' workspaces and NCCL's communicators, which took
 * 2.2 GiB on two H200s.
 */
#define CLUSTER_SHARE 0.92

/*
 * The GPU called NAME (NULL: the default); CODE_USAGE with all names if there
 * is none.
 */
int cluster_gpu(struct cluster *cl, const char *name, struct err *e);

/* WORLD from nodes * gpus_per_node where only those are known, and so on. */
void cluster_finish(struct cluster *cl);

/*
 * Report what of a finalised CONFIG does not go with CL: sizes that do not
 * multiply and, of one without errors so far, groups that leave a node and
 * memory that does not suffice, if the vocabulary is known.  LOADED is CONFIG
 * as it was before: what else would fit is tried with it.  Returns the bytes of
 * the rank that needs most if they were asked for and known, else 0, and
 * whether they are planned.
 */
int64_t cluster_check(const struct cluster *cl, const struct config *loaded,
		      const struct config *config, struct report *r,
		      bool *planned);

/*
 * Bytes of CONFIG's rank that needs most, by family (prog.h), of the plan if
 * train-worker can run it (*planned), else estimated; -1 (CODE_CONFIG): the
 * world does not fit.  *PP: its pipeline rank.
 */
int64_t cluster_memory(const struct cluster *cl, const struct config *config,
		       int64_t *family, int *pp, bool *planned, struct err *e);

#endif
