/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embeddings, on packed queries, keys and values. */
#include "kernels/rotate.h"

void K(rope)(struct queue *q, void *qkv, const void *table,
	     const struct kern_attn_dims *dims, int64_t R, bool interleaved,
	     int sign)
{
	int64_t N = dims->B * dims->T, G = dims->G, D = dims->D;
	int64_t heads = dims->H / G + 2, row = G * heads * D;

	(void)q;
#pragma omp parallel for if (N * row > KERN_SMALL)
	for (int64_t n = 0; n < N; n++) {
		const REAL *cs = (const REAL *)table + n % dims->T * 2 * R;

		for (int64_t h = 0; h < G * heads; h++) {
			REAL *x = (REAL *)qkv + n * row + h * D;

			if (h % heads == heads - 1)
				continue; /* values are not rotated */
			if (interleaved)
				rotate_pairs(x, cs, R, sign);
			else
				rotate_halves(x, cs, R, sign);
		}
	}
}
