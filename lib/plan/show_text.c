/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/show_text.h"

#include <inttypes.h>
#include <string.h>

struct word word_count(int64_t n)
{
	char digits[24];
	struct word w;
	int len = snprintf(digits, sizeof(digits), "%" PRId64, n), to = 0;

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			w.s[to++] = ',';
		w.s[to++] = digits[i];
	}
	w.s[to] = 0;
	return w;
}

/* N in its unit, with three digits that count. */
static struct word scaled(double n, double base)
{
	static const char units[] = " KMGTPEZY";
	struct word w = {"-"};
	int u = 0;

	if (n <= 0)
		return w;
	while (n >= base - 0.5 && units[u + 1]) {
		n /= base;
		u++;
	}
	if (u == 0)
		snprintf(w.s, sizeof(w.s), "%.0f", n);
	else
		snprintf(w.s, sizeof(w.s), "%.*f%c",
			 n < 9.995   ? 2
			 : n < 99.95 ? 1
				     : 0,
			 n, units[u]);
	return w;
}

struct word word_bytes(int64_t n)
{
	return scaled((double)n, 1024);
}

struct word word_flops(double n)
{
	return scaled(n, 1000);
}

struct word word_range(int64_t first, int64_t count)
{
	struct word w = {"-"};

	if (count == 1)
		snprintf(w.s, sizeof(w.s), "%" PRId64, first);
	else if (count > 1)
		snprintf(w.s, sizeof(w.s), "%" PRId64 "-%" PRId64, first,
			 first + count - 1);
	return w;
}

int64_t show_bytes(const struct show *s, int pp, int family)
{
	return sum_knows(s->sum, family) ? s->sum->rank[pp].bytes[family]
					 : s->estimate->rank[pp].bytes[family];
}

int64_t show_all_bytes(const struct show *s, int pp)
{
	int64_t all = 0;

	for (int k = 0; k < FAMILIES; k++)
		all += show_bytes(s, pp, k);
	return all;
}

const char *show_bytes_source(const struct show *s)
{
	if (s->sum->planned)
		return "planned: what train-worker allocates";
	if (s->sum->counted)
		return "parameters, gradients and optimizer planned, the rest "
		       "estimated";
	return "estimated";
}

const char *text_roles(const struct stage *st, struct arena *a)
{
	const char *text = st->embedding ? "embedding" : "";

#define ROLE(has, ...) \
	if (has)       \
	text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", __VA_ARGS__)
	ROLE(st->mtp_layers, arena_printf(a, "mtp %" PRId64, st->mtp_layers));
	ROLE(st->final_norm, "norm");
	ROLE(st->output_head, "head");
	ROLE(st->loss, "loss");
#undef ROLE
	return text;
}

/* How many ranks from FIRST on follow each other without a hole. */
static int run_length(const int *ranks, int n)
{
	int k = 1;

	while (k < n && ranks[k] == ranks[k - 1] + 1)
		k++;
	return k;
}

static bool even_steps(const int *ranks, int n)
{
	for (int i = 2; i < n; i++)
		if (ranks[i] - ranks[i - 1] != ranks[1] - ranks[0])
			return false;
	return n >= 4;
}

const char *text_ranks(const int *ranks, int n, struct arena *a)
{
	const char *text = "";
	int runs = 0, at = 0, run = run_length(ranks, n);

	if (run < n && even_steps(ranks, n))
		return arena_printf(a, "%d,%d..%d", ranks[0], ranks[1],
				    ranks[n - 1]);
	while (at < n) {
		run = run_length(ranks + at, n - at);
		if (runs++ == 3 && at + run < n)
			return arena_printf(a, "%s..%d", text, ranks[n - 1]);
		text = arena_printf(a, "%s%s%s", text, at ? "," : "",
				    word_range(ranks[at], run).s);
		at += run;
	}
	return text;
}

const char *text_pp_ranks(const struct show *s, int pp)
{
	const struct grid *g = &s->sum->grid;
	int *ranks = arena_alloc(s->a, (size_t)g->world, sizeof(*ranks));
	int n = 0;

	for (int r = 0; r < g->world; r++)
		if (grid_coord(g, r).pp == pp)
			ranks[n++] = r;
	return text_ranks(ranks, n, s->a);
}

const char *text_axes(const struct sum *s, const char *times, struct arena *a)
{
	const struct grid *g = &s->grid;
	const struct {
		const char *name;
		int size;
	} axis[] = {{"tp", g->tp}, {"cp", g->cp}, {"dp", g->dp}, {"pp", g->pp}};
	const char *text = "";

	for (int i = 0; i < 4; i++)
		if (axis[i].size > 1)
			text = arena_printf(
				a, "%s%s%s%s%s %d", text, *text ? " " : "",
				*text ? times : "", *text ? " " : "",
				axis[i].name, axis[i].size);
	return text;
}

const char *text_world(const struct sum *s, struct arena *a)
{
	const char *axes = text_axes(s, "x", a);

	return arena_printf(a, "%d%s%s", s->grid.world, *axes ? " = " : "",
			    axes);
}
