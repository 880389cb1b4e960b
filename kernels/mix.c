/* SPDX-License-Identifier: Apache-2.0 */
/* Rows from tokens behind: the mixing of multi-token prediction's states. */
#include "kernels/drop.h"

/* What every row's choice is made from. */
struct choice {
	const int32_t *doc;
	int64_t T, of;
	const struct kern_drop *drop;
};

static int64_t position(const struct choice *c, int64_t n)
{
	return (c->drop->row0 + n) % c->T;
}

static int64_t shift_of(const struct choice *c, int64_t n)
{
	uint64_t word = drop_word(c->drop, c->drop->row0 + n);
	int64_t s = (int64_t)(word * (uint64_t)c->of >> 32);

	if (position(c, n) + s >= c->T)
		return 0;
	return c->doc && c->doc[n + s] != c->doc[n] ? 0 : s;
}

void K(mix_fwd)(struct queue *q, void *y, const void *x, const int32_t *doc,
		int64_t N, int64_t bytes, int64_t T, int64_t shift, int64_t of,
		const struct kern_drop *d)
{
	struct choice c = {doc, T, of, d};

	(void)q;
#pragma omp parallel for if (N * bytes > 4 * KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		if (shift_of(&c, n) == shift)
			memcpy((char *)y + n * bytes,
			       (const char *)x + (n + shift) * bytes,
			       (size_t)bytes);
}

void K(mix_bwd)(struct queue *q, void *dx, const void *dy, const int32_t *doc,
		int64_t N, int64_t bytes, int64_t T, int64_t shift, int64_t of,
		const struct kern_drop *d)
{
	struct choice c = {doc, T, of, d};

	(void)q;
#pragma omp parallel for if (N * bytes > 4 * KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		char *to = (char *)dx + n * bytes;

		if (position(&c, n) >= shift &&
		    shift_of(&c, n - shift) == shift)
			memcpy(to, (const char *)dy + (n - shift) * bytes,
			       (size_t)bytes);
		else
			memset(to, 0, (size_t)bytes);
	}
}
