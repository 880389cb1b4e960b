/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/rope.h"

#include <math.h>

#include "lib/plan/shape.h"

int64_t rope_pairs(const struct shape *s)
{
	switch (s->position_embedding_type) {
	case POS_ROPE:
	case POS_MROPE:
		return (int64_t)((double)s->kv_channels * s->rotary_percent) /
		       2;
	case POS_YARN: return s->kv_channels / 2;
	default: return 0;
	}
}

bool rope_turns(const struct shape *s, int64_t layer)
{
	const struct ints *f = &s->no_rope_freq;

	if (layer >= s->num_layers)
		layer = s->num_layers - 1;
	if (!f->count)
		return true;
	if (f->is_list)
		return !f->item[layer];
	return !f->item[0] || (layer + 1) % f->item[0];
}

/* Llama 3: wavelengths above the old context grow, short ones stay. */
static double llama3(double freq, double factor)
{
	static const double low = 1, high = 4, context = 8192;
	double wave = 2 * M_PI / freq, smooth;

	if (wave > context / low)
		return freq / factor;
	if (wave < context / high)
		return freq;
	smooth = (context / wave - low) / (high - low);
	return (1 - smooth) * freq / factor + smooth * freq;
}

/* The pair that makes TURNS rotations within the old context. */
static double yarn_pair(const struct shape *s, double turns)
{
	double context = (double)s->yarn_original_max_position_embeddings;

	return (double)s->kv_channels * log(context / (2 * M_PI * turns)) /
	       (2 * log(s->rotary_base));
}

static double yarn_scale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn(const struct shape *s, double *freq, int64_t pairs)
{
	double low = yarn_pair(s, s->yarn_beta_fast);
	double high = yarn_pair(s, s->yarn_beta_slow);
	double factor = s->yarn_rotary_scaling_factor;

	if (s->yarn_correction_range_round_to_int) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, (double)s->kv_channels - 1);
	if (low == high)
		high += 0.001;
	for (int64_t j = 0; j < pairs; j++) {
		double ramp = ((double)j - low) / (high - low);

		ramp = fmin(fmax(ramp, 0), 1);
		freq[j] = freq[j] / factor * ramp + freq[j] * (1 - ramp);
	}
	return yarn_scale(factor, s->yarn_mscale) /
	       yarn_scale(factor, s->yarn_mscale_all_dim);
}

double rope_frequencies(const struct shape *s, double *freq)
{
	int64_t pairs = rope_pairs(s);
	double stretch = s->seq_len_interpolation_factor, factor = 1;

	for (int64_t j = 0; j < pairs; j++)
		freq[j] = pow(s->rotary_base, -(double)j / (double)pairs);
	if (s->position_embedding_type == POS_YARN)
		factor = yarn(s, freq, pairs);
	else if (s->rope_scaling)
		for (int64_t j = 0; j < pairs; j++)
			freq[j] = llama3(freq[j], s->rope_scaling_factor);
	for (int64_t j = 0; j < pairs && !isnan(stretch); j++)
		freq[j] /= stretch;
	return factor;
}
