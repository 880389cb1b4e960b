/* SPDX-License-Identifier: Apache-2.0 */
/* What each op of a program reads and writes, by the contracts of kern.h. */
#ifndef TEST_OP_USES_H
#define TEST_OP_USES_H

#include "kernels/attn_plan.h"
#include "test/plan-test.h"

/* What an op does with one of its buffers; MAYBE: it may have none. */
enum how { IN = 1, OUT = 2, BOTH = 3, SCRATCH = 4, MAYBE = 8 };

struct use {
	int how; /* enum how */
	int64_t bytes;
};

struct sizes {
	int64_t elem, sum;
	bool device;
};

#define USES(...)                                        \
	do {                                             \
		const struct use list[] = {__VA_ARGS__}; \
		memcpy(u, list, sizeof(list));           \
	} while (0)

static inline int64_t scratch_of(const struct kern_attn_dims *d,
				 const struct sizes *z)
{
	return (int64_t)(z->device ? kern_attn_scratch_cuda(d, true,
							    (size_t)z->elem)
				   : kern_attn_scratch(d, (size_t)z->sum));
}

/* Ops of a generation. */
static inline void uses_of_at(const struct op *op, const struct sizes *z,
			      struct use *u)
{
	const struct kern_attn_dims *d = op->attn;
	const int64_t *n = op->n;
	int64_t row = d ? d->B * d->T * z->elem : 0, cache, scratch;
	int64_t qkv = d ? row * kern_attn_row(d) : 0, heads;

	switch (op->code) {
	case OP_POS_AT:
		row = n[2] * z->elem;
		USES({BOTH, n[0] * n[1] * row}, {IN, n[3] * row},
		     {IN, 4 * n[0]});
		break;
	case OP_ROPE_AT:
		USES({BOTH, qkv}, {IN, n[2] * n[0] * 2 * z->sum},
		     {IN, 4 * d->B});
		break;
	case OP_LATENT_AT:
		heads = row * d->H;
		USES({OUT, qkv}, {IN, heads * d->D},
		     {IN, heads * (d->D - n[0] + d->Dv)}, {IN, row * n[0]},
		     {IN | MAYBE, n[2] * n[1] * 2 * z->sum}, {IN, 4 * d->B});
		break;
	case OP_ATTN_AT:
		cache = d->B * d->G * n[0] * z->elem;
		scratch =
			(int64_t)(z->device ? kern_attn_at_scratch_cuda(d, n[0])
					    : kern_attn_at_scratch(
						      d, n[0], (size_t)z->sum));
		USES({OUT, row * d->H * d->Dv}, {BOTH, cache * d->D},
		     {BOTH, cache * d->Dv}, {IN, qkv},
		     {IN | MAYBE, d->H * z->elem}, {IN, 4 * d->B},
		     {SCRATCH, scratch});
		break;
	default: fail_msg("op code %d", op->code);
	}
}

/* Ops whose sizes are in their norm or attention dims, by kern.h. */
static inline void uses_of_dims(const struct op *op, const struct sizes *z,
				struct use *u)
{
	const struct kern_attn_dims *d = op->attn;
	int64_t elem = z->elem, sum = z->sum;
	int64_t C = op->norm ? op->norm->C * elem : 0;
	int64_t stat = op->norm ? 2 * op->norm->N * sum : 0;
	int64_t dw = op->norm ? op->norm->C * sum : 0;
	int64_t all = op->norm ? op->norm->N * C : 0;
	int64_t row = d ? d->B * d->T * elem : 0;
	int64_t o = d ? row * d->H * d->Dv : 0,
		lse = d ? d->B * d->T * d->H * sum : 0;
	int64_t qkv = d ? row * kern_attn_row(d) : 0, pos = row * op->n[0];
	int64_t query = d ? row * d->H * d->D : 0;
	int64_t kv = query + o - (d ? d->H * pos : 0);
	int64_t scratch = d ? scratch_of(d, z) : 0;
	int64_t sink = d ? d->H * elem : 0, dsink = d ? d->H * sum : 0;
	int64_t doc = d ? 4 * d->B * d->T : 0;

	switch (op->code) {
	case OP_NORM_FWD:
		USES({OUT, all}, {OUT | MAYBE, all}, {OUT, stat}, {IN, all},
		     {IN | MAYBE, all}, {IN | MAYBE, C}, {IN, C},
		     {IN | MAYBE, C});
		break;
	case OP_NORM_BWD:
		USES({OUT, all}, {BOTH, dw}, {BOTH | MAYBE, dw}, {IN, all},
		     {IN | MAYBE, all}, {IN, all}, {IN, stat}, {IN, C});
		break;
	case OP_ROPE: USES({BOTH, qkv}, {IN, d->T * op->n[0] * 2 * sum}); break;
	case OP_LATENT_FWD:
		USES({OUT, qkv}, {IN, query}, {IN, kv}, {IN, pos},
		     {IN | MAYBE, d->T * op->n[1] * 2 * sum});
		break;
	case OP_LATENT_BWD:
		USES({OUT, query}, {OUT, kv}, {OUT, pos}, {IN, qkv},
		     {IN | MAYBE, d->T * op->n[1] * 2 * sum});
		break;
	case OP_ATTN_FWD:
		USES({OUT, o}, {OUT, lse}, {IN, qkv}, {IN | MAYBE, sink},
		     {IN | MAYBE, doc}, {SCRATCH, scratch});
		break;
	case OP_ATTN_BWD:
		USES({OUT, qkv}, {BOTH | MAYBE, dsink}, {IN, o}, {IN, o},
		     {IN, lse}, {IN, qkv}, {IN | MAYBE, sink},
		     {IN | MAYBE, doc}, {SCRATCH, scratch});
		break;
	default: uses_of_at(op, z, u);
	}
}

