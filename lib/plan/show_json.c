/* SPDX-License-Identifier: Apache-2.0 */
/* Written as it goes, so that a large world takes no memory. */
#include <inttypes.h>

#include "lib/plan/gpu.h"
#include "lib/plan/show_text.h"

static const char *boolean(bool x)
{
	return x ? "true" : "false";
}

static void put_int(FILE *f, const char *key, bool known, int64_t n)
{
	if (known)
		fprintf(f, "\"%s\":%" PRId64, key, n);
	else
		fprintf(f, "\"%s\":null", key);
}

static void put_grid(FILE *f, const struct grid *g)
{
	fprintf(f,
		"\"world\":%d,\"grid\":{\"tp\":%d,\"pp\":%d,\"vp\":%d,"
		"\"cp\":%d,\"ep\":%d,\"etp\":%d,\"dp\":%d,\"edp\":%d}",
		g->world, g->tp, g->pp, g->vp, g->cp, g->ep, g->etp, g->dp,
		g->edp);
}

static void put_stage(FILE *f, const struct sum *x, int i)
{
	const struct stage *st = &x->stages.stage[i];
	double flops = x->stage[i].forward + x->stage[i].backward;

	fprintf(f,
		"%s{\"pp\":%d,\"vp\":%d,\"first_layer\":%" PRId64
		",\"num_layers\":%" PRId64 ",\"embedding\":%s,"
		"\"final_norm\":%s,\"mtp_layers\":%" PRId64
		",\"output_head\":%s,\"loss\":%s,",
		i ? "," : "", st->pp, st->vp, st->first_layer, st->num_layers,
		boolean(st->embedding), boolean(st->final_norm), st->mtp_layers,
		boolean(st->output_head), boolean(st->loss));
	put_int(f, "parameters", x->counted, x->stage[i].parameters);
	if (x->planned)
		fprintf(f, ",\"flops\":%.0f}", flops * x->grid.tp);
	else
		fputs(",\"flops\":null}", f);
}

static void put_rank(FILE *f, const struct sum *x, int rank)
{
	struct coord c = grid_coord(&x->grid, rank);
	const struct sum_rank *r = &x->rank[c.pp];

	fprintf(f,
		"{\"rank\":%d,\"tp\":%d,\"cp\":%d,\"ep\":%d,\"etp\":%d,"
		"\"dp\":%d,\"edp\":%d,\"pp\":%d,",
		rank, c.tp, c.cp, c.ep, c.etp, c.dp, c.edp, c.pp);
	put_int(f, "parameters", x->counted, r->parameters);
	fputs(",\"bytes\":{", f);
	for (int k = 0; k < FAMILIES; k++) {
		put_int(f, family_name(k), sum_knows(x, k), r->bytes[k]);
		fputc(',', f);
	}
	put_int(f, "total", x->planned, sum_bytes(r));
	fputs("}}", f);
}

static void put_group(FILE *f, const struct show *s, int group)
{
	const struct sum *x = s->sum;
	int *ranks = arena_alloc(s->a, (size_t)x->grid.world, sizeof(*ranks));
	bool comma = false;

	fprintf(f, "\"%s\":[", sum_group_name(group));
	for (int r = 0; r < x->grid.world; r++) {
		int n = 0;

		if (sum_group_first(x, group, r))
			n = sum_group(x, group, r, ranks);
		for (int i = 0; i < n; i++)
			fprintf(f, "%s%d",
				i	? ","
				: comma ? ",["
					: "[",
				ranks[i]);
		if (n)
			fputc(']', f);
		comma |= n > 0;
	}
	fputc(']', f);
}

/* What is no plan: by pipeline rank, and times on a GPU. */
static void put_estimate(FILE *f, const struct show *s)
{
	const struct estimate *x = s->estimate;

	fprintf(f,
		"\"estimate\":{\"gpu\":\"%s\",\"gpus_per_node\":%" PRId64
		",\"step_seconds\":%.6g,\"tokens_per_second\":%.6g,"
		"\"share_of_peak\":%.6g,\"bubble\":%.6g,\"bytes\":[",
		s->cluster->gpu->name, s->cluster->gpus_per_node, x->step,
		x->tokens_per_second, x->flops_share, x->bubble);
	for (int pp = 0; pp < x->pp; pp++) {
		fprintf(f, "%s{\"pp\":%d,", pp ? "," : "", pp);
		for (int k = 0; k < FAMILIES; k++) {
			put_int(f, family_name(k), true, show_bytes(s, pp, k));
			fputc(',', f);
		}
		put_int(f, "total", true, show_all_bytes(s, pp));
		fputc('}', f);
	}
	fputs("]},", f);
}

void show_json(FILE *f, const struct show *s, int rank)
{
	const struct sum *x = s->sum;
	int first = rank < 0 ? 0 : rank;
	int last = rank < 0 ? x->grid.world - 1 : rank;
	char hash[33];

	shape_hash(&x->config->shape, hash);
	fprintf(f, "{\"shape_hash\":\"%s\",", hash);
	put_grid(f, &x->grid);
	fputs(",\"stages\":[", f);
	for (int i = 0; i < x->stages.count; i++)
		put_stage(f, x, i);
	fputs("],\"ranks\":[", f);
	for (int r = first; r <= last; r++) {
		if (r > first)
			fputc(',', f);
		put_rank(f, x, r);
	}
	fputs("],", f);
	put_estimate(f, s);
	fputs("\"groups\":{", f);
	for (int k = 0; k < SUM_GROUPS; k++) {
		if (k)
			fputc(',', f);
		put_group(f, s, k);
	}
	if (x->planned)
		fprintf(f, "},\"bubble\":%.15g}\n", x->sim.bubble);
	else
		fputs("},\"bubble\":null}\n", f);
}
