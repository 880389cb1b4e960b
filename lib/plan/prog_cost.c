/* SPDX-License-Identifier: Apache-2.0 */
/* What an op must move at least: each of its arrays once. */
#include "lib/plan/prog.h"

/* Elements of the table's type, of its sum type, and other bytes. */
struct traffic {
	int64_t elems, sums, bytes;
};

static bool has(const struct op *op, int ref)
{
	return op->ref[ref].family >= 0;
}

static struct traffic norm_traffic(const struct op *op)
{
	int64_t N = op->norm->N, C = op->norm->C, all = N * C;
	int64_t vectors = 1; /* w, and a bias */

	if (op->code == OP_NORM_FWD) {
		vectors += has(op, 5) + has(op, 7);
		return (struct traffic){
			all * (has(op, 4) ? 4 : 2) + vectors * C, 2 * N, 0};
	}
	return (struct traffic){all * (has(op, 4) ? 4 : 3) + C,
				2 * N + 2 * C * (1 + has(op, 2)), 0};
}

static struct traffic attn_traffic(const struct op *op)
{
	const struct kern_attn_dims *d = op->attn;
	int64_t N = d->B * d->T, o = N * d->H * d->Dv;
	int64_t qkv = N * kern_attn_row(d), shared = N * op->n[0];
	/* each head's key has a copy of the shared part */
	int64_t parts = qkv - (d->H - 1) * shared;

	switch (op->code) {
	case OP_ROPE: return (struct traffic){2 * qkv, 2 * d->T * op->n[0], 0};
	case OP_LATENT_AT:
		return (struct traffic){qkv + parts, 2 * op->n[2] * op->n[1],
					4 * d->B};
	case OP_LATENT_FWD:
	case OP_LATENT_BWD:
		return (struct traffic){qkv + parts, 2 * d->T * op->n[1], 0};
	case OP_ATTN_FWD:
		return (struct traffic){qkv + o + d->H * has(op, 3), N * d->H,
					4 * N * has(op, 4)};
	case OP_ROPE_AT:
		return (struct traffic){2 * qkv, 2 * op->n[2] * op->n[0],
					4 * d->B};
	case OP_ATTN_AT: /* at the worst, a full cache */
		return (struct traffic){qkv + o + d->H * has(op, 4) +
						d->B * d->G * (d->D + d->Dv) *
							(d->T + op->n[0]),
					0, 4 * d->B};
	default:
		return (struct traffic){2 * qkv + 2 * o + d->H * has(op, 6),
					N * d->H + 2 * d->H * has(op, 1),
					4 * N * has(op, 7)};
	}
}

/* Rows of the residual stream, activations and logits. */
static struct traffic row_traffic(const struct op *op)
{
	const int64_t *n = op->n;
	int64_t all = n[0] * n[1], C = n[1], gated;

	switch (op->code) {
	case OP_EMBED_FWD: return (struct traffic){all + n[3] * C, 0, 4 * n[0]};
	case OP_EMBED_BWD: return (struct traffic){all, 2 * n[3] * C, 4 * n[0]};
	case OP_POS_FWD: return (struct traffic){2 * all + n[2] * C, 0, 0};
	case OP_POS_AT:
		return (struct traffic){2 * all * n[2] + n[3] * n[2], 0,
					4 * n[0]};
	case OP_POS_BWD: return (struct traffic){all, 2 * n[2] * C, 0};
	case OP_DROP:
	case OP_JITTER: return (struct traffic){2 * all, 0, 0};
	case OP_RESID: return (struct traffic){3 * all + C * has(op, 3), 0, 0};
	case OP_BIAS_BWD: return (struct traffic){all, 2 * C, 0};
	case OP_ACT_FWD: return (struct traffic){all + (all << n[3]), 0, 0};
	case OP_ACT_BWD:
		gated = all << n[3];
		return (struct traffic){all + 2 * gated, 0, 0};
	case OP_CE_MAX: return (struct traffic){all, n[0], 0};
	case OP_CE_SUMS: return (struct traffic){all, 3 * n[0], 4 * n[0]};
	case OP_CE_GRAD:
		return (struct traffic){2 * all, 3 * n[0],
					4 * n[0] + 24 + 16 * has(op, 1)};
	default: return (struct traffic){0, 0, 0};
	}
}

/* Routers, and what goes to experts and comes back. */
static struct traffic moe_traffic(const struct op *op)
{
	const struct kern_moe_dims *d = op->moe;
	const int64_t *n = op->n;
	int64_t R = d ? kern_moe_rows(d) : n[0], rows = R * n[1];
	int64_t out = rows, in = R * n[2], w = n[1] * n[2] * n[3];
	int64_t mine = d ? d->M * d->K : 0;
	int64_t all = d ? d->ranks * mine : 0, map = 4 * all;

