/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>

#include "lib/plan/shape_rule.h"

#define AT SHAPE_AT

static void check_window(const struct shape *s, struct report *r)
{
	const struct ints *w = &s->window_size, *p = &s->window_attn_skip_freq;

	if (w->count && w->count != 2) {
		report_add(r, "shape-window", ERROR, AT(window_size),
			   "wants [left, right], not %d number%s", w->count,
			   plural(w->count));
		report_suggest(r, "[%" PRId64 ", 0]", w->item[0]);
	}
	if (!p->count || !IS_SET(s->num_layers) ||
	    shape_is_pattern(p, s->num_layers))
		return;
	report_add(r, "shape-window-layers", ERROR, AT(window_attn_skip_freq),
		   "wants a period of at least 1 or a list of num_layers "
		   "%" PRId64 " zeros and ones, not %d number%s",
		   s->num_layers, p->count, plural(p->count));
}

/* What latent attention has no place for. */
static void check_latent_plain(const struct shape *s, struct report *r)
{
	if (IS_SET(s->num_query_groups) && IS_SET(s->num_attention_heads) &&
	    s->num_query_groups != s->num_attention_heads) {
		report_add(r, "shape-mla-groups", WARNING, AT(num_query_groups),
			   "num_query_groups %" PRId64 " of %" PRId64
			   " heads has no effect: multi_latent_attention "
			   "shares keys and values by kv_lora_rank",
			   s->num_query_groups, s->num_attention_heads);
		report_suggest(r, "num_query_groups = %" PRId64,
			       s->num_attention_heads);
	}
	if (s->attention_output_gate)
		report_add(r, "shape-mla-gate", ERROR,
			   AT(attention_output_gate),
			   "multi_latent_attention has no output gate");
}

static void check_latent(const struct shape *s, struct report *r)
{
	if (!s->multi_latent_attention)
		return;
	if (s->rotary_interleaved || s->qk_pos_emb_head_dim % 2 ||
	    (s->position_embedding_type != POS_ROPE &&
	     s->position_embedding_type != POS_YARN))
		report_add(r, "shape-mla-rotary", ERROR,
			   AT(multi_latent_attention),
			   "multi_latent_attention wants position_embedding_"
			   "type rope or yarn, rotary_interleaved = false and "
			   "an even qk_pos_emb_head_dim, not %" PRId64,
			   s->qk_pos_emb_head_dim);
	check_latent_plain(s, r);
}

static void check_norms(const struct shape *s, struct report *r)
{
	if (!s->qk_l2_norm)
		return;
	if (s->multi_latent_attention || s->qk_layernorm)
		report_add(r, "shape-qk-norms", ERROR, AT(qk_l2_norm),
			   "qk_l2_norm goes with neither qk_layernorm nor "
			   "multi_latent_attention");
}

/* The gated delta rule. */
static void check_delta(const struct shape *s, struct report *r)
{
	int64_t keys = s->linear_num_key_heads;
	int64_t values = s->linear_num_value_heads;
	const struct ints *p = &s->linear_attention_freq;

	if (!p->count) {
		report_add(r, "shape-delta-layers", ERROR,
			   AT(experimental_attention_variant),
			   "needs linear_attention_freq: which layers have the "
			   "delta rule");
		report_suggest(r, "linear_attention_freq = 4");
	} else if (IS_SET(s->num_layers) &&
		   !shape_is_pattern(p, s->num_layers)) {
		report_add(r, "shape-delta-layers", ERROR,
			   AT(linear_attention_freq),
			   "wants a period of at least 1 or a list of "
			   "num_layers %" PRId64
			   " zeros and ones, not %d number%s",
			   s->num_layers, p->count, plural(p->count));
	}
	if (values % keys) {
		report_add(r, "shape-delta-heads", ERROR,
			   AT(linear_num_value_heads),
			   "linear_num_value_heads %" PRId64
			   " is not a multiple of linear_num_key_heads "
			   "%" PRId64,
			   values, keys);
		report_suggest_divisors(r, "linear_num_key_heads", values,
					keys);
	}
}

/* Sparse latent attention. */
static void check_indexer(const struct shape *s, struct report *r)
{
	if (!s->multi_latent_attention || !s->q_lora_rank || s->add_bias_linear)
		report_add(r, "shape-indexer", ERROR,
			   AT(experimental_attention_variant),
			   "dsa needs multi_latent_attention = true, a "
			   "q_lora_rank above 0 and add_bias_linear = false");
	if (!IS_SET(s->dsa_indexer_n_heads) ||
	    !IS_SET(s->dsa_indexer_head_dim) || !IS_SET(s->dsa_indexer_topk))
		report_add(r, "shape-indexer", ERROR,
			   AT(experimental_attention_variant),
			   "dsa needs dsa_indexer_n_heads, "
			   "dsa_indexer_head_dim and dsa_indexer_topk");
	else if (s->dsa_indexer_head_dim < s->qk_pos_emb_head_dim)
		report_add(r, "shape-indexer", ERROR, AT(dsa_indexer_head_dim),
			   "dsa_indexer_head_dim %" PRId64
			   " is less than its rotated part, "
			   "qk_pos_emb_head_dim %" PRId64,
			   s->dsa_indexer_head_dim, s->qk_pos_emb_head_dim);
}

