/* SPDX-License-Identifier: Apache-2.0 */
/* Source: megatron/core/optimizer_param_scheduler.py, get_lr and get_wd. */
#include "lib/train/rate.h"

#include <math.h>

#include "lib/plan/run.h"

/* Lengths in samples; warm-up may be a fraction of one. */
struct lengths {
	double total, decay, warmup, anneal;
};

static struct lengths lengths_of(const struct run *run)
{
	double batch = (double)run->global_batch_size;
	struct lengths l = {.total = (double)run->train_iters * batch};

	if (IS_SET(run->train_samples))
		l.total = (double)run->train_samples;
	/* what was not given follows the training's length */
	l.decay = !IS_SET(run->lr_decay_iters) ||
				  run->lr_decay_iters == run->train_iters
			  ? l.total
			  : (double)run->lr_decay_iters * batch;
	l.warmup = isnan(run->lr_warmup_fraction)
			   ? (double)run->lr_warmup_iters * batch
			   : run->lr_warmup_fraction * l.decay;
	if (IS_SET(run->lr_wsd_decay_iters))
		l.anneal = (double)run->lr_wsd_decay_iters * batch;
	return l;
}

static double cosine(double x)
{
	return 0.5 * (cos(M_PI * x) + 1.0);
}

/* What is left between min_lr and lr: flat, then down within the anneal. */
static double wsd(const struct run *run, const struct lengths *l, double n)
{
	double begin = l->decay - l->anneal, x = (n - begin) / l->anneal;

	if (n <= begin)
		return 1.0;
	switch (run->lr_wsd_decay_style) {
	case WSD_COSINE: return cosine(x);
	case WSD_EXPONENTIAL: return 2.0 * pow(0.5, x) - 1.0;
	case WSD_MINUS_SQRT: return 1.0 - sqrt(x);
	default: return 1.0 - x;
	}
}

static double lr_at(const struct run *run, const struct lengths *l, double n)
{
	double x = (n - l->warmup) / (l->decay - l->warmup), left, lr;

	if (l->warmup > 0 && n <= l->warmup)
		return run->lr_warmup_init +
		       (run->lr - run->lr_warmup_init) * n / l->warmup;
	if (run->lr_decay_style == LR_CONSTANT)
		return run->lr;
	if (n > l->decay)
		return run->min_lr;
	switch (run->lr_decay_style) {
	case LR_INVERSE_SQRT:
		lr = run->lr * sqrt(fmax(l->warmup, 1)) / sqrt(fmax(n, 1));
		return fmax(run->min_lr, lr);
	case LR_WSD: left = wsd(run, l, n); break;
	case LR_COSINE: left = cosine(x); break;
	default: left = 1.0 - x;
	}
	return run->min_lr + left * (run->lr - run->min_lr);
}

static double decay_at(const struct run *run, const struct lengths *l, double n)
{
	double from = run->start_weight_decay, to = run->end_weight_decay;
	double x = n / l->total;

	if (run->weight_decay_incr_style == INCR_CONSTANT)
		return run->weight_decay;
	if (n > l->total)
		return to;
	if (run->weight_decay_incr_style == INCR_COSINE)
		x = cosine(1 - x);
	return from + x * (to - from);
}

struct rate rate_at(const struct run *run, int64_t samples)
{
	struct lengths l = lengths_of(run);

	return (struct rate){
		.lr = lr_at(run, &l, (double)samples),
		.weight_decay = decay_at(run, &l, (double)samples),
	};
}
