/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/scaler.h"

#include <math.h>

#include "lib/plan/config.h"

static bool dynamic(const struct config *c)
{
	return isnan(c->run.loss_scale);
}

struct scaler scaler_start(const struct config *c)
{
	const struct run *run = &c->run;
	int dtype = c->spec.params_dtype;

	if (dtype != DTYPE_FP16 && (dtype != DTYPE_BF16 || dynamic(c)))
		return (struct scaler){0};
	return (struct scaler){
		.scale = dynamic(c) ? run->initial_loss_scale : run->loss_scale,
		.hysteresis = run->hysteresis,
	};
}

void scaler_update(struct scaler *s, const struct config *c, bool bad)
{
	const struct run *run = &c->run;

	s->skipped += bad;
	s->row = bad ? s->row + 1 : 0;
	if (!dynamic(c))
		return;
	if (bad) {
		s->growth = 0;
		s->hysteresis--;
		if (s->hysteresis <= 0)
			s->scale = fmax(s->scale / 2, run->min_loss_scale);
	} else if ((double)++s->growth >= run->loss_scale_window) {
		s->growth = 0;
		s->hysteresis = run->hysteresis;
		s->scale *= 2;
	}
}