	switch (op->code) {
	case OP_ROUTE_FWD:
		return (struct traffic){d->E * has(op, 3),
					d->ranks * d->M * d->E + all,
					4 * kern_map_size(d)};
	case OP_TALLY:
		return (struct traffic){0, 0, 4 * kern_map_size(d) + 16 * d->E};
	case OP_ROUTE_LOSS:
		return (struct traffic){0, d->M * d->E,
					4 * kern_map_size(d) +
						16 * MOE_METRICS +
						8 * d->E * has(op, 3)};
	case OP_ROUTE_BWD:
		return (struct traffic){
			d->M * d->E, d->M * d->E + mine + 2 * d->E * has(op, 1),
			4 * kern_map_size(d) + 8 + 8 * d->E * has(op, 5)};
	case OP_BALANCE:
		return has(op, 1) ? (struct traffic){n[0], 3 * n[0], 0}
				  : (struct traffic){2 * n[0], n[0], 0};
	case OP_GATHER:
	case OP_COMBINE: return (struct traffic){n[0] * n[2] + in, 0, map};
	case OP_EXPERTS_FWD:
	case OP_EXPERTS_BWD_X:
		return (struct traffic){out + in + w, 0, 4 * n[3]};
	case OP_EXPERTS_BWD_W:
		return (struct traffic){out + in, 2 * w, 4 * n[3]};
	case OP_EXPERT_ACT_FWD:
		return (struct traffic){rows + (rows << n[3]), all, map};
	case OP_EXPERT_ACT_BWD:
		return (struct traffic){rows + (rows << n[3] << 1), 2 * all,
					map};
	case OP_EXPERT_BIAS_FWD:
		return (struct traffic){2 * rows + d->experts * n[1],
					all * has(op, 2), 2 * map};
	case OP_EXPERT_BIAS_BWD:
		return (struct traffic){
			rows + d->experts * n[1] * has(op, 3),
			2 * d->experts * n[1] +
				all * (has(op, 4) + 2 * has(op, 1)),
			2 * map};
	default: return row_traffic(op);
	}
}

/* Products and flat arrays. */
static struct traffic flat_traffic(const struct op *op)
{
	const int64_t *n = op->n;
	int64_t out = n[0] * n[1], in = n[0] * n[2], w = n[1] * n[2];

	switch (op->code) {
	case OP_LINEAR_FWD:
		return (struct traffic){out + in + w + n[1] * has(op, 3), 0, 0};
	case OP_LINEAR_SUM:
		return (struct traffic){in + w + n[1] * has(op, 3), out, 0};
	case OP_LINEAR_BWD_X: return (struct traffic){out + in + w, 0, 0};
	case OP_LINEAR_BWD_W: return (struct traffic){out + in, 2 * w, 0};
	case OP_SUMSQ: return (struct traffic){0, n[0], 16};
	case OP_ADAMW:
		/* With a master copy the parameters are only written. */
		return has(op, 1) ? (struct traffic){n[0], 7 * n[0], 0}
				  : (struct traffic){2 * n[0], 5 * n[0], 0};
	case OP_ZERO: return (struct traffic){0, 0, n[0]};
	case OP_COPY: return (struct traffic){0, 0, 2 * n[0]};
	case OP_JOIN:
		return (struct traffic){0, 0,
					n[0] * (n[1] * (1 + has(op, 1)) +
						n[2] * (1 + has(op, 2)) +
						n[3] * (1 + has(op, 3)))};
	case OP_CUT: return (struct traffic){0, 0, 2 * n[0] * n[1]};
	case OP_MIX_FWD: /* at the most, all rows */
		return (struct traffic){0, 0, 3 * out + 4 * n[0] * has(op, 2)};
	case OP_MIX_BWD:
		return (struct traffic){0, 0, 2 * out + 4 * n[0] * has(op, 2)};
	default: return moe_traffic(op);
	}
}

static struct traffic traffic(const struct op *op)
{
	return op->norm	  ? norm_traffic(op)
	       : op->attn ? attn_traffic(op)
			  : flat_traffic(op);
}

int64_t prog_op_room(const struct op *op)
{
	int64_t arrays = sizeof(op->ref) / sizeof(op->ref[0]);

	return traffic(op).elems * (int64_t)sizeof(float) +
	       arrays * KERN_ROOM_ALIGN;
}

int64_t prog_op_bytes(const struct prog *p, const struct op *op)
{
	struct traffic t = traffic(op);

	return t.elems * (int64_t)p->elem + t.sums * (int64_t)p->sum + t.bytes;
}
