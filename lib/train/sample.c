/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kernels/philox.h"

/* A token and its logit, or how probable it is beside the others. */
struct token {
	double x;
	int64_t id;
};

size_t sample_work(int64_t V)
{
	return (size_t)V * sizeof(struct token);
}

double sample_uniform(uint64_t seed, int64_t text, int64_t position)
{
	const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32),
			   (uint32_t)text, (uint32_t)(text >> 32)};

	philox4x32(ctr, key);
	return (double)(((uint64_t)ctr[1] << 32 | ctr[0]) >> 11) * 0x1p-53;
}

/* The most likely one, or -1. */
static int64_t largest(const double *logits, int64_t V)
{
	double most = -INFINITY;
	int64_t at = -1;

	for (int64_t i = 0; i < V; i++) {
		if (isnan(logits[i]) || logits[i] == INFINITY)
			return -1;
		if (logits[i] > most) {
			most = logits[i];
			at = i;
		}
	}
	return at;
}

static int by_logit(const void *a, const void *b)
{
	const struct token *x = a, *y = b;

	if (x->x != y->x)
		return x->x < y->x ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

/* Tokens of T that are left of N, the most probable ones first. */
static int64_t nucleus(const struct token *t, int64_t n, double share)
{
	double sum = 0, part = 0;
	int64_t left = 0;

	for (int64_t i = 0; i < n; i++)
		sum += t[i].x;
	while (left < n && part < share * sum)
		part += t[left++].x;
	return left;
}

static int64_t draw(const struct token *t, int64_t n, double u)
{
	double sum = 0, part = 0;
	int64_t last = t[0].id;

	for (int64_t i = 0; i < n; i++)
		sum += t[i].x;
	for (int64_t i = 0; i < n; i++) {
		if (t[i].x <= 0)
			continue;
		part += t[i].x;
		last = t[i].id;
		if (u * sum < part)
			break;
	}
	return last;
}

int64_t sample_next(const struct sampler *s, const double *logits, int64_t V,
		    int64_t text, int64_t position, void *work)
{
	int64_t best = largest(logits, V), n = V;
	bool cut = s->top_k || s->top_p < 1;
	struct token *t = work;

	if (best < 0 || s->temperature == 0)
		return best;
	for (int64_t i = 0; i < V; i++)
		t[i] = (struct token){logits[i], i};
	if (cut)
		qsort(t, (size_t)V, sizeof(*t), by_logit);
	if (s->top_k && s->top_k < V)
		n = s->top_k;
	for (int64_t i = 0; i < n; i++)
		t[i].x = exp((t[i].x - logits[best]) / s->temperature);
	if (s->top_p < 1)
		n = nucleus(t, n, s->top_p);
	return draw(t, n, sample_uniform(s->seed, text, position));
}