/* Routers, and what goes to experts and comes back. */
static inline void uses_of_moe(const struct op *op, const struct sizes *z,
			       struct use *u)
{
	const int64_t *n = op->n;
	const struct kern_moe_dims *d = op->moe;
	int64_t w = n[1] * n[2] * n[3], map = d ? 4 * kern_map_size(d) : 0;
	int64_t mine = d ? d->M : 0, all = d ? d->ranks * d->M : 0;
	int64_t K = d ? d->K : 0, logits = d ? d->E * z->sum : 0;
	int64_t bias = d ? d->E * z->elem : 0;
	int64_t R = d ? kern_moe_rows(d) : n[0], rows = R * n[1] * z->elem;
	int64_t out = rows, in = R * n[2] * z->elem;
	int64_t x = n[0] * n[2] * z->elem, row = 4 * all * K;

	switch (op->code) {
	case OP_ROUTE_FWD:
		USES({OUT, all * K * z->sum}, {OUT, map}, {IN, all * logits},
		     {IN | MAYBE, bias});
		break;
	case OP_TALLY: USES({BOTH, 8 * d->E}, {IN, map}); break;
	case OP_ROUTE_LOSS:
		USES({BOTH, 8 * MOE_METRICS}, {IN, mine * logits}, {IN, map},
		     {IN | MAYBE, 8 * d->E});
		break;
	case OP_ROUTE_BWD:
		USES({OUT, mine * bias}, {BOTH | MAYBE, d->E * z->sum},
		     {IN, mine * K * z->sum}, {IN, mine * logits}, {IN, map},
		     {IN | MAYBE, 8 * d->E}, {IN, 8});
		break;
	case OP_BALANCE:
		USES({BOTH, n[0] * z->elem}, {BOTH | MAYBE, n[0] * z->sum},
		     {IN, n[0] * z->sum});
		break;
	case OP_GATHER: USES({OUT, in}, {IN, x}, {IN, row}); break;
	case OP_COMBINE: USES({OUT, x}, {IN, in}, {IN, row}); break;
	case OP_EXPERTS_FWD:
		USES({OUT, out}, {IN, in}, {IN, w * z->elem}, {IN, 4 * n[3]});
		break;
	case OP_EXPERTS_BWD_X:
		USES({OUT, in}, {IN, out}, {IN, w * z->elem}, {IN, 4 * n[3]});
		break;
	case OP_EXPERTS_BWD_W:
		USES({BOTH, w * z->sum}, {IN, out}, {IN, in}, {IN, 4 * n[3]});
		break;
	case OP_EXPERT_ACT_FWD:
		USES({OUT, rows}, {IN, rows << n[3]}, {IN, n[0] * z->sum},
		     {IN, row});
		break;
	case OP_EXPERT_ACT_BWD:
		USES({OUT, rows << n[3]}, {OUT, n[0] * z->sum}, {IN, rows},
		     {IN, rows << n[3]}, {IN, n[0] * z->sum}, {IN, row});
		break;
	case OP_EXPERT_BIAS_FWD:
		USES({BOTH, rows}, {IN, d->experts * n[1] * z->elem},
		     {IN | MAYBE, all * K * z->sum}, {IN, map});
		break;
	case OP_EXPERT_BIAS_BWD:
		USES({BOTH, d->experts * n[1] * z->sum},
		     {BOTH | MAYBE, all * K * z->sum}, {IN, rows},
		     {IN | MAYBE, d->experts * n[1] * z->elem},
		     {IN | MAYBE, all * K * z->sum}, {IN, map});
		break;
	default: uses_of_dims(op, z, u);
	}
}

/* Ops on rows of the residual stream and on logits. */
static inline void uses_of_rows(const struct op *op, const struct sizes *z,
				struct use *u)
{
	const int64_t *n = op->n;
	int64_t C = n[1] * z->elem, all = n[0] * C, one = n[0] * z->sum;
	int64_t dw = n[1] * z->sum; /* a row of a gradient */

