/* SPDX-License-Identifier: Apache-2.0 */
/* A queue's plans of attention by cuDNN, and their launches. */
#include "kernels/attn_cudnn.h"

#include "kernels/kern_cuda.h"

#ifdef KERN_CUDNN
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attn_cudnn_graph.h"

#define PLANS 32

struct cudnn_plan {
	struct attn_graph graph;
	struct attn_engine engine;
};

struct cudnn_queue {
	cudnnHandle_t handle;
	struct cudnn_plan plan[PLANS];
	int plans, next;
	float scale, never, one; /* read while a launch is put in */
};

bool kern_cudnn_there(void)
{
	return !*cudnn_library()->missing;
}

int kern_cudnn_load(size_t *version, struct err *e)
{
	const struct cudnn *lib = cudnn_library();

	if (*lib->missing)
		return err_set(e, CODE_LAUNCH,
			       "cannot load cuDNN: %s (install it, put its "
			       "folder into LD_LIBRARY_PATH, or set "
			       "attention_backend = \"local\")",
			       lib->missing);
	if (version)
		*version = lib->cudnnGetVersion();
	return 0;
}

/* Q's state, opened when first needed. */
static struct cudnn_queue *queue_state(struct queue *q, struct err *e)
{
	const struct cudnn *lib = cudnn_library();
	struct cudnn_queue *c = q->cudnn;
	cudnnStatus_t bad;

	if (c || kern_cudnn_load(NULL, e))
		return c;
	c = (struct cudnn_queue *)calloc(1, sizeof(*c));
	if (!c) {
		err_sys(e, CODE_LAUNCH, "cannot start cuDNN");
		return NULL;
	}
	bad = lib->cudnnCreate(&c->handle);
	if (bad == CUDNN_STATUS_SUCCESS)
		bad = lib->cudnnSetStream(c->handle, q->stream);
	if (bad != CUDNN_STATUS_SUCCESS) {
		err_set(e, CODE_LAUNCH, "cannot start cuDNN: %s",
			lib->cudnnGetErrorString(bad));
		if (c->handle)
			lib->cudnnDestroy(c->handle);
		free(c);
		return NULL;
	}
	c->never = -INFINITY;
	c->one = 1;
	q->cudnn = c;
	return c;
}

static void plan_free(struct cudnn_plan *p)
{
	if (p->engine.plan)
		cudnn_library()->cudnnBackendDestroyDescriptor(p->engine.plan);
	memset(p, 0, sizeof(*p));
}

void kern_cudnn_release(struct queue *q)
{
	struct cudnn_queue *c = q->cudnn;

	if (!c)
		return;
	for (int i = 0; i < c->plans; i++)
		plan_free(&c->plan[i]);
	cudnn_library()->cudnnDestroy(c->handle);
	free(c);
	q->cudnn = NULL;
}

static int plan_build(struct cudnn_queue *c, struct cudnn_plan *p, int64_t room,
		      struct err *e)
{
	const struct cudnn *lib = cudnn_library();
	const struct attn_graph *g = &p->graph;
	const char *pass = g->bwd ? "backward" : "forward";

	p->engine = attn_graph_plan(lib, c->handle, NULL, g);
	if (!p->engine.plan)
		return err_set(e, CODE_LAUNCH,
			       "cuDNN %zu cannot %s for attention's %s of "
			       "(%ld, %ld, %ld, %ld): %s (attention_backend = "
			       "\"local\" goes without)",
			       lib->cudnnGetVersion(), p->engine.step, pass,
			       (long)g->batch, (long)g->heads, (long)g->T,
			       (long)g->D,
			       lib->cudnnGetErrorString(p->engine.status));
	if (p->engine.workspace <= room)
		return 0;
	return err_set(e, CODE_LAUNCH,
		       "cuDNN %zu wants %ld bytes of workspace for "
		       "attention's %s, %ld are planned (attention_backend = "
		       "\"local\" goes without)",
		       lib->cudnnGetVersion(), (long)p->engine.workspace, pass,
		       (long)room);
}

