/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/attn_cudnn.h"
#include "kernels/kern_cuda.h"

struct device_event {
	cudaEvent_t event;
};

static int fail(struct err *e, const char *what, cudaError_t bad)
{
	return err_set(e, CODE_LAUNCH, "%s: %s", what, cudaGetErrorString(bad));
}

/*
 * Queues share the hardware's, eight unless told otherwise, and one that
 * waits for a peer's message would then hold up another's op, perhaps the
 * very one that the peer waits for: let each have its own.
 */
static void settle_environment(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

int device_count(void)
{
	int count = 0;

	settle_environment();
	if (cudaGetDeviceCount(&count) == cudaSuccess)
		return count;
	cudaGetLastError(); /* or the next op would be blamed for it */
	return 0;
}

static int describe(struct device_info *info, int number, struct err *e)
{
	struct cudaDeviceProp p;
	size_t free_bytes, bytes;
	cudaError_t bad = cudaGetDeviceProperties(&p, number);

	if (bad == cudaSuccess)
		bad = cudaMemGetInfo(&free_bytes, &bytes);
	if (bad != cudaSuccess)
		return fail(e, "cannot describe the device", bad);
	snprintf(info->name, sizeof(info->name), "%s", p.name);
	info->bytes = (int64_t)bytes;
	info->free_bytes = (int64_t)free_bytes;
	info->major = p.major;
	info->minor = p.minor;
	info->cores = p.multiProcessorCount;
	bad = cudaDeviceGetPCIBusId(info->id, sizeof(info->id), number);
	if (bad != cudaSuccess)
		return fail(e, "cannot tell the device's address", bad);
	return 0;
}

/* What the kernels are compiled for. */
enum { LEAST_MAJOR = 8 };

static int too_old(int number, struct err *e)
{
	int major = 0, minor = 0;

	cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
			       number);
	cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
			       number);
	if (major >= LEAST_MAJOR)
		return 0;
	return err_set(e, CODE_LAUNCH,
		       "device %d has compute capability %d.%d, below %d.0 "
		       "(A100); spec.device = \"cpu\" does without it",
		       number, major, minor, LEAST_MAJOR);
}

int device_open(int number, struct device_info *info, struct err *e)
{
	int count = device_count();
	cudaError_t bad;

	if (number < 0 || number >= count)
		return err_set(e, CODE_LAUNCH,
			       "device %d of %d: there is no such device "
			       "(see nvidia-smi and CUDA_VISIBLE_DEVICES)",
			       number, count);
	bad = cudaSetDevice(number);
	if (bad == cudaSuccess)
		bad = cudaFree(NULL); /* makes the context, which can fail */
	if (bad != cudaSuccess)
		return fail(e, "cannot use the device", bad);
	if (too_old(number, e))
		return -1;
	return info ? describe(info, number, e) : 0;
}

double device_peak(size_t size)
{
	static const struct {
		int major, minor;
		double fp32, bf16;
	} known[] = {{8, 0, 19.5e12, 312e12}, {9, 0, 67e12, 989.5e12}};
	int device = 0, major = 0, minor = 0;

	cudaGetDevice(&device);
	cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
			       device);
	cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
			       device);
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].major == major && known[i].minor == minor)
			return size == 2 ? known[i].bf16 : known[i].fp32;
	return NAN;
}

void *device_alloc(size_t bytes, struct err *e)
{
	void *p = NULL;
	cudaError_t bad = cudaMalloc(&p, bytes ? bytes : 1);
	size_t free_bytes = 0, all = 0;

	if (bad == cudaSuccess)
		return p;
	cudaGetLastError();
	cudaMemGetInfo(&free_bytes, &all);
	err_set(e, CODE_LAUNCH,
		"cannot allocate %zu bytes of device memory (%zu free): %s",
		bytes, free_bytes, cudaGetErrorString(bad));
	return NULL;
}

void device_free(void *p)
{
	cudaFree(p);
}

void *device_alloc_host(size_t bytes, struct err *e)
{
	void *p = NULL;
	cudaError_t bad = cudaMallocHost(&p, bytes ? bytes : 1);

	if (bad == cudaSuccess)
		return p;
	cudaGetLastError();
	err_set(e, CODE_LAUNCH, "cannot pin %zu bytes of host memory: %s",
		bytes, cudaGetErrorString(bad));
	return NULL;
}

void device_free_host(void *p)
{
	cudaFreeHost(p);
}

struct queue *device_queue_open_bare(bool urgent, struct err *e)
{
	struct queue *q = (struct queue *)calloc(1, sizeof(*q));
	int least = 0, greatest = 0;
	cudaError_t bad;

