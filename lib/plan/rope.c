/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/rope.h"

#include <math.h>

#include "lib/plan/shape.h"

/* YaRN's numbers for a rotated part of so many channels. */
struct yarn {
	double width, context, factor, fast, slow, mscale, all_dim;
	bool round;
};

static struct yarn yarn_of(const struct shape *s)
{
	if (s->multi_latent_attention)
		return (struct yarn){
			.width = (double)s->qk_pos_emb_head_dim,
			.context = (double)s->original_max_position_embeddings,
			.factor = s->rotary_scaling_factor,
			.fast = s->beta_fast,
			.slow = s->beta_slow,
			.mscale = s->mscale,
			.all_dim = s->mscale_all_dim,
			.round = true,
		};
	return (struct yarn){
		.width = (double)s->kv_channels,
		.context = (double)s->yarn_original_max_position_embeddings,
		.factor = s->yarn_rotary_scaling_factor,
		.fast = s->yarn_beta_fast,
		.slow = s->yarn_beta_slow,
		.mscale = s->yarn_mscale,
		.all_dim = s->yarn_mscale_all_dim,
		.round = s->yarn_correction_range_round_to_int,
	};
}

static int64_t latent_pairs(const struct shape *s)
{
	double width = (double)s->qk_pos_emb_head_dim;

	if (s->rope_type == ROPE_PLAIN)
		width *= s->rotary_percent;
	return (int64_t)width / 2;
}

int64_t rope_pairs(const struct shape *s)
{
	if (s->multi_latent_attention)
		return latent_pairs(s);
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
static double yarn_pair(const struct yarn *y, double base, double turns)
{
	return y->width * log(y->context / (2 * M_PI * turns)) /
	       (2 * log(base));
}

static double yarn_scale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn(const struct yarn *y, double base, double *freq,
		   int64_t pairs)
{
	double low = yarn_pair(y, base, y->fast);
	double high = yarn_pair(y, base, y->slow);

	if (y->round) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, y->width - 1);
	if (low == high)
		high += 0.001;
	for (int64_t j = 0; j < pairs; j++) {
		double ramp = ((double)j - low) / (high - low);

		ramp = fmin(fmax(ramp, 0), 1);
		freq[j] = freq[j] / y->factor * ramp + freq[j] * (1 - ramp);
	}
	return yarn_scale(y->factor, y->mscale) /
	       yarn_scale(y->factor, y->all_dim);
}

static bool has_yarn(const struct shape *s)
{
	return s->multi_latent_attention
		       ? s->rope_type == ROPE_YARN
		       : s->position_embedding_type == POS_YARN;
}

double rope_latent_scale(const struct shape *s)
{
	double m = yarn_scale(s->rotary_scaling_factor, s->mscale_all_dim);

	return m * m / sqrt((double)shape_head_width(s));
}

/* Latent attention has plain rope or yarn, nothing else. */
double rope_frequencies(const struct shape *s, double *freq)
{
	int64_t pairs = rope_pairs(s);
	double stretch = s->seq_len_interpolation_factor, factor = 1;
	bool latent = s->multi_latent_attention;
	const struct yarn y = yarn_of(s);

	for (int64_t j = 0; j < pairs; j++)
		freq[j] = pow(s->rotary_base, -(double)j / (double)pairs);
	if (has_yarn(s))
		factor = yarn(&y, s->rotary_base, freq, pairs);
	else if (s->rope_scaling && !latent)
		for (int64_t j = 0; j < pairs; j++)
			freq[j] = llama3(freq[j], s->rope_scaling_factor);
	for (int64_t j = 0; j < pairs && !latent && !isnan(stretch); j++)
		freq[j] /= stretch;
	return factor;
}
