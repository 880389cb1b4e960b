/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/flops.h"

#include "lib/plan/shape.h"

/* Width of the feed-forward halves that a token goes through, all layers. */
static double ffn_width(const struct shape *s)
{
	double shared = 0, width = 0;

	if (IS_SET(s->moe_shared_expert_intermediate_size))
		shared = (double)s->moe_shared_expert_intermediate_size;
	for (int64_t n = 0; n < s->num_layers; n++)
		width += shape_is_moe(s, n) ? (double)(s->moe_router_topk *
						       s->moe_ffn_hidden_size) +
						      shared
					    : (double)s->ffn_hidden_size;
	return width;
}

double flops_model(const struct shape *s, int64_t padded_vocab, int64_t samples)
{
	double h = (double)s->hidden_size, t = (double)s->seq_length;
	double q = (double)(s->num_attention_heads * s->kv_channels);
	double qkv = (double)shape_qkv_rows(s);
	double gate = s->gated_linear_unit ? 3 : 2;
	double token = gate * h * ffn_width(s) +
		       (double)s->num_layers * (h * qkv + q * h) +
		       h * (double)padded_vocab;
	double sample = 6 * t * token + 6 * t * t * q * (double)s->num_layers;

	return sample * (double)samples;
}
