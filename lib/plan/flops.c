/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/flops.h"

#include "lib/plan/shape.h"

double flops_model(const struct shape *s, int64_t padded_vocab, int64_t samples)
{
	double h = (double)s->hidden_size, t = (double)s->seq_length;
	double q = (double)(s->num_attention_heads * s->kv_channels);
	double qkv = (double)shape_qkv_rows(s);
	double f = (double)s->ffn_hidden_size;
	double gate = s->gated_linear_unit ? 3 : 2;
	double token =
		(double)s->num_layers * (gate * h * f + h * qkv + q * h) +
		h * (double)padded_vocab;
	double sample = 6 * t * token + 6 * t * t * q * (double)s->num_layers;

	return sample * (double)samples;
}
