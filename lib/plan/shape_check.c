/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/shape_rule.h"

/* More parameters than this and byte counts might not fit 63 bits. */
#define PARAMETERS_MAX ((int64_t)1 << 50)

#define AT	       SHAPE_AT

/* Not there, and not because its value was refused before. */
static bool missing(const struct shape *s, const int64_t *value)
{
	return !IS_SET(*value) &&
	       field_from(&shape_group, s, value)->kind != ORIGIN_GIVEN;
}

bool shape_is_complete(const struct shape *s)
{
	return IS_SET(s->num_layers) && IS_SET(s->hidden_size) &&
	       IS_SET(s->num_attention_heads) && IS_SET(s->vocab_size) &&
	       IS_SET(s->ffn_hidden_size) && IS_SET(s->num_query_groups) &&
	       IS_SET(s->kv_channels);
}

static void check_required(const struct shape *s, struct report *r)
{
	if (missing(s, &s->num_layers))
		report_add(r, "shape-required", ERROR, AT(num_layers),
			   "must be given: the number of decoder layers");
	if (missing(s, &s->hidden_size))
		report_add(r, "shape-required", ERROR, AT(hidden_size),
			   "must be given: the width of the model");
	if (missing(s, &s->num_attention_heads))
		report_add(r, "shape-required", ERROR, AT(num_attention_heads),
			   "must be given: the number of query heads");
	if (missing(s, &s->vocab_size))
		report_add(r, "shape-required", ERROR, AT(vocab_size),
			   "must be given: the true vocabulary, unpadded");
}

/* The numbers of heads nearest to the one that does not divide. */
static void suggest_heads(const struct shape *s, struct report *r)
{
	const struct origin *from =
		field_from(&shape_group, s, &s->num_query_groups);
	int64_t groups = from->kind == ORIGIN_GIVEN ? s->num_query_groups : 1;
	int64_t h = s->hidden_size, below = s->num_attention_heads - 1;
	int64_t above = below + 2;

	while (below > 0 && (h % below || below % groups))
		below--;
	while (above <= h && (h % above || above % groups))
		above++;
	if (below > 0)
		report_suggest(r, "num_attention_heads = %" PRId64, below);
	if (above <= h)
		report_suggest(r, "num_attention_heads = %" PRId64, above);
}

static void check_heads(const struct shape *s, struct report *r)
{
	int64_t h = s->hidden_size, heads = s->num_attention_heads;
	int64_t groups = s->num_query_groups;
	const struct origin *width =
		field_from(&shape_group, s, &s->kv_channels);

	if (IS_SET(h) && IS_SET(heads) && h % heads &&
	    width->kind != ORIGIN_GIVEN) {
		report_add(r, "shape-heads", ERROR, AT(num_attention_heads),
			   "hidden_size %" PRId64
			   " is not a multiple of num_attention_heads %" PRId64
			   " and kv_channels is not given",
			   h, heads);
		suggest_heads(s, r);
	}
	if (IS_SET(heads) && IS_SET(groups) && heads % groups) {
		report_add(r, "shape-groups", ERROR, AT(num_query_groups),
			   "num_attention_heads %" PRId64
			   " is not a multiple of num_query_groups %" PRId64,
			   heads, groups);
		report_suggest_divisors(r, "num_query_groups", heads, groups);
	}
}

static void check_ffn(const struct shape *s, struct report *r)
{
	const struct origin *from =
		field_from(&shape_group, s, &s->ffn_hidden_size);

	if (!s->gated_linear_unit || from->kind == ORIGIN_GIVEN ||
	    !IS_SET(s->hidden_size) || s->heterogeneous_ffn_hidden_size.count)
		return;
	if (!IS_SET(s->ffn_hidden_size)) {
		report_add(r, "shape-ffn", ERROR, AT(ffn_hidden_size),
			   "64 * floor(hidden_size %" PRId64
			   " / 24) is 0; it must be given",
			   s->hidden_size);
		report_suggest(r, "ffn_hidden_size = %" PRId64,
			       3 * s->hidden_size);
		return;
	}
	report_add(r, "shape-ffn-derived", NOTE, AT(ffn_hidden_size),
		   "64 * floor(hidden_size %" PRId64 " / 24) = %" PRId64
		   " for a gated layer; models differ here, so compare with "
		   "theirs",
		   s->hidden_size, s->ffn_hidden_size);
}

