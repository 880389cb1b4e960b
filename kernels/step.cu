/* SPDX-License-Identifier: Apache-2.0 */
/* step.c on the GPU. */
#include "kernels/kern_cuda.h"

/* One thread: a step has few micro-batches, and their order is fixed. */
static __global__ void metrics_kernel(struct kern_scalars *s,
				      const double *loss, const double *coef,
				      const double *share, const double *right,
				      int64_t M, int64_t depths, bool counts)
{
	double sum = 0;

	for (int64_t mb = 0; mb < M; mb++)
		sum += loss[mb] * coef[mb];
	s->metrics[METRIC_LOSS] = counts ? sum : 0;
	s->metrics[METRIC_TOKENS] = counts ? s->tokens : 0;
	s->metrics[METRIC_STOP] = s->stop;
	for (int64_t k = 0; k < depths; k++) {
		double *to = s->metrics + METRIC_MTP + k * MTP_METRICS;

		to[MTP_MEAN] = to[MTP_LOSS] = to[MTP_RIGHT] = 0;
		to[MTP_TOKENS] = counts ? s->mtp_tokens[k] : 0;
		for (int64_t mb = 0; mb < M && counts; mb++) {
			double x = loss[(k + 1) * M + mb];

			to[MTP_MEAN] += x * share[k * M + mb];
			to[MTP_LOSS] += x;
			to[MTP_RIGHT] += right[k * M + mb];
		}
	}
}

static __global__ void clip_kernel(struct kern_scalars *s)
{
	double scale = 1, tokens = s->metrics[METRIC_TOKENS], skip = 0;

	if (s->per_token > 0)
		scale = 1 / (tokens > 1 ? tokens : 1);
	if (s->loss_scale > 0)
		scale /= s->loss_scale;
	for (int g = 0; g < GRADS; g++) {
		double norm = sqrt(s->metrics[METRIC_SUMSQ + g]) * scale;
		double coeff = s->clip / (norm + 1e-6);

		s->grad_norm[g] = norm;
		s->adam[g] = s->adam[0];
		s->adam[g].grad_scale = scale;
		if (s->clip > 0 && coeff < 1)
			s->adam[g].grad_scale *= coeff;
		if (s->loss_scale > 0 && !isfinite(norm))
			skip = 1;
	}
	for (int g = 0; g < GRADS; g++)
		s->adam[g].skip = skip;
}

void cuda_metrics(struct queue *q, struct kern_scalars *s, const double *loss,
		  const double *coef, const double *share, const double *right,
		  int64_t M, int64_t depths, bool counts)
{
	LAUNCH(q, metrics_kernel, 1, 1, 0, s, loss, coef, share, right, M,
	       depths, counts);
}

void cuda_clip(struct queue *q, struct kern_scalars *s)
{
	LAUNCH(q, clip_kernel, 1, 1, 0, s);
}
