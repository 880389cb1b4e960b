/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/shape.h"

static void derive(struct shape *s, int64_t *at, int64_t value, const char *why)
{
	*at = value;
	field_derived(&shape_group, s, at, why);
}

static void derive_sizes(struct shape *s)
{
	int64_t h = s->hidden_size, heads = s->num_attention_heads;

	if (!IS_SET(s->ffn_hidden_size) && IS_SET(h)) {
		if (s->gated_linear_unit && h >= 24)
			derive(s, &s->ffn_hidden_size, h / 24 * 64,
			       "64 * floor(hidden_size / 24), gated");
		else if (!s->gated_linear_unit)
			derive(s, &s->ffn_hidden_size, 4 * h,
			       "4 * hidden_size");
	}
	if (!IS_SET(s->num_query_groups) && IS_SET(heads))
		derive(s, &s->num_query_groups, heads, "num_attention_heads");
	if (!IS_SET(s->kv_channels) && IS_SET(h) && IS_SET(heads) && h >= heads)
		derive(s, &s->kv_channels, h / heads,
		       "hidden_size / num_attention_heads");
}

static void derive_float(struct shape *s, double *at, double value,
			 const char *why)
{
	*at = value;
	field_derived(&shape_group, s, at, why);
}

/* What muP makes of the widths; only what was not given. */
static void derive_mup(struct shape *s)
{
	double head = isnan(s->mup_base_head_dim) ? 1 : s->mup_base_head_dim;

	if (!s->use_mup || !IS_SET(s->hidden_size))
		return;
	if (!IS_SET(s->mup_base_hidden_size))
		derive(s, &s->mup_base_hidden_size, s->hidden_size,
		       "hidden_size");
	if (s->mup_width_mult == 1)
		derive_float(s, &s->mup_width_mult,
			     (double)s->hidden_size /
				     (double)s->mup_base_hidden_size,
			     "hidden_size / mup_base_hidden_size");
	if (s->mup_output_mult == 1)
		derive_float(s, &s->mup_output_mult, 1 / s->mup_width_mult,
			     "1 / mup_width_mult");
	if (isnan(s->softmax_scale) && IS_SET(s->kv_channels))
		derive_float(
			s, &s->softmax_scale,
			sqrt(head) / pow((double)s->kv_channels,
					 s->mup_attn_scale_power),
			"sqrt(mup_base_head_dim) / kv_channels to the power "
			"mup_attn_scale_power");
}

void shape_finalize(struct shape *s)
{
	derive_sizes(s);
	if (!IS_SET(s->max_position_embeddings))
		derive(s, &s->max_position_embeddings, s->seq_length,
		       "seq_length");
	if (s->num_moe_experts && !IS_SET(s->moe_ffn_hidden_size) &&
	    IS_SET(s->ffn_hidden_size))
		derive(s, &s->moe_ffn_hidden_size, s->ffn_hidden_size,
		       "ffn_hidden_size");
	if (s->moe_expert_capacity_factor < 0)
		derive_float(s, &s->moe_expert_capacity_factor, NAN,
			     "below 0: dropless");
	if ((s->heterogeneous_num_query_groups.count ||
	     s->heterogeneous_ffn_hidden_size.count) &&
	    field_from(&shape_group, s, &s->heterogeneous_block_specs)->kind !=
		    ORIGIN_GIVEN) {
		s->heterogeneous_block_specs = true;
		field_derived(&shape_group, s, &s->heterogeneous_block_specs,
			      "layers have sizes of their own");
	}
	derive_mup(s);
	if (s->add_bias_linear && !s->add_qkv_bias) {
		s->add_qkv_bias = true;
		field_derived(&shape_group, s, &s->add_qkv_bias,
			      "add_bias_linear");
	}
}
