/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN recognises attention by its operations, so these graphs spell out
 * the products, the mask and the softmax in the form that its fused engines
 * know.  Scores are never stored: those tensors are virtual.
 */
#ifdef KERN_CUDNN
#include "kernels/attn_cudnn_graph.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TEXT_(x)  #x
#define TEXT(x)	  TEXT_(x)
#define FILE_NAME "libcudnn.so." TEXT(CUDNN_MAJOR)

#define F32	  CUDNN_DATA_FLOAT

static struct cudnn load(void)
{
	struct cudnn lib = {};
	void *file = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);

	if (!file) {
		snprintf(lib.missing, sizeof(lib.missing), "%s", dlerror());
		return lib;
	}
#define CUDNN_FIND(name)                                   \
	lib.name = (decltype(lib.name))dlsym(file, #name); \
	if (!lib.name)                                     \
		snprintf(lib.missing, sizeof(lib.missing), \
			 FILE_NAME ": there is no %s in it", #name);
	CUDNN_CALLS(CUDNN_FIND)
	return lib;
}

const struct cudnn *cudnn_library(void)
{
	static const struct cudnn lib = load();

	return &lib;
}

/* A graph in the making; after its first failure nothing more is done. */
struct builder {
	const struct cudnn *lib;
	const struct attn_graph *g;
	desc_t op[32], made[192];
	int ops, count;
	int64_t next; /* number of the next virtual tensor */
	cudnnStatus_t status;
};

/* What elements are in memory. */
static cudnnDataType_t elem(const struct builder *b)
{
	return b->g->fp16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

static desc_t make(struct builder *b, cudnnBackendDescriptorType_t type)
{
	desc_t d = NULL;

	if (b->status == CUDNN_STATUS_SUCCESS)
		b->status = b->lib->cudnnBackendCreateDescriptor(type, &d);
	if (b->status != CUDNN_STATUS_SUCCESS)
		return NULL;
	b->made[b->count++] = d;
	return d;
}

static void set(struct builder *b, desc_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
	if (b->status == CUDNN_STATUS_SUCCESS)
		b->status = b->lib->cudnnBackendSetAttribute(d, name, type, n,
							     value);
}

static void set_desc(struct builder *b, desc_t d,
		     cudnnBackendAttributeName_t name, desc_t value)
{
	set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(struct builder *b, desc_t d,
		     cudnnBackendAttributeName_t name, cudnnDataType_t value)
{
	set(b, d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void finish(struct builder *b, desc_t d)
{
	if (b->status == CUDNN_STATUS_SUCCESS)
		b->status = b->lib->cudnnBackendFinalize(d);
}

static void finish_op(struct builder *b, desc_t op)
{
	finish(b, op);
	b->op[b->ops++] = op;
}

struct four {
	int64_t n[4];
};

static desc_t tensor(struct builder *b, int64_t id, cudnnDataType_t type,
		     const struct four &dims, const struct four &strides)
{
	desc_t d = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	bool is_virtual = id >= ATTN_VIRTUAL;
	bool by_value = id >= ATTN_SCALE && !is_virtual;
	int64_t align = 16;

	set(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
	set_type(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
	set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.n);
	set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.n);
	set(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
	    &align);
	set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
	    &is_virtual);
	set(b, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
	    &by_value);
	finish(b, d);
	return d;
}

static desc_t scalar(struct builder *b, enum attn_tensor id)
{
	return tensor(b, id, F32, {1, 1, 1, 1}, {1, 1, 1, 1});
}

/* Queries in qkv or dqkv: (batch, heads, T, D). */
static desc_t queries(struct builder *b, enum attn_tensor id)
{
	const struct attn_graph *g = b->g;

	return tensor(b, id, elem(b), {g->batch, g->heads, g->T, g->D},
		      {g->qkv_batch, g->q_head, g->row, 1});
}

/* Keys or values there: (batch, kv, T, D), or that transposed. */
static desc_t keys(struct builder *b, int64_t id)
{
	const struct attn_graph *g = b->g;

	return tensor(b, id, elem(b), {g->batch, g->kv, g->T, g->D},
		      {g->qkv_batch, g->kv_head, g->row, 1});
}

static desc_t keys_transposed(struct builder *b, enum attn_tensor id)
{
	const struct attn_graph *g = b->g;

	return tensor(b, id, elem(b), {g->batch, g->kv, g->D, g->T},
		      {g->qkv_batch, g->kv_head, 1, g->row});
}

/* o or dout, or their product: (batch, heads, T, D). */
static desc_t output(struct builder *b, int64_t id, cudnnDataType_t type)
{
	const struct attn_graph *g = b->g;

	return tensor(b, id, type, {g->batch, g->heads, g->T, g->D},
		      {g->o_batch, g->D, g->o_row, 1});
}

/* A number for each row of scores: (batch, heads, T, 1). */
static desc_t rows(struct builder *b, int64_t id)
{
	const struct attn_graph *g = b->g;
	int64_t batch = id == ATTN_LSE ? g->lse_batch : g->heads * g->T;

	return tensor(b, id, F32, {g->batch, g->heads, g->T, 1},
		      {batch, g->T, 1, 1});
}

static desc_t virtual_rows(struct builder *b)
{
	return rows(b, b->next++);
}

/* (batch, heads, T, T): rows are queries, columns keys. */
static desc_t scores(struct builder *b, cudnnDataType_t type)
{
	const struct attn_graph *g = b->g;
	int64_t T = g->T;

	return tensor(b, b->next++, type, {g->batch, g->heads, T, T},
		      {g->heads * T * T, T * T, T, 1});
}

static desc_t scores_transposed(struct builder *b)
{
	const struct attn_graph *g = b->g;
	int64_t T = g->T;

	return tensor(b, b->next++, elem(b), {g->batch, g->heads, T, T},
		      {g->heads * T * T, T * T, 1, T});
}

struct pointwise {
	cudnnPointwiseMode_t mode;
	cudnnDataType_t math;
	desc_t x, b, t, y; /* B and T may be NULL */
	int64_t axis;	   /* of an index, else -1 */
};

static desc_t pointwise(struct builder *b, const struct pointwise &p)
{
	desc_t how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

	set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
	    &p.mode);
	set_type(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC, p.math);
	if (p.axis >= 0)
		set(b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1,
		    &p.axis);
	finish(b, how);
	op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
	if (p.b)
		set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
	if (p.t)
		set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
	set_desc(b, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
	finish_op(b, op);
	return p.y;
}

/* y = x MODE with, or MODE(x) with NULL. */
static desc_t apply(struct builder *b, cudnnPointwiseMode_t mode, desc_t x,
		    desc_t with, desc_t y)
{
	return pointwise(b, {mode, F32, x, with, NULL, y, -1});
}

static desc_t reduce(struct builder *b, cudnnReduceTensorOp_t with, desc_t x,
		     desc_t y)
{
	desc_t how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op;

	set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR,
	    CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &with);
	set_type(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, F32);
	finish(b, how);
	op = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	set_desc(b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
	finish_op(b, op);
	return y;
}

/* z = x y. */
static desc_t product(struct builder *b, desc_t x, desc_t y, desc_t z)
{
	desc_t how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;

	set_type(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, F32);
	finish(b, how);
	op = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, y);
	set_desc(b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, z);
	finish_op(b, op);
	return z;
}

/* y = x, in y's type and seen with y's strides. */
static desc_t reshape(struct builder *b, desc_t x, desc_t y)
{
	desc_t op = make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

	set_desc(b, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
	set_desc(b, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
	finish_op(b, op);
	return y;
}

/* x where a query comes not before the key, else -infinity. */
static desc_t causal(struct builder *b, desc_t x)
{
	desc_t query, key, seen;

	query = pointwise(b, {CUDNN_POINTWISE_GEN_INDEX, F32, x, NULL, NULL,
			      scores(b, CUDNN_DATA_INT32), 2});
	key = pointwise(b, {CUDNN_POINTWISE_GEN_INDEX, F32, x, NULL, NULL,
			    scores(b, CUDNN_DATA_INT32), 3});
	seen = pointwise(b, {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query,
			     key, NULL, scores(b, CUDNN_DATA_BOOLEAN), -1});
	return pointwise(b, {CUDNN_POINTWISE_BINARY_SELECT, F32, x,
			     scalar(b, ATTN_NEVER), seen, scores(b, F32), -1});
}

static void build_fwd(struct builder *b)
{
	desc_t s, most, sum, log;

	s = product(b, queries(b, ATTN_Q), keys_transposed(b, ATTN_K),
		    scores(b, F32));
	s = apply(b, CUDNN_POINTWISE_MUL, s, scalar(b, ATTN_SCALE),
		  scores(b, F32));
	s = causal(b, s);
	most = reduce(b, CUDNN_REDUCE_TENSOR_MAX, s, virtual_rows(b));
	s = apply(b, CUDNN_POINTWISE_SUB, s, most, scores(b, F32));
	s = apply(b, CUDNN_POINTWISE_EXP, s, NULL, scores(b, F32));
	sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, s, virtual_rows(b));
	log = apply(b, CUDNN_POINTWISE_LOG, sum, NULL, virtual_rows(b));
	apply(b, CUDNN_POINTWISE_ADD, most, log, rows(b, ATTN_LSE));
	s = apply(b, CUDNN_POINTWISE_DIV, s, sum, scores(b, elem(b)));
	product(b, s, keys(b, ATTN_V), output(b, ATTN_O, elem(b)));
}

/* ID (dk or dv) = x y, summed over the query heads of a group. */
static void to_keys(struct builder *b, enum attn_tensor id, desc_t x, desc_t y)
{
	const struct attn_graph *g = b->g;
	int64_t head = g->T * g->D;
	desc_t all;

	if (g->heads == g->kv) {
		product(b, x, y, keys(b, id));
		return;
	}
	all = tensor(b, b->next++, elem(b), {g->batch, g->heads, g->T, g->D},
		     {g->heads * head, head, g->D, 1});
	product(b, x, y, all);
	reduce(b, CUDNN_REDUCE_TENSOR_ADD, all, keys(b, id));
}

/*
 * dq comes straight from a product.  Through a float accumulator the engine
 * needs no workspace, but then it adds in no fixed order.
 */
static void build_bwd(struct builder *b)
{
	desc_t q = queries(b, ATTN_Q), k = keys_transposed(b, ATTN_K);
	desc_t dout = output(b, ATTN_DOUT, elem(b));
	desc_t scale = scalar(b, ATTN_SCALE), sums, x, p, ds;

	x = apply(b, CUDNN_POINTWISE_MUL, dout, output(b, ATTN_O, elem(b)),
		  output(b, b->next++, F32));
	x = reduce(b, CUDNN_REDUCE_TENSOR_ADD, x, virtual_rows(b));
	sums = apply(b, CUDNN_POINTWISE_MUL, x, scalar(b, ATTN_ONE),
		     rows(b, ATTN_SUMS));

	x = product(b, q, k, scores(b, F32));
	x = apply(b, CUDNN_POINTWISE_MUL, x, scale, scores(b, F32));
	x = apply(b, CUDNN_POINTWISE_SUB, x, rows(b, ATTN_LSE), scores(b, F32));
	p = apply(b, CUDNN_POINTWISE_EXP, causal(b, x), NULL, scores(b, F32));
	to_keys(b, ATTN_DV, reshape(b, p, scores_transposed(b)), dout);

	x = product(b, dout, keys_transposed(b, ATTN_V), scores(b, F32));
	x = apply(b, CUDNN_POINTWISE_SUB, x, sums, scores(b, F32));
	x = apply(b, CUDNN_POINTWISE_MUL, x, p, scores(b, F32));
	ds = apply(b, CUDNN_POINTWISE_MUL, x, scale, scores(b, F32));
	to_keys(b, ATTN_DK, reshape(b, ds, scores_transposed(b)), q);
	product(b, ds, reshape(b, k, keys(b, b->next++)), queries(b, ATTN_DQ));
}

struct attn_graph attn_graph(const struct kern_attn_dims *d, bool fp16,
			     bool bwd, int64_t batch)
{
	struct kern_cudnn_view v = kern_cudnn_view(d);
	int64_t per = d->H / d->G, group = (per + 2) * d->D;
	struct attn_graph g;

	g.fp16 = fp16;
	g.bwd = bwd;
	g.batch = batch;
	g.heads = v.heads;
	g.kv = v.kv;
	g.T = d->T;
	g.D = d->D;
	g.row = d->G * group;
	g.o_row = d->H * d->D;
	g.qkv_batch = v.samples ? d->T * g.row : group;
	g.q_head = v.heads == v.kv ? group : d->D;
	g.kv_head = group;
	g.o_batch = v.samples ? d->T * g.o_row : per * d->D;
	g.lse_batch = (v.samples ? d->H : per) * d->T;
	return g;
}

/* The configuration of the engine that cuDNN takes for the fastest. */
static desc_t choose(struct builder *b, cudnnHandle_t handle, desc_t device)
{
	desc_t graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	desc_t judge, config;
	cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	int64_t found = 0;

	set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
	    CUDNN_TYPE_BACKEND_DESCRIPTOR, b->ops, b->op);
	if (handle)
		set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
		    CUDNN_TYPE_HANDLE, 1, &handle);
	finish(b, graph);
	judge = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	set_desc(b, judge, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
	set(b, judge, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
	    &mode);
	if (!handle)
		set_desc(b, judge, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
	finish(b, judge);
	config = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	if (b->status == CUDNN_STATUS_SUCCESS)
		b->status = b->lib->cudnnBackendGetAttribute(
			judge, CUDNN_ATTR_ENGINEHEUR_RESULTS,
			CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &config);
	if (b->status == CUDNN_STATUS_SUCCESS && found < 1)
		b->status = CUDNN_STATUS_NOT_SUPPORTED;
	return config;
}

static int64_t number(struct builder *b, desc_t d,
		      cudnnBackendAttributeName_t name)
{
	int64_t n = 0, value = -1;

	if (b->status == CUDNN_STATUS_SUCCESS)
		b->status = b->lib->cudnnBackendGetAttribute(
			d, name, CUDNN_TYPE_INT64, 1, &n, &value);
	return value;
}

static int64_t engine_of(struct builder *b, desc_t config)
{
	desc_t engine = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	int64_t n = 0;

	if (b->status == CUDNN_STATUS_SUCCESS)
		b->status = b->lib->cudnnBackendGetAttribute(
			config, CUDNN_ATTR_ENGINECFG_ENGINE,
			CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
	return number(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

/* Compile; a plan needs none of the other descriptors any more. */
static void compile(struct builder *b, struct attn_engine *e, desc_t config,
		    cudnnHandle_t handle, desc_t device)
{
	e->workspace = number(b, config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
	e->plan = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	if (e->plan)
		b->count--; /* stays */
	set_desc(b, e->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	if (handle)
		set(b, e->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
		    CUDNN_TYPE_HANDLE, 1, &handle);
	else
		set_desc(b, e->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
			 device);
	finish(b, e->plan);
	if (b->status == CUDNN_STATUS_SUCCESS)
		e->workspace = number(b, e->plan,
				      CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
	if (e->plan && b->status != CUDNN_STATUS_SUCCESS) {
		b->lib->cudnnBackendDestroyDescriptor(e->plan);
		e->plan = NULL;
	}
}

struct attn_engine attn_graph_plan(const struct cudnn *lib,
				   cudnnHandle_t handle, desc_t device,
				   const struct attn_graph *g)
{
	struct builder b = {};
	struct attn_engine e = {};
	desc_t config;

	b.lib = lib;
	b.g = g;
	b.next = ATTN_VIRTUAL;
	if (g->bwd)
		build_bwd(&b);
	else
		build_fwd(&b);
	e.step = "describe";
	if (b.status == CUDNN_STATUS_SUCCESS)
		e.step = "choose an engine";
	config = choose(&b, handle, device);
	e.engine = engine_of(&b, config);
	if (b.status == CUDNN_STATUS_SUCCESS)
		e.step = "compile";
	compile(&b, &e, config, handle, device);
	e.status = b.status;
	while (b.count)
		lib->cudnnBackendDestroyDescriptor(b.made[--b.count]);
	return e;
}
#endif
