/* SPDX-License-Identifier: Apache-2.0 */
/* What a job would run on, as far as that is known before it is queued. */
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H

#include <stdint.h>

struct config;
struct gpu;
struct report;

/* 0 in any of them: not known. */
struct cluster {
	int64_t world; /* ranks, one on a GPU */
	int64_t nodes, gpus_per_node;
	int64_t gpu_memory;    /* bytes of one GPU */
	const struct gpu *gpu; /* whose times are predicted; NULL: gpu.h's first */
};

/* GPUs of a node where nobody said how many. */
enum { CLUSTER_PER_NODE = 8 };

/*
 * Bytes of a GPU that a rank cannot plan with: the context, the libraries'
 * workspaces and NCCL's communicators, which the larger jobs have more of.
 * On H200s 2.2 GiB were measured for the communicators of two ranks.
 */
#define CLUSTER_LIBRARIES ((int64_t)4 << 30)

/* WORLD from nodes * gpus_per_node where only those are known, and so on. */
void cluster_finish(struct cluster *cl);

/*
 * Report what of a finalised, valid CONFIG does not go with CL: sizes that do not
 * multiply, groups that leave a node, memory that does not suffice.
 */
void cluster_check(const struct cluster *cl, const struct config *config,
		   struct report *r);

#endif
