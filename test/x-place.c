/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-place FILE: where lib/plan puts the pieces, for a stream of configs.
 * FILE has a line "WORLD CONFIG" for each; what is printed of it, and closed
 * by a line ".":
 *   ids ID...                    its findings of place that are errors
 *   rows N                       of the padded vocabulary
 *   mtp_standalone 0|1           as it was derived
 *   stage PP VP FIRST LAYERS EMBEDDING NORM MTP HEAD LOSS    for each
 *   rank TP CP DP PP EP ETP EDP  for each; both only of what can be built
 *   NAME R,R,.. R,R,..           the groups
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/plan/sum.h"

static void give_up(const char *why)
{
	fprintf(stderr, "x-place: %s\n", why);
	exit(2);
}

static void put_ids(const struct report *r)
{
	fputs("ids", stdout);
	for (size_t i = 0; i < r->count; i++)
		if (r->list[i].severity == ERROR &&
		    strncmp(r->list[i].id, "place-", 6) == 0)
			printf(" %s", r->list[i].id);
	putchar('\n');
}

static void put_stages(const struct stages *st)
{
	for (int i = 0; i < st->count; i++) {
		const struct stage *s = &st->stage[i];

		printf("stage %d %d %" PRId64 " %" PRId64 " %d %d %" PRId64
		       " %d %d\n",
		       s->pp, s->vp, s->first_layer, s->num_layers,
		       s->embedding, s->final_norm, s->mtp_layers,
		       s->output_head, s->loss);
	}
}

static void put_ranks(const struct grid *g)
{
	for (int r = 0; r < g->world; r++) {
		struct coord c = grid_coord(g, r);

		if (grid_rank(g, c) != r)
			give_up("grid_rank is not grid_coord's inverse");
		printf("rank %d %d %d %d %d %d %d\n", c.tp, c.cp, c.dp, c.pp,
		       c.ep, c.etp, c.edp);
	}
}

static void put_list(const int *ranks, int n)
{
	for (int i = 0; i < n; i++)
		printf("%c%d", i ? ',' : ' ', ranks[i]);
}

/* The groups along AXES, which stage-build prints no list of. */
static void put_axes(const char *name, const struct grid *g, unsigned axes,
		     int *ranks)
{
	int me;

	fputs(name, stdout);
	for (int r = 0; r < g->world; r++) {
		int n = grid_group(g, r, axes, ranks, &me);

		if (!me)
			put_list(ranks, n);
	}
	putchar('\n');
}

static void put_groups(const struct sum *s, struct arena *a)
{
	const struct grid *g = &s->grid;
	int *ranks = arena_alloc(a, (size_t)g->world, sizeof(*ranks));

	for (int k = 0; k < SUM_GROUPS; k++) {
		fputs(sum_group_name(k), stdout);
		for (int r = 0; r < g->world; r++)
			if (sum_group_first(s, k, r))
				put_list(ranks, sum_group(s, k, r, ranks));
		putchar('\n');
	}
	put_axes("tp_cp", g, AXES(AXIS_TP) | AXES(AXIS_CP), ranks);
	put_axes("tp_pp", g, AXES(AXIS_TP) | AXES(AXIS_PP), ranks);
	put_axes("ep_etp", g, AXES(AXIS_EP) | AXES(AXIS_ETP), ranks);
}

static void show(const struct config *c, int64_t world, struct arena *a)
{
	struct sum s = {.config = c};
	struct err e;
	bool cut = !stages_build(&s.stages, &c->place, &c->shape, a, &e);
	bool tiled = !grid_build(&s.grid, &c->place, world, &e);

	printf("rows %" PRId64 "\n",
	       place_padded_vocab(&c->place, c->shape.vocab_size));
	if (cut) {
		printf("mtp_standalone %d\n", c->place.mtp_standalone);
		put_stages(&s.stages);
	}
	if (tiled)
		put_ranks(&s.grid);
	if (cut && tiled)
		put_groups(&s, a);
}

/* TEXT as a file, for that is what a config is read from. */
static void place(int memory, const char *text, int64_t world)
{
	size_t len = strlen(text);
	struct arena a = {0};
	struct report r = {.arena = &a};
	struct config c;
	struct err e;
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	if (ftruncate(memory, 0) ||
	    pwrite(memory, text, len, 0) != (ssize_t)len)
		give_up("cannot write to memory");
	if (arena_open(&a, &e) || config_load(path, NULL, 0, &a, &c, &r, &e))
		give_up(e.text);
	for (size_t i = 0; i < r.count; i++)
		give_up(r.list[i].message);
	config_finish(&c, world, &r);
	put_ids(&r);
	show(&c, world, &a);
	puts(".");
	arena_close(&a);
}

int main(int argc, char **argv)
{
	int memory = memfd_create("config", 0);
	FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
	char *line = NULL, *text;
	size_t room = 0;

	if (!f || memory < 0)
		give_up("usage: x-place FILE");
	while (getline(&line, &room, f) > 0) {
		int64_t world = strtoll(line, &text, 10);

		place(memory, text, world);
	}
	free(line);
	fclose(f);
	close(memory);
	return 0;
}
