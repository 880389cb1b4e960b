/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "lib/plan/gpu.h"
#include "lib/plan/show_text.h"

static void put_head(FILE *f, const struct show *s)
{
	const struct sum *x = s->sum;
	const struct grid *g = &x->grid;
	const struct shape *shape = &x->config->shape;
	char hash[33];

	shape_hash(shape, hash);
	fprintf(f, "%.70s\n", s->file);
	fprintf(f, "  world %s", text_world(x, s->a));
	if (g->vp > 1)
		fprintf(f, ", %d virtual stages a rank", g->vp);
	if (g->ep > 1 || g->etp != g->tp)
		fprintf(f, "; experts etp %d x ep %d x edp %d", g->etp, g->ep,
			g->edp);
	fprintf(f, "\n  shape %s, %s parameters\n", hash,
		word_count(shape_parameters(shape)).s);
	fprintf(f,
		"  step: %d micro-batch%s a rank, %" PRId64
		" sample%s of %" PRId64 " tokens each\n",
		x->microbatches, x->microbatches == 1 ? "" : "es",
		x->config->run.micro_batch_size,
		x->config->run.micro_batch_size == 1 ? "" : "s",
		shape->seq_length);
}

/* Forward and backward of a micro-batch on all tp ranks. */
static double stage_flops(const struct sum *x, int stage)
{
	return (x->stage[stage].forward + x->stage[stage].backward) *
	       x->grid.tp;
}

static void put_stage(FILE *f, const struct show *s, int i, double all)
{
	const struct sum *x = s->sum;
	const struct stage *st = &x->stages.stage[i];
	double flops = stage_flops(x, i);

	fprintf(f, "  %4d %3d  %-11s %5" PRId64 "  %-34s", st->pp, st->vp,
		word_range(st->first_layer, st->num_layers).s, st->num_layers,
		text_roles(st, s->a));
	fprintf(f, " %17s",
		x->counted ? word_count(x->stage[i].parameters).s : "-");
	if (x->planned)
		fprintf(f, "  %6s %5.1f%%\n", word_flops(flops).s,
			100 * flops / all);
	else
		fprintf(f, "  %6s %6s\n", "-", "-");
}

static void put_stages(FILE *f, const struct show *s)
{
	double all = 0;

	for (int i = 0; i < s->sum->stages.count; i++)
		all += stage_flops(s->sum, i);
	fprintf(f, "\nstages\n  %4s %3s  %-11s %5s  %-34s %17s  %6s %6s\n",
		"pp", "vp", "layers", "count", "also", "parameters", "FLOPs",
		"share");
	for (int i = 0; i < s->sum->stages.count; i++)
		put_stage(f, s, i, all);
	fputs("  parameters: of the model, each weight once; FLOPs: of one "
	      "micro-batch, all tp ranks\n",
	      f);
}

static bool same_row(const struct config *c, int64_t i, int64_t j)
{
	struct spec_row a = spec_layer(&c->spec, &c->shape, i);
	struct spec_row b = spec_layer(&c->spec, &c->shape, j);

	return !strcmp(a.name, b.name) && !strcmp(a.norm, b.norm) &&
	       !strcmp(a.attention, b.attention) && !strcmp(a.mlp, b.mlp);
}

static void put_layers(FILE *f, const struct show *s)
{
	const struct config *c = s->sum->config;
	int64_t layers = c->shape.num_layers, first = 0;

	fprintf(f, "\nlayers\n  %-11s  %-14s %-20s %-10s %s\n", "layers",
		"spec", "norm", "attention", "mlp");
	for (int64_t n = 1; n <= layers; n++) {
		struct spec_row row = spec_layer(&c->spec, &c->shape, first);

		if (n < layers && same_row(c, first, n))
			continue;
		fprintf(f, "  %-11s  %-14s %-20s %-10s %s\n",
			word_range(first, n - first).s, row.name, row.norm,
			row.attention, row.mlp);
		first = n;
	}
}

/* ~ before what is estimated. */
static const char *about(const struct show *s, const char *word, bool exact)
{
	return exact ? arena_strdup(s->a, word)
		     : arena_printf(s->a, "~%s", word);
}

static const char *text_bytes(const struct show *s, int pp, int family)
{
	int64_t n = show_bytes(s, pp, family);

	return about(s, word_bytes(n).s, !n || sum_knows(s->sum, family));
}

/* What a rank of pipeline rank PP allocates. */
static void put_bytes(FILE *f, const struct show *s, int pp)
{
	const struct sum *x = s->sum;

	fprintf(f, " %15s",
		x->counted ? word_count(x->rank[pp].parameters).s : "-");
	for (int k = 0; k < FAMILIES; k++)
		fprintf(f, " %6s", text_bytes(s, pp, k));
	fprintf(f, " %6s\n",
		about(s, word_bytes(show_all_bytes(s, pp)).s, x->planned));
}

static void put_bytes_head(FILE *f)
{
	static const char *const names[FAMILIES] = {"param", "grad", "optim",
						    "activ", "comm", "host"};

	fprintf(f, " %15s", "parameters");
	for (int k = 0; k < FAMILIES; k++)
		fprintf(f, " %6s", names[k]);
	fprintf(f, " %6s\n", "total");
}

static void put_each_rank(FILE *f, const struct show *s)
{
	const struct sum *x = s->sum;

	fprintf(f, "  %4s %3s %3s %3s %3s %3s %3s %3s", "rank", "tp", "cp",
		"dp", "pp", "ep", "etp", "edp");
	put_bytes_head(f);
	for (int r = 0; r < x->grid.world; r++) {
		struct coord c = grid_coord(&x->grid, r);

		fprintf(f, "  %4d %3d %3d %3d %3d %3d %3d %3d", r, c.tp, c.cp,
			c.dp, c.pp, c.ep, c.etp, c.edp);
		put_bytes(f, s, c.pp);
	}
}

