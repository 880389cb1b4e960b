/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on elements of 16 bits, but for experts, and their tables. */
#include "kernels/half.h"

static void HALF(embed_fwd)(struct queue *q, void *y, const int32_t *ids,
			    const void *w, int64_t N, int64_t C, int64_t first,
			    int64_t rows)
{
	struct room r = ROOM;
	float *fw = widen(&r, w, rows * C), *fy = room(&r, N * C);

	K(embed_fwd)(NULL, fy, ids, fw, N, C, first, rows);
	settle(y, fy, N * C);
}

static void HALF(embed_bwd)(struct queue *q, void *dw, const void *dy,
			    const int32_t *ids, int64_t N, int64_t C,
			    int64_t first, int64_t rows)
{
	struct room r = ROOM;

	K(embed_bwd)(NULL, dw, widen(&r, dy, N * C), ids, N, C, first, rows);
}

static void HALF(pos_fwd)(struct queue *q, void *y, const void *w, int64_t N,
			  int64_t C, int64_t T, int64_t row0, int64_t shift)
{
	struct room r = ROOM;
	float *fw = widen(&r, w, T * C), *fy = widen(&r, y, N * C);

	K(pos_fwd)(NULL, fy, fw, N, C, T, row0, shift);
	settle(y, fy, N * C);
}

static void HALF(pos_bwd)(struct queue *q, void *dw, const void *dy, int64_t N,
			  int64_t C, int64_t T, int64_t row0, int64_t shift)
{
	struct room r = ROOM;

	K(pos_bwd)(NULL, dw, widen(&r, dy, N * C), N, C, T, row0, shift);
}

static void HALF(drop)(struct queue *q, void *y, const void *x, int64_t N,
		       int64_t C, const struct kern_drop *d)
{
	struct room r = ROOM;
	float *fx = widen(&r, x, N * C);

	K(drop)(NULL, fx, fx, N, C, d);
	settle(y, fx, N * C);
}

static void HALF(jitter)(struct queue *q, void *y, const void *x, int64_t N,
			 int64_t C, const struct kern_drop *d)
{
	struct room r = ROOM;
	float *fx = widen(&r, x, N * C);

	K(jitter)(NULL, fx, fx, N, C, d);
	settle(y, fx, N * C);
}

static void HALF(resid)(struct queue *q, void *xout, const void *x,
			const void *branch, const void *bias, int64_t N,
			int64_t C, const struct kern_drop *d)
{
	struct room r = ROOM;
	float *fx = widen(&r, x, N * C), *fbranch = widen(&r, branch, N * C);

	K(resid)(NULL, fx, fx, fbranch, widen(&r, bias, C), N, C, d);
	settle(xout, fx, N * C);
}

/* What is normalised is the sum as it is kept. */
static void HALF(norm_fwd)(struct queue *q, void *y, void *xout, void *stat,
			   const void *x, const void *branch, const void *bias,
			   const void *w, const void *b,
			   const struct kern_norm_dims *dims,
			   const struct kern_drop *d)
{
	struct room r = ROOM;
	int64_t N = dims->N, C = dims->C;
	float *fy = room(&r, N * C), *fx;

	if (branch) {
		HALF(resid)
		((struct queue *)(void *)r.at, xout, x, branch, bias, N, C, d);
		x = xout;
	}
	fx = widen(&r, x, N * C);
	K(norm_fwd)
	(NULL, fy, NULL, stat, fx, NULL, NULL, widen(&r, w, C), widen(&r, b, C),
	 dims, d);
	settle(y, fy, N * C);
}

static void HALF(norm_bwd)(struct queue *q, void *dx, void *dw, void *db,
			   const void *dy, const void *dres, const void *x,
			   const void *stat, const void *w,
			   const struct kern_norm_dims *dims)
{
	struct room r = ROOM;
	int64_t N = dims->N, C = dims->C;
	float *fdx = room(&r, N * C), *fdy = widen(&r, dy, N * C);
	float *fres = widen(&r, dres, N * C), *fx = widen(&r, x, N * C);

	K(norm_bwd)
	(NULL, fdx, dw, db, fdy, fres, fx, stat, widen(&r, w, C), dims);
	settle(dx, fdx, N * C);
}

