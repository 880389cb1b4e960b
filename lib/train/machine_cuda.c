/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GPU.  The host writes the inputs of the next run while the last one is
 * under way: a slot each in pinned memory, copied to the device in front of
 * the run's first op; its scalars are copied back behind the last one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/attn_cudnn.h"
#include "kernels/device.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/train/machine.h"

enum { SLOTS = 2, ENDS = SLOTS + 1 };

/* Nothing is slower than the device itself: ask this often. */
#define NAP_NS 20000

struct own {
	char *slot[SLOTS];	     /* FAMILY_HOST of each run, pinned */
	struct kern_scalars *result; /* [SLOTS], pinned */
	struct device_event *begin[SLOTS];
	struct device_event *done[ENDS]; /* of the run before, too */
	double waited[SLOTS];	    /* from prepare to begin, or -1: not idle */
	struct device_event **mark; /* where ops are timed */
	int marks;
	int64_t begun, read; /* runs */
};

static const struct kern *cuda_kern(int dtype)
{
	return dtype == DTYPE_FP32   ? &kern_cuda_f32
	       : dtype == DTYPE_BF16 ? &kern_cuda_bf16
	       : dtype == DTYPE_FP16 ? &kern_cuda_fp16
				     : NULL;
}

static int open_families(struct exec *x, struct err *e)
{
	const struct prog *p = x->prog;

	for (int f = 0; f < FAMILIES; f++) {
		size_t bytes = (size_t)p->bytes[f];

		if (!bytes)
			continue;
		x->base[f] = device_alloc(bytes, e);
		if (!x->base[f])
			return err_wrap(e, "%" PRId64 " bytes for %s: ",
					p->bytes[f], family_name(f));
		x->allocated += p->bytes[f];
		if (device_fill(x->queue, x->base[f], 0, bytes, e))
			return -1;
	}
	return 0;
}

static int open_slots(struct exec *x, struct own *o, struct err *e)
{
	size_t bytes = (size_t)x->prog->bytes[FAMILY_HOST];

	o->result = device_alloc_host(SLOTS * sizeof(*o->result), e);
	if (!o->result)
		return -1;
	for (int i = 0; i < SLOTS; i++) {
		o->slot[i] = device_alloc_host(bytes, e);
		o->begin[i] = device_event_open(true, e);
		if (!o->slot[i] || !o->begin[i])
			return -1;
		memset(o->slot[i], 0, bytes);
	}
	for (int i = 0; i < ENDS; i++) {
		o->done[i] = device_event_open(true, e);
		if (!o->done[i])
			return -1;
	}
	x->host = o->slot[0];
	return 0;
}

/*
 * Have cuDNN compile its attention now rather than in the first step.  A
 * library that is not there is no failure: the table's own kernel runs.
 */
static int open_attention(struct exec *x, struct err *e)
{
	const struct prog_list *l = &x->prog->train;
	const struct kern_attn_dims *d = NULL; /* the layers' before */
	bool loaded = false;
	struct err missing;

	for (int i = 0; i < l->count; i++) {
		if (l->op[i].code != OP_ATTN_FWD || l->op[i].attn == d)
			continue;
		d = l->op[i].attn;
		if (kern_attn_backend(d, true, x->prog->elem) == KERN_ATTN_OWN)
			continue;
		if (!loaded && kern_cudnn_load(NULL, &missing)) {
			log_warn("%s; attention is trisect's own",
				 missing.text);
			return 0;
		}
		loaded = true;
		if (kern_cudnn_prepare(x->queue, d, x->dtype == DTYPE_FP16, e))
			return -1;
	}
	return 0;
}

static int cuda_open(struct exec *x, struct err *e)
{
	struct own *o = calloc(1, sizeof(*o));

	if (!o)
		return err_set(e, CODE_LAUNCH, "out of memory");
	x->own = o;
	x->queue = device_queue_open(false, e);
	if (!x->queue || open_slots(x, o, e) || open_families(x, e) ||
	    open_attention(x, e))
		return -1;
	return device_queue_wait(x->queue, e);
}