static void check_positions(const struct shape *s, struct report *r)
{
	if (s->max_position_embeddings < s->seq_length) {
		report_add(r, "shape-positions", ERROR,
			   AT(max_position_embeddings),
			   "max_position_embeddings %" PRId64
			   " is below seq_length %" PRId64,
			   s->max_position_embeddings, s->seq_length);
		report_suggest(r, "max_position_embeddings = %" PRId64,
			       s->seq_length);
	}
}

bool shape_is_pattern(const struct ints *p, int64_t layers)
{
	if (!p->is_list)
		return p->item[0] > 0;
	for (int i = 0; i < p->count; i++)
		if (p->item[i] != 0 && p->item[i] != 1)
			return false;
	return p->count == layers;
}

static void check_no_rope(const struct shape *s, struct report *r)
{
	const struct ints *p = &s->no_rope_freq;

	if (!p->count || !IS_SET(s->num_layers))
		return;
	if (p->is_list && !shape_is_pattern(p, s->num_layers))
		report_add(r, "shape-no-rope", ERROR, AT(no_rope_freq),
			   "a list of %d is not num_layers %" PRId64
			   " zeros and ones",
			   p->count, s->num_layers);
	else if (!p->is_list &&
		 (p->item[0] < 1 || s->num_layers % p->item[0])) {
		report_add(r, "shape-no-rope", ERROR, AT(no_rope_freq),
			   "num_layers %" PRId64
			   " is not a multiple of no_rope_freq %" PRId64,
			   s->num_layers, p->item[0]);
		report_suggest_divisors(r, "no_rope_freq", s->num_layers,
					p->item[0]);
	}
}

/* The limit of what the activation gets, the streams, and the factors of muP. */
static void check_scales(const struct shape *s, struct report *r)
{
	double limit = s->activation_func_clamp_value;
	bool swiglu = s->activation_func == ACT_SILU && s->gated_linear_unit;

	if (!isnan(limit) && s->activation_func != ACT_QUICK_GELU &&
	    !(swiglu && s->num_moe_experts && s->glu_linear_offset == 0))
		report_add(r, "shape-clamp", ERROR,
			   AT(activation_func_clamp_value),
			   "activation_func_clamp_value %g goes with "
			   "quick_gelu, or with experts with SwiGLU and no "
			   "glu_linear_offset",
			   limit);
	if (s->enable_mhc_connections &&
	    (s->mtp_num_layers || s->num_moe_experts))
		report_add(r, "shape-streams", ERROR,
			   AT(enable_mhc_connections),
			   "hyper-connections go with neither mtp_num_layers "
			   "%" PRId64 " nor num_moe_experts %" PRId64,
			   s->mtp_num_layers, s->num_moe_experts);
	if (s->use_mup && IS_SET(s->hidden_size) &&
	    s->mup_width_mult !=
		    (double)s->hidden_size / (double)s->mup_base_hidden_size) {
		report_add(r, "shape-mup", ERROR, AT(mup_width_mult),
			   "mup_width_mult %g is not hidden_size %" PRId64
			   " / mup_base_hidden_size %" PRId64,
			   s->mup_width_mult, s->hidden_size,
			   s->mup_base_hidden_size);
		report_suggest(r, "no mup_width_mult: it is derived");
	}
}

void shape_check(const struct shape *s, struct report *r)
{
	const struct origin *bias =
		field_from(&shape_group, s, &s->add_qkv_bias);

	check_required(s, r);
	check_heads(s, r);
	check_ffn(s, r);
	check_positions(s, r);
	check_no_rope(s, r);
	check_scales(s, r);
	shape_check_rotation(s, r);
	shape_check_experts(s, r);
	shape_check_attention(s, r);
	shape_check_own_layers(s, r);
	/* Given, but finalised to another value. */
	if (bias->kind == ORIGIN_DERIVED && bias->file)
		report_add(r, "shape-qkv-bias", WARNING, AT(add_qkv_bias),
			   "add_qkv_bias = false has no effect while "
			   "add_bias_linear is true");
	if (shape_is_complete(s) && shape_parameters(s) > PARAMETERS_MAX)
		report_add(r, "shape-size", ERROR, AT(num_layers),
			   "%" PRId64 " parameters are more than 2^50",
			   shape_parameters(s));
}
