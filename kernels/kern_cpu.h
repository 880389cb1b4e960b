/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU's ops share: their names, compiled for float and for double. */
#ifndef KERNELS_KERN_CPU_H
#define KERNELS_KERN_CPU_H

#include <omp.h>

#include "kernels/kern.h"

/* Every op's .c file is compiled twice, with REAL = float and = double. */
#if REAL_IS_FLOAT
#define K(name) kern_##name##_f32
#define RC(x)	x##f /* a constant or a libm function of type REAL */
#else
#define K(name) kern_##name##_f64
#define RC(x)	x
#endif

/* Below so many elements an op runs on the calling thread alone. */
#define KERN_SMALL 16384

struct span {
	int64_t lo, hi;
};

/*
 * The calling thread's share of 0 .. n, cut at multiples of UNIT.  For ops
 * whose every element is computed alike wherever the cuts fall.
 */
static inline struct span span_mine(int64_t n, int64_t unit)
{
	int64_t units = (n + unit - 1) / unit, rank = omp_get_thread_num();
	int64_t size = omp_get_num_threads();
	int64_t lo = units * rank / size * unit;
	int64_t hi = units * (rank + 1) / size * unit;

	return (struct span){lo, hi < n ? hi : n};
}

void K(embed_fwd)(struct queue *q, void *y, const int32_t *ids, const void *w,
		  int64_t N, int64_t C, int64_t first, int64_t rows);
void K(embed_bwd)(struct queue *q, void *dw, const void *dy, const int32_t *ids,
		  int64_t N, int64_t C, int64_t first, int64_t rows);
void K(pos_fwd)(struct queue *q, void *y, const void *w, int64_t N, int64_t C,
		int64_t T, int64_t row0, int64_t shift);
void K(pos_bwd)(struct queue *q, void *dw, const void *dy, int64_t N, int64_t C,
		int64_t T, int64_t row0, int64_t shift);
void K(drop)(struct queue *q, void *y, const void *x, int64_t N, int64_t C,
	     const struct kern_drop *d);
void K(jitter)(struct queue *q, void *y, const void *x, int64_t N, int64_t C,
	       const struct kern_drop *d);
void K(resid)(struct queue *q, void *xout, const void *x, const void *branch,
	      const void *bias, int64_t N, int64_t C,
	      const struct kern_drop *d);
void K(norm_fwd)(struct queue *q, void *y, void *xout, void *stat,
		 const void *x, const void *branch, const void *bias,
		 const void *w, const void *b,
		 const struct kern_norm_dims *dims, const struct kern_drop *d);
void K(norm_bwd)(struct queue *q, void *dx, void *dw, void *db, const void *dy,
		 const void *dres, const void *x, const void *stat,
		 const void *w, const struct kern_norm_dims *dims);
void K(linear_fwd)(struct queue *q, void *y, const void *x, const void *w,
		   const void *bias, int64_t N, int64_t out, int64_t in);
void K(linear_sum)(struct queue *q, void *y, const void *x, const void *w,
		   const void *bias, int64_t N, int64_t out, int64_t in);
void K(linear_bwd_x)(struct queue *q, void *dx, const void *dy, const void *w,
		     int64_t N, int64_t out, int64_t in);
void K(linear_bwd_w)(struct queue *q, void *dw, const void *dy, const void *x,
		     int64_t N, int64_t out, int64_t in);
void K(bias_bwd)(struct queue *q, void *db, const void *dy, int64_t N,
		 int64_t C);
void K(rope)(struct queue *q, void *qkv, const void *table,
	     const struct kern_attn_dims *dims, int64_t R, bool interleaved,
	     int sign);
void K(latent_fwd)(struct queue *q, void *qkv, const void *query,
		   const void *kv, const void *pos, const void *table,
		   const struct kern_attn_dims *dims, int64_t P, int64_t R);
void K(latent_bwd)(struct queue *q, void *dquery, void *dkv, void *dpos,
		   const void *dqkv, const void *table,
		   const struct kern_attn_dims *dims, int64_t P, int64_t R);
void K(attn_fwd)(struct queue *q, void *o, void *lse, const void *qkv,
		 const void *sink, const int32_t *doc, void *scratch,
		 const struct kern_attn_dims *dims);
void K(attn_bwd)(struct queue *q, void *dqkv, void *dsink, const void *dout,
		 const void *o, const void *lse, const void *qkv,
		 const void *sink, const int32_t *doc, void *scratch,
		 const struct kern_attn_dims *dims);
size_t K(attn_scratch)(const struct kern_attn_dims *dims);
void K(pos_at)(struct queue *q, void *y, const void *w, const int32_t *pos,
	       int64_t B, int64_t T, int64_t C, int64_t room, int64_t shift);
void K(rope_at)(struct queue *q, void *qkv, const void *table,
		const int32_t *pos, const struct kern_attn_dims *dims,
		int64_t R, bool interleaved, int64_t room);
