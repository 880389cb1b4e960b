/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a GPU takes for one work (work.h).  The data sheet's peaks times
 * what of them was reached on an H200 inside of whole steps, at the clocks
 * that its power allows there (test/bench/NOTES.md); GPUs that were not
 * measured are taken to reach the same shares.
 */
#ifndef PLAN_COST_H
#define PLAN_COST_H

#include "lib/plan/cluster.h"
#include "lib/plan/grid.h"
#include "lib/plan/work.h"

/* A group of ranks: how many, and how many of them share a node. */
struct span {
	int size, local;
};

/* Where the work is done. */
struct machine {
	const struct gpu *gpu;
	int per_node; /* GPUs */
	struct span span[PROG_GROUPS];
};

/* CL's GPUs with the groups of G. */
void machine_build(struct machine *m, const struct cluster *cl,
		   const struct grid *g);

/*
 * Seconds of one product, rows x out of in, in ELEM bytes or fp8 (LOW); for
 * an output it moves RESULT bytes.
 */
double cost_gemm(const struct gpu *gpu, double rows, double out, double in,
		 double elem, double result, bool low);

/* Seconds of a pass over BYTES of memory at RATE of its bandwidth. */
double cost_bytes(const struct gpu *gpu, double bytes, double rate);

/* Seconds of COMM over S: SIZE as work.h's, bytes given or got. */
double cost_comm(const struct machine *m, int comm, struct span s, double size);

/* Seconds of the forward or backward slot's part of W, all of its count. */
double cost_work(const struct machine *m, const struct work *w,
		 const struct work_dims *d, bool backward);

#endif