/* The plan for BATCH entries; the oldest makes room for a new one. */
static struct cudnn_plan *plan_for(struct queue *q,
				   const struct kern_attn_dims *d, bool fp16,
				   bool bwd, int64_t batch, struct err *e)
{
	struct attn_graph g = attn_graph(d, fp16, bwd, batch);
	struct cudnn_queue *c = queue_state(q, e);
	struct cudnn_plan *p;

	if (!c)
		return NULL;
	for (int i = 0; i < c->plans; i++)
		if (!memcmp(&c->plan[i].graph, &g, sizeof(g)))
			return &c->plan[i];
	p = &c->plan[c->next];
	if (p->engine.plan)
		cudaStreamSynchronize(q->stream); /* it may still run */
	plan_free(p);
	p->graph = g;
	if (plan_build(c, p, kern_cudnn_workspace(d), e)) {
		plan_free(p);
		return NULL;
	}
	c->next = (c->next + 1) % PLANS;
	if (c->plans < PLANS)
		c->plans++;
	return p;
}

int kern_cudnn_prepare(struct queue *q, const struct kern_attn_dims *d,
		       bool fp16, struct err *e)
{
	struct kern_cudnn_view v = kern_cudnn_view(d);

	if (kern_attn_backend(d, kern_cudnn_there(), sizeof(uint16_t)) !=
	    KERN_ATTN_CUDNN)
		return 0;
	if (!plan_for(q, d, fp16, false, v.batch, e) ||
	    !plan_for(q, d, fp16, true, v.chunk, e))
		return -1;
	if (v.batch % v.chunk &&
	    !plan_for(q, d, fp16, true, v.batch % v.chunk, e))
		return -1;
	return 0;
}

/* Where the arrays of a launch begin. */
struct place {
	uint16_t *qkv, *o, *dout, *dqkv;
	float *lse, *sums;
	char *work;
};

/* P moved by N entries; entries of a batch, or whole batches. */
static struct place moved(struct place p, const struct kern_attn_dims *d,
			  int64_t n, bool samples)
{
	int64_t per = d->H / d->G, W = (d->H + 2 * d->G) * d->D;
	int64_t qkv = n * (samples ? d->T * W : (per + 2) * d->D);
	int64_t o = n * (samples ? d->T * d->H * d->D : per * d->D);

	p.qkv += qkv;
	p.o += o;
	p.lse += n * (samples ? d->H : per) * d->T;
	if (p.dqkv) {
		p.dqkv += qkv;
		p.dout += o;
	}
	return p;
}

/*
 * The addresses of a launch as cuDNN takes them.  To make this anew for each
 * costs 0.6 us.
 */
static cudnnStatus_t pack_make(desc_t *pack, struct cudnn_queue *c,
			       const struct place *p, int64_t k, int64_t v)
{
	const struct cudnn *lib = cudnn_library();
	int64_t id[ATTN_VIRTUAL], n = 0;
	void *at[ATTN_VIRTUAL], *all[ATTN_VIRTUAL] = {};
	cudnnStatus_t bad;

	all[ATTN_Q] = p->qkv;
	all[ATTN_K] = p->qkv + k;
	all[ATTN_V] = p->qkv + v;
	all[ATTN_O] = p->o;
	all[ATTN_LSE] = p->lse;
	all[ATTN_SCALE] = &c->scale;
	all[ATTN_NEVER] = &c->never;
	if (p->dqkv) {
		all[ATTN_DOUT] = p->dout;
		all[ATTN_DQ] = p->dqkv;
		all[ATTN_DK] = p->dqkv + k;
		all[ATTN_DV] = p->dqkv + v;
		all[ATTN_SUMS] = p->sums;
		all[ATTN_ONE] = &c->one;
	}
	for (int i = ATTN_Q; i < ATTN_VIRTUAL; i++)
		if (all[i]) {
			id[n] = i;
			at[n++] = all[i];
		}
	bad = lib->cudnnBackendCreateDescriptor(
		CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack);
	if (bad != CUDNN_STATUS_SUCCESS)
		return bad;
	lib->cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
				      CUDNN_TYPE_INT64, n, id);
	lib->cudnnBackendSetAttribute(*pack,
				      CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
				      CUDNN_TYPE_VOID_PTR, n, at);
	lib->cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
				      CUDNN_TYPE_VOID_PTR, 1, &p->work);
	return lib->cudnnBackendFinalize(*pack);
}

