/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/cost.h"

#include <math.h>

#include "lib/plan/gpu.h"

/* Shares of the peak that long products and attention reach at most. */
static const double gemm_share = 0.775;
static const double attn_share[2] = {0.66, 0.465}; /* heads of 128 */
/* Of that, where query heads share a key: cuDNN is asked group by group. */
static const double grouped_share = 0.77;
/* Traffic of a product that is not hidden behind it. */
static const double gemm_traffic = 0.32;
/* A kernel starts this much after the one before it ended. */
static const double launch = 2e-6;
/* Collectives: the share of NVLink's and the network's bytes/s, latencies. */
static const double comm_share[] = {
	[PROG_SUM] = 0.59,
	[PROG_MAX] = 0.59,
	[PROG_REDUCE_SCATTER] = 0.485,
	[PROG_ALL_GATHER] = 0.53,
	[PROG_SEND] = 0.355,
	[PROG_RECV] = 0.355,
	[WORK_EXCHANGE] = 0.5,
};
static const double network_share = 0.85;
static const double comm_start = 15e-6, comm_hop = 4e-6;

static double at_most(double x, double most)
{
	return x < most ? x : most;
}

static double at_least(double x, double least)
{
	return x > least ? x : least;
}

static struct span span_of(const struct machine *m, int size, int stride)
{
	int local = m->per_node / stride;

	local = local < 1 ? 1 : local;
	return (struct span){size, local < size ? local : size};
}

void machine_build(struct machine *m, const struct cluster *cl,
		   const struct grid *g)
{
	int pp = g->pp_before_dp ? g->tp * g->cp : g->tp * g->cp * g->dp;

	*m = (struct machine){
		.gpu = cl->gpu ? cl->gpu : gpu_table,
		.per_node = cl->gpus_per_node ? (int)cl->gpus_per_node
					      : CLUSTER_PER_NODE,
	};
	m->span[GROUP_TP] = span_of(m, g->tp, 1);
	m->span[GROUP_KV] = m->span[GROUP_TP];
	m->span[GROUP_CP] = span_of(m, g->cp, g->tp);
	m->span[GROUP_DP_CP] =
		span_of(m, g->cp * g->dp,
			g->pp_before_dp && g->dp > 1 ? g->tp * g->pp : g->tp);
	m->span[GROUP_ETP] = span_of(m, g->etp, 1);
	m->span[GROUP_EP] = span_of(m, g->ep, g->etp);
	m->span[GROUP_EDP] = span_of(m, g->edp, g->etp * g->ep);
	m->span[GROUP_PP] = span_of(m, g->pp, pp);
	m->span[GROUP_EMBED] = m->span[GROUP_LOOKUP] = m->span[GROUP_PP];
	m->span[GROUP_WORLD] = span_of(m, g->world, 1);
}

/* N waves of tiles: the share of the SMs that work, over all of them. */
static double filled(double n)
{
	return n / ceil(n);
}

/*
 * The same for the best of a product's tilings: tiles of half the size are
 * 10% slower but fill the last wave, and so does cutting the sum in parts,
 * which then have to be added up.
 */
static double waves(const struct gpu *gpu, double rows, double out, double in)
{
	double n = ceil(rows / 128) * ceil(out / 256) / gpu->sms;
	double best = at_least(filled(n), 0.9 * filled(2 * n)), cut;

	for (int parts = 2; parts <= 8 && in / parts >= 1024; parts++) {
		cut = filled(n * parts) * (1 - 0.015 * parts);
		best = at_least(best, cut);
	}
	return best;
}

double cost_bytes(const struct gpu *gpu, double bytes, double rate)
{
	return bytes / (gpu->bandwidth * rate);
}

double cost_gemm(const struct gpu *gpu, double rows, double out, double in,
		 double elem, double result, bool low)
{
	double peak = low ? gpu->fp8 : elem > 2 ? gpu->fp32 : gpu->bf16;
	double flops = 2 * rows * out * in;
	double inputs = rows * in + out * in;
	double bytes = inputs * (low ? 1 : elem) + rows * out * result;
	double computed =
		flops / (peak * gemm_share * waves(gpu, rows, out, in));
	double moved = bytes / (gpu->bandwidth * 0.83), cast;

	/* Low precision is made of ELEM, in a pass before. */
	cast = low ? cost_bytes(gpu, inputs * (elem + 1), 0.7) : 0;
	/* Few rows take as long as their weights; else part of it shows. */
	if (moved > computed)
		return cast + moved + gemm_traffic * computed;
	return cast + computed + gemm_traffic * moved;
}

/* Attention is slower for short rows and narrow heads. */
static double attn_seconds(const struct gpu *gpu, const struct work *w,
			   double elem, bool backward)
{
	double peak = elem > 2 ? gpu->fp32 : gpu->bf16;
	double width = at_most(w->in, 128) / 128;
	double rate = peak * attn_share[backward] * pow(width, 0.7) * w->rows /
		      (w->rows + 450);
	double t = w->flops[backward] / rate;
	double moved = cost_bytes(gpu, w->bytes[backward], 0.6);

	t /= w->count > 1 ? grouped_share : 1;
	return t > moved ? t : moved;
}

double cost_comm(const struct machine *m, int comm, struct span s, double size)
{
	double n = s.size, inner = m->gpu->nvlink * comm_share[comm];
	double outer = m->gpu->network * network_share;
	double hops = ceil(n / s.local) - 1, sent;

	if (n < 2 || size <= 0)
		return 0;
	if (comm == WORK_EXCHANGE) {
		double near = size * (s.local - 1) / n / inner;
		double far = size * (n - s.local) / n / outer;

		return comm_start + comm_hop * hops + (near > far ? near : far);
	}
	switch (comm) {
	case PROG_SEND:
	case PROG_RECV: sent = size; break;
	case PROG_ALL_GATHER:
	case PROG_REDUCE_SCATTER: sent = size * (n - 1); break;
	default: sent = 2 * size * (n - 1) / n;
	}
	/* One ring leaves the node on each rank's own network card. */
	if (hops > 0)
		inner = at_most(inner, outer * s.local);
	return comm_start + comm_hop * hops + sent / inner;
}

static double gemm_seconds(const struct machine *m, const struct work *w,
			   const struct work_dims *d, bool gradients)
{
	double t;

	if (!gradients)
		return cost_gemm(m->gpu, w->rows, w->out, w->in, d->elem,
				 d->elem, d->low);
	t = cost_gemm(m->gpu, w->rows, w->in, w->out, d->elem, d->elem, d->low);
	/* A weight's gradient is added to what is there. */
	return t + cost_gemm(m->gpu, w->in, w->out, w->rows, d->elem,
			     2 * d->sum, d->low);
}

double cost_work(const struct machine *m, const struct work *w,
		 const struct work_dims *d, bool backward)
{
	double t = 0;

	switch (w->kind) {
	case WORK_GEMM:
		if (w->at_once)
			t = backward ? 0
				     : gemm_seconds(m, w, d, false) +
					       gemm_seconds(m, w, d, true);
		else
			t = gemm_seconds(m, w, d, backward);
		return w->count * t + launch * w->ops[backward];
	case WORK_ATTN: t = attn_seconds(m->gpu, w, d->elem, backward); break;
	case WORK_BYTES:
		t = cost_bytes(m->gpu, w->bytes[backward], w->rate[backward]);
		break;
	case WORK_COMM:
		return w->ops[backward] * cost_comm(m, w->comm,
						    m->span[w->group],
						    w->bytes[backward]);
	}
	return t + launch * w->ops[backward];
}
