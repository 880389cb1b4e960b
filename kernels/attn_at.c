/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation: positions that are data, and attention to the keys and values
 * of all that came before, one (sample, group) per thread.
 */
#include <math.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/kern_cpu.h"
#include "kernels/vmath.h"

#define QUERIES KERN_ATTN_QUERIES /* in a block */

/* Tokens of a sample at POS, of T, that are not padding. */
static int64_t real_tokens(int64_t pos, int64_t T, int64_t room)
{
	int64_t left = pos < room ? room - pos : 0;

	return left < T ? left : T;
}

void K(pos_at)(struct queue *q, void *y, const void *w, const int32_t *pos,
	       int64_t B, int64_t T, int64_t C, int64_t room, int64_t shift)
{
	for (int64_t b = 0; b < B; b++) {
		int64_t n = real_tokens(pos[b], T, room);

		K(pos_fwd)
		(q, (REAL *)y + b * T * C, w, n, C, room, pos[b], shift);
	}
}

void K(rope_at)(struct queue *q, void *qkv, const void *table,
		const int32_t *pos, const struct kern_attn_dims *dims,
		int64_t R, bool interleaved, int64_t room)
{
	int64_t row = kern_attn_row(dims);

	for (int64_t b = 0; b < dims->B; b++) {
		struct kern_attn_dims one = *dims;

		one.B = 1;
		one.T = real_tokens(pos[b], dims->T, room);
		K(rope)
		(q, (REAL *)qkv + b * dims->T * row,
		 (const REAL *)table + (int64_t)pos[b] * 2 * R, &one, R,
		 interleaved, 1);
	}
}

void K(latent_at)(struct queue *q, void *qkv, const void *query, const void *kv,
		  const void *shared, const void *table, const int32_t *pos,
		  const struct kern_attn_dims *dims, int64_t P, int64_t R,
		  int64_t room)
{
	int64_t row = kern_attn_row(dims), T = dims->T, H = dims->H;
	int64_t wide = H * (dims->D - P + dims->Dv);

	for (int64_t b = 0; b < dims->B; b++) {
		struct kern_attn_dims one = *dims;

		one.B = 1;
		one.T = real_tokens(pos[b], T, room);
		K(latent_fwd)
		(q, (REAL *)qkv + b * T * row,
		 (const REAL *)query + b * T * H * dims->D,
		 (const REAL *)kv + b * T * wide,
		 (const REAL *)shared + b * T * P,
		 R ? (const REAL *)table + (int64_t)pos[b] * 2 * R : NULL, &one,
		 P, R);
	}
}

/* The keys and values of one group of one sample. */
struct cache {
	REAL *k, *v;
	int64_t D, Dv, window;
	REAL scale;
	enum kern_sink has_sink;
	const REAL *sink; /* of the group's heads */
};

/*
 * M rows of queries: LDQ apart, STEP positions apart from FIRST on, of as many
 * heads from HEAD on or, STEP 1, of that one.
 */
struct rows {
	const REAL *q;
	REAL *o;
	int64_t M, ldq, ldo, first, step, head;
};

/* The first key that a query at position P sees. */
static int64_t first_key(const struct cache *c, int64_t p)
{
	return c->window && p >= c->window ? p - c->window + 1 : 0;
}

static REAL sink_of(const struct cache *c, int64_t head)
{
	return c->has_sink == KERN_SINK_NONE   ? -(REAL)INFINITY
	       : c->has_sink == KERN_SINK_ZERO ? 0
					       : c->sink[head];
}

static void attend(const struct cache *c, const struct rows *r, REAL *s,
		   int64_t lds)
{
	int64_t lo = first_key(c, r->first), D = c->D, Dv = c->Dv;
	int64_t width = r->first + (r->M - 1) * r->step + 1 - lo;
	REAL inverse[QUERIES] = {0}, most;

	mul_nt(s, lds, r->q, r->ldq, c->k + lo * D, D, r->M, width, D,
	       c->scale);
	for (int64_t i = 0; i < r->M; i++) {
		int64_t p = r->first + i * r->step, from = first_key(c, p) - lo;
		int64_t end = p + 1 - lo;
		REAL *si = s + i * lds;
		REAL sink = sink_of(c, r->head + (r->step ? 0 : i));

		inverse[i] = (REAL)(1 / softmax_row(si + from, end - from, sink,
						    &most));
		memset(si, 0, from * sizeof(*si));
		memset(si + end, 0, (width - end) * sizeof(*si));
	}
	mul_nn(r->o, r->ldo, s, lds, c->v + lo * Dv, Dv, r->M, Dv, width, 1);
	for (int64_t i = 0; i < r->M; i++) {
		REAL *oi = r->o + i * r->ldo;

#pragma omp simd
		for (int64_t x = 0; x < Dv; x++)
			oi[x] *= inverse[i];
	}
}