static cudnnStatus_t launch(struct queue *q, const struct cudnn_plan *plan,
			    const struct place *p,
			    const struct kern_attn_dims *d)
{
	const struct cudnn *lib = cudnn_library();
	struct cudnn_queue *c = q->cudnn;
	int64_t k = d->H / d->G * d->D;
	desc_t pack = NULL;
	cudnnStatus_t bad;

	c->scale = (float)d->scale;
	bad = pack_make(&pack, c, p, k, k + d->D);
	if (bad == CUDNN_STATUS_SUCCESS)
		bad = lib->cudnnBackendExecute(c->handle, plan->engine.plan,
					       pack);
	if (pack)
		lib->cudnnBackendDestroyDescriptor(pack);
	return bad;
}

static void run(struct queue *q, const struct kern_attn_dims *d, bool fp16,
		const struct place *p)
{
	static const char *const op = "attention by cuDNN";
	struct kern_cudnn_view v = kern_cudnn_view(d);
	int64_t most = p->dqkv ? v.chunk : v.batch;
	struct err e;

	for (int64_t i = 0; i < v.count; i++)
		for (int64_t j = 0; j < v.batch; j += most) {
			int64_t n = v.batch - j < most ? v.batch - j : most;
			struct place at = moved(*p, d, i, !v.samples);
			struct cudnn_plan *plan =
				plan_for(q, d, fp16, p->dqkv != NULL, n, &e);
			cudnnStatus_t bad;

			if (!plan) {
				queue_fail(q, op, e.text);
				return;
			}
			at = moved(at, d, j, v.samples);
			bad = launch(q, plan, &at, d);
			if (bad != CUDNN_STATUS_SUCCESS)
				queue_fail(q, op,
					   cudnn_library()->cudnnGetErrorString(
						   bad));
		}
}

void kern_cudnn_fwd(struct queue *q, void *o, void *lse, const void *qkv,
		    void *scratch, const struct kern_attn_dims *d, bool fp16)
{
	struct place p = {};

	p.qkv = (uint16_t *)qkv;
	p.o = (uint16_t *)o;
	p.lse = (float *)lse;
	p.work = (char *)scratch;
	run(q, d, fp16, &p);
}

void kern_cudnn_bwd(struct queue *q, void *dqkv, const void *dout,
		    const void *o, const void *lse, const void *qkv,
		    void *scratch, const struct kern_attn_dims *d, bool fp16)
{
	struct place p = {};

	p.qkv = (uint16_t *)qkv;
	p.o = (uint16_t *)o;
	p.lse = (float *)lse;
	p.dout = (uint16_t *)dout;
	p.dqkv = (uint16_t *)dqkv;
	p.sums = (float *)scratch;
	p.work = (char *)scratch + kern_cudnn_sums(d);
	run(q, d, fp16, &p);
}
#else
bool kern_cudnn_there(void)
{
	return false;
}

int kern_cudnn_load(size_t *, struct err *e)
{
	return err_set(e, CODE_LAUNCH,
		       "this program was built without cuDNN (make CUDNN= the "
		       "folder of cudnn.h, or set attention_backend = "
		       "\"local\")");
}

int kern_cudnn_prepare(struct queue *, const struct kern_attn_dims *, bool,
		       struct err *)
{
	return 0; /* the own kernel needs no preparation */
}

/* Not reached: kern_attn_backend knows that there is none. */
static void absent(struct queue *q)
{
	queue_fail(q, "attention by cuDNN", "built without cuDNN");
}

void kern_cudnn_fwd(struct queue *q, void *, void *, const void *, void *,
		    const struct kern_attn_dims *, bool)
{
	absent(q);
}

void kern_cudnn_bwd(struct queue *q, void *, const void *, const void *,
		    const void *, const void *, void *,
		    const struct kern_attn_dims *, bool)
{
	absent(q);
}

void kern_cudnn_release(struct queue *)
{
}
#endif