static void HALF(linear_fwd)(struct queue *q, void *y, const void *x,
			     const void *w, const void *bias, int64_t N,
			     int64_t out, int64_t in)
{
	struct room r = ROOM;
	float *fy = room(&r, N * out), *fx = widen(&r, x, N * in);
	float *fw = widen(&r, w, out * in);

	K(linear_fwd)(NULL, fy, fx, fw, widen(&r, bias, out), N, out, in);
	settle(y, fy, N * out);
}

static void HALF(linear_sum)(struct queue *q, void *y, const void *x,
			     const void *w, const void *bias, int64_t N,
			     int64_t out, int64_t in)
{
	struct room r = ROOM;
	float *fx = widen(&r, x, N * in), *fw = widen(&r, w, out * in);

	K(linear_sum)(NULL, y, fx, fw, widen(&r, bias, out), N, out, in);
}

static void HALF(linear_bwd_x)(struct queue *q, void *dx, const void *dy,
			       const void *w, int64_t N, int64_t out,
			       int64_t in)
{
	struct room r = ROOM;
	float *fdx = room(&r, N * in), *fdy = widen(&r, dy, N * out);

	K(linear_bwd_x)(NULL, fdx, fdy, widen(&r, w, out * in), N, out, in);
	settle(dx, fdx, N * in);
}

static void HALF(linear_bwd_w)(struct queue *q, void *dw, const void *dy,
			       const void *x, int64_t N, int64_t out,
			       int64_t in)
{
	struct room r = ROOM;
	float *fdy = widen(&r, dy, N * out), *fx = widen(&r, x, N * in);

	K(linear_bwd_w)(NULL, dw, fdy, fx, N, out, in);
}

static void HALF(bias_bwd)(struct queue *q, void *db, const void *dy, int64_t N,
			   int64_t C)
{
	struct room r = ROOM;

	K(bias_bwd)(NULL, db, widen(&r, dy, N * C), N, C);
}

static int64_t qkv_size(const struct kern_attn_dims *d)
{
	return d->B * d->T * kern_attn_row(d);
}

static int64_t heads_size(const struct kern_attn_dims *d)
{
	return d->B * d->T * d->H * d->Dv;
}

static void HALF(rope)(struct queue *q, void *qkv, const void *table,
		       const struct kern_attn_dims *dims, int64_t R,
		       bool interleaved, int sign)
{
	struct room r = ROOM;
	float *f = widen(&r, qkv, qkv_size(dims));

	K(rope)(NULL, f, table, dims, R, interleaved, sign);
	settle(qkv, f, qkv_size(dims));
}

static void HALF(latent_fwd)(struct queue *q, void *qkv, const void *query,
			     const void *kv, const void *pos, const void *table,
			     const struct kern_attn_dims *dims, int64_t P,
			     int64_t R)
{
	struct room r = ROOM;
	int64_t N = dims->B * dims->T, all = qkv_size(dims);
	int64_t queries = N * dims->H * dims->D;
	float *f = room(&r, all), *fquery = widen(&r, query, queries);
	float *fkv = widen(&r, kv, all - queries - N * dims->H * P);

	K(latent_fwd)
	(NULL, f, fquery, fkv, widen(&r, pos, N * P), table, dims, P, R);
	settle(qkv, f, all);
}

static void HALF(latent_bwd)(struct queue *q, void *dquery, void *dkv,
			     void *dpos, const void *dqkv, const void *table,
			     const struct kern_attn_dims *dims, int64_t P,
			     int64_t R)
{
	struct room r = ROOM;
	int64_t N = dims->B * dims->T, all = qkv_size(dims);
	int64_t queries = N * dims->H * dims->D;
	int64_t kv = all - queries - N * dims->H * P;
	float *fq = room(&r, queries), *fkv = room(&r, kv);
	float *fpos = room(&r, N * P);

	K(latent_bwd)
	(NULL, fq, fkv, fpos, widen(&r, dqkv, all), table, dims, P, R);
	settle(dquery, fq, queries);
	settle(dkv, fkv, kv);
	settle(dpos, fpos, N * P);
}

