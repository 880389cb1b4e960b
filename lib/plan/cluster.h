/* SPDX-License-Identifier: Apache-2.0 */
/* What a job would run on, as far as that is known before it is queued. */
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H

#include <stdint.h>

struct config;
struct report;

/* 0 in any of them: not known. */
struct cluster {
	int64_t world; /* ranks, one on a GPU */
	int64_t nodes, gpus_per_node;
	int64_t gpu_memory; /* bytes of one GPU */
};

/* WORLD from nodes * gpus_per_node where only those are known, and so on. */
void cluster_finish(struct cluster *cl);

/*
 * Report what of a finalised, valid CONFIG does not go with CL: sizes that do not
 * multiply, groups that leave a node, memory that does not suffice.
 */
void cluster_check(const struct cluster *cl, const struct config *config,
		   struct report *r);

#endif