static void cuda_close(struct exec *x)
{
	struct own *o = x->own;

	if (!o)
		return;
	device_queue_close(x->queue);
	for (int f = 0; f < FAMILIES; f++)
		device_free(x->base[f]);
	for (int i = 0; i < SLOTS; i++) {
		device_free_host(o->slot[i]);
		device_event_close(o->begin[i]);
	}
	for (int i = 0; i < ENDS; i++)
		device_event_close(o->done[i]);
	for (int i = 0; i < o->marks; i++)
		device_event_close(o->mark[i]);
	free(o->mark);
	device_free_host(o->result);
	free(o);
}

static int cuda_copy(struct exec *x, void *to, const void *from, size_t bytes,
		     struct err *e)
{
	if (device_copy(x->queue, to, from, bytes, e))
		return -1;
	return device_queue_wait(x->queue, e);
}

/* Wait for V without spinning; a peer's failure ends it. */
static int wait_event(struct exec *x, const struct device_event *v,
		      struct err *e)
{
	static const struct timespec nap = {0, NAP_NS};
	bool done = false;

	for (;;) {
		if (device_event_done(v, &done, e))
			return -1;
		if (done)
			return 0;
		if (x->comm && comm_check(x->comm, e))
			return -1;
		nanosleep(&nap, NULL);
	}
}

/* The slot's last run was asked for its results, and so is over. */
static int cuda_prepare(struct exec *x, struct err *e)
{
	struct own *o = x->own;

	(void)e;
	x->host = o->slot[o->begun % SLOTS];
	return 0;
}

/* An idle device has waited for the inputs too. */
static int cuda_begin(struct exec *x, struct err *e)
{
	struct own *o = x->own;
	int slot = (int)(o->begun % SLOTS);

	o->waited[slot] = x->runs ? -1 : sys_seconds() - x->prepared;
	if (device_event_put(o->begin[slot], x->queue, e))
		return -1;
	return device_copy(x->queue, x->base[FAMILY_HOST], x->host,
			   (size_t)x->prog->bytes[FAMILY_HOST], e);
}

static int cuda_end(struct exec *x, struct err *e)
{
	struct own *o = x->own;
	int64_t run = o->begun++;

	if (device_copy(x->queue, &o->result[run % SLOTS], x->base[FAMILY_HOST],
			sizeof(*o->result), e) ||
	    device_event_put(o->done[run % ENDS], x->queue, e))
		return -1;
	return device_queue_check(x->queue, e);
}

/* Events are made when first needed: only a profile needs them. */
static int cuda_mark(struct exec *x, int i, struct err *e)
{
	struct own *o = x->own;

	if (!o->mark)
		o->mark = calloc((size_t)x->prog->train.count + 1,
				 sizeof(*o->mark));
	if (!o->mark)
		return err_set(e, CODE_LAUNCH, "out of memory");
	if (i == o->marks) {
		o->mark[i] = device_event_open(true, e);
		if (!o->mark[i])
			return -1;
		o->marks++;
	}
	return device_event_put(o->mark[i], x->queue, e);
}

static int cuda_marks(struct exec *x, int ops, double *ms, struct err *e)
{
	struct own *o = x->own;

	if (wait_event(x, o->mark[ops], e))
		return -1;
	for (int i = 0; i < ops; i++)
		if (device_event_ms(&ms[i], o->mark[i], o->mark[i + 1], e))
			return -1;
	return 0;
}

static int cuda_results(struct exec *x, struct kern_scalars *out,
			double *seconds, struct err *e)
{
	struct own *o = x->own;
	int64_t run = o->read++;
	int slot = (int)(run % SLOTS);
	bool idle = o->waited[slot] >= 0;
	const struct device_event *end = o->done[run % ENDS];
	const struct device_event *begin =
		idle ? o->begin[slot] : o->done[(run + ENDS - 1) % ENDS];
	double ms;

	if (wait_event(x, end, e) || device_event_ms(&ms, begin, end, e))
		return -1;
	*seconds = ms / 1e3 + (idle ? o->waited[slot] : 0);
	*out = o->result[slot];
	return 0;
}

const struct machine *machine_cuda(void)
{
	static const struct machine cuda = {
		.device = DEVICE_CUDA,
		.count = device_count,
		.peak = device_peak,
		.lag = SLOTS - 1,
		.kern = cuda_kern,
		.open = cuda_open,
		.close = cuda_close,
		.copy = cuda_copy,
		.prepare = cuda_prepare,
		.begin = cuda_begin,
		.end = cuda_end,
		.mark = cuda_mark,
		.marks = cuda_marks,
		.results = cuda_results,
	};

	return &cuda;
}