static void put_ranks(FILE *f, const struct show *s)
{
	const struct sum *x = s->sum;

	fputs("\nranks\n", f);
	if (x->grid.world <= SHOW_RANKS) {
		put_each_rank(f, s);
	} else {
		fprintf(f, "  %4s %-22s %5s", "pp", "ranks", "count");
		put_bytes_head(f);
		for (int pp = 0; pp < x->grid.pp; pp++) {
			fprintf(f, "  %4d %-22.22s %5d", pp,
				text_pp_ranks(s, pp),
				x->grid.world / x->grid.pp);
			put_bytes(f, s, pp);
		}
	}
	fprintf(f,
		"  parameters: allocated on a rank, padding and copies "
		"included; then %s\n",
		x->planned ? "planned bytes (K = 1024)"
			   : "bytes (K = 1024), ~ estimated");
}

/* As many groups as a line has room for. */
static void put_group_lists(FILE *f, const struct show *s, int group)
{
	const struct sum *x = s->sum;
	int *ranks = arena_alloc(s->a, (size_t)x->grid.world, sizeof(*ranks));
	int used = 30;

	for (int r = 0; r < x->grid.world; r++) {
		const char *text;
		int n = 0;

		if (sum_group_first(x, group, r))
			n = sum_group(x, group, r, ranks);
		if (!n)
			continue;
		text = text_ranks(ranks, n, s->a);
		used += (int)strlen(text) + 2;
		if (used > SHOW_WIDTH - 4) {
			fputs("  ..", f);
			break;
		}
		fprintf(f, "  %s", text);
	}
}

static void put_groups(FILE *f, const struct show *s)
{
	const struct sum *x = s->sum;
	int *ranks = arena_alloc(s->a, (size_t)x->grid.world, sizeof(*ranks));

	fprintf(f, "\ngroups\n  %-10s %7s %7s  members\n", "group", "number",
		"size");
	for (int k = 0; k < SUM_GROUPS; k++) {
		int size = sum_group(x, k, 0, ranks), number = 0;

		for (int r = 0; r < x->grid.world; r++)
			number += sum_group_first(x, k, r);
		fprintf(f, "  %-10s %7d %7d", sum_group_name(k), number, size);
		if (number == x->grid.world)
			fputs("  each rank alone", f);
		else
			put_group_lists(f, s, k);
		fputc('\n', f);
	}
}

static struct sum_comm comm_of(const struct sum_rank *r, int group)
{
	struct sum_comm all = {0};

	for (int k = 0; k < PROG_COMMS; k++) {
		all.ops += r->comm[group][k].ops;
		all.bytes += r->comm[group][k].bytes;
	}
	return all;
}

/* Whether any rank communicates over GROUP. */
static bool has_comm(const struct sum *x, int group)
{
	for (int pp = 0; pp < x->grid.pp; pp++)
		if (comm_of(&x->rank[pp], group).ops)
			return true;
	return false;
}

static void put_comm(FILE *f, const struct sum *x)
{
	fputs("\ncommunication of a step: operations, and bytes that one rank "
	      "sends\n  ",
	      f);
	fprintf(f, "%4s", "pp");
	for (int k = 0; k < PROG_GROUPS; k++)
		if (has_comm(x, k))
			fprintf(f, " %14s", prog_group_name(k));
	fputc('\n', f);
	for (int pp = 0; pp < x->grid.pp; pp++) {
		fprintf(f, "  %4d", pp);
		for (int k = 0; k < PROG_GROUPS; k++) {
			struct sum_comm c = comm_of(&x->rank[pp], k);

			if (!has_comm(x, k))
				continue;
			if (c.ops)
				fprintf(f, " %7" PRId64 " %6s", c.ops,
					word_bytes(c.bytes).s);
			else
				fprintf(f, " %14s", "-");
		}
		fputc('\n', f);
	}
}

/* Times are predicted for GPUs. */
static void put_estimate(FILE *f, const struct show *s)
{
	const struct estimate *x = s->estimate;

	fprintf(f,
		"\nestimated on %s, %" PRId64
		" a node: %.4g s a step, %s tokens/s, %.1f%% of the peak, "
		"%.1f%% bubble\n",
		s->cluster->gpu->name, s->cluster->gpus_per_node, x->step,
		word_flops(x->tokens_per_second).s, 100 * x->flops_share,
		100 * x->bubble);
}

void show_table(FILE *f, const struct show *s)
{
	const struct sum *x = s->sum;

	put_head(f, s);
	if (x->config->spec.device == DEVICE_AUTO)
		fputs("  planned for CPUs; spec.device = \"cuda\" plans for "
		      "GPUs\n",
		      f);
	put_stages(f, s);
	put_layers(f, s);
	put_ranks(f, s);
	put_groups(f, s);
	if (!x->planned) {
		fputs("\nno program: train-worker does not serve this "
		      "config yet\n",
		      f);
		put_estimate(f, s);
		return;
	}
	if (x->grid.world > 1)
		put_comm(f, x);
	fprintf(f,
		"\npipeline bubble: %.1f%% = idle / (pp x step), simulated "
		"with FLOPs as times and free messages\n",
		100 * x->sim.bubble);
	if (x->config->spec.device == DEVICE_CUDA)
		put_estimate(f, s);
}
