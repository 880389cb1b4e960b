/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "lib/plan/show_text.h"

static void put_peers(FILE *f, const struct show *s, int rank)
{
	const struct sum *x = s->sum;
	int *ranks = arena_alloc(s->a, (size_t)x->grid.world, sizeof(*ranks));

	fputs("\npeers\n", f);
	for (int k = 0; k < SUM_GROUPS; k++) {
		int n = sum_group(x, k, rank, ranks);
		bool in = false;

		for (int i = 0; i < n; i++)
			in |= ranks[i] == rank;
		fprintf(f, "  %-10s %7d  %s\n", sum_group_name(k), in ? n : 0,
			in ? text_ranks(ranks, n, s->a) : "-");
	}
}

static void put_own_stages(FILE *f, const struct show *s, int pp)
{
	const struct stages *st = &s->sum->stages;

	fputs("\nstages\n", f);
	for (int i = pp; i < st->count; i += st->pp)
		fprintf(f, "  pp %d vp %d: layers %s%s%s\n", pp,
			st->stage[i].vp,
			word_range(st->stage[i].first_layer,
				   st->stage[i].num_layers)
				.s,
			*text_roles(&st->stage[i], s->a) ? ", " : "",
			text_roles(&st->stage[i], s->a));
}

/* "layers/0003/attn/qkv/w [16:24, 0:16]", a copy marked as one. */
static void put_piece(FILE *f, const struct plan *p, const struct piece *x)
{
	const struct weight *w = &p->weights.list[x->weight];

	fprintf(f, "  %s [%" PRId64 ":%" PRId64, w->name, x->box.off[0],
		x->box.off[0] + x->box.cnt[0]);
	if (w->ndim == 2)
		fprintf(f, ", %" PRId64 ":%" PRId64, x->box.off[1],
			x->box.off[1] + x->box.cnt[1]);
	fprintf(f, "]%s\n", x->replica ? " copy" : "");
}

/* One line a piece; the array's own numbers stand before its first. */
static void put_arrays(FILE *f, const struct plan *p)
{
	int buckets = 0;

	fprintf(f, "\narrays\n  %3s %14s %9s %9s  %s\n", "vp", "at", "rows",
		"columns", "made of");
	for (int i = 0; i < p->slice.params; i++) {
		const struct param *x = &p->slice.param[i];
		int64_t filled = 0;

		fprintf(f, "  %3d %14" PRId64 " %9" PRId64 " %9" PRId64,
			x->chunk, x->at, x->rows, x->cols);
		for (int k = 0; k < x->pieces; k++) {
			const struct piece *piece =
				&p->slice.piece[x->first_piece + k];

			if (k)
				fprintf(f, "%40s", "");
			put_piece(f, p, piece);
			filled += piece->box.cnt[0];
		}
		if (filled < x->rows)
			fprintf(f, "%*s  %" PRId64 " rows of padding\n",
				x->pieces ? 40 : 0, "", x->rows - filled);
	}
	for (int cls = 0; cls < CLASSES; cls++)
		buckets += p->slice.flat[cls].buckets.count;
	fprintf(f, "  %s elements in all, with the padding of %d bucket%s\n",
		word_count(p->slice.elements).s, buckets,
		buckets == 1 ? "" : "s");
}

static void put_families(FILE *f, const struct sum *s, const struct sum_rank *r)
{
	fputs("\nplanned bytes\n", f);
	for (int k = 0; k < FAMILIES; k++)
		fprintf(f, "  %-14s %20s\n", family_name(k),
			sum_knows(s, k) ? word_count(r->bytes[k]).s : "-");
	fprintf(f, "  %-14s %20s\n", "total",
		s->planned ? word_count(sum_bytes(r)).s : "-");
}

static void put_ops(FILE *f, const struct sum_rank *r)
{
	static const char *const names[KINDS] = {
		"forward",   "backward",      "weight gradients",
		"recompute", "communication", "optimizer"};

	fputs("\nFLOPs of a step\n", f);
	for (int k = 0; k < KINDS; k++)
		if (r->flops[k] > 0)
			fprintf(f, "  %-24s %6s\n", names[k],
				word_flops(r->flops[k]).s);
	fputs("\noperations of a step\n", f);
	for (int k = 0; k < OP_CODES; k++)
		if (r->ops[k])
			fprintf(f, "  %-24s %9" PRId64 "\n", op_code_name(k),
				r->ops[k]);
}

static void put_comms(FILE *f, const struct sum_rank *r)
{
	fprintf(f, "\ncommunication of a step\n  %-10s %-14s %9s %20s\n",
		"group", "what", "count", "bytes sent");
	for (int g = 0; g < PROG_GROUPS; g++)
		for (int k = 0; k < PROG_COMMS; k++) {
			const struct sum_comm *c = &r->comm[g][k];

			if (c->ops)
				fprintf(f, "  %-10s %-14s %9" PRId64 " %20s\n",
					prog_group_name(g), prog_comm_name(k),
					c->ops, word_count(c->bytes).s);
		}
}

void show_rank(FILE *f, const struct show *s, const struct plan *p)
{
	struct coord c = grid_coord(&p->grid, p->rank);
	struct sum_rank r;

	sum_plan(&r, p);
	fprintf(f,
		"%.70s\n  rank %d of world %s\n  tp %d, cp %d, dp %d, pp %d; "
		"ep %d, etp %d, edp %d\n",
		s->file, p->rank, text_world(s->sum, s->a), c.tp, c.cp, c.dp,
		c.pp, c.ep, c.etp, c.edp);
	put_peers(f, s, p->rank);
	put_own_stages(f, s, c.pp);
	put_arrays(f, p);
	put_families(f, s->sum, &r);
	if (!s->sum->planned) {
		fputs("\nno program: train-worker does not serve this config "
		      "yet\n",
		      f);
		return;
	}
	put_ops(f, &r);
	if (p->grid.world > 1)
		put_comms(f, &r);
}
