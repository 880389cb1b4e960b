/* SPDX-License-Identifier: Apache-2.0 */
/* The heads of latent attention: put together, and taken apart again. */
#include <string.h>

#include "kernels/rotate.h"

/* Where head H of a token lies, and the widths of its parts. */
struct widths {
	int64_t D, plain, pos, v, head;
};

static struct widths widths_of(const struct kern_attn_dims *d, int64_t P)
{
	return (struct widths){d->D, d->D - P, P, d->Dv, 2 * d->D + d->Dv};
}

/* Nothing turns without a table. */
static const REAL *angles(const void *table, int64_t n,
			  const struct kern_attn_dims *d, int64_t R)
{
	return R ? (const REAL *)table + n % d->T * 2 * R : NULL;
}

static void token_fwd(REAL *out, const REAL *query, const REAL *kv,
		      const REAL *pos, const REAL *cs, int64_t H, int64_t R,
		      const struct widths *w)
{
	for (int64_t h = 0; h < H; h++, out += w->head) {
		REAL *k = out + w->D, *shared = k + w->plain;

		memcpy(out, query + h * w->D, w->D * sizeof(*out));
		rotate_pairs(out + w->plain, cs, R, 1);
		memcpy(k, kv, w->plain * sizeof(*k));
		if (h == 0) {
			memcpy(shared, pos, w->pos * sizeof(*k));
			rotate_pairs(shared, cs, R, 1);
		} else {
			memcpy(shared, shared - w->head, w->pos * sizeof(*k));
		}
		memcpy(k + w->D, kv + w->plain, w->v * sizeof(*k));
		kv += w->plain + w->v;
	}
}

void K(latent_fwd)(struct queue *q, void *qkv, const void *query,
		   const void *kv, const void *pos, const void *table,
		   const struct kern_attn_dims *dims, int64_t P, int64_t R)
{
	const struct widths w = widths_of(dims, P);
	int64_t N = dims->B * dims->T, H = dims->H, row = kern_attn_row(dims);

	(void)q;
#pragma omp parallel for if (N * row > KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		token_fwd((REAL *)qkv + n * row,
			  (const REAL *)query + n * H * w.D,
			  (const REAL *)kv + n * H * (w.plain + w.v),
			  (const REAL *)pos + n * P, angles(table, n, dims, R),
			  H, R, &w);
}

static void token_bwd(REAL *dquery, REAL *dkv, REAL *dpos, const REAL *in,
		      const REAL *cs, int64_t H, int64_t R,
		      const struct widths *w)
{
	memset(dpos, 0, w->pos * sizeof(*dpos));
	for (int64_t h = 0; h < H; h++, in += w->head) {
		const REAL *k = in + w->D, *shared = k + w->plain;

		memcpy(dquery, in, w->D * sizeof(*in));
		rotate_pairs(dquery + w->plain, cs, R, -1);
		memcpy(dkv, k, w->plain * sizeof(*k));
		memcpy(dkv + w->plain, k + w->D, w->v * sizeof(*k));
#pragma omp simd
		for (int64_t i = 0; i < w->pos; i++)
			dpos[i] += shared[i];
		dquery += w->D;
		dkv += w->plain + w->v;
	}
	rotate_pairs(dpos, cs, R, -1);
}

void K(latent_bwd)(struct queue *q, void *dquery, void *dkv, void *dpos,
		   const void *dqkv, const void *table,
		   const struct kern_attn_dims *dims, int64_t P, int64_t R)
{
	const struct widths w = widths_of(dims, P);
	int64_t N = dims->B * dims->T, H = dims->H, row = kern_attn_row(dims);

	(void)q;
#pragma omp parallel for if (N * row > KERN_SMALL)
	for (int64_t n = 0; n < N; n++)
		token_bwd((REAL *)dquery + n * H * w.D,
			  (REAL *)dkv + n * H * (w.plain + w.v),
			  (REAL *)dpos + n * P, (const REAL *)dqkv + n * row,
			  angles(table, n, dims, R), H, R, &w);
}