static void HALF(attn_fwd)(struct queue *q, void *o, void *lse, const void *qkv,
			   const void *sink, const int32_t *doc, void *scratch,
			   const struct kern_attn_dims *dims)
{
	struct room r = ROOM;
	float *fo = room(&r, heads_size(dims));
	float *fqkv = widen(&r, qkv, qkv_size(dims));

	K(attn_fwd)
	(NULL, fo, lse, fqkv, widen(&r, sink, dims->H), doc, scratch, dims);
	settle(o, fo, heads_size(dims));
}

static void HALF(attn_bwd)(struct queue *q, void *dqkv, void *dsink,
			   const void *dout, const void *o, const void *lse,
			   const void *qkv, const void *sink,
			   const int32_t *doc, void *scratch,
			   const struct kern_attn_dims *dims)
{
	struct room r = ROOM;
	int64_t heads = heads_size(dims), all = qkv_size(dims);
	float *fdqkv = room(&r, all), *fdout = widen(&r, dout, heads);
	float *fo = widen(&r, o, heads), *fqkv = widen(&r, qkv, all);

	K(attn_bwd)
	(NULL, fdqkv, dsink, fdout, fo, lse, fqkv, widen(&r, sink, dims->H),
	 doc, scratch, dims);
	settle(dqkv, fdqkv, all);
}

static void HALF(pos_at)(struct queue *q, void *y, const void *w,
			 const int32_t *pos, int64_t B, int64_t T, int64_t C,
			 int64_t places, int64_t shift)
{
	struct room r = ROOM;
	float *fw = widen(&r, w, places * C), *fy = widen(&r, y, B * T * C);

	K(pos_at)(NULL, fy, fw, pos, B, T, C, places, shift);
	settle(y, fy, B * T * C);
}

static void HALF(rope_at)(struct queue *q, void *qkv, const void *table,
			  const int32_t *pos, const struct kern_attn_dims *dims,
			  int64_t R, bool interleaved, int64_t places)
{
	struct room r = ROOM;
	float *f = widen(&r, qkv, qkv_size(dims));

	K(rope_at)(NULL, f, table, pos, dims, R, interleaved, places);
	settle(qkv, f, qkv_size(dims));
}

static void HALF(latent_at)(struct queue *q, void *qkv, const void *query,
			    const void *kv, const void *shared,
			    const void *table, const int32_t *pos,
			    const struct kern_attn_dims *dims, int64_t P,
			    int64_t R, int64_t places)
{
	struct room r = ROOM;
	int64_t N = dims->B * dims->T, all = N * kern_attn_row(dims);
	int64_t wide = dims->D - P + dims->Dv;
	float *f = widen(&r, qkv, all);
	float *fquery = widen(&r, query, N * dims->H * dims->D);
	float *fkv = widen(&r, kv, N * dims->H * wide);

	K(latent_at)
	(NULL, f, fquery, fkv, widen(&r, shared, N * P), table, pos, dims, P, R,
	 places);
	settle(qkv, f, all);
}

static void HALF(attn_at)(struct queue *q, void *o, void *keys, void *values,
			  const void *qkv, const void *sink, const int32_t *pos,
			  void *scratch, const struct kern_attn_dims *dims,
			  int64_t places)
{
	struct room r = ROOM;
	int64_t n = dims->B * dims->G * places * dims->D;
	int64_t nv = dims->B * dims->G * places * dims->Dv;
	float *fo = room(&r, heads_size(dims)), *fk = widen(&r, keys, n);
	float *fv = widen(&r, values, nv);
	float *fqkv = widen(&r, qkv, qkv_size(dims));

	K(attn_at)
	(NULL, fo, fk, fv, fqkv, widen(&r, sink, dims->H), pos, scratch, dims,
	 places);
	settle(o, fo, heads_size(dims));
	settle(keys, fk, n);
	settle(values, fv, nv);
}

static void HALF(act_fwd)(struct queue *q, void *y, const void *x, int64_t N,
			  int64_t F, enum kern_act act, bool gated)
{
	struct room r = ROOM;
	float *fy = room(&r, N * F);

	K(act_fwd)(NULL, fy, widen(&r, x, N * F << gated), N, F, act, gated);
	settle(y, fy, N * F);
}

static void HALF(act_bwd)(struct queue *q, void *dx, const void *dy,
			  const void *x, int64_t N, int64_t F,
			  enum kern_act act, bool gated)
{
	struct room r = ROOM;
	float *fdx = room(&r, N * F << gated), *fdy = widen(&r, dy, N * F);

