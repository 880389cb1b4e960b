/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, a block of queries at a time against all the keys that
 * they may see, one (sample, group) per thread.
 *
 * For a block, S = scale Q K^T, P = softmax(S), O = dropout(P) V; backward,
 * with f the dropout's factors: dP = f (dO V^T), dS = P (dP - rowsum(dO O)),
 * dQ = scale dS K, dK += scale dS^T Q, dV += (f P)^T dO.
 */
#include "kernels/drop.h"
#include "kernels/gemm.h"
#include "kernels/kern_cpu.h"
#include "kernels/vmath.h"

#define QUERIES KERN_ATTN_QUERIES /* in a block */

/* One head of one sample: its rows are LD apart, those of o and dout LDO. */
struct head {
	const REAL *q, *k, *v, *o, *dout, *lse;
	REAL *dq, *dk, *dv, *out, *lse_out;
	int64_t D, ld, ldo, elem, elem_ld;
	REAL scale;
	const struct kern_drop *drop;
};

/* Threads share the items; each runs its products by itself. */
static int threads_for(const struct kern_attn_dims *dims)
{
	int64_t threads = omp_get_max_threads();
	int64_t most = kern_attn_workers(dims);

	if (dims->B * dims->H * dims->T * dims->T < KERN_SMALL)
		return 1;
	return (int)(threads < most ? threads : most);
}

/* Two blocks of scores; rows are padded to whole cache lines. */
static int64_t scores_ld(const struct kern_attn_dims *dims)
{
	return (dims->T + 15) / 16 * 16;
}

static int64_t worker_size(const struct kern_attn_dims *dims)
{
	return 2 * QUERIES * scores_ld(dims);
}

size_t K(attn_scratch)(const struct kern_attn_dims *dims)
{
	return kern_attn_scratch(dims, sizeof(REAL));
}

/* s[i] *= the dropout factor of element ELEM + i. */
static void drop_row(REAL *s, int64_t n, int64_t elem,
		     const struct kern_drop *d)
{
	REAL f[DROP_BLOCK];

	for (int64_t i = 0; i < n; i += DROP_BLOCK) {
		int64_t m = n - i < DROP_BLOCK ? n - i : DROP_BLOCK;

		drop_factors(f, d, elem + i, m);
#pragma omp simd
		for (int64_t j = 0; j < m; j++)
			s[i + j] *= f[j];
	}
}

/* s (n) = e^(s - its maximum), 0 up to END; return the log of the sum. */
static double softmax_row(REAL *s, int64_t n, int64_t end, REAL *inverse)
{
	REAL m = row_max(s, n);
	double sum;

#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		s[i] = vexp(s[i] - m);
	sum = LANES_SUM(i, n, (double)s[i]);
	memset(s + n, 0, (end - n) * sizeof(*s));
	*inverse = (REAL)(1 / sum);
	return (double)m + log(sum);
}

/* Queries I0 .. I0 + M. */
static void fwd_block(const struct head *h, REAL *s, int64_t lds, int64_t i0,
		      int64_t M)
{
	int64_t end = i0 + M, D = h->D;
	REAL inverse[QUERIES];

	mul_nt(s, lds, h->q + i0 * h->ld, h->ld, h->k, h->ld, M, end, D,
	       h->scale);
	for (int64_t i = 0; i < M; i++) {
		REAL *si = s + i * lds;

		h->lse_out[i0 + i] =
			(REAL)softmax_row(si, i0 + i + 1, end, &inverse[i]);
		if (drop_on(h->drop))
			drop_row(si, i0 + i + 1,
				 h->elem + (i0 + i) * h->elem_ld, h->drop);
	}
	mul_nn(h->out + i0 * h->ldo, h->ldo, s, lds, h->v, h->ld, M, D, end, 1);
	for (int64_t i = 0; i < M; i++) {
		REAL *oi = h->out + (i0 + i) * h->ldo;

#pragma omp simd
		for (int64_t c = 0; c < D; c++)
			oi[c] *= inverse[i];
	}
}

/* From p = S and ds = dO V^T of query I to p = f P and ds = P (f ds - sum) */
static void bwd_row(const struct head *h, REAL *p, REAL *ds, int64_t i)
{
	const REAL *dout = h->dout + i * h->ldo, *o = h->o + i * h->ldo;
	REAL sum, lse = h->lse[i], f[DROP_BLOCK];
	int64_t n = i + 1;

	sum = (REAL)LANES_SUM(c, h->D, (double)dout[c] * (double)o[c]);
	for (int64_t j = 0; j < n; j += DROP_BLOCK) {
		int64_t m = n - j < DROP_BLOCK ? n - j : DROP_BLOCK;
		REAL *pj = p + j, *dj = ds + j;

		if (!drop_on(h->drop)) {
#pragma omp simd
			for (int64_t c = 0; c < m; c++) {
				pj[c] = vexp(pj[c] - lse);
				dj[c] = pj[c] * (dj[c] - sum);
			}
			continue;
		}
		drop_factors(f, h->drop, h->elem + i * h->elem_ld + j, m);
#pragma omp simd
		for (int64_t c = 0; c < m; c++) {
			REAL e = vexp(pj[c] - lse);

			dj[c] = e * (f[c] * dj[c] - sum);
			pj[c] = f[c] * e;
		}
	}
}

