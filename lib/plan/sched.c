/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/sched.h"

#include <string.h>

static struct sched_slot slot(bool backward, int mb, int chunk)
{
	return (struct sched_slot){backward, mb, chunk};
}

/*
 * The order in which a rank's forwards run: groups of micro-batches, each
 * group through all chunks.  Backwards take the same table, chunks reversed.
 */
static struct sched_slot *forward_table(int vp, int m, int group,
					struct arena *a)
{
	struct sched_slot *t =
		arena_alloc(a, (size_t)m * (size_t)vp, sizeof(*t));
	int n = 0;

	for (int first = 0; first < m; first += group) {
		int end = first + group < m ? first + group : m;

		for (int chunk = 0; chunk < vp; chunk++)
			for (int mb = first; mb < end; mb++)
				t[n++] = slot(false, mb, chunk);
	}
	return t;
}

static int warmup_slots(int pp, int rank, int vp, int total, int group)
{
	int w = pp - rank - 1;

	if (vp > 1)
		w = 2 * w + (vp - 1) * group;
	return w < total ? w : total;
}

void sched_build(struct sched *out, int pp, int pp_rank, int vp, int m,
		 int group, struct arena *a)
{
	int total = m * vp, n = 0;
	struct sched_slot *f = forward_table(vp, m, group, a);

	out->warmup = warmup_slots(pp, pp_rank, vp, total, group);
	out->count = 2 * total;
	out->slot = arena_alloc(a, (size_t)out->count, sizeof(*out->slot));
	for (int i = 0; i < out->warmup; i++)
		out->slot[n++] = f[i];
	for (int i = 0; i < total; i++) {
		if (out->warmup + i < total)
			out->slot[n++] = f[out->warmup + i];
		out->slot[n++] = slot(true, f[i].mb, vp - 1 - f[i].chunk);
	}
}

const char *sched_text(const struct sched *s, struct arena *a)
{
	char *text = arena_alloc(a, (size_t)s->count + 1, 26);
	char *to = text;

	for (int i = 0; i < s->count; i++) {
		const struct sched_slot *x = &s->slot[i];
		const char *one =
			arena_printf(a, "%s%c%d.%d", i ? " " : "",
				     x->backward ? 'B' : 'F', x->mb, x->chunk);
		size_t len = strlen(one);

		memcpy(to, one, len + 1);
		to += len;
	}
	return text;
}

/* What sched_simulate knows while it runs. */
struct sim {
	int pp, vp, m;
	const double *cost[2]; /* by stage: forward, backward */
	double xfer;
	double *done[2]; /* [stage * m + mb]: when it ended, or -1 */
	int *next;	 /* slot each rank is at */
	double *clock;
};

/* When slot X of RANK can start at the earliest, or -1: not yet known. */
static double ready_at(const struct sim *s, int rank,
		       const struct sched_slot *x)
{
	int stage = x->chunk * s->pp + rank;
	double from, hop = s->pp > 1 ? s->xfer : 0;

	if (!x->backward && stage == 0)
		return s->clock[rank];
	if (!x->backward) {
		from = s->done[0][(stage - 1) * s->m + x->mb];
	} else if (stage == s->pp * s->vp - 1) {
		from = s->done[0][stage * s->m + x->mb];
		hop = 0;
	} else {
		from = s->done[1][(stage + 1) * s->m + x->mb];
	}
	if (from < 0)
		return -1;
	return from + hop > s->clock[rank] ? from + hop : s->clock[rank];
}

/* Run RANK as far as it can go; returns how many slots it ran. */
static int advance(struct sim *s, const struct sched *sched, int rank,
		   struct sched_sim *out)
{
	int ran = 0;

	while (s->next[rank] < sched->count) {
		const struct sched_slot *x = &sched->slot[s->next[rank]];
		int stage = x->chunk * s->pp + rank;
		int at = out->row[rank] + s->next[rank];
		double start = ready_at(s, rank, x);

		if (start < 0)
			break;
		out->start[at] = start;
		out->end[at] = start + s->cost[x->backward][stage];
		s->done[x->backward][stage * s->m + x->mb] = out->end[at];
		s->clock[rank] = out->end[at];
		s->next[rank]++;
		ran++;
	}
	return ran;
}

static void sim_prepare(struct sim *s, struct sched_sim *out,
			const struct sched *sched, struct arena *a)
{
	size_t stages = (size_t)(s->pp * s->vp);
	int rows = 0;

	s->m = sched[0].count / 2 / s->vp;
	s->next = arena_alloc(a, (size_t)s->pp, sizeof(*s->next));
	s->clock = arena_alloc(a, (size_t)s->pp, sizeof(*s->clock));
	for (int k = 0; k < 2; k++) {
		size_t n = stages * (size_t)s->m;

		s->done[k] = arena_alloc(a, n, sizeof(double));
		for (size_t i = 0; i < n; i++)
			s->done[k][i] = -1;
	}
	out->row = arena_alloc(a, (size_t)s->pp, sizeof(*out->row));
	for (int r = 0; r < s->pp; r++) {
		out->row[r] = rows;
		rows += sched[r].count;
	}
	out->start = arena_alloc(a, (size_t)rows, sizeof(double));
	out->end = arena_alloc(a, (size_t)rows, sizeof(double));
}

void sched_simulate(struct sched_sim *out, const struct sched *sched, int pp,
		    int vp, const double *fwd, const double *bwd, double xfer,
		    struct arena *a)
{
	struct sim s = {.pp = pp, .vp = vp, .cost = {fwd, bwd}, .xfer = xfer};
	double busy = 0;
	int ran;

	memset(out, 0, sizeof(*out));
	sim_prepare(&s, out, sched, a);
	do {
		ran = 0;
		for (int r = 0; r < pp; r++)
			ran += advance(&s, &sched[r], r, out);
	} while (ran);
	for (int r = 0; r < pp; r++) {
		if (s.next[r] < sched[r].count)
			out->deadlock = true;
		if (s.clock[r] > out->step)
			out->step = s.clock[r];
		for (int i = 0; i < sched[r].count; i++)
			busy += out->end[out->row[r] + i] -
				out->start[out->row[r] + i];
	}
	if (out->step > 0)
		out->bubble = 1 - busy / (pp * out->step);
}
