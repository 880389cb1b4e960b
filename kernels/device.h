/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GPU as seen from C: its memory, queues of work and events.  A process
 * uses one device.  Every failure is CODE_LAUNCH and says what CUDA says.
 */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "lib/base/err.h"

struct queue;
struct device_event;

struct device_info {
	char name[256];
	char id[16]; /* bus address, "0000:3b:00.0": the same in all processes */
	int64_t bytes, free_bytes;
	int major, minor; /* compute capability */
	int cores;	  /* multiprocessors */
};

/*
 * Devices that this process may use; 0 if none or no driver.  Must be the
 * process's first call of CUDA: it sets CUDA_DEVICE_MAX_CONNECTIONS, unless
 * that is set, so that queues do not wait for each other.
 */
int device_count(void);

/* Make device NUMBER this process's and describe it.  INFO may be NULL. */
int device_open(int number, struct device_info *info, struct err *e);

/*
 * The FLOP/s that its maker states for dense products of elements of SIZE
 * bytes on this process's device (2 on tensor cores, 4 without them);
 * NaN for devices that are not known here.
 */
double device_peak(size_t size);

/*
 * Memory of the device, and memory of the host that the device can reach
 * (which makes copies asynchronous).  256-byte aligned, not cleared.  NULL
 * if it fails; freeing NULL does nothing.
 */
void *device_alloc(size_t bytes, struct err *e);
void device_free(void *p);
void *device_alloc_host(size_t bytes, struct err *e);
void device_free_host(void *p);

/*
 * A queue runs what is put into it in that order, beside other queues.  It
 * has a workspace of its own for the ops of kern.h.  URGENT ones go first.
 */
struct queue *device_queue_open(bool urgent, struct err *e);
/* One without it: for copies, marks and libraries only. */
struct queue *device_queue_open_bare(bool urgent, struct err *e);
void device_queue_close(struct queue *q);
/*
 * Wait until all is done; -1 if an op put into it since could not be
 * started (the first is named) or failed.
 */
int device_queue_wait(struct queue *q, struct err *e);
/* The same without waiting: was every op started? */
int device_queue_check(struct queue *q, struct err *e);
/* Its cudaStream_t, for libraries. */
void *device_queue_stream(const struct queue *q);

/* Put into Q: a copy (either side of either kind), BYTES bytes of VALUE. */
int device_copy(struct queue *q, void *to, const void *from, size_t bytes,
		struct err *e);
int device_fill(struct queue *q, void *to, unsigned char value, size_t bytes,
		struct err *e);

/* A mark in a queue that others can wait for; TIMED ones cost more. */
struct device_event *device_event_open(bool timed, struct err *e);
void device_event_close(struct device_event *v);
int device_event_put(struct device_event *v, struct queue *q, struct err *e);
/* What is put into Q from now on runs after V's last mark. */
int device_event_after(struct queue *q, const struct device_event *v,
		       struct err *e);
/* *DONE = whether V's last mark was reached. */
int device_event_done(const struct device_event *v, bool *done, struct err *e);
/* *MS = milliseconds between the last marks of two timed events. */
int device_event_ms(double *ms, const struct device_event *from,
		    const struct device_event *to, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
