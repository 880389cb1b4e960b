/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of ops that a training step is made of.  Each op's .c file is
 * the reference that defines it, compiled for float and for double; a .cu
 * file beside it computes the same on a GPU.
 *
 * Legend of dims
 *   B  samples in a micro-batch          T  tokens in a sample
 *   N  rows: B * T tokens, or a slice of them under sequence parallelism
 *   C  hidden size                       D  width of a head
 *   H  query heads of this rank          G  key/value heads of this rank
 *   F  feed-forward width of this rank   V  vocabulary rows of this rank
 *   E  experts of a layer                K  experts that a token goes to
 *   R  rows of this rank's experts, in the order of the experts: as many as
 *      there can be
 *
 * All arrays are row-major.  Activations and parameters hold the table's
 * element type; what sums are kept in (gradients of parameters, stat, lse, m
 * and sums of the loss, rope's table, AdamW's state) its sum type: float for
 * elements of 16 bits, else the element's.  "=" writes, "+=" accumulates.
 * Every op takes a queue: NULL on the CPU; on a GPU the op is put into it, and
 * what could not be started it remembers (device_queue_check).  The CPU's ops
 * on elements of 16 bits, which are float's on a copy of their arrays, take
 * the address of their room in its place: KERN_ROOM_ALIGN bytes for each array
 * and 4 for each of its elements.  No op allocates; none fails on the CPU:
 * sizes were checked when the program was built.  Results do not depend on the
 * number of threads.
 */
#ifndef KERNELS_KERN_H
#define KERNELS_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern_moe.h"