/* Queries I0 .. I0 + M; keys' gradients are "=" if FRESH, else "+=". */
static void bwd_block(const struct head *h, REAL *p, REAL *ds, int64_t lds,
		      int64_t i0, int64_t M, bool fresh)
{
	int64_t end = i0 + M, D = h->D, ld = h->ld;
	const REAL *q = h->q + i0 * ld, *dout = h->dout + i0 * h->ldo;

	mul_nt(p, lds, q, ld, h->k, ld, M, end, D, h->scale);
	mul_nt(ds, lds, dout, h->ldo, h->v, ld, M, end, D, 1);
	for (int64_t i = 0; i < M; i++) {
		int64_t n = i0 + i + 1;

		bwd_row(h, p + i * lds, ds + i * lds, i0 + i);
		memset(p + i * lds + n, 0, (end - n) * sizeof(*p));
		memset(ds + i * lds + n, 0, (end - n) * sizeof(*ds));
	}
	mul_tn(h->dv, ld, p, lds, dout, h->ldo, end, D, M, 1, !fresh);
	mul_tn(h->dk, ld, ds, lds, q, ld, end, D, M, h->scale, !fresh);
	mul_nn(h->dq + i0 * ld, ld, ds, lds, h->k, ld, M, D, end, h->scale);
}

/* Query head J of group G of sample B; pointers not given stay NULL. */
static struct head head_of(const struct kern_attn_dims *d, const REAL *qkv,
			   int64_t b, int64_t g, int64_t j)
{
	int64_t per = d->H / d->G, ld = (d->H + 2 * d->G) * d->D;
	const REAL *group = qkv + b * d->T * ld + g * (per + 2) * d->D;
	int64_t row0 = d->drop.row0 + b * d->T, h = g * per + j;

	return (struct head){
		.q = group + j * d->D,
		.k = group + per * d->D,
		.v = group + (per + 1) * d->D,
		.D = d->D,
		.ld = ld,
		.ldo = d->H * d->D,
		.elem = (row0 * d->heads + d->head0 + h) * d->T,
		.elem_ld = d->heads * d->T,
		.scale = (REAL)d->scale,
		.drop = &d->drop,
	};
}

static void fwd_group(const struct kern_attn_dims *dims, REAL *o, REAL *lse,
		      const REAL *qkv, REAL *s, int64_t item)
{
	int64_t b = item / dims->G, g = item % dims->G, T = dims->T;
	int64_t per = dims->H / dims->G, lds = scores_ld(dims);

	for (int64_t j = 0; j < per; j++) {
		struct head h = head_of(dims, qkv, b, g, j);
		int64_t n = g * per + j;

		h.out = o + b * T * h.ldo + n * dims->D;
		h.lse_out = lse + (b * dims->H + n) * T;
		for (int64_t i = 0; i < T; i += QUERIES)
			fwd_block(&h, s, lds, i,
				  T - i < QUERIES ? T - i : QUERIES);
	}
}

void K(attn_fwd)(struct queue *q, void *o, void *lse, const void *qkv,
		 void *scratch, const struct kern_attn_dims *dims)
{
	(void)q;
	kern_gemm_threads(1);
#pragma omp parallel for num_threads(threads_for(dims)) schedule(dynamic)
	for (int64_t item = 0; item < dims->B * dims->G; item++)
		fwd_group(dims, o, lse, qkv,
			  (REAL *)scratch +
				  omp_get_thread_num() * worker_size(dims),
			  item);
}

/*
 * Blocks run from the last, which reaches every key, to the first; so the
 * first head's last block writes dk and dv and all others add to them.
 */
static void bwd_group(const struct kern_attn_dims *dims, REAL *dqkv,
		      const REAL *dout, const REAL *o, const REAL *lse,
		      const REAL *qkv, REAL *s, int64_t item)
{
	int64_t b = item / dims->G, g = item % dims->G, T = dims->T;
	int64_t per = dims->H / dims->G, lds = scores_ld(dims);

	for (int64_t j = 0; j < per; j++) {
		struct head h = head_of(dims, qkv, b, g, j);
		int64_t n = g * per + j, last = (T - 1) / QUERIES * QUERIES;

		h.dq = dqkv + (h.q - qkv);
		h.dk = dqkv + (h.k - qkv);
		h.dv = dqkv + (h.v - qkv);
		h.dout = dout + b * T * h.ldo + n * dims->D;
		h.o = o + b * T * h.ldo + n * dims->D;
		h.lse = lse + (b * dims->H + n) * T;
		for (int64_t i = last; i >= 0; i -= QUERIES)
			bwd_block(&h, s, s + QUERIES * lds, lds, i,
				  T - i < QUERIES ? T - i : QUERIES,
				  j == 0 && i == last);
	}
}

void K(attn_bwd)(struct queue *q, void *dqkv, const void *dout, const void *o,
		 const void *lse, const void *qkv, void *scratch,
		 const struct kern_attn_dims *dims)
{
	(void)q;
	kern_gemm_threads(1);
#pragma omp parallel for num_threads(threads_for(dims)) schedule(dynamic)
	for (int64_t item = 0; item < dims->B * dims->G; item++)
		bwd_group(dims, dqkv, dout, o, lse, qkv,
			  (REAL *)scratch +
				  omp_get_thread_num() * worker_size(dims),
			  item);
}
