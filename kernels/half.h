/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU's ops on elements of 16 bits, compiled for bf16 and for fp16: float's
 * ops between a widening of what they read and a rounding of what they write,
 * to nearest even.  For results, not for speed: no processor is asked for more
 * than float.
 */
#ifndef KERNELS_HALF_H
#define KERNELS_HALF_H

#include <string.h>

#include "kernels/kern_cpu.h"
#include "lib/base/half.h"

#if HALF_IS_BF16
#define HALF(name) kern_##name##_bf16
#define WIDEN	   bf16_widen
#define ROUND	   bf16_round
#else
#define HALF(name) kern_##name##_fp16
#define WIDEN	   fp16_widen
#define ROUND	   fp16_round
#endif

/* The rest of an op's room, which is behind its queue. */
struct room {
	char *at;
};

#define ROOM ((struct room){(char *)q})

/* Room for N floats. */
static inline float *room(struct room *r, int64_t n)
{
	float *at = (float *)(void *)r->at;

	r->at += (n * (int64_t)sizeof(float) + KERN_ROOM_ALIGN - 1) /
		 KERN_ROOM_ALIGN * KERN_ROOM_ALIGN;
	return at;
}

/* A copy of the N elements of X, which may be NULL. */
static inline float *widen(struct room *r, const void *x, int64_t n)
{
	const uint16_t *from = x;
	float *to;

	if (!x)
		return NULL;
	to = room(r, n);
#pragma omp parallel for simd if (n > KERN_SMALL)
	for (int64_t i = 0; i < n; i++)
		to[i] = WIDEN(from[i]);
	return to;
}

/* Y, which may be NULL, = the N elements of X. */
static inline void settle(void *y, const float *x, int64_t n)
{
	uint16_t *to = y;

	if (!y)
		return;
#pragma omp parallel for simd if (n > KERN_SMALL)
	for (int64_t i = 0; i < n; i++)
		to[i] = ROUND(x[i]);
}

/* half_moe.c */
void HALF(route_fwd)(struct queue *q, void *prob, int32_t *map,
		     const void *logits, const void *bias,
		     const struct kern_moe_dims *dims);
void HALF(route_bwd)(struct queue *q, void *dlogits, void *count,
		     const void *dprob, const void *logits, const int32_t *map,
		     const double *tally, const double *coef,
		     const struct kern_moe_dims *dims);
void HALF(gather)(struct queue *q, void *y, const void *x, const int32_t *row,
		  int64_t N, int64_t topk, int64_t C);
void HALF(combine)(struct queue *q, void *y, const void *x, const int32_t *row,
		   int64_t N, int64_t topk, int64_t C);
void HALF(experts_fwd)(struct queue *q, void *y, const void *x, const void *w,
		       const int32_t *end, int64_t R, int64_t out, int64_t in,
		       int64_t experts);
void HALF(experts_bwd_x)(struct queue *q, void *dx, const void *dy,
			 const void *w, const int32_t *end, int64_t R,
			 int64_t out, int64_t in, int64_t experts);
void HALF(experts_bwd_w)(struct queue *q, void *dw, const void *dy,
			 const void *x, const int32_t *end, int64_t R,
			 int64_t out, int64_t in, int64_t experts);
void HALF(expert_act_fwd)(struct queue *q, void *y, const void *x,
			  const void *prob, const int32_t *row, int64_t N,
			  int64_t F, enum kern_act act, bool gated);
void HALF(expert_act_bwd)(struct queue *q, void *dx, void *dprob,
			  const void *dy, const void *x, const void *prob,
			  const int32_t *row, int64_t N, int64_t F,
			  enum kern_act act, bool gated);
void HALF(balance)(struct queue *q, void *bias, void *master, const void *count,
		   int64_t n, const struct kern_moe_dims *dims);
void HALF(expert_bias_fwd)(struct queue *q, void *y, const void *bias,
			   const void *prob, const int32_t *map, int64_t C,
			   const struct kern_moe_dims *dims);
void HALF(expert_bias_bwd)(struct queue *q, void *dbias, void *dprob,
			   const void *dy, const void *bias, const void *prob,
			   const int32_t *map, int64_t C,
			   const struct kern_moe_dims *dims);

#endif