#ifdef __cplusplus
extern "C" {
#endif

struct queue;

enum kern_norm { KERN_LAYERNORM, KERN_RMSNORM };

/* Gated ones read (N, 2F) as [gate F ; up F] and give act(gate) * up. */
enum kern_act {
	KERN_GELU,	/* exact, with erf */
	KERN_GELU_TANH, /* 0.79788456, 0.044715 */
	KERN_SILU,
	KERN_RELU2,	/* max(x, 0) squared */
	KERN_QUICK_GELU /* x * sigmoid(1.702 x) */
};

/*
 * Dropout.  The element e = (row0 + r) * C + c, row r and column c of an
 * (N, C) array, gets word e % 4 of Philox4x32-10 (philox.h) with the key
 * {seed's low half, its high half} and the counter {e / 4's low half, its
 * high half, site, step's low half}.  It is kept if that word is at least
 * (uint32_t)(p 2^32), and then divided by 1 - p; else it becomes 0.  So the
 * choice depends on no layout.  row0 is the number of the first row among
 * the rows of the whole global batch.  KEY points to {seed, step} in the
 * device's memory.  p = 0 or a NULL struct: no dropout, KEY is not read.
 */
struct kern_drop {
	double p;
	const uint64_t *key;
	uint32_t site;
	int64_t row0;
};

/* What AdamW reads from the device's memory each step. */
struct kern_adam {
	double lr, weight_decay, beta1, beta2, eps;
	double correct1, correct2; /* 1 - beta^t */
	double grad_scale;	   /* multiplies every gradient: the clip */
	double skip;		   /* > 0: no update in this step */
};

struct kern_norm_dims {
	int64_t N, C;
	enum kern_norm kind;
	bool zero_centered; /* the gain is 1 + w */
	double eps;
};

/*
 * Whose attention a GPU's table is to use.  It takes its own where cuDNN's
 * cannot: attn_plan.h has the rule.  The CPU's tables do not look at it.
 */
enum kern_attn { KERN_ATTN_OWN, KERN_ATTN_CUDNN };

/*
 * One more score in each row of attention's softmax, whose value is zero:
 * none, 0 for all heads, or each head's own.
 */
enum kern_sink { KERN_SINK_NONE, KERN_SINK_ZERO, KERN_SINK_LEARNED };

/*
 * A row of qkv has for each group its H/G query heads and k, D wide each, and
 * v, Dv wide: (N, (H + G) D + G Dv).
 */
struct kern_attn_dims {
	int64_t B, T, H, G, D, Dv;
	double scale;
	struct kern_drop
		drop; /* element ((row0 + b T + i) heads + head0 + h) T + j */
	int64_t heads, head0; /* query heads of the model; this rank's first */
	enum kern_attn backend;
	/* keys that a query sees, its own included; 0: all before it */
	int64_t window;
	enum kern_sink sink;
	bool docs; /* whether the ops get documents */
};

static inline int64_t kern_attn_row(const struct kern_attn_dims *d)
{
	return (d->H + d->G) * d->D + d->G * d->Dv;
}

/* Depths of multi-token prediction, at most. */
enum { KERN_DEPTHS = 64 };

/*
 * What routers count: the losses times their coefficients, the largest number
 * of tokens that chose an expert over the mean, and how often they were called.
 */
enum kern_moe { MOE_AUX, MOE_Z, MOE_LOAD, MOE_COUNT, MOE_METRICS };

/*
 * Parameters whose gradients have a norm together and are clipped by it: all,
 * or apart from the rest those of depths that are detached from the decoder.
 */
enum kern_grads { GRADS_MAIN, GRADS_MTP, GRADS };

/*
 * metrics[], summed over the world within the step; from METRIC_SUMSQ on the
 * gradients' squares of enum kern_grads, from METRIC_MOE on what
 * enum kern_moe names, and from METRIC_MTP on, for each depth, what enum
 * kern_mtp names.
 */
enum {
	METRIC_SUMSQ,
	METRIC_LOSS = METRIC_SUMSQ + GRADS,
	METRIC_TOKENS,
	METRIC_STOP,
	METRIC_MOE,
	METRIC_MTP = METRIC_MOE + MOE_METRICS,
	METRICS = METRIC_MTP + 4 * KERN_DEPTHS
};

/* The mean of the micro-batches' mean losses; the plain sum of losses, of
 * tokens whose label had the largest logit, and of scored tokens. */
enum kern_mtp { MTP_MEAN, MTP_LOSS, MTP_RIGHT, MTP_TOKENS, MTP_METRICS };

/* What a step has beside arrays, in the device's memory. */
struct kern_scalars {
	uint64_t key[2];	      /* seed, step */
	struct kern_adam adam[GRADS]; /* of the second, clip fills in all */
	double clip;		      /* 0: none */
	double metrics[METRICS];
	double per_token;		/* 1: normalise by all scored tokens */
	double tokens;			/* scored by this rank in this step */
	double mtp_tokens[KERN_DEPTHS]; /* and at each depth */
	double moe_coef;		/* of the routers' losses */
	double loss_scale;	 /* factor in all coefficients; 0: none, 1 */
	double stop;		 /* > 0: this rank was asked to stop */
	double grad_norm[GRADS]; /* results of clip */
};

struct kern {
	const char *name;
	size_t size; /* bytes of an element */
	size_t sum;  /* bytes of the sum type */

	/* y (N, C) = w[ids - first] where 0 <= ids - first < rows, else 0. */
	void (*embed_fwd)(struct queue *q, void *y, const int32_t *ids,
			  const void *w, int64_t N, int64_t C, int64_t first,
			  int64_t rows);
	/* dw (rows, C) += the rows of dy (N, C), in the order of the tokens. */
	void (*embed_bwd)(struct queue *q, void *dw, const void *dy,
			  const int32_t *ids, int64_t N, int64_t C,
			  int64_t first, int64_t rows);
	/*
	 * y (N, C) += w[p], the learned positions; w (T.., C).  p is
	 * (row0 + n) % T + shift, or 0 if that is not below T.
	 */
	void (*pos_fwd)(struct queue *q, void *y, const void *w, int64_t N,
			int64_t C, int64_t T, int64_t row0, int64_t shift);
	void (*pos_bwd)(struct queue *q, void *dw, const void *dy, int64_t N,
			int64_t C, int64_t T, int64_t row0, int64_t shift);

	/* y (N, C) = dropout(x); y may be x.  Its backward is itself. */
	void (*drop)(struct queue *q, void *y, const void *x, int64_t N,
		     int64_t C, const struct kern_drop *d);
	/*
	 * y (N, C) = x times the noise of a router's input, 1 - p +
	 * 2 p (w + 1/2) / 2^32 where w is the word that dropout gives the
	 * element; y may be x.  Its backward is itself.
	 */
	void (*jitter)(struct queue *q, void *y, const void *x, int64_t N,
		       int64_t C, const struct kern_drop *d);

	/*
	 * xout (N, C) = x + dropout(branch + bias).  branch may be NULL (then
	 * xout is not written and may be NULL), bias (C) may be NULL.
	 */
	void (*resid)(struct queue *q, void *xout, const void *x,
		      const void *branch, const void *bias, int64_t N,
		      int64_t C, const struct kern_drop *d);
	/*
	 * The same, and y (N, C) = norm(xout) * w + b.  stat (N, 2) keeps
	 * {mean, 1 / deviation} (mean 0 for RMS) for the backward.  b is NULL
	 * for RMS.  With branch NULL the norm is of x.
	 */
	void (*norm_fwd)(struct queue *q, void *y, void *xout, void *stat,
			 const void *x, const void *branch, const void *bias,
			 const void *w, const void *b,
			 const struct kern_norm_dims *dims,
			 const struct kern_drop *d);
	/*
	 * dx (N, C) = dres + the norm's input gradient for dy (N, C), where x
	 * is what was normalised; dres may be NULL (zero) and may be dx, which
	 * is neither dy nor x.
	 * dw (C) +=, db (C) += (NULL for RMS).
	 */
	void (*norm_bwd)(struct queue *q, void *dx, void *dw, void *db,
			 const void *dy, const void *dres, const void *x,
			 const void *stat, const void *w,
			 const struct kern_norm_dims *dims);

	/* y (N, out) = x (N, in) w^T + bias; w (out, in); bias may be NULL. */
	void (*linear_fwd)(struct queue *q, void *y, const void *x,
			   const void *w, const void *bias, int64_t N,
			   int64_t out, int64_t in);
	/* The same with y in the sum type: a router's logits. */
	void (*linear_sum)(struct queue *q, void *y, const void *x,
			   const void *w, const void *bias, int64_t N,
			   int64_t out, int64_t in);
	/* dx (N, in) = dy (N, out) w. */
	void (*linear_bwd_x)(struct queue *q, void *dx, const void *dy,
			     const void *w, int64_t N, int64_t out, int64_t in);
	/* dw (out, in) += dy^T (out, N) x (N, in). */
	void (*linear_bwd_w)(struct queue *q, void *dw, const void *dy,
			     const void *x, int64_t N, int64_t out, int64_t in);
	/* db (C) += the sum of dy (N, C) over rows. */
	void (*bias_bwd)(struct queue *q, void *db, const void *dy, int64_t N,
			 int64_t C);

	/*
	 * Rotate q and k of qkv (Dv = D) in place, by the angles of their position
	 * n % T (SIGN 1) or back (SIGN -1, the backward).  table (T, R, 2)
	 * holds {cos, sin} of R = rotary width / 2 frequencies.  interleaved:
	 * pairs (2j, 2j+1), else (j, j + R).
	 */
	void (*rope)(struct queue *q, void *qkv, const void *table,
		     const struct kern_attn_dims *dims, int64_t R,
		     bool interleaved, int sign);
	/*
	 * Latent attention's qkv, of H = G heads, from query (N, H D), kv
	 * (N, H (D - P + Dv)) and pos (N, P): a head's key is its part of kv,
	 * then pos, which all share; its value is the rest of its part.  The
	 * last P of each query and pos are rotated as rope does, interleaved.
	 * table NULL: R is 0, nothing turns.
	 */
	void (*latent_fwd)(struct queue *q, void *qkv, const void *query,
			   const void *kv, const void *pos, const void *table,
			   const struct kern_attn_dims *dims, int64_t P,
			   int64_t R);
	/* dquery, dkv, dpos = , the last the sum over heads. */
	void (*latent_bwd)(struct queue *q, void *dquery, void *dkv, void *dpos,
			   const void *dqkv, const void *table,
			   const struct kern_attn_dims *dims, int64_t P,
			   int64_t R);
	/*
	 * Causal attention, within a window if there is one, and from position
	 * doc (B, T, or NULL) of its sample on, where a token's document
	 * begins:
	 * o (N, H Dv) = softmax(scale q k^T) v, lse (B, H, T)
	 * the log of the denominators.  sink (H): of KERN_SINK_LEARNED.
	 * scratch: attn_scratch(dims) bytes.
	 */
	void (*attn_fwd)(struct queue *q, void *o, void *lse, const void *qkv,
			 const void *sink, const int32_t *doc, void *scratch,
			 const struct kern_attn_dims *dims);
	/* dqkv = , of qkv's shape; dsink (H) +=. */
	void (*attn_bwd)(struct queue *q, void *dqkv, void *dsink,
			 const void *dout, const void *o, const void *lse,
			 const void *qkv, const void *sink, const int32_t *doc,
			 void *scratch, const struct kern_attn_dims *dims);
	/* Bytes of scratch that either needs; a pure function of DIMS. */
	size_t (*attn_scratch)(const struct kern_attn_dims *dims);

	/*
	 * Generation: B samples of T more tokens, those of sample b at the
	 * positions pos[b] .. pos[b] + T of ROOM.  What is at ROOM or behind
	 * it is padding: it gets zeros, or is left alone.
	 *
	 * y (B T, C) += w[p], w (ROOM, C), where p is SHIFT above a row's
	 * position, or 0 if that is not below ROOM.
	 */
	void (*pos_at)(struct queue *q, void *y, const void *w,
		       const int32_t *pos, int64_t B, int64_t T, int64_t C,
		       int64_t room, int64_t shift);
	/* rope by these positions; table (ROOM, R, 2). */
	void (*rope_at)(struct queue *q, void *qkv, const void *table,
			const int32_t *pos, const struct kern_attn_dims *dims,
			int64_t R, bool interleaved, int64_t room);
	/* And latent_fwd, whose pos is SHARED here. */
	void (*latent_at)(struct queue *q, void *qkv, const void *query,
			  const void *kv, const void *shared, const void *table,
			  const int32_t *pos, const struct kern_attn_dims *dims,
			  int64_t P, int64_t R, int64_t room);
	/*
	 * qkv's keys and values go to their positions of keys (B, G, ROOM, D)
	 * and values (B, G, ROOM, Dv); then attn_fwd's o, of each query to all keys there
	 * up to its own position, within a window if there is one.  scratch:
	 * kern_attn_at_scratch(dims, room, size) bytes; on a GPU
	 * kern_attn_at_scratch_cuda's (attn_plan.h).
	 */
	void (*attn_at)(struct queue *q, void *o, void *keys, void *values,
			const void *qkv, const void *sink, const int32_t *pos,
			void *scratch, const struct kern_attn_dims *dims,
			int64_t room);

	/* y (N, F) = act(x), or act(gate) * up for x (N, 2F) when gated. */
	void (*act_fwd)(struct queue *q, void *y, const void *x, int64_t N,
			int64_t F, enum kern_act act, bool gated);
	/* dx = , of the shape of x; dx may not be x. */
	void (*act_bwd)(struct queue *q, void *dx, const void *dy,
			const void *x, int64_t N, int64_t F, enum kern_act act,
			bool gated);

	/*
	 * Where tokens go: prob (N, K) and map, from logits (N, E) and bias
	 * (E, or NULL).  Logits and probabilities are in the sum type, the
	 * logits' gradient and the bias are not.
	 */
	void (*route_fwd)(struct queue *q, void *prob, int32_t *map,
			  const void *logits, const void *bias,
			  const struct kern_moe_dims *dims);
	/* tally (E, double) += the c(e) of this rank's micro-batch. */
	void (*tally)(struct queue *q, double *tally, const int32_t *map,
		      const struct kern_moe_dims *dims);
	/*
	 * stat (MOE_METRICS) += what enum kern_moe says of this rank's
	 * micro-batch, for its logits (M, E).  tally (E): what GLOBAL is of,
	 * NULL if there is none.
	 */
	void (*route_loss)(struct queue *q, double *stat, const void *logits,
			   const int32_t *map, const double *tally,
			   const struct kern_moe_dims *dims);
	/*
	 * Of this rank's micro-batch, for its logits (M, E): dlogits = what
	 * dprob (M, K) gives, and *coef times the gradients of the losses.
	 * count (E, in the sum type, or NULL) += the tokens that chose each
	 * expert, whether it had room or not.
	 */
	void (*route_bwd)(struct queue *q, void *dlogits, void *count,
			  const void *dprob, const void *logits,
			  const int32_t *map, const double *tally,
			  const double *coef, const struct kern_moe_dims *dims);
	/*
	 * bias (n of its E) += the rate where count (n), of all tokens of a
	 * step, is below the fair one, -= where it is above.  master as
	 * adamw's.
	 */
	void (*balance)(struct queue *q, void *bias, void *master,
			const void *count, int64_t n,
			const struct kern_moe_dims *dims);
	/* y (R, C): row row[n, k], if there is one, = row n of x (N, C). */
	void (*gather)(struct queue *q, void *y, const void *x,
		       const int32_t *row, int64_t N, int64_t K, int64_t C);
	/* y (N, C) = the sum over k of the rows row[n, k] of x (R, C). */
	void (*combine)(struct queue *q, void *y, const void *x,
			const int32_t *row, int64_t N, int64_t K, int64_t C);
	/*
	 * The linear ops of each of so many experts, w (experts, out, in), on
	 * its rows of x (R, in) and y (R, out), or their gradients; rows
	 * behind the last one's end are left alone.  dw +=.
	 */
	void (*experts_fwd)(struct queue *q, void *y, const void *x,
			    const void *w, const int32_t *end, int64_t R,
			    int64_t out, int64_t in, int64_t experts);
	void (*experts_bwd_x)(struct queue *q, void *dx, const void *dy,
			      const void *w, const int32_t *end, int64_t R,
			      int64_t out, int64_t in, int64_t experts);
	void (*experts_bwd_w)(struct queue *q, void *dw, const void *dy,
			      const void *x, const int32_t *end, int64_t R,
			      int64_t out, int64_t in, int64_t experts);
	/*
	 * act_fwd on the rows of N choices, each times its probability; row
	 * and prob (N).  The backward gives dprob (N) in the sum type, 0
	 * where there is no row.
	 */
	void (*expert_act_fwd)(struct queue *q, void *y, const void *x,
			       const void *prob, const int32_t *row, int64_t N,
			       int64_t F, enum kern_act act, bool gated);
	void (*expert_act_bwd)(struct queue *q, void *dx, void *dprob,
			       const void *dy, const void *x, const void *prob,
			       const int32_t *row, int64_t N, int64_t F,
			       enum kern_act act, bool gated);
	/*
	 * y (R, C) += each row's expert's bias (experts, C), times the row's
	 * probability in prob (N, K) unless it is NULL.
	 * The backward: dbias +=, dprob += in the sum type; dprob and bias are
	 * NULL together, and where prob is.
	 */
	void (*expert_bias_fwd)(struct queue *q, void *y, const void *bias,
				const void *prob, const int32_t *map, int64_t C,
				const struct kern_moe_dims *dims);
	void (*expert_bias_bwd)(struct queue *q, void *dbias, void *dprob,
				const void *dy, const void *bias,
				const void *prob, const int32_t *map, int64_t C,
				const struct kern_moe_dims *dims);

	/*
	 * Softmax cross entropy over a vocabulary cut by columns.  This rank
	 * holds columns first .. first + V of the model's vocabulary, of
	 * which only the first VALID exist (the rest is padding and takes no
	 * part).  Between the three ops m is reduced by maximum and sums by
	 * addition over the ranks.  labels < 0 are not scored.
	 *   ce_max   m (N) = the largest valid logit, -infinity if none
	 *   ce_sums  sums (2, N) = {sum exp(x - m), x[label] - m or 0}
	 *   ce_grad  loss (1, double) += sum over scored rows of
	 *            log sums[0] - sums[1]; right (1, double, or NULL) +=
	 *            the scored rows whose label has the largest logit;
	 *            logits = their gradient times *coef (double), 0 in
	 *            padding and in rows not scored
	 */
	void (*ce_max)(struct queue *q, void *m, const void *logits, int64_t N,
		       int64_t V, int64_t valid);
	void (*ce_sums)(struct queue *q, void *sums, const void *logits,
			const void *m, const int32_t *labels, int64_t N,
			int64_t V, int64_t valid, int64_t first);
	void (*ce_grad)(struct queue *q, double *loss, double *right,
			void *logits, const void *m, const void *sums,
			const int32_t *labels, const double *coef, int64_t N,
			int64_t V, int64_t valid, int64_t first);

	/* acc (1, double) += the sum of squares of x (n). */
	void (*sumsq)(struct queue *q, double *acc, const void *x, int64_t n);
	/*
	 * s->metrics, all but SUMSQ: LOSS = the sum of loss[0] * coef over M
	 * micro-batches and TOKENS = s->tokens, both 0 unless COUNTS; STOP =
	 * s->stop.  For each of DEPTHS, 0 unless COUNTS: MEAN = the sum of
	 * loss[1 + depth] * share[depth], and the sums of that loss, of right
	 * and of tokens.  loss (1 + DEPTHS, M), coef (M), share and right
	 * (DEPTHS, M).
	 */
	void (*metrics)(struct queue *q, struct kern_scalars *s,
			const double *loss, const double *coef,
			const double *share, const double *right, int64_t M,
			int64_t depths, bool counts);
	/*
	 * Of each of enum kern_grads, grad_norm = sqrt(SUMSQ) / (tokens
	 * loss_scale), tokens 1 unless per_token, and adam.grad_scale =
	 * 1 / (tokens loss_scale), less if the norm is above s->clip: times
	 * clip / (norm + 1e-6).  With a loss_scale all adam.skip = whether
	 * some norm is not finite.
	 */
	void (*clip)(struct queue *q, struct kern_scalars *s);
	/*
	 * m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
	 * p -= lr (m / c1 / (sqrt(v / c2) + eps) + wd p), wd only if DECAY;
	 * nothing if h->skip.
	 * With elements of 16 bits MASTER is p in the sum type: it is updated
	 * and p = it, rounded to nearest even; else MASTER is NULL.
	 */
	void (*adamw)(struct queue *q, void *p, void *master, void *m, void *v,
		      const void *g, int64_t n, const struct kern_adam *h,
		      bool decay);
	/* BYTES of y = 0. */
	void (*zero)(struct queue *q, void *y, int64_t bytes);
	/* BYTES of y = x. */
	void (*copy)(struct queue *q, void *y, const void *x, int64_t bytes);
	/*
	 * Rows side by side: each of N rows of y = A bytes of a, B of b and C
	 * of c; zeros for NULL.
	 */
	void (*join)(struct queue *q, void *y, const void *a, const void *b,
		     const void *c, int64_t N, int64_t A, int64_t B, int64_t C);
	/* y (N rows of BYTES) = the first of each row of x, STEP bytes long. */
	void (*cut)(struct queue *q, void *y, const void *x, int64_t N,
		    int64_t bytes, int64_t step);
	/*
	 * Rows that each token takes at random from a token at or behind its
	 * own, below OF places on.  Row n is at position t = (row0 + n) % T of
	 * its sample; its shift is s = w OF / 2^32, rounded down, where w is
	 * the word that dropout gives element row0 + n; but 0 if t + s >= T,
	 * or if doc (or NULL) says that another document is there.  d's p is
	 * not read.  x, dy and doc are at the row of y or dx in arrays of
	 * whole samples.
	 *   mix_fwd  y (N rows of BYTES): those of this SHIFT = x[n + SHIFT]
	 *   mix_bwd  dx (N rows of BYTES) = dy[n - SHIFT] if that row has this
	 *            SHIFT, else 0
	 */
	void (*mix_fwd)(struct queue *q, void *y, const void *x,
			const int32_t *doc, int64_t N, int64_t bytes, int64_t T,
			int64_t shift, int64_t of, const struct kern_drop *d);
	void (*mix_bwd)(struct queue *q, void *dx, const void *dy,
			const int32_t *doc, int64_t N, int64_t bytes, int64_t T,
			int64_t shift, int64_t of, const struct kern_drop *d);
};

/* Of the room of the CPU's ops on elements of 16 bits. */
enum { KERN_ROOM_ALIGN = 64 };

/*
 * What attn_scratch answers on the CPU: two blocks of KERN_ATTN_QUERIES rows
 * of scores for each of the (sample, group) pairs that may run at a time.
 * Constants, so that the plan depends on the dims alone.
 */
#define KERN_ATTN_QUERIES 64
#define KERN_ATTN_WORKERS 16
static inline int64_t kern_attn_workers(const struct kern_attn_dims *d)
{
	int64_t items = d->B * d->G;

	return items < KERN_ATTN_WORKERS ? items : KERN_ATTN_WORKERS;
}

static inline size_t kern_attn_scratch(const struct kern_attn_dims *d,
				       size_t size)
{
	int64_t row = (d->T + 15) / 16 * 16;

	return (size_t)(kern_attn_workers(d) * 2 * KERN_ATTN_QUERIES * row) *
	       size;
}

/* What attn_at needs: a block of rows of scores for each worker. */
static inline size_t kern_attn_at_scratch(const struct kern_attn_dims *d,
					  int64_t room, size_t size)
{
	int64_t row = (room + 15) / 16 * 16;

	return (size_t)(kern_attn_workers(d) * KERN_ATTN_QUERIES * row) * size;
}

/*
 * Make the CPU's ops that this thread calls use THREADS threads; before the
 * first op.  May be called again.  BLIS_ARCH_TYPE in the environment decides
 * which of its kernels BLIS takes; if unset and the processor has two AVX-512
 * units, this sets it.  Another BLAS reads its own variables.
 */
void kern_cpu_init(int threads);

extern const struct kern kern_cpu_f32;
extern const struct kern kern_cpu_f64;
extern const struct kern kern_cpu_bf16;
extern const struct kern kern_cpu_fp16;
/* In builds for GPUs. */
extern const struct kern kern_cuda_f32;
extern const struct kern kern_cuda_bf16;
extern const struct kern kern_cuda_fp16;

#ifdef __cplusplus
}
#endif

#endif
