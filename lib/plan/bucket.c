/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/bucket.h"

#include <string.h>

enum { PARAM_ALIGN = 64, BUCKET_ALIGN = 128 };

static int64_t round_up(int64_t n, int64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static int64_t lcm(int64_t a, int64_t b)
{
	int64_t x = a, y = b, t;

	while (y) {
		t = x % y;
		x = y;
		y = t;
	}
	return a / x * b;
}

/* Close the last bucket after its last parameter, which ends at END. */
static int64_t bucket_close(struct buckets *out, int64_t end, int dp)
{
	struct bucket *b = &out->list[out->count - 1];

	b->unpadded = end - b->first;
	b->end = round_up(end, lcm(dp, BUCKET_ALIGN));
	return b->end;
}

void buckets_build(struct buckets *out, int64_t first, const int64_t *size,
		   const bool *alone, int n, int64_t bucket_size, int dp,
		   struct arena *a)
{
	int64_t at = 0;
	bool open = false;

	memset(out, 0, sizeof(*out));
	out->offset = arena_alloc(a, (size_t)n + 1, sizeof(*out->offset));
	out->of = arena_alloc(a, (size_t)n + 1, sizeof(*out->of));
	out->list = arena_alloc(a, (size_t)n + 1, sizeof(*out->list));
	for (int i = n - 1; i >= 0; i--) {
		bool own = alone[i];

		at = round_up(at, PARAM_ALIGN);
		if (open && own) {
			at = bucket_close(out, at, dp);
			open = false;
		}
		if (!open) {
			out->list[out->count++].first = at;
			open = true;
		}
		out->offset[i] = at;
		out->of[i] = out->count - 1;
		at += size[i];
		if (own ||
		    (bucket_size &&
		     at - out->list[out->count - 1].first >= bucket_size)) {
			at = bucket_close(out, at, dp);
			open = false;
		}
	}
	if (open)
		at = bucket_close(out, at, dp);
	out->elements = at;
	for (int i = 0; i < n; i++)
		out->offset[i] += first;
	for (int i = 0; i < out->count; i++) {
		out->list[i].first += first;
		out->list[i].end += first;
	}
}

void bucket_shard(const struct buckets *b, int i, int d, int dp, int64_t *first,
		  int64_t *end)
{
	int64_t share = (b->list[i].end - b->list[i].first) / dp;

	*first = b->list[i].first + d * share;
	*end = *first + share;
}
