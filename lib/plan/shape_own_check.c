/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/shape_rule.h"

#define AT SHAPE_AT

/* LIST, called NAME, has an entry for each layer. */
static bool has_all(const struct shape *s, const struct ints *list,
		    const char *name, struct report *r)
{
	if (!IS_SET(s->num_layers) ||
	    (list->is_list && list->count == s->num_layers))
		return true;
	report_add(r, "shape-own-layers", ERROR, AT(heterogeneous_block_specs),
		   "%s has %d entr%s for num_layers %" PRId64, name,
		   list->count, list->count == 1 ? "y" : "ies", s->num_layers);
	return false;
}

static void check_groups(const struct shape *s, struct report *r)
{
	const struct ints *list = &s->heterogeneous_num_query_groups;
	int64_t heads = s->num_attention_heads;

	if (!IS_SET(heads))
		return;
	for (int i = 0; i < list->count; i++) {
		int64_t groups = list->item[i];

		if (groups < 1 || heads % groups == 0)
			continue;
		report_add(r, "shape-own-groups", ERROR,
			   AT(heterogeneous_num_query_groups),
			   "layer %d: num_attention_heads %" PRId64
			   " is not a multiple of its %" PRId64 " groups",
			   i, heads, groups);
		report_suggest_divisors(r, "groups", heads, groups);
		return;
	}
}

void shape_check_own_layers(const struct shape *s, struct report *r)
{
	const struct ints *groups = &s->heterogeneous_num_query_groups;
	const struct ints *widths = &s->heterogeneous_ffn_hidden_size;

	if (!s->heterogeneous_block_specs) {
		if (!groups->count && !widths->count)
			return;
		report_add(r, "shape-own-layers", ERROR,
			   AT(heterogeneous_block_specs),
			   "false, yet layers have sizes of their own");
		report_suggest(r, "heterogeneous_block_specs = true");
		return;
	}
	if (s->num_moe_experts || s->multi_latent_attention)
		report_add(r, "shape-own-kinds", ERROR,
			   AT(heterogeneous_block_specs),
			   "layers with sizes of their own have neither "
			   "experts nor multi_latent_attention (Megatron-LM "
			   "would build them all alike)");
	if (!groups->count && !widths->count) {
		report_add(r, "shape-own-layers", ERROR,
			   AT(heterogeneous_block_specs),
			   "needs heterogeneous_num_query_groups or "
			   "heterogeneous_ffn_hidden_size");
		return;
	}
	if (groups->count &&
	    has_all(s, groups, "heterogeneous_num_query_groups", r))
		check_groups(s, r);
	if (widths->count)
		has_all(s, widths, "heterogeneous_ffn_hidden_size", r);
}
