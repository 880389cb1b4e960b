/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/data_order.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/philox.h"

#define ROUNDS	   8
#define PERIOD_MAX ((int64_t)1 << 20)
#define DECIMALS   1e6
#define WEIGHT_MAX 1e9

int64_t data_permute(int64_t i, int64_t n, uint64_t seed, uint64_t epoch,
		     uint32_t stream)
{
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint64_t x = (uint64_t)i, mask;
	int half = 1;

	while (half < 31 && (int64_t)1 << (2 * half) < n)
		half++;
	mask = ((uint64_t)1 << half) - 1;
	do {
		uint64_t left = x >> half, right = x & mask;

		for (uint32_t round = 0; round < ROUNDS; round++) {
			uint32_t ctr[4] = {(uint32_t)right, round | stream << 8,
					   (uint32_t)epoch,
					   (uint32_t)(epoch >> 32)};
			uint64_t swap = right;

			philox4x32(ctr, key);
			right = left ^ (ctr[0] & mask);
			left = swap;
		}
		x = left << half | right;
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Shares c with sum P, P the smallest that keeps their ratio. */
static int exact_shares(struct data_blend *b, const double *weight,
			struct err *e)
{
	int64_t common = 0;

	b->period = 0;
	for (int d = 0; d < b->count; d++) {
		if (!(weight[d] >= 0.5 / DECIMALS && weight[d] <= WEIGHT_MAX))
			return err_set(e, CODE_USAGE,
				       "data: weight %g of data set %d is not "
				       "between 1e-6 and %g",
				       weight[d], d, WEIGHT_MAX);
		b->share[d] = llround(weight[d] * DECIMALS);
		common = gcd(b->share[d], common);
	}
	for (int d = 0; d < b->count; d++) {
		b->share[d] /= common;
		b->period += b->share[d];
	}
	return 0;
}

/* The longest period that is kept: round cumulated shares to its slots. */
static void round_shares(struct data_blend *b)
{
	double total = (double)b->period, sum = 0;
	int64_t used = 0;

	for (int d = 0; d < b->count; d++) {
		int64_t end;

		sum += (double)b->share[d];
		end = llround(sum / total * (double)PERIOD_MAX);
		b->share[d] = end > used ? end - used : 1;
		used += b->share[d];
	}
	b->period = used;
}

/*
 * Copy n of data set d belongs into slots floor(n P / c) .. ceil((n + 1) P /
 * c) - 1; taking the earliest deadline first meets all of them (Baruah et
 * al., "Proportionate progress", 1996).
 */
static void fill_slots(struct data_blend *b, int32_t *used)
{
	for (int64_t t = 0; t < b->period; t++) {
		int64_t best_end = INT64_MAX;
		int best = 0;

		for (int d = 0; d < b->count; d++) {
			int64_t c = b->share[d], n = used[d];
			int64_t end = ((n + 1) * b->period + c - 1) / c;

			if (n * b->period < c * (t + 1) && end < best_end) {
				best_end = end;
				best = d;
			}
		}
		b->slot[t] = (struct data_slot){best, used[best]++};
	}
}

int data_blend_open(struct data_blend *b, const double *weight, int count,
		    struct err *e)
{
	int32_t *used = calloc((size_t)count, sizeof(*used));

	*b = (struct data_blend){.count = count};
	b->share = calloc((size_t)count, sizeof(*b->share));
	if (!used || !b->share) {
		err_set(e, CODE_FINDINGS, "data: no memory for a blend");
		goto fail;
	}
	if (exact_shares(b, weight, e))
		goto fail;
	if (b->period > PERIOD_MAX)
		round_shares(b);
	b->slot = malloc((size_t)b->period * sizeof(*b->slot));
	if (!b->slot) {
		err_set(e, CODE_FINDINGS, "data: no memory for a blend");
		goto fail;
	}
	fill_slots(b, used);
	free(used);
	return 0;
fail:
	free(used);
	data_blend_close(b);
	return -1;
}

void data_blend_close(struct data_blend *b)
{
	free(b->share);
	free(b->slot);
	*b = (struct data_blend){0};
}

int data_blend_at(const struct data_blend *b, int64_t index, int64_t *k)
{
	struct data_slot slot = b->slot[index % b->period];

	*k = index / b->period * b->share[slot.dataset] + slot.before;
	return slot.dataset;
}