	K(act_bwd)
	(NULL, fdx, fdy, widen(&r, x, N * F << gated), N, F, act, gated);
	settle(dx, fdx, N * F << gated);
}

static void HALF(ce_max)(struct queue *q, void *m, const void *logits,
			 int64_t N, int64_t V, int64_t valid)
{
	struct room r = ROOM;

	K(ce_max)(NULL, m, widen(&r, logits, N * V), N, V, valid);
}

static void HALF(ce_sums)(struct queue *q, void *sums, const void *logits,
			  const void *m, const int32_t *labels, int64_t N,
			  int64_t V, int64_t valid, int64_t first)
{
	struct room r = ROOM;

	K(ce_sums)
	(NULL, sums, widen(&r, logits, N * V), m, labels, N, V, valid, first);
}

static void HALF(ce_grad)(struct queue *q, double *loss, double *right,
			  void *logits, const void *m, const void *sums,
			  const int32_t *labels, const double *coef, int64_t N,
			  int64_t V, int64_t valid, int64_t first)
{
	struct room r = ROOM;
	float *f = widen(&r, logits, N * V);

	K(ce_grad)
	(NULL, loss, right, f, m, sums, labels, coef, N, V, valid, first);
	settle(logits, f, N * V);
}

static void HALF(adamw)(struct queue *q, void *p, void *master, void *m,
			void *v, const void *g, int64_t n,
			const struct kern_adam *h, bool decay)
{
	(void)q;
	if (h->skip > 0)
		return;
	K(adamw)(NULL, master, NULL, m, v, g, n, h, decay);
	settle(p, master, n);
}

const struct kern HALF(cpu) = {
#if HALF_IS_BF16
	.name = "cpu_bf16",
#else
	.name = "cpu_fp16",
#endif
	.size = sizeof(uint16_t),
	.sum = sizeof(float),
	.embed_fwd = HALF(embed_fwd),
	.embed_bwd = HALF(embed_bwd),
	.pos_fwd = HALF(pos_fwd),
	.pos_bwd = HALF(pos_bwd),
	.drop = HALF(drop),
	.jitter = HALF(jitter),
	.resid = HALF(resid),
	.norm_fwd = HALF(norm_fwd),
	.norm_bwd = HALF(norm_bwd),
	.linear_fwd = HALF(linear_fwd),
	.linear_sum = HALF(linear_sum),
	.linear_bwd_x = HALF(linear_bwd_x),
	.linear_bwd_w = HALF(linear_bwd_w),
	.bias_bwd = HALF(bias_bwd),
	.rope = HALF(rope),
	.latent_fwd = HALF(latent_fwd),
	.latent_bwd = HALF(latent_bwd),
	.attn_fwd = HALF(attn_fwd),
	.attn_bwd = HALF(attn_bwd),
	.attn_scratch = K(attn_scratch),
	.pos_at = HALF(pos_at),
	.rope_at = HALF(rope_at),
	.latent_at = HALF(latent_at),
	.attn_at = HALF(attn_at),
	.act_fwd = HALF(act_fwd),
	.act_bwd = HALF(act_bwd),
	.route_fwd = HALF(route_fwd),
	.tally = K(tally),
	.route_loss = K(route_loss),
	.route_bwd = HALF(route_bwd),
	.balance = HALF(balance),
	.gather = HALF(gather),
	.combine = HALF(combine),
	.experts_fwd = HALF(experts_fwd),
	.experts_bwd_x = HALF(experts_bwd_x),
	.experts_bwd_w = HALF(experts_bwd_w),
	.expert_act_fwd = HALF(expert_act_fwd),
	.expert_act_bwd = HALF(expert_act_bwd),
	.expert_bias_fwd = HALF(expert_bias_fwd),
	.expert_bias_bwd = HALF(expert_bias_bwd),
	.ce_max = HALF(ce_max),
	.ce_sums = HALF(ce_sums),
	.ce_grad = HALF(ce_grad),
	.sumsq = K(sumsq),
	.metrics = K(metrics),
	.clip = K(clip),
	.adamw = HALF(adamw),
	.zero = K(zero),
	.copy = K(copy),
	.join = K(join),
	.cut = K(cut),
	.mix_fwd = K(mix_fwd),
	.mix_bwd = K(mix_bwd),
};