void shape_check_attention(const struct shape *s, struct report *r)
{
	check_window(s, r);
	check_norms(s, r);
	check_latent(s, r);
	switch (s->experimental_attention_variant) {
	case VARIANT_GDN:
	case VARIANT_GDN2: check_delta(s, r); break;
	case VARIANT_DSA: check_indexer(s, r); break;
	}
}

/* The sections of mrope cover the rotated WIDTH, a pair each. */
static void check_sections(const struct shape *s, int64_t width,
			   struct report *r)
{
	const struct ints *p = &s->mrope_section;
	int64_t sum = 0;

	for (int i = 0; i < p->count; i++)
		sum += p->item[i];
	if (p->count && sum == width / 2)
		return;
	if (!p->count)
		report_add(r, "shape-mrope", ERROR, AT(mrope_section),
			   "position_embedding_type \"mrope\" needs "
			   "mrope_section: %" PRId64
			   " pairs shared out over its kinds of position",
			   width / 2);
	else
		report_add(r, "shape-mrope", ERROR, AT(mrope_section),
			   "the sections add up to %" PRId64
			   ", but the rotated width %" PRId64 " has %" PRId64
			   " pairs",
			   sum, width, width / 2);
	report_suggest(r, "[%" PRId64 ", %" PRId64 ", %" PRId64 "]",
		       width / 2 - 2 * (width / 6), width / 6, width / 6);
}

static void check_yarn(const struct shape *s, struct report *r)
{
	bool latent = s->multi_latent_attention && s->rope_type == ROPE_YARN;
	bool plain = s->position_embedding_type == POS_YARN && !latent;
	double fast = latent ? s->beta_fast : s->yarn_beta_fast;
	double slow = latent ? s->beta_slow : s->yarn_beta_slow;

	if (!latent && !plain)
		return;
	if (fast <= slow) {
		report_add(r, "shape-yarn", ERROR, AT(position_embedding_type),
			   "%sbeta_fast %g is not above %sbeta_slow %g: "
			   "frequencies above the one stay, those below the "
			   "other are scaled",
			   latent ? "" : "yarn_", fast, latent ? "" : "yarn_",
			   slow);
		report_suggest(r, "%sbeta_fast = %.15g", latent ? "" : "yarn_",
			       slow > 0 ? 32 * slow : 1);
	}
	if (plain && s->rotary_interleaved)
		report_add(r, "shape-yarn", ERROR, AT(rotary_interleaved),
			   "yarn has no rotary_interleaved");
}

/* The even width of KV nearest to WIDTH, as a share that rounds down to it. */
static void suggest_percent(int64_t kv, int64_t width, struct report *r)
{
	int64_t even = width + 2 - width % 2;

	if (even > kv)
		even = kv - kv % 2;
	if (even)
		report_suggest(r, "rotary_percent = %.6g",
			       ceil(1e6 * (double)even / (double)kv) / 1e6);
}

static void check_mtp(const struct shape *s, struct report *r)
{
	if (s->mtp_num_layers >= s->seq_length && s->mtp_num_layers) {
		report_add(r, "shape-mtp-depth", ERROR, AT(mtp_num_layers),
			   "of seq_length %" PRId64 " tokens depth %" PRId64
			   " has none left to predict",
			   s->seq_length, s->mtp_num_layers);
		report_suggest(r, "mtp_num_layers = %" PRId64,
			       s->seq_length - 1);
	}
	if (s->mtp_num_layers && s->position_embedding_type != POS_ROPE &&
	    s->position_embedding_type != POS_NONE)
		report_add(r, "shape-mtp-positions", NOTE,
			   AT(position_embedding_type),
			   "Megatron-LM refuses MTP with these positions; "
			   "they are allowed here");
}

void shape_check_rotation(const struct shape *s, struct report *r)
{
	int64_t width;

	check_mtp(s, r);
	check_yarn(s, r);
	if (s->position_embedding_type == POS_LEARNED ||
	    s->position_embedding_type == POS_NONE ||
	    s->multi_latent_attention || !IS_SET(s->kv_channels))
		return;
	width = (int64_t)((double)s->kv_channels * s->rotary_percent);
	if (!width || width % 2) {
		report_add(r, "shape-rotary", ERROR, AT(rotary_percent),
			   "floor(kv_channels %" PRId64
			   " * rotary_percent %g) = %" PRId64
			   " is not an even width above 0",
			   s->kv_channels, s->rotary_percent, width);
		suggest_percent(s->kv_channels, width, r);
	} else if (s->position_embedding_type == POS_MROPE) {
		check_sections(s, width, r);
	}
}
