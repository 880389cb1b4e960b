/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, ops and their names: what every part of prog_build uses. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/plan/prog_build.h"

enum { BUF_ALIGN = 64 };

/* No machine has so many; sums and products of bytes stay far below 2^63. */
#define POOL_BYTES_MAX ((int64_t)1 << 56)

static struct pool *pool_of(struct build *b, int family)
{
	assert(family == FAMILY_ACT || family == FAMILY_COMM);
	return &b->pool[family == FAMILY_COMM];
}

/* First fit: the lowest hole that is large enough, else the end. */
struct buf buf_bytes(struct build *b, int family, int64_t bytes)
{
	struct pool *p = pool_of(b, family);
	struct buf new;

	if (bytes > POOL_BYTES_MAX - p->top) {
		b->too_large = true;
		bytes = BUF_ALIGN;
	}
	bytes = (bytes + BUF_ALIGN - 1) / BUF_ALIGN * BUF_ALIGN;
	for (size_t i = 0; i < p->holes; i++) {
		struct buf *hole = &p->hole[i];

		if (hole->bytes < bytes)
			continue;
		new = (struct buf){hole->at, bytes, family};
		hole->at += bytes;
		hole->bytes -= bytes;
		if (!hole->bytes) {
			memmove(hole, hole + 1,
				(p->holes - i - 1) * sizeof(*hole));
			p->holes--;
		}
		return new;
	}
	new = (struct buf){p->top, bytes, family};
	p->top += bytes;
	if (p->top > p->peak)
		p->peak = p->top;
	return new;
}

struct buf buf_new(struct build *b, int family, int64_t elements)
{
	return buf_bytes(b, family, elements * (int64_t)b->out->elem);
}

struct buf buf_sums(struct build *b, int family, int64_t elements)
{
	return buf_bytes(b, family, elements * (int64_t)b->out->sum);
}

void buf_free(struct build *b, struct buf *buf)
{
	struct pool *p;
	size_t i = 0;

	if (buf->family < 0)
		return;
	p = pool_of(b, buf->family);
	p->hole =
		arena_grow(b->a, p->hole, p->holes, &p->cap, sizeof(*p->hole));
	while (i < p->holes && p->hole[i].at < buf->at)
		i++;
	memmove(&p->hole[i + 1], &p->hole[i],
		(p->holes - i) * sizeof(*p->hole));
	p->hole[i] = *buf;
	p->holes++;
	if (i + 1 < p->holes && buf->at + buf->bytes == p->hole[i + 1].at) {
		p->hole[i].bytes += p->hole[i + 1].bytes;
		memmove(&p->hole[i + 1], &p->hole[i + 2],
			(p->holes - i - 2) * sizeof(*p->hole));
		p->holes--;
	}
	if (i && p->hole[i - 1].at + p->hole[i - 1].bytes == p->hole[i].at) {
		p->hole[i - 1].bytes += p->hole[i].bytes;
		memmove(&p->hole[i], &p->hole[i + 1],
			(p->holes - i - 1) * sizeof(*p->hole));
		p->holes--;
		i--;
	}
	if (p->hole[i].at + p->hole[i].bytes == p->top) {
		p->top = p->hole[i].at;
		p->holes--;
	}
	*buf = NO_BUF;
}

struct ref buf_ref(const struct buf *buf)
{
	return (struct ref){buf->at, buf->family};
}

struct ref buf_part(const struct build *b, const struct buf *buf,
		    int64_t elements)
{
	return buf_at(buf, elements * (int64_t)b->out->elem);
}

struct ref buf_at(const struct buf *buf, int64_t bytes)
{
	return (struct ref){buf->at + bytes, buf->family};
}

struct ref flat_ref(const struct build *b, int family, int64_t element)
{
	size_t size = family == FAMILY_GRAD ? b->out->sum : b->out->elem;

	return (struct ref){element * (int64_t)size, family};
}

struct ref param_ref(const struct build *b, int family, enum part part,
		     int64_t layer)
{
	const struct param *p = slice_find(b->in->slice, part, layer, b->chunk);

	if (!p)
		return NO_REF;
	return flat_ref(b, family, p->at);
}

struct ref gain_ref(const struct build *b, int family, enum part w)
{
	if (w != PARTS)
		return param_ref(b, family, w, b->layer);
	return buf_ref(family == FAMILY_GRAD ? &b->no_gradient : &b->no_gain);
}

struct op *emit(struct build *b, int code, int kind, const struct ref *refs,
		int ref_count, const int64_t *dims, int dim_count)
{
	struct prog_list *l = b->list;
	struct op *op;

	l->op = arena_grow(b->a, l->op, (size_t)l->count, &b->cap,
			   sizeof(*l->op));
	op = &l->op[l->count++];
	*op = (struct op){
		.code = (unsigned char)code,
		.kind = (unsigned char)kind,
		.mb = b->mb,
		.chunk = b->chunk,
		.backward = b->backward,
		.layer = b->layer,
		.wait = -1,
	};
	assert(ref_count <= 9 && dim_count <= 5);
	for (int i = 0; i < 9; i++)
		op->ref[i] = i < ref_count ? refs[i] : NO_REF;
	for (int i = 0; i < dim_count; i++)
		op->n[i] = dims[i];
	return op;
}

