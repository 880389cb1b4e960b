/* SPDX-License-Identifier: Apache-2.0 */
/* Routers and experts on elements of 16 bits. */
#include "kernels/half.h"

void HALF(route_fwd)(struct queue *q, void *prob, int32_t *map,
		     const void *logits, const void *bias,
		     const struct kern_moe_dims *dims)
{
	struct room r = ROOM;

	K(route_fwd)(NULL, prob, map, logits, widen(&r, bias, dims->E), dims);
}

void HALF(route_bwd)(struct queue *q, void *dlogits, void *count,
		     const void *dprob, const void *logits, const int32_t *map,
		     const double *tally, const double *coef,
		     const struct kern_moe_dims *dims)
{
	struct room r = ROOM;
	int64_t n = dims->M * dims->E;
	float *fd = room(&r, n);

	K(route_bwd)(NULL, fd, count, dprob, logits, map, tally, coef, dims);
	settle(dlogits, fd, n);
}

/* Rows that nothing is sent to keep what is there. */
void HALF(gather)(struct queue *q, void *y, const void *x, const int32_t *row,
		  int64_t N, int64_t topk, int64_t C)
{
	(void)q;
	for (int64_t i = 0; i < N * topk; i++)
		if (row[i] >= 0)
			memcpy((uint16_t *)y + row[i] * C,
			       (const uint16_t *)x + i / topk * C,
			       (size_t)C * sizeof(uint16_t));
}

void HALF(combine)(struct queue *q, void *y, const void *x, const int32_t *row,
		   int64_t N, int64_t topk, int64_t C)
{
	struct room r = ROOM;
	float *fy = room(&r, N * C);

	memset(fy, 0, (size_t)(N * C) * sizeof(*fy));
	for (int64_t i = 0; i < N * topk; i++) {
		const uint16_t *from = (const uint16_t *)x + row[i] * C;
		float *to = fy + i / topk * C;

		for (int64_t c = 0; c < C && row[i] >= 0; c++)
			to[c] += WIDEN(from[c]);
	}
	settle(y, fy, N * C);
}

void HALF(experts_fwd)(struct queue *q, void *y, const void *x, const void *w,
		       const int32_t *end, int64_t R, int64_t out, int64_t in,
		       int64_t experts)
{
	struct room r = ROOM;
	int64_t rows = end[experts - 1];
	float *fy = room(&r, rows * out), *fx = widen(&r, x, rows * in);
	float *fw = widen(&r, w, experts * out * in);

	K(experts_fwd)(NULL, fy, fx, fw, end, R, out, in, experts);
	settle(y, fy, rows * out);
}

void HALF(experts_bwd_x)(struct queue *q, void *dx, const void *dy,
			 const void *w, const int32_t *end, int64_t R,
			 int64_t out, int64_t in, int64_t experts)
{
	struct room r = ROOM;
	int64_t rows = end[experts - 1];
	float *fdx = room(&r, rows * in), *fdy = widen(&r, dy, rows * out);
	float *fw = widen(&r, w, experts * out * in);

	K(experts_bwd_x)(NULL, fdx, fdy, fw, end, R, out, in, experts);
	settle(dx, fdx, rows * in);
}

void HALF(experts_bwd_w)(struct queue *q, void *dw, const void *dy,
			 const void *x, const int32_t *end, int64_t R,
			 int64_t out, int64_t in, int64_t experts)
{
	struct room r = ROOM;
	int64_t rows = end[experts - 1];
	float *fdy = widen(&r, dy, rows * out), *fx = widen(&r, x, rows * in);

	K(experts_bwd_w)(NULL, dw, fdy, fx, end, R, out, in, experts);
}

/* The row behind the last one that ROW (N) names. */
static int64_t rows_named(const int32_t *row, int64_t N)
{
	int64_t end = 0;

	for (int64_t n = 0; n < N; n++)
		if (row[n] >= end)
			end = row[n] + 1;
	return end;
}

/* The rows, C wide, of Y that ROW (N) names. */
static void settle_rows(void *y, const float *x, const int32_t *row, int64_t N,
			int64_t C)
{
	for (int64_t n = 0; n < N; n++)
		if (row[n] >= 0)
			settle((uint16_t *)y + row[n] * C, x + row[n] * C, C);
}

void HALF(expert_act_fwd)(struct queue *q, void *y, const void *x,
			  const void *prob, const int32_t *row, int64_t N,
			  int64_t F, enum kern_act act, bool gated)
{
	struct room r = ROOM;
	int64_t rows = rows_named(row, N);
	float *fy = room(&r, rows * F), *fx = widen(&r, x, rows * F << gated);

	K(expert_act_fwd)(NULL, fy, fx, prob, row, N, F, act, gated);
	settle_rows(y, fy, row, N, F);
}

void HALF(expert_act_bwd)(struct queue *q, void *dx, void *dprob,
			  const void *dy, const void *x, const void *prob,
			  const int32_t *row, int64_t N, int64_t F,
			  enum kern_act act, bool gated)
{
	struct room r = ROOM;
	int64_t rows = rows_named(row, N), width = F << gated;
	float *fdx = room(&r, rows * width), *fdy = widen(&r, dy, rows * F);
	float *fx = widen(&r, x, rows * width);

	K(expert_act_bwd)
	(NULL, fdx, dprob, fdy, fx, prob, row, N, F, act, gated);
	settle_rows(dx, fdx, row, N, width);
}

void HALF(balance)(struct queue *q, void *bias, void *master, const void *count,
		   int64_t n, const struct kern_moe_dims *dims)
{
	(void)q;
	K(balance)(NULL, master, NULL, count, n, dims);
	settle(bias, master, n);
}

void HALF(expert_bias_fwd)(struct queue *q, void *y, const void *bias,
			   const void *prob, const int32_t *map, int64_t C,
			   const struct kern_moe_dims *dims)
{
	struct room r = ROOM;
	struct kern_map m = kern_map((int32_t *)map, dims);
	int64_t rows = m.end[dims->experts - 1];
	float *fy = widen(&r, y, rows * C);

	K(expert_bias_fwd)
	(NULL, fy, widen(&r, bias, dims->experts * C), prob, map, C, dims);
	settle(y, fy, rows * C);
}

void HALF(expert_bias_bwd)(struct queue *q, void *dbias, void *dprob,
			   const void *dy, const void *bias, const void *prob,
			   const int32_t *map, int64_t C,
			   const struct kern_moe_dims *dims)
{
	struct room r = ROOM;
	struct kern_map m = kern_map((int32_t *)map, dims);
	float *fdy = widen(&r, dy, m.end[dims->experts - 1] * C);
	float *fbias = widen(&r, bias, dims->experts * C);

	K(expert_bias_bwd)(NULL, dbias, dprob, fdy, fbias, prob, map, C, dims);
}
