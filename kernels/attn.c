/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, a block of queries at a time against all the keys that
 * they may see, one (sample, group) per thread.  Scores of a block begin with
 * the first key that its first query sees.
 *
 * For a block, S = scale Q K^T, P = softmax(S), O = dropout(P) V; backward,
 * with f the dropout's factors: dP = f (dO V^T), dS = P (dP - rowsum(dO O)),
 * dQ = scale dS K, dK += scale dS^T Q, dV += (f P)^T dO.  A sink is one more
 * score of each row whose value is zero: its share e of the softmax is lost,
 * and its gradient is the sum of -e rowsum(dO O).
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
	int64_t D, Dv, ld, ldo, elem, elem_ld, window;
	const int32_t *doc; /* of this sample, or NULL */
	REAL scale, sink;   /* sink: -infinity if there is none */
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

/* The first key that query I sees. */
static int64_t first_key(const struct head *h, int64_t i)
{
	int64_t from = h->window && i >= h->window ? i - h->window + 1 : 0;

	return h->doc && h->doc[i] > from ? h->doc[i] : from;
}

/* What of a row of scores its query sees; the rest becomes 0. */
struct seen {
	int64_t from, n;
};

/* Query I of a block whose scores are for the keys LO .. END. */
static struct seen seen_by(const struct head *h, int64_t i, int64_t lo)
{
	int64_t from = first_key(h, i);

	return (struct seen){from - lo, i + 1 - from};
}

static void clear_unseen(REAL *s, struct seen x, int64_t width)
{
	int64_t end = x.from + x.n;

	memset(s, 0, x.from * sizeof(*s));
	memset(s + end, 0, (width - end) * sizeof(*s));
}

/* Queries I0 .. I0 + M. */
static void fwd_block(const struct head *h, REAL *s, int64_t lds, int64_t i0,
		      int64_t M)
{
	int64_t lo = first_key(h, i0), width = i0 + M - lo, Dv = h->Dv;
	REAL inverse[QUERIES], most;
	double sum;

	mul_nt(s, lds, h->q + i0 * h->ld, h->ld, h->k + lo * h->ld, h->ld, M,
	       width, h->D, h->scale);
	for (int64_t i = 0; i < M; i++) {
		struct seen x = seen_by(h, i0 + i, lo);
		REAL *si = s + i * lds;

		sum = softmax_row(si + x.from, x.n, h->sink, &most);
		h->lse_out[i0 + i] = (REAL)((double)most + log(sum));
		inverse[i] = (REAL)(1 / sum);
		clear_unseen(si, x, width);
		if (drop_on(h->drop))
			drop_row(si + x.from, x.n,
				 h->elem + (i0 + i) * h->elem_ld + lo + x.from,
				 h->drop);
	}
	mul_nn(h->out + i0 * h->ldo, h->ldo, s, lds, h->v + lo * h->ld, h->ld,
	       M, Dv, width, 1);
	for (int64_t i = 0; i < M; i++) {
		REAL *oi = h->out + (i0 + i) * h->ldo;

#pragma omp simd
		for (int64_t c = 0; c < Dv; c++)
			oi[c] *= inverse[i];
	}
}

/*
 * From p = S and ds = dO V^T of query I, for N keys from FROM on, to p = f P
 * and ds = P (f ds - sum).
 */
static void bwd_row(const struct head *h, REAL *p, REAL *ds, int64_t i,
		    int64_t from, int64_t n)
{
	const REAL *dout = h->dout + i * h->ldo, *o = h->o + i * h->ldo;
	REAL sum, lse = h->lse[i], f[DROP_BLOCK];

	sum = (REAL)LANES_SUM(c, h->Dv, (double)dout[c] * (double)o[c]);
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
		drop_factors(f, h->drop, h->elem + i * h->elem_ld + from + j,
			     m);
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
	int64_t lo = first_key(h, i0), width = i0 + M - lo, D = h->D;
	int64_t ld = h->ld, first = lo * ld;
	const REAL *q = h->q + i0 * ld, *dout = h->dout + i0 * h->ldo;

	mul_nt(p, lds, q, ld, h->k + first, ld, M, width, D, h->scale);
	mul_nt(ds, lds, dout, h->ldo, h->v + first, ld, M, width, h->Dv, 1);
	for (int64_t i = 0; i < M; i++) {
		struct seen x = seen_by(h, i0 + i, lo);
		REAL *pi = p + i * lds, *di = ds + i * lds;

		bwd_row(h, pi + x.from, di + x.from, i0 + i, lo + x.from, x.n);
		clear_unseen(pi, x, width);
		clear_unseen(di, x, width);
	}
	mul_tn(h->dv + first, ld, p, lds, dout, h->ldo, width, h->Dv, M, 1,
	       !fresh);
	mul_tn(h->dk + first, ld, ds, lds, q, ld, width, D, M, h->scale,
	       !fresh);
	mul_nn(h->dq + i0 * ld, ld, ds, lds, h->k + first, ld, M, D, width,
	       h->scale);
}

/* What all heads share. */
struct all {
	const struct kern_attn_dims *dims;
	const REAL *qkv, *sink;
	const int32_t *doc;
};

/* Query head J of group G of sample B; pointers not given stay NULL. */
static struct head head_of(const struct all *a, int64_t b, int64_t g, int64_t j)
{
	const struct kern_attn_dims *d = a->dims;
	int64_t per = d->H / d->G, ld = kern_attn_row(d);
	const REAL *group = a->qkv + b * d->T * ld + g * (ld / d->G);
	int64_t row0 = d->drop.row0 + b * d->T, h = g * per + j;