	if (!q) {
		err_sys(e, CODE_LAUNCH, "cannot open a queue");
		return NULL;
	}
	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	bad = cudaStreamCreateWithPriority(&q->stream, cudaStreamNonBlocking,
					   urgent ? greatest : least);
	if (bad == cudaSuccess)
		return q;
	fail(e, "cannot open a queue", bad);
	free(q);
	return NULL;
}

struct queue *device_queue_open(bool urgent, struct err *e)
{
	struct queue *q = device_queue_open_bare(urgent, e);

	if (!q)
		return NULL;
	q->work = (char *)device_alloc(QUEUE_WORK, e);
	if (q->work && cublasLtCreate(&q->blas) == CUBLAS_STATUS_SUCCESS)
		return q;
	if (q->work)
		err_set(e, CODE_LAUNCH, "cannot start cublasLt");
	device_queue_close(q);
	return NULL;
}

void device_queue_close(struct queue *q)
{
	if (!q)
		return;
	cudaStreamSynchronize(q->stream);
	queue_free_plans(q);
	kern_cudnn_release(q);
	if (q->blas)
		cublasLtDestroy(q->blas);
	cudaFree(q->work);
	cudaStreamDestroy(q->stream);
	free(q);
}

void queue_fail(struct queue *q, const char *op, const char *why)
{
	if (q->failed)
		return;
	q->failed = op;
	snprintf(q->why, sizeof(q->why), "%s", why);
}

int device_queue_check(struct queue *q, struct err *e)
{
	const char *op = q->failed;

	q->failed = NULL;
	return op ? err_set(e, CODE_LAUNCH, "cannot start %s on the device: %s",
			    op, q->why)
		  : 0;
}

int device_queue_wait(struct queue *q, struct err *e)
{
	cudaError_t bad = cudaStreamSynchronize(q->stream);

	if (device_queue_check(q, e))
		return -1;
	return bad == cudaSuccess ? 0 : fail(e, "an op on the device", bad);
}

void *device_queue_stream(const struct queue *q)
{
	return q->stream;
}

int device_copy(struct queue *q, void *to, const void *from, size_t bytes,
		struct err *e)
{
	cudaError_t bad =
		cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, q->stream);

	return bad == cudaSuccess ? 0 : fail(e, "copy", bad);
}

int device_fill(struct queue *q, void *to, unsigned char value, size_t bytes,
		struct err *e)
{
	cudaError_t bad = cudaMemsetAsync(to, value, bytes, q->stream);

	return bad == cudaSuccess ? 0 : fail(e, "fill", bad);
}

struct device_event *device_event_open(bool timed, struct err *e)
{
	struct device_event *v = (struct device_event *)calloc(1, sizeof(*v));
	cudaError_t bad;

	if (!v) {
		err_sys(e, CODE_LAUNCH, "cannot open an event");
		return NULL;
	}
	bad = cudaEventCreateWithFlags(
		&v->event, timed ? cudaEventDefault : cudaEventDisableTiming);
	if (bad == cudaSuccess)
		return v;
	fail(e, "cannot open an event", bad);
	free(v);
	return NULL;
}

void device_event_close(struct device_event *v)
{
	if (v)
		cudaEventDestroy(v->event);
	free(v);
}

int device_event_put(struct device_event *v, struct queue *q, struct err *e)
{
	cudaError_t bad = cudaEventRecord(v->event, q->stream);

	return bad == cudaSuccess ? 0 : fail(e, "mark a queue", bad);
}

int device_event_after(struct queue *q, const struct device_event *v,
		       struct err *e)
{
	cudaError_t bad = cudaStreamWaitEvent(q->stream, v->event, 0);

	return bad == cudaSuccess ? 0 : fail(e, "order two queues", bad);
}

int device_event_done(const struct device_event *v, bool *done, struct err *e)
{
	cudaError_t bad = cudaEventQuery(v->event);

	*done = bad == cudaSuccess;
	if (bad == cudaErrorNotReady) {
		cudaGetLastError();
		return 0;
	}
	return bad == cudaSuccess ? 0 : fail(e, "an op on the device", bad);
}

int device_event_ms(double *ms, const struct device_event *from,
		    const struct device_event *to, struct err *e)
{
	float t = 0;
	cudaError_t bad = cudaEventElapsedTime(&t, from->event, to->event);

	*ms = (double)t;
	return bad == cudaSuccess ? 0 : fail(e, "time between events", bad);
}