void K(latent_at)(struct queue *q, void *qkv, const void *query, const void *kv,
		  const void *shared, const void *table, const int32_t *pos,
		  const struct kern_attn_dims *dims, int64_t P, int64_t R,
		  int64_t room);
void K(attn_at)(struct queue *q, void *o, void *keys, void *values,
		const void *qkv, const void *sink, const int32_t *pos,
		void *scratch, const struct kern_attn_dims *dims, int64_t room);
void K(act_fwd)(struct queue *q, void *y, const void *x, int64_t N, int64_t F,
		enum kern_act act, bool gated);
void K(act_bwd)(struct queue *q, void *dx, const void *dy, const void *x,
		int64_t N, int64_t F, enum kern_act act, bool gated);
void K(route_fwd)(struct queue *q, void *prob, int32_t *map, const void *logits,
		  const void *bias, const struct kern_moe_dims *dims);
void K(tally)(struct queue *q, double *tally, const int32_t *map,
	      const struct kern_moe_dims *dims);
void K(route_loss)(struct queue *q, double *stat, const void *logits,
		   const int32_t *map, const double *tally,
		   const struct kern_moe_dims *dims);
void K(route_bwd)(struct queue *q, void *dlogits, void *count,
		  const void *dprob, const void *logits, const int32_t *map,
		  const double *tally, const double *coef,
		  const struct kern_moe_dims *dims);
void K(balance)(struct queue *q, void *bias, void *master, const void *count,
		int64_t n, const struct kern_moe_dims *dims);
void K(gather)(struct queue *q, void *y, const void *x, const int32_t *row,
	       int64_t N, int64_t topk, int64_t C);
void K(combine)(struct queue *q, void *y, const void *x, const int32_t *row,
		int64_t N, int64_t topk, int64_t C);
void K(experts_fwd)(struct queue *q, void *y, const void *x, const void *w,
		    const int32_t *end, int64_t R, int64_t out, int64_t in,
		    int64_t experts);
void K(experts_bwd_x)(struct queue *q, void *dx, const void *dy, const void *w,
		      const int32_t *end, int64_t R, int64_t out, int64_t in,
		      int64_t experts);
void K(experts_bwd_w)(struct queue *q, void *dw, const void *dy, const void *x,
		      const int32_t *end, int64_t R, int64_t out, int64_t in,
		      int64_t experts);
void K(expert_act_fwd)(struct queue *q, void *y, const void *x,
		       const void *prob, const int32_t *row, int64_t N,
		       int64_t F, enum kern_act act, bool gated);
void K(expert_act_bwd)(struct queue *q, void *dx, void *dprob, const void *dy,
		       const void *x, const void *prob, const int32_t *row,
		       int64_t N, int64_t F, enum kern_act act, bool gated);
void K(expert_bias_fwd)(struct queue *q, void *y, const void *bias,
			const void *prob, const int32_t *map, int64_t C,
			const struct kern_moe_dims *dims);
void K(expert_bias_bwd)(struct queue *q, void *dbias, void *dprob,
			const void *dy, const void *bias, const void *prob,
			const int32_t *map, int64_t C,
			const struct kern_moe_dims *dims);
void K(ce_max)(struct queue *q, void *m, const void *logits, int64_t N,
	       int64_t V, int64_t valid);
void K(ce_sums)(struct queue *q, void *sums, const void *logits, const void *m,
		const int32_t *labels, int64_t N, int64_t V, int64_t valid,
		int64_t first);
void K(ce_grad)(struct queue *q, double *loss, double *right, void *logits,
		const void *m, const void *sums, const int32_t *labels,
		const double *coef, int64_t N, int64_t V, int64_t valid,
		int64_t first);
void K(sumsq)(struct queue *q, double *acc, const void *x, int64_t n);
void K(metrics)(struct queue *q, struct kern_scalars *s, const double *loss,
		const double *coef, const double *share, const double *right,
		int64_t M, int64_t depths, bool counts);
void K(clip)(struct queue *q, struct kern_scalars *s);
void K(adamw)(struct queue *q, void *p, void *master, void *m, void *v,
	      const void *g, int64_t n, const struct kern_adam *h, bool decay);
void K(zero)(struct queue *q, void *y, int64_t bytes);
void K(copy)(struct queue *q, void *y, const void *x, int64_t bytes);
void K(join)(struct queue *q, void *y, const void *a, const void *b,
	     const void *c, int64_t N, int64_t A, int64_t B, int64_t C);
void K(cut)(struct queue *q, void *y, const void *x, int64_t N, int64_t bytes,
	    int64_t step);
void K(mix_fwd)(struct queue *q, void *y, const void *x, const int32_t *doc,
		int64_t N, int64_t bytes, int64_t T, int64_t shift, int64_t of,
		const struct kern_drop *d);
void K(mix_bwd)(struct queue *q, void *dx, const void *dy, const int32_t *doc,
		int64_t N, int64_t bytes, int64_t T, int64_t shift, int64_t of,
		const struct kern_drop *d);

#endif