	return (struct head){
		.q = group + j * d->D,
		.k = group + per * d->D,
		.v = group + (per + 1) * d->D,
		.D = d->D,
		.Dv = d->Dv,
		.ld = ld,
		.ldo = d->H * d->Dv,
		.elem = (row0 * d->heads + d->head0 + h) * d->T,
		.elem_ld = d->heads * d->T,
		.window = d->window,
		.doc = a->doc ? a->doc + b * d->T : NULL,
		.scale = (REAL)d->scale,
		.sink = d->sink == KERN_SINK_NONE   ? -(REAL)INFINITY
			: d->sink == KERN_SINK_ZERO ? 0
						    : a->sink[h],
		.drop = &d->drop,
	};
}

static void fwd_group(const struct all *a, REAL *o, REAL *lse, REAL *s,
		      int64_t item)
{
	const struct kern_attn_dims *dims = a->dims;
	int64_t b = item / dims->G, g = item % dims->G, T = dims->T;
	int64_t per = dims->H / dims->G, lds = scores_ld(dims);

	for (int64_t j = 0; j < per; j++) {
		struct head h = head_of(a, b, g, j);
		int64_t n = g * per + j;

		h.out = o + b * T * h.ldo + n * dims->Dv;
		h.lse_out = lse + (b * dims->H + n) * T;
		for (int64_t i = 0; i < T; i += QUERIES)
			fwd_block(&h, s, lds, i,
				  T - i < QUERIES ? T - i : QUERIES);
	}
}

void K(attn_fwd)(struct queue *q, void *o, void *lse, const void *qkv,
		 const void *sink, const int32_t *doc, void *scratch,
		 const struct kern_attn_dims *dims)
{
	struct all a = {dims, qkv, sink, doc};

	(void)q;
	kern_gemm_threads(1);
#pragma omp parallel for num_threads(threads_for(dims)) schedule(dynamic)
	for (int64_t item = 0; item < dims->B * dims->G; item++)
		fwd_group(&a, o, lse,
			  (REAL *)scratch +
				  omp_get_thread_num() * worker_size(dims),
			  item);
}

static void clear_keys(const struct head *h, int64_t T)
{
	for (int64_t i = 0; i < T; i++) {
		memset(h->dk + i * h->ld, 0, h->D * sizeof(*h->dk));
		memset(h->dv + i * h->ld, 0, h->Dv * sizeof(*h->dv));
	}
}

/*
 * Blocks run from the last, which reaches every key, to the first; so the
 * first head's last block writes dk and dv and all others add to them.  With
 * a window, or documents, no block reaches them all: then they begin as zeros.
 */
static void bwd_group(const struct all *a, REAL *dqkv, const REAL *dout,
		      const REAL *o, const REAL *lse, REAL *s, int64_t item)
{
	const struct kern_attn_dims *dims = a->dims;
	bool apart = dims->window || a->doc;
	int64_t b = item / dims->G, g = item % dims->G, T = dims->T;
	int64_t per = dims->H / dims->G, lds = scores_ld(dims);

	for (int64_t j = 0; j < per; j++) {
		struct head h = head_of(a, b, g, j);
		int64_t n = g * per + j, last = (T - 1) / QUERIES * QUERIES;

		h.dq = dqkv + (h.q - a->qkv);
		h.dk = dqkv + (h.k - a->qkv);
		h.dv = dqkv + (h.v - a->qkv);
		h.dout = dout + b * T * h.ldo + n * dims->Dv;
		h.o = o + b * T * h.ldo + n * dims->Dv;
		h.lse = lse + (b * dims->H + n) * T;
		if (j == 0 && apart)
			clear_keys(&h, T);
		for (int64_t i = last; i >= 0; i -= QUERIES)
			bwd_block(&h, s, s + QUERIES * lds, lds, i,
				  T - i < QUERIES ? T - i : QUERIES,
				  j == 0 && i == last && !apart);
	}
}

/* dsink[h] += the sum over all rows. */
static void sink_gradient(const struct all *a, REAL *dsink, const REAL *dout,
			  const REAL *o, const REAL *lse, int64_t h)
{
	const struct kern_attn_dims *d = a->dims;
	int64_t Dv = d->Dv, ld = d->H * Dv;
	double sum = 0;

	for (int64_t n = 0; n < d->B * d->T; n++) {
		const REAL *x = dout + n * ld + h * Dv,
			   *y = o + n * ld + h * Dv;
		int64_t row = (n / d->T * d->H + h) * d->T + n % d->T;

		sum -= exp((double)a->sink[h] - (double)lse[row]) *
		       LANES_SUM(c, Dv, (double)x[c] * (double)y[c]);
	}
	dsink[h] += (REAL)sum;
}

void K(attn_bwd)(struct queue *q, void *dqkv, void *dsink, const void *dout,
		 const void *o, const void *lse, const void *qkv,
		 const void *sink, const int32_t *doc, void *scratch,
		 const struct kern_attn_dims *dims)
{
	struct all a = {dims, qkv, sink, doc};

	(void)q;
	kern_gemm_threads(1);
#pragma omp parallel for num_threads(threads_for(dims)) schedule(dynamic)
	for (int64_t item = 0; item < dims->B * dims->G; item++)
		bwd_group(&a, dqkv, dout, o, lse,
			  (REAL *)scratch +
				  omp_get_thread_num() * worker_size(dims),
			  item);
	if (dims->sink != KERN_SINK_LEARNED)
		return;
#pragma omp parallel for num_threads(threads_for(dims))
	for (int64_t h = 0; h < dims->H; h++)
		sink_gradient(&a, dsink, dout, o, lse, h);
}
