/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/shape_rule.h"

#define AT SHAPE_AT

static void check_unused(const struct shape *s, struct report *r)
{
	if (IS_SET(s->moe_ffn_hidden_size))
		report_add(r, "shape-moe-unused", ERROR,
			   AT(moe_ffn_hidden_size),
			   "has no meaning while num_moe_experts is 0");
	if (IS_SET(s->moe_shared_expert_intermediate_size))
		report_add(r, "shape-moe-unused", ERROR,
			   AT(moe_shared_expert_intermediate_size),
			   "has no meaning while num_moe_experts is 0");
}

/* Group-limited routing: G groups, of which a token goes to K. */
static void check_group_sizes(const struct shape *s, struct report *r)
{
	int64_t experts = s->num_moe_experts, g = s->moe_router_num_groups;
	int64_t k = s->moe_router_group_topk, topk = s->moe_router_topk;

	if (experts % g) {
		report_add(r, "shape-moe-groups", ERROR,
			   AT(moe_router_num_groups),
			   "num_moe_experts %" PRId64
			   " is not a multiple of moe_router_num_groups "
			   "%" PRId64,
			   experts, g);
		report_suggest_divisors(r, "moe_router_num_groups", experts, g);
	} else if (k > g) {
		report_add(r, "shape-moe-groups", ERROR,
			   AT(moe_router_group_topk),
			   "moe_router_group_topk %" PRId64
			   " is more than moe_router_num_groups %" PRId64,
			   k, g);
		report_suggest(r, "moe_router_group_topk = %" PRId64, g);
	} else if (topk % k) {
		report_add(r, "shape-moe-group-topk", ERROR,
			   AT(moe_router_topk),
			   "moe_router_topk %" PRId64
			   " is not a multiple of moe_router_group_topk "
			   "%" PRId64 ": each group gives topk / group_topk "
			   "experts to its score",
			   topk, k);
		report_suggest_divisors(r, "moe_router_group_topk", topk, k);
	} else if (topk > k * (experts / g)) {
		report_add(r, "shape-moe-group-topk", ERROR,
			   AT(moe_router_topk),
			   "moe_router_topk %" PRId64
			   " is more than moe_router_group_topk %" PRId64
			   " x (num_moe_experts %" PRId64
			   " / moe_router_num_groups %" PRId64 ") = %" PRId64
			   " expert%s",
			   topk, k, experts, g, k * (experts / g),
			   plural(k * (experts / g)));
		report_suggest(r, "moe_router_topk = %" PRId64,
			       k * (experts / g));
	}
}

static void check_groups(const struct shape *s, struct report *r)
{
	bool groups = IS_SET(s->moe_router_num_groups);
	bool topk = IS_SET(s->moe_router_group_topk);

	if (groups && topk) {
		check_group_sizes(s, r);
	} else if (topk) {
		report_add(r, "shape-moe-groups", ERROR,
			   AT(moe_router_group_topk),
			   "moe_router_group_topk %" PRId64
			   " needs moe_router_num_groups",
			   s->moe_router_group_topk);
		report_suggest_divisors(r, "moe_router_num_groups",
					s->num_moe_experts,
					s->moe_router_group_topk);
	} else if (groups) {
		report_add(r, "shape-moe-groups-alone", WARNING,
			   AT(moe_router_num_groups),
			   "without moe_router_group_topk every token may go "
			   "to all %" PRId64 " groups: nothing is limited",
			   s->moe_router_num_groups);
		report_suggest(r, "no moe_router_num_groups");
	}
}

static void check_router(const struct shape *s, struct report *r)
{
	int64_t experts = s->num_moe_experts;

	if (s->moe_router_topk > experts) {
		report_add(r, "shape-moe-topk", ERROR, AT(moe_router_topk),
			   "moe_router_topk %" PRId64
			   " is more than num_moe_experts %" PRId64,
			   s->moe_router_topk, experts);
		report_suggest(r, "moe_router_topk = %" PRId64, experts);
	} else {
		check_groups(s, r);
	}
	if (s->moe_router_enable_expert_bias &&
	    s->moe_router_score_function == SCORE_SOFTMAX) {
		report_add(r, "shape-moe-bias", ERROR,
			   AT(moe_router_enable_expert_bias),
			   "a bias an expert steers scores that are apart from "
			   "each other, not moe_router_score_function "
			   "\"softmax\"");
		report_suggest(r, "moe_router_score_function = \"sigmoid\"");
	}
}

void shape_check_experts(const struct shape *s, struct report *r)
{
	if (!s->num_moe_experts) {
		check_unused(s, r);
		return;
	}
	check_router(s, r);
	if (IS_SET(s->num_layers) &&
	    !shape_is_pattern(&s->moe_layer_freq, s->num_layers))
		report_add(r, "shape-moe-layers", ERROR, AT(moe_layer_freq),
			   "wants a period of at least 1 or a list of "
			   "num_layers %" PRId64
			   " zeros and ones, not %d number%s",
			   s->num_layers, s->moe_layer_freq.count,
			   plural(s->moe_layer_freq.count));
	if (s->moe_expert_capacity_factor == 0) {
		report_add(r, "shape-moe-capacity", ERROR,
			   AT(moe_expert_capacity_factor),
			   "a capacity factor of 0 would drop every token");
		report_suggest(r, "moe_expert_capacity_factor = 1.0");
		report_suggest(r, "no moe_expert_capacity_factor: dropless");
	}
}
