/* SPDX-License-Identifier: Apache-2.0 */
/* step.c on the GPU. */
#include "kernels/kern_cuda.h"

/* One thread: a step has few micro-batches, and their order is fixed. */
static __global__ void metrics_kernel(struct kern_scalars *s,
				      const double *loss, const double *coef,
				      int64_t M, bool counts)
{
	double sum = 0;

	for (int64_t mb = 0; mb < M; mb++)
		sum += loss[mb] * coef[mb];
	s->metrics[METRIC_LOSS] = counts ? sum : 0;
	s->metrics[METRIC_TOKENS] = counts ? s->tokens : 0;
	s->metrics[METRIC_STOP] = s->stop;
}

static __global__ void clip_kernel(struct kern_scalars *s)
{
	double scale = 1, tokens = s->metrics[METRIC_TOKENS];

	if (s->per_token > 0)
		scale = 1 / (tokens > 1 ? tokens : 1);
	s->grad_norm = sqrt(s->metrics[METRIC_SUMSQ]) * scale;
	if (s->clip > 0 && s->clip / (s->grad_norm + 1e-6) < 1)
		scale *= s->clip / (s->grad_norm + 1e-6);
	s->adam.grad_scale = scale;
}

void cuda_metrics(struct queue *q, struct kern_scalars *s, const double *loss,
		  const double *coef, int64_t M, bool counts)
{
	LAUNCH(q, metrics_kernel, 1, 1, 0, s, loss, coef, M, counts);
}

void cuda_clip(struct queue *q, struct kern_scalars *s)
{
	LAUNCH(q, clip_kernel, 1, 1, 0, s);
}