	switch (op->code) {
	case OP_EMBED_FWD:
		USES({OUT, all}, {IN, 4 * n[0]}, {IN, n[3] * C});
		break;
	case OP_EMBED_BWD:
		USES({BOTH, n[3] * dw}, {IN, all}, {IN, 4 * n[0]});
		break;
	case OP_POS_FWD: USES({BOTH, all}, {IN, n[2] * C}); break;
	case OP_POS_BWD: USES({BOTH, n[2] * dw}, {IN, all}); break;
	case OP_DROP:
	case OP_JITTER: USES({OUT, all}, {IN, all}); break;
	case OP_RESID:
		USES({OUT, all}, {IN, all}, {IN, all}, {IN | MAYBE, C});
		break;
	case OP_BIAS_BWD: USES({BOTH, dw}, {IN, all}); break;
	case OP_ACT_FWD: USES({OUT, all}, {IN, all << n[3]}); break;
	case OP_ACT_BWD:
		USES({OUT, all << n[3]}, {IN, all}, {IN, all << n[3]});
		break;
	case OP_CE_MAX: USES({OUT, one}, {IN, all}); break;
	case OP_CE_SUMS:
		USES({OUT, 2 * one}, {IN, all}, {IN, one}, {IN, 4 * n[0]});
		break;
	case OP_CE_GRAD:
		USES({BOTH, 8}, {BOTH | MAYBE, 8}, {BOTH, all}, {IN, one},
		     {IN, 2 * one}, {IN, 4 * n[0]}, {IN, 8});
		break;
	default: uses_of_moe(op, z, u);
	}
}

/* Products and flat arrays. */
static inline void uses_of_kern(const struct op *op, const struct sizes *z,
				struct use *u)
{
	const int64_t *n = op->n;
	int64_t elem = z->elem, scalars = sizeof(struct kern_scalars);
	int64_t out = n[0] * n[1] * elem, in = n[0] * n[2] * elem;
	int64_t w = n[1] * n[2] * elem, dw = n[1] * n[2] * z->sum;
	int64_t one = n[0] * z->sum, p = n[0] * elem;

	switch (op->code) {
	case OP_LINEAR_FWD:
		USES({OUT, out}, {IN, in}, {IN, w}, {IN | MAYBE, n[1] * elem});
		break;
	case OP_LINEAR_SUM:
		USES({OUT, n[0] * n[1] * z->sum}, {IN, in}, {IN, w},
		     {IN | MAYBE, n[1] * elem});
		break;
	case OP_LINEAR_BWD_X: USES({OUT, in}, {IN, out}, {IN, w}); break;
	case OP_LINEAR_BWD_W: USES({BOTH, dw}, {IN, out}, {IN, in}); break;
	case OP_SUMSQ: USES({BOTH, 8}, {IN, one}); break;
	case OP_METRICS:
		USES({BOTH, scalars}, {IN, 8 * n[0] * (1 + n[1])},
		     {IN, 8 * n[0]}, {IN | MAYBE, 8 * n[0] * n[1]},
		     {IN | MAYBE, 8 * n[0] * n[1]});
		break;
	case OP_CLIP: USES({BOTH, scalars}); break;
	case OP_ADAMW:
		USES({BOTH, p}, {BOTH | MAYBE, one}, {BOTH, one}, {BOTH, one},
		     {IN, one});
		break;
	case OP_ZERO: USES({OUT, n[0]}); break;
	case OP_COPY: USES({OUT, n[0]}, {IN, n[0]}); break;
	case OP_JOIN:
		USES({OUT, n[0] * (n[1] + n[2] + n[3])},
		     {IN | MAYBE, n[0] * n[1]}, {IN | MAYBE, n[0] * n[2]},
		     {IN | MAYBE, n[0] * n[3]});
		break;
	case OP_CUT:
		/* the last row ends where its bytes do */
		USES({OUT, n[0] * n[1]}, {IN, (n[0] - 1) * n[2] + n[1]});
		break;
	case OP_MIX_FWD:
		out = n[0] * n[1];
		USES({BOTH, out}, {IN, out}, {IN | MAYBE, 4 * n[0]});
		break;
	case OP_MIX_BWD:
		out = n[0] * n[1];
		USES({OUT, out}, {IN, out}, {IN | MAYBE, 4 * n[0]});
		break;
	default: uses_of_rows(op, z, u);
	}
}

static inline void uses_of_comm(const struct plan *p, const struct op *op,
				struct use *u)
{
	int ranks[64], me, size = plan_group(p, op->group, ranks, &me);
	int64_t n = op->n[0] * (int64_t)(op->type == TYPE_F64	? 8
					 : op->type == TYPE_SUM ? p->prog.sum
								: p->prog.elem);

	u[0] = (struct use){IN, n};
	u[1] = (struct use){OUT, n};
	u[2] = (struct use){SCRATCH | MAYBE, op->n[1]};
	if (op->comm == PROG_RECV)
		u[0].how = 0;
	if (op->comm == PROG_SEND)
		u[1].how = 0;
	if (op->comm == PROG_REDUCE_SCATTER)
		u[0].bytes *= size;
	if (op->comm == PROG_ALL_GATHER)
		u[1].bytes *= size;
}

#endif
