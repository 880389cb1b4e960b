/* SPDX-License-Identifier: Apache-2.0 */
/* Where a program runs: on the host's processors, or on one GPU. */
#ifndef TRAIN_MACHINE_H
#define TRAIN_MACHINE_H

#include "lib/train/exec.h"

struct machine {
	int device; /* enum spec_device */
	/* How many of them this process can use. */
	int (*count)(void);
	/*
	 * How many runs may be under way while the next one is prepared: 0
	 * where exec_run itself does the work.
	 */
	int lag;
	/* FLOP/s of its products of elements of SIZE bytes at best, or NaN. */
	double (*peak)(size_t size);
	/* The table of ops for a dtype (enum spec_dtype), NULL if none. */
	const struct kern *(*kern)(int dtype);
	/* Allocate and clear every family: base[], host, queue. */
	int (*open)(struct exec *x, struct err *e);
	void (*close)(struct exec *x);
	/* Copy BYTES to or from a family; done when it returns. */
	int (*copy)(struct exec *x, void *to, const void *from, size_t bytes,
		    struct err *e);
	/* Make host[] of the next run free to be written. */
	int (*prepare)(struct exec *x, struct err *e);
	/* Hand it over, before the run's first op. */
	int (*begin)(struct exec *x, struct err *e);
	/* Let the scalars come back, after its last op. */
	int (*end)(struct exec *x, struct err *e);
	/*
	 * Note the time between two ops, the first before the first one; then
	 * ms[i] = what passed between marks I and I + 1, once all is done.
	 */
	int (*mark)(struct exec *x, int i, struct err *e);
	int (*marks)(struct exec *x, int ops, double *ms, struct err *e);
	/* The scalars of the oldest run not asked for yet, and its time. */
	int (*results)(struct exec *x, struct kern_scalars *out,
		       double *seconds, struct err *e);
};

extern const struct machine machine_cpu;

/*
 * The machine for DEVICE and a dtype, where DEVICE_AUTO is a GPU if one is
 * visible and has the dtype.  Fails (CODE_LAUNCH) if a GPU is asked for and
 * this build or this host has none.
 */
const struct machine *machine_choose(int device, int dtype, struct err *e);

/*
 * The GPU's, on the device that this process has opened; NULL in a build
 * without CUDA.
 */
const struct machine *machine_cuda(void);

#endif