/* Put the keys and values of T tokens, LD apart, behind each other. */
static void store(const struct cache *c, const REAL *k, int64_t ld, int64_t pos,
		  int64_t T)
{
	for (int64_t t = 0; t < T; t++) {
		memcpy(c->k + (pos + t) * c->D, k + t * ld, c->D * sizeof(*k));
		memcpy(c->v + (pos + t) * c->Dv, k + t * ld + c->D,
		       c->Dv * sizeof(*k));
	}
}

/*
 * Q's T tokens of PER heads each, at POS: the heads of a single token are
 * rows at one position, else each head has rows of its own.
 */
static void attend_all(const struct cache *c, const struct rows *all,
		       int64_t per, int64_t T, int64_t pos, REAL *s,
		       int64_t lds)
{
	struct rows r = *all;

	if (T == 1 && per <= QUERIES) {
		r.M = per;
		r.ldq = c->D;
		r.ldo = c->Dv;
		r.first = pos;
		r.step = 0;
		attend(c, &r, s, lds);
		return;
	}
	r.step = 1;
	for (r.head = 0; r.head < per; r.head++)
		for (int64_t t = 0; t < T; t += QUERIES) {
			int64_t j = r.head;

			r.q = all->q + t * r.ldq + j * c->D;
			r.o = all->o + t * r.ldo + j * c->Dv;
			r.M = T - t < QUERIES ? T - t : QUERIES;
			r.first = pos + t;
			attend(c, &r, s, lds);
		}
}

static void group(const struct kern_attn_dims *d, REAL *o, REAL *keys,
		  REAL *values, const REAL *qkv, const REAL *sink,
		  const int32_t *pos, REAL *s, int64_t room, int64_t item)
{
	int64_t b = item / d->G, g = item % d->G, per = d->H / d->G, D = d->D;
	int64_t Dv = d->Dv, ld = kern_attn_row(d), ldo = d->H * Dv;
	int64_t T = real_tokens(pos[b], d->T, room);
	const REAL *q = qkv + b * d->T * ld + g * ((per + 1) * D + Dv);
	struct cache c = {keys + item * room * D,
			  values + item * room * Dv,
			  D,
			  Dv,
			  d->window,
			  (REAL)d->scale,
			  d->sink,
			  sink ? sink + g * per : NULL};
	struct rows r = {.q = q,
			 .o = o + b * d->T * ldo + g * per * Dv,
			 .ldq = ld,
			 .ldo = ldo};

	store(&c, q + per * D, ld, pos[b], T);
	attend_all(&c, &r, per, T, pos[b], s, (room + 15) / 16 * 16);
	for (int64_t t = T; t < d->T; t++)
		memset(r.o + t * ldo, 0, per * Dv * sizeof(*o));
}

static int threads_for(const struct kern_attn_dims *d, int64_t room)
{
	int64_t threads = omp_get_max_threads(), most = kern_attn_workers(d);

	if (d->B * d->H * d->T * room < KERN_SMALL)
		return 1;
	return (int)(threads < most ? threads : most);
}

void K(attn_at)(struct queue *q, void *o, void *keys, void *values,
		const void *qkv, const void *sink, const int32_t *pos,
		void *scratch, const struct kern_attn_dims *dims, int64_t room)
{
	int64_t worker = QUERIES * ((room + 15) / 16 * 16);

	(void)q;
	kern_gemm_threads(1);
#pragma omp parallel for num_threads(threads_for(dims, room)) schedule(dynamic)
	for (int64_t item = 0; item < dims->B * dims->G; item++)
		group(dims, o, keys, values, qkv, sink, pos,
		      (REAL *)scratch + omp_get_thread_num() * worker, room,
		      item);
}
