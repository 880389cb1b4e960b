/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of squares behind the gradient's norm, and AdamW. */
#include "kernels/kern_cpu.h"
#include "kernels/vmath.h"

/* The parts are a fixed number, so that no thread count shows. */
#define PARTS 64

void K(sumsq)(struct queue *q, double *acc, const void *x, int64_t n)
{
	double part[PARTS], total = 0;

	(void)q;
#pragma omp parallel for if (n > KERN_SMALL)
	for (int64_t p = 0; p < PARTS; p++) {
		int64_t lo = n / PARTS * p + (n % PARTS) * p / PARTS;
		int64_t hi =
			n / PARTS * (p + 1) + (n % PARTS) * (p + 1) / PARTS;
		const REAL *xp = (const REAL *)x + lo;

		part[p] = LANES_SUM(i, hi - lo, (double)xp[i] * (double)xp[i]);
	}
	for (int p = 0; p < PARTS; p++)
		total += part[p];
	*acc += total;
}

static void adamw_part(REAL *p, REAL *m, REAL *v, const REAL *g, int64_t n,
		       const struct kern_adam *h, bool decay)
{
	REAL scale = (REAL)h->grad_scale, lr = (REAL)h->lr;
	REAL b1 = (REAL)h->beta1, a1 = (REAL)(1 - h->beta1);
	REAL b2 = (REAL)h->beta2, a2 = (REAL)(1 - h->beta2);
	REAL c1 = (REAL)(1 / h->correct1), c2 = (REAL)(1 / h->correct2);
	REAL eps = (REAL)h->eps, wd = decay ? (REAL)h->weight_decay : 0;

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		REAL gi = g[i] * scale;
		REAL mi = b1 * m[i] + a1 * gi;
		REAL vi = b2 * v[i] + a2 * (gi * gi);

		m[i] = mi;
		v[i] = vi;
		p[i] -= lr * (mi * c1 / (RC(sqrt)(vi * c2) + eps) + wd * p[i]);
	}
}

void K(adamw)(struct queue *q, void *p, void *master, void *m, void *v,
	      const void *g, int64_t n, const struct kern_adam *h, bool decay)
{
	(void)q;
	(void)master;
	if (h->skip > 0)
		return;
#pragma omp parallel if (n > KERN_SMALL)
	{
		struct span s = span_mine(n, 64);

		adamw_part((REAL *)p + s.lo, (REAL *)m + s.lo, (REAL *)v + s.lo,
			   (const REAL *)g + s.lo, s.hi - s.lo, h, decay);
	}
}