static int group_size(const struct build *b, int group)
{
	const struct grid *g = b->in->grid;

	switch (group) {
	case GROUP_TP: return g->tp;
	case GROUP_KV: return b->in->slice->kv_ranks;
	case GROUP_CP: return g->cp;
	case GROUP_DP_CP: return g->dp * g->cp;
	case GROUP_EP: return g->ep;
	case GROUP_ETP: return g->etp;
	case GROUP_EDP: return g->edp;
	case GROUP_PP: return g->pp;
	case GROUP_EMBED:
	case GROUP_LOOKUP:
		return stages_embeddings(
			b->in->stages,
			group == GROUP_EMBED &&
				b->in->config->shape
					.share_embeddings_and_output_weights);
	default: return g->world;
	}
}

static int64_t type_size(const struct build *b, int type)
{
	return type == TYPE_F64	  ? (int64_t)sizeof(double)
	       : type == TYPE_SUM ? (int64_t)b->out->sum
				  : (int64_t)b->out->elem;
}

/* What one rank sends of so many BYTES, by the usual ring. */
static int64_t comm_bytes(const struct build *b, int comm, int group,
			  int64_t bytes)
{
	int64_t size = group_size(b, group);

	switch (comm) {
	case PROG_SEND: return bytes;
	case PROG_RECV: return 0;
	case PROG_ALL_GATHER:
	case PROG_REDUCE_SCATTER: return bytes * (size - 1);
	default: return (int64_t)((__int128)2 * bytes * (size - 1) / size);
	}
}

int emit_comm(struct build *b, int comm, int group, int type, struct ref send,
	      struct ref recv, int64_t n)
{
	struct op *op = emit(b, OP_COMM, KIND_COMM,
			     REFS(send, recv, buf_ref(&b->comm_scratch)),
			     DIMS(n, b->comm_scratch.bytes));

	op->queue = QUEUE_COMM;
	op->comm = (unsigned char)comm;
	op->group = (unsigned char)group;
	op->type = (unsigned char)type;
	op->bytes = comm_bytes(b, comm, group, n * type_size(b, type));
	return b->list->count - 1;
}

void emit_wait(struct build *b, int op)
{
	emit(b, OP_WAIT, KIND_COMM, NULL, 0, NULL, 0)->wait = op;
}

void emit_collective(struct build *b, int comm, int group, int type,
		     struct ref send, struct ref recv, int64_t n)
{
	emit_wait(b, emit_comm(b, comm, group, type, send, recv, n));
}

const char *op_code_name(int code)
{
	static const char *const names[OP_CODES] = {
		"embedding",
		"embedding gradient",
		"positions",
		"positions gradient",
		"dropout",
		"router noise",
		"residual",
		"norm",
		"norm gradient",
		"linear",
		"router product",
		"linear input gradient",
		"linear weight gradient",
		"bias gradient",
		"rope",
		"latent heads",
		"latent heads gradient",
		"attention",
		"attention gradient",
		"activation",
		"activation gradient",
		"router",
		"tokens of experts",
		"router loss",
		"router gradient",
		"expert bias",
		"rows to experts",
		"rows from experts",
		"experts",
		"experts input gradient",
		"experts weight gradient",
		"experts act",
		"experts act gradient",
		"experts bias",
		"experts bias gradient",
		"loss maximum",
		"loss sums",
		"loss gradient",
		"gradient norm",
		"metrics",
		"clip",
		"adamw",
		"zero",
		"copy",
		"join",
		"cut",
		"mixing of states",
		"mixing gradient",
		"positions of generation",
		"rope of generation",
		"latent qkv from there",
		"attention to the cache",
		"communication",
		"wait",
	};

	return names[code];
}

const char *prog_group_name(int group)
{
	static const char *const names[PROG_GROUPS] = {
		"tp",  "kv", "cp",	  "dp_cp",  "ep",   "etp",
		"edp", "pp", "embedding", "lookup", "world"};

	return names[group];
}

const char *family_name(int family)
{
	static const char *const names[FAMILIES] = {
		"parameters",  "gradients",	"optimizer",
		"activations", "communication", "host"};

	return names[family];
}

const char *prog_comm_name(int comm)
{
	static const char *const names[PROG_COMMS] = {
		"all-reduce", "maximum", "reduce-scatter",
		"all-gather", "send",	 "receive"};

	return names[comm];
}

const char *op_text(const struct op *op, char *buf, size_t size)
{
	const char *what = op->code == OP_COMM ? prog_comm_name(op->comm)
					       : op_code_name(op->code);
	int n = snprintf(buf, size, "%s", what);

	if (op->code == OP_COMM && n >= 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, " over %s",
			      prog_group_name(op->group));
	if (op->layer >= 0 && n >= 0 && (size_t)n < size)
		n += snprintf(buf + n, size - (size_t)n, ", layer %d",
			      (int)op->layer);
	if (op->mb >= 0 && n >= 0 && (size_t)n < size)
		snprintf(buf + n, size - (size_t)n, ", micro-batch %d", op->mb);
	return buf;
}
