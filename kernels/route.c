/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: where tokens go. */
#include <math.h>
#include <string.h>

#include "kernels/kern_cpu.h"

/* Rows are taken in so many runs, each summed by itself: bits that last. */
enum { RUNS = 64 };

/* One token: its logits, their scores, and what experts are chosen by. */
struct token {
	double x[KERN_EXPERTS];
	double score[KERN_EXPERTS];
	double key[KERN_EXPERTS];
	bool barred[KERN_EXPERTS];
	double lse, sum; /* of all logits, of all scores */
};

static double score_of(double x, enum kern_score score)
{
	if (score == KERN_SIGMOID)
		return 1 / (1 + exp(-x));
	return sqrt(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
}

/* Its derivative, by the score alone. */
static double score_slope(double s, enum kern_score score)
{
	if (score == KERN_SIGMOID)
		return s * (1 - s);
	return s > 0 ? -expm1(-s * s) / (2 * s) : 0;
}

/* Scores become e^(x - MOST); returns their sum. */
static double exponentials(struct token *t, double most, int64_t E)
{
	double sum = 0;

	for (int64_t e = 0; e < E; e++) {
		t->score[e] = exp(t->x[e] - most);
		sum += t->score[e];
	}
	return sum;
}

static void token_load(struct token *t, const REAL *logits,
		       const struct kern_moe_dims *d)
{
	double most = -INFINITY, sum;

	for (int64_t e = 0; e < d->E; e++) {
		t->x[e] = (double)logits[e];
		t->barred[e] = false;
		if (t->x[e] > most)
			most = t->x[e];
	}
	sum = exponentials(t, most, d->E);
	t->lse = most + log(sum);
	t->sum = 1;
	for (int64_t e = 0; e < d->E && d->score == KERN_SOFTMAX; e++)
		t->score[e] /= sum;
	if (d->score == KERN_SOFTMAX)
		return;
	t->sum = 1e-20;
	for (int64_t e = 0; e < d->E; e++) {
		t->score[e] = score_of(t->x[e], d->score);
		t->sum += t->score[e];
	}
}

/*
 * The next expert of FIRST .. END after LAST (-1: none yet), from the largest
 * key down, equal ones by number; -1 if there is none.
 */
static int64_t next_best(const struct token *t, int64_t first, int64_t end,
			 int64_t last)
{
	int64_t best = -1;

	for (int64_t e = first; e < end; e++) {
		bool later = last < 0 || t->key[e] < t->key[last] ||
			     (e > last && t->key[e] == t->key[last]);

		if (later && !t->barred[e] &&
		    (best < 0 || t->key[e] > t->key[best]))
			best = e;
	}
	return best;
}

/* What a group is worth: its best experts' keys or scores. */
static double group_worth(const struct token *t, int64_t group, bool biased,
			  const struct kern_moe_dims *d)
{
	bool keys = biased || (d->score == KERN_SOFTMAX && !d->pre);
	int64_t size = d->E / d->groups, first = group * size, last = -1;
	double worth = 0;

	for (int64_t k = 0; k < d->K / d->group_topk; k++) {
		last = next_best(t, first, first + size, last);
		if (last < 0)
			break;
		worth += keys ? t->key[last] : t->score[last];
	}
	return worth;
}

/* Bar all experts but those of the best groups. */
static void limit_groups(struct token *t, bool biased,
			 const struct kern_moe_dims *d)
{
	int64_t size = d->E / d->groups;
	double worth[KERN_EXPERTS] = {0};
	bool in[KERN_EXPERTS] = {false};

	for (int64_t g = 0; g < d->groups; g++)
		worth[g] = group_worth(t, g, biased, d);
	for (int64_t k = 0; k < d->group_topk; k++) {
		int64_t best = 0;

		while (in[best])
			best++;
		for (int64_t g = best + 1; g < d->groups; g++)
			if (!in[g] && worth[g] > worth[best])
				best = g;
		in[best] = true;
	}
	for (int64_t e = 0; e < d->E; e++)
		t->barred[e] = !in[e / size];
}

static void choose(const struct token *t, int32_t *expert,
		   const struct kern_moe_dims *d)
{
	int64_t last = -1;

	for (int64_t k = 0; k < d->K; k++) {
		last = next_best(t, 0, d->E, last);
		expert[k] = (int32_t)last;
	}
}

/* The probabilities of the chosen, before the scale. */
static void chosen_probs(const struct token *t, double *p,
			 const int32_t *expert, const struct kern_moe_dims *d)
{
	bool post = d->score == KERN_SOFTMAX && !d->pre;
	double sum = 0;

	for (int64_t k = 0; k < d->K; k++) {
		p[k] = post ? exp(t->x[expert[k]] - t->x[expert[0]])
			    : t->score[expert[k]];
		sum += p[k];
	}
	if (d->score == KERN_SOFTMAX ? d->pre : d->K == 1)
		return;
	for (int64_t k = 0; k < d->K; k++)
		p[k] /= sum + (post ? 0 : 1e-20);
}

/* What a choice goes by, beside the logits. */
struct steer {
	const REAL *bias; /* or NULL */
	double *log_w;	  /* sinkhorn's, or NULL */
};

/* What is not a number is chosen last. */
static void set_keys(struct token *t, const struct steer *s, int64_t E)
{
	for (int64_t e = 0; e < E; e++) {
		double key = t->x[e] + (s->log_w ? s->log_w[e] : 0);

		if (s->bias)
			key = t->score[e] + (double)s->bias[e];
		t->key[e] = isnan(key) ? -INFINITY : key;
	}
}

/* Rows LO .. HI: experts and probabilities; each sample's load is counted. */
static void route_rows(REAL *prob, const struct kern_map *m, const REAL *logits,
		       const struct steer *s, int64_t lo, int64_t hi,
		       const struct kern_moe_dims *d)
{
	double p[KERN_EXPERTS];
	int32_t free[KERN_EXPERTS];
	const struct steer logits_alone = {NULL, NULL};
	struct token t;

	for (int64_t n = lo; n < hi; n++) {
		int32_t *expert = m->expert + n * d->K;
		int32_t *load = m->load + n / d->T * d->E;

		token_load(&t, logits + n * d->E, d);
		set_keys(&t, &logits_alone, d->E);
		choose(&t, free, d);
		for (int64_t k = 0; k < d->K; k++)
			load[free[k]]++;
		set_keys(&t, s, d->E);
		if (d->group_topk)
			limit_groups(&t, s->bias, d);
		choose(&t, expert, d);
		chosen_probs(&t, p, expert, d);
		for (int64_t k = 0; k < d->K; k++)
			prob[n * d->K + k] = (REAL)(p[k] * d->scale);
	}
}

/* The bits of P >= 0, in the order of such numbers; NaN is the largest. */
static uint64_t bits_of(REAL p)
{
	double x = (double)p;
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits & ~((uint64_t)1 << 63);
}

/*
 * The expert of choice I among this rank's, or -1.  Whether it has a row at
 * all is row[i] >= 0 from here on.
 */
static int64_t local(const struct kern_map *m, int64_t i,
		     const struct kern_moe_dims *d)
{
	int64_t e = m->expert[i] - d->first;

	return e >= 0 && e < d->experts ? e : -1;
}

/* An expert that gets too many tokens, and what its last one is worth. */
struct full {
	uint64_t lo, hi;  /* the capacity's probability is in lo .. hi */
	int64_t at_least; /* choices worth the middle or more */
};

/*
 * For each local expert the largest bits (lo) that at least CAPACITY of the
 * choices I .. END have, by bisection; 0 if there are not so many.
 */
static void find_limits(struct full *f, const REAL *prob,
			const struct kern_map *m, int64_t i, int64_t end,
			const struct kern_moe_dims *d)
{
	for (int64_t e = 0; e < d->experts; e++)
		f[e] = (struct full){0, (uint64_t)1 << 63, 0};
	for (int bit = 0; bit < 63; bit++) {
		for (int64_t e = 0; e < d->experts; e++)
			f[e].at_least = 0;
		for (int64_t k = i; k < end; k++) {
			int64_t e = local(m, k, d);

			if (e >= 0 && bits_of(prob[k]) >=
					      f[e].lo + (f[e].hi - f[e].lo) / 2)
				f[e].at_least++;
		}
		for (int64_t e = 0; e < d->experts; e++) {
			uint64_t mid = f[e].lo + (f[e].hi - f[e].lo) / 2;

			if (f[e].at_least >= d->capacity)
				f[e].lo = mid;
			else
				f[e].hi = mid;
		}
	}
}

/* Of choices I .. END, those that their experts have no room for: row -1. */
static void drop_choices(const REAL *prob, const struct kern_map *m, int64_t i,
			 int64_t end, const struct kern_moe_dims *d)
{
	struct full f[KERN_EXPERTS];
	int64_t room[KERN_EXPERTS];

	for (int64_t e = 0; e < d->experts; e++) {
		f[e].lo = 0;
		room[e] = d->capacity;
	}
	if (!d->by_position) {
		find_limits(f, prob, m, i, end, d);
		/* first those above, then equal ones in order */
		for (int64_t k = i; k < end; k++) {
			int64_t e = local(m, k, d);

			if (e >= 0)
				room[e] -= bits_of(prob[k]) > f[e].lo;
		}
	}
	for (int64_t k = i; k < end; k++) {
		int64_t e = local(m, k, d);

		if (e < 0 || (!d->by_position && bits_of(prob[k]) > f[e].lo))
			continue;
		if (bits_of(prob[k]) < f[e].lo || room[e]-- <= 0)
			m->row[k] = -1;
	}
}

/* Choices in the order of experts, then of tokens. */
static void sort_choices(const REAL *prob, const struct kern_map *m,
			 const struct kern_moe_dims *d)
{
	int64_t each = d->M * d->K, all = d->ranks * each;
	int32_t before = 0;

	for (int64_t i = 0; i < all; i++)
		m->row[i] = local(m, i, d) < 0 ? -1 : 0;
	for (int64_t i = 0; i < all && d->capacity; i += each)
		drop_choices(prob, m, i, i + each, d);
	memset(m->end, 0, (size_t)d->experts * sizeof(*m->end));
	for (int64_t i = 0; i < all; i++)
		if (m->row[i] >= 0)
			m->end[local(m, i, d)]++;
	for (int64_t e = 0; e < d->experts; e++) {
		int32_t rows = m->end[e];

		m->end[e] = before;
		before += rows;
	}
	for (int64_t i = 0; i < all; i++)
		if (m->row[i] >= 0)
			m->row[i] = m->end[local(m, i, d)]++;
}

/* The c(e) of this rank's micro-batch. */
static double chosen(const struct kern_map *m, int64_t e,
		     const struct kern_moe_dims *d)
{
	int64_t samples = d->M / d->T;
	const int32_t *load = m->load + d->me * samples * d->E;
	double count = 0;

	for (int64_t i = 0; i < samples; i++)
		count += load[i * d->E + e];
	return count;
}

/*
 * G[e] = the derivative of the auxiliary losses by the share of expert E in a
 * token of this rank's sample B.
 */
static void share_slopes(double *g, const struct kern_map *m,
			 const double *tally, int64_t b,
			 const struct kern_moe_dims *d)
{
	double M = (double)d->M, T = (double)d->T, K = (double)d->K;
	double all = d->aux * (double)d->E / (K * M * M), so_far = 0;
	double seq = d->seq_aux * (double)d->E / (K * T * M), global = 0;
	const int32_t *load = m->load + (d->me * d->M / d->T + b) * d->E;

	for (int64_t e = 0; e < d->E && tally; e++)
		so_far += tally[e];
	if (so_far > 0)
		global = d->global * (double)d->E / (M * so_far);
	for (int64_t e = 0; e < d->E; e++)
		g[e] = all * chosen(m, e, d) + seq * load[e] +
		       (tally ? global * tally[e] : 0);
}

/* The losses of rows LO .. HI of this rank's, added to AUX and Z. */
static void loss_rows(double *aux, double *z, const struct kern_map *m,
		      const double *tally, const REAL *logits, int64_t lo,
		      int64_t hi, const struct kern_moe_dims *d)
{
	double g[KERN_EXPERTS];
	struct token t;

	for (int64_t n = lo; n < hi; n++) {
		double part = 0;

		if (n == lo || n % d->T == 0)
			share_slopes(g, m, tally, n / d->T, d);
		token_load(&t, logits + n * d->E, d);
		for (int64_t e = 0; e < d->E; e++)
			part += g[e] * t.score[e];
		*aux += part / t.sum;
		*z += d->z * t.lse * t.lse / (double)d->M;
	}
}

/* The most tokens of this rank's that chose the same expert. */
static int64_t most_chosen(const struct kern_map *m,
			   const struct kern_moe_dims *d)
{
	int64_t count[KERN_EXPERTS] = {0}, choices = d->M * d->K, most = 0;
	const int32_t *expert = m->expert + d->me * choices;

	for (int64_t i = 0; i < choices; i++)
		if (++count[expert[i]] > most)
			most = count[expert[i]];
	return most;
}

void K(tally)(struct queue *q, double *tally, const int32_t *map,
	      const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */

	(void)q;
	for (int64_t e = 0; e < d->E; e++)
		tally[e] += chosen(&m, e, d);
}

void K(route_loss)(struct queue *q, double *stat, const void *logits,
		   const int32_t *map, const double *tally,
		   const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map((int32_t *)map, d); /* only read */
	double part[RUNS][2] = {{0}};

	(void)q;
#pragma omp parallel for if (d->M * d->E > KERN_SMALL)
	for (int64_t i = 0; i < RUNS; i++)
		loss_rows(&part[i][0], &part[i][1], &m, tally, logits,
			  d->M * i / RUNS, d->M * (i + 1) / RUNS, d);
	for (int64_t i = 0; i < RUNS; i++) {
		stat[MOE_AUX] += part[i][0];
		stat[MOE_Z] += part[i][1];
	}
	stat[MOE_LOAD] +=
		(double)(most_chosen(&m, d) * d->E) / (double)(d->M * d->K);
	stat[MOE_COUNT]++;
}

enum { SINKHORN_MOST = 1000 };

/*
 * W of a micro-batch's LOGITS (M, E), as Megatron's iteration has it: each
 * token's row of d(n) w(e) e^x has a sum of 1 / M, then each expert's column
 * one of 1 / E, until w changes by no more than 1e-4 in the mean.
 */
static void sinkhorn(double *w, const REAL *logits,
		     const struct kern_moe_dims *d)
{
	double column[KERN_EXPERTS], share[KERN_EXPERTS], off = 1;

	for (int64_t e = 0; e < d->E; e++)
		w[e] = 1;
	for (int i = 0; i < SINKHORN_MOST && off > 1e-4; i++) {
		memset(column, 0, (size_t)d->E * sizeof(*column));
		for (int64_t n = 0; n < d->M; n++) {
			const REAL *x = logits + n * d->E;
			double most = (double)x[0], sum = 1e-8;

			for (int64_t e = 1; e < d->E; e++)
				most = fmax(most, (double)x[e]);
			for (int64_t e = 0; e < d->E; e++) {
				share[e] = exp((double)x[e] - most);
				sum += w[e] * share[e];
			}
			for (int64_t e = 0; e < d->E; e++)
				column[e] += share[e] / ((double)d->M * sum);
		}
		off = 0;
		for (int64_t e = 0; e < d->E; e++) {
			double was = w[e];

			w[e] = 1 / ((double)d->E * (column[e] + 1e-8));
			off += fabs(w[e] - was) / (double)d->E;
		}
	}
}

void K(route_fwd)(struct queue *q, void *prob, int32_t *map, const void *logits,
		  const void *bias, const struct kern_moe_dims *d)
{
	struct kern_map m = kern_map(map, d);
	int64_t samples = d->M / d->T;
	double log_w[KERN_EXPERTS];
	struct steer s = {bias, d->sinkhorn ? log_w : NULL};

	(void)q;
	memset(m.load, 0,
	       (size_t)(d->ranks * samples * d->E) * sizeof(*m.load));
	for (int64_t r = 0; r < d->ranks; r++) {
		if (d->sinkhorn)
			sinkhorn(log_w, (const REAL *)logits + r * d->M * d->E,
				 d);
		for (int64_t e = 0; e < d->E && d->sinkhorn; e++)
			log_w[e] = log(log_w[e]);
			/* a sample's load has one writer */
#pragma omp parallel for if (d->M * d->E > KERN_SMALL)
		for (int64_t b = r * samples; b < (r + 1) * samples; b++)
			route_rows(prob, &m, logits, &s, b * d->T,
				   (b + 1) * d->T, d);
	}
	sort_choices(prob, &m, d);
}

/* DX += of the chosen experts' probabilities, whose gradient is DPROB. */
static void probs_backward(double *dx, const struct token *t, const REAL *dprob,
			   const int32_t *expert, const struct kern_moe_dims *d)
{
	bool soft = d->score == KERN_SOFTMAX, one = !soft && d->K == 1;
	double p[KERN_EXPERTS], dot = 0, sum = 1e-20;

	chosen_probs(t, p, expert, d);
	for (int64_t k = 0; k < d->K; k++) {
		dot += one ? 0 : p[k] * (double)dprob[k] * d->scale;
		sum += t->score[expert[k]];
	}
	for (int64_t k = 0; k < d->K; k++) {
		double s = t->score[expert[k]];
		double g = (double)dprob[k] * d->scale;

		if (soft) /* pre: what all others lose comes below */
			dx[expert[k]] += p[k] * (d->pre ? g : g - dot);
		else
			dx[expert[k]] += (one ? g : (g - dot) / sum) *
					 score_slope(s, d->score);
	}
	for (int64_t e = 0; e < d->E && soft && d->pre; e++)
		dx[e] -= t->score[e] * dot;
}

/* DX += of the auxiliary losses and the z-loss. */
static void losses_backward(double *dx, const struct token *t, const double *g,
			    double coef, const struct kern_moe_dims *d)
{
	double mean = 0, z = 2 * d->z * t->lse / (double)d->M;

	for (int64_t e = 0; e < d->E; e++)
		mean += g[e] * t->score[e] / t->sum;
	for (int64_t e = 0; e < d->E; e++) {
		double slope = d->score == KERN_SOFTMAX
				       ? t->score[e]
				       : score_slope(t->score[e], d->score);

		dx[e] += coef * (g[e] - mean) / t->sum * slope;
		if (z != 0)
			dx[e] += coef * z * exp(t->x[e] - t->lse);
	}
}

void K(route_bwd)(struct queue *q, void *dlogits, void *count,
		  const void *dprob, const void *logits, const int32_t *map,
		  const double *tally, const double *coef,
		  const struct kern_moe_dims *d)
{
	/* only read */
	struct kern_map m = kern_map((int32_t *)map, d);
	const int32_t *expert = m.expert + d->me * d->M * d->K;

	(void)q;
	for (int64_t i = 0; i < d->M * d->K && count; i++)
		((REAL *)count)[expert[i]]++;
#pragma omp parallel for if (d->M * d->E > KERN_SMALL)
	for (int64_t i = 0; i < RUNS; i++) {
		int64_t lo = d->M * i / RUNS, hi = d->M * (i + 1) / RUNS;
		double g[KERN_EXPERTS], dx[KERN_EXPERTS];
		struct token t;

		for (int64_t n = lo; n < hi; n++) {
			const REAL *dp = (const REAL *)dprob + n * d->K;
			REAL *out = (REAL *)dlogits + n * d->E;

			if (n == lo || n % d->T == 0)
				share_slopes(g, &m, tally, n / d->T, d);
			token_load(&t, (const REAL *)logits + n * d->E, d);
			memset(dx, 0, (size_t)d->E * sizeof(*dx));
			probs_backward(dx, &t, dp, expert + n * d->K, d);
			losses_backward(dx, &t, g, *coef, d);
			for (int64_t e = 0; e < d->E; e++)
				out[e] = (REAL)dx[e];
		}
	}
}

void K(balance)(struct queue *q, void *bias, void *master, const void *count,
		int64_t n, const struct kern_moe_dims *d)
{
	const REAL *c = count;

	(void)q;
	(void)master;
	for (int64_t i = 0; i < n; i++) {
		int sign = ((double)c[i] < d->fair) - ((double)c[i] > d->fair);

		((REAL *)bias)[i] += (REAL)(sign * d->bias_rate);
	}
}
