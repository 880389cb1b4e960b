/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that times are predicted for. */
#ifndef PLAN_GPU_H
#define PLAN_GPU_H

#include <stdbool.h>
#include <stdint.h>

/* By the vendor's data sheets; what of it is reached: cost.h. */
struct gpu {
	const char *name;
	double bf16, fp8, fp32; /* FLOP/s, dense */
	double bandwidth;	/* bytes/s of its memory */
	double nvlink, network; /* bytes/s of one GPU, one way */
	int64_t memory;		/* bytes that a program can see */
	int sms;
	bool measured; /* predictions were compared with runs on it */
};

/* All of them, the default first, up to one without a name. */
#define GPU_NAMES "h200, h100, a100-80g and b200"
extern const struct gpu gpu_table[];

/* The row of NAME, of the default for NULL, or NULL. */
const struct gpu *gpu_find(const char *name);

#endif
