/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "lib/plan/place_rule.h"
#include "lib/plan/shape.h"

#define AT PLACE_AT

bool place_names(const struct texts *list, const char *word)
{
	for (int i = 0; i < list->count; i++)
		if (!strcmp(list->item[i], word))
			return true;
	return false;
}

static int64_t product(const struct ints *list)
{
	int64_t n = 1;

	for (int i = 0; i < list->count && n <= 65536; i++)
		n *= list->item[i];
	return n;
}

/* Heads that change places over RANKS ranks of a sequence. */
static void check_exchange(const struct place *p, const struct shape *s,
			   int64_t ranks, struct report *r)
{
	int64_t tp = p->tensor_model_parallel_size;
	int64_t heads = s->num_attention_heads / tp;
	int64_t groups = shape_groups(s) / tp;

	if (!IS_SET(s->num_attention_heads) || !IS_SET(shape_groups(s)) ||
	    s->num_attention_heads % tp)
		return;
	groups = groups ? groups : 1;
	if (heads % ranks == 0 && groups % ranks == 0)
		return;
	report_add(r, "place-context-heads", ERROR, AT(cp_comm_type),
		   "a2a deals out heads: %" PRId64 " query and %" PRId64
		   " key/value heads of a tp rank are not both multiples of "
		   "%" PRId64 " ranks",
		   heads, groups, ranks);
	report_suggest(r, "cp_comm_type = \"p2p\"");
}

static void check_levels(const struct place *p, struct report *r)
{
	const struct ints *levels = &p->hierarchical_context_parallel_sizes;
	int64_t cp = p->context_parallel_size;

	if (levels->count && product(levels) != cp) {
		report_add(r, "place-context-levels", ERROR,
			   AT(hierarchical_context_parallel_sizes),
			   "the product of the sizes is %" PRId64
			   ", not context_parallel_size %" PRId64,
			   product(levels), cp);
		report_suggest(r,
			       "hierarchical_context_parallel_sizes = "
			       "[%" PRId64 ", %" PRId64 "]",
			       cp % 2 ? cp : 2, cp % 2 ? 1 : cp / 2);
	} else if (!levels->count && place_names(&p->cp_comm_type, "a2a+p2p")) {
		report_add(r, "place-context-levels", ERROR, AT(cp_comm_type),
			   "a2a+p2p needs hierarchical_context_parallel_sizes: "
			   "ranks that exchange heads, and rings of those");
		report_suggest(r,
			       "hierarchical_context_parallel_sizes = "
			       "[%" PRId64 ", %" PRId64 "]",
			       cp % 2 ? cp : 2, cp % 2 ? 1 : cp / 2);
	}
}

static void check_context(const struct place *p, const struct shape *s,
			  struct report *r)
{
	const struct ints *levels = &p->hierarchical_context_parallel_sizes;
	int64_t cp = p->context_parallel_size;
	int count = p->cp_comm_type.count;

	if (cp == 1)
		return;
	if (count > 1 && IS_SET(s->num_layers) && count != s->num_layers) {
		report_add(r, "place-context-layers", ERROR, AT(cp_comm_type),
			   "a list of %d is not one for each of num_layers "
			   "%" PRId64,
			   count, s->num_layers);
		report_suggest(r, "cp_comm_type = \"%s\"",
			       p->cp_comm_type.item[0]);
	}
	check_levels(p, r);
	if (place_names(&p->cp_comm_type, "a2a"))
		check_exchange(p, s, cp, r);
	else if (place_names(&p->cp_comm_type, "a2a+p2p") && levels->count)
		check_exchange(p, s, levels->item[0], r);
	if (s->experimental_attention_variant != VARIANT_DSA)
		return;
	for (int i = 0; i < count; i++)
		if (strcmp(p->cp_comm_type.item[i], "all_gather") != 0) {
			report_add(r, "place-context-indexer", ERROR,
				   AT(cp_comm_type),
				   "the indexer of dsa sees all tokens: "
				   "context parallelism only with "
				   "\"all_gather\"");
			report_suggest(r, "cp_comm_type = \"all_gather\"");
			return;
		}
}

static void check_pipeline(const struct place *p, struct report *r)
{
	int64_t pp = p->pipeline_model_parallel_size;
	int64_t vp = p->virtual_pipeline_model_parallel_size;

	if (p->overlap_p2p_comm && p->batch_p2p_comm) {
		report_add(r, "place-messages", ERROR, AT(batch_p2p_comm),
			   "messages that overlap with compute are sent one by "
			   "one, not in a batch");
		report_suggest(r, "batch_p2p_comm = false");
	}
	if (p->overlap_p2p_comm_warmup_flush && !p->overlap_p2p_comm) {
		report_add(r, "place-messages", ERROR,
			   AT(overlap_p2p_comm_warmup_flush),
			   "overlap_p2p_comm_warmup_flush needs "
			   "overlap_p2p_comm");
		report_suggest(r, "overlap_p2p_comm = true");
	}
	if (pp == 2 && IS_SET(vp) && vp > 1 && !p->overlap_p2p_comm)
		report_add(r, "place-virtual-pair", NOTE,
			   AT(virtual_pipeline_model_parallel_size),
			   "with pp 2 a rank's two neighbours are one and the "
			   "same; Megatron-LM then wants overlap_p2p_comm, "
			   "here messages are told apart");
	if (p->defer_embedding_wgrad_compute && pp == 1) {
		report_add(r, "place-defer", ERROR,
			   AT(defer_embedding_wgrad_compute),
			   "there is no drain of a pipeline to hide work in: "
			   "it needs pipeline_model_parallel_size above 1");
		report_suggest(r, "defer_embedding_wgrad_compute = false");
	} else if (p->wgrad_deferral_limit && !p->defer_embedding_wgrad_compute)
		report_add(r, "place-defer", ERROR, AT(wgrad_deferral_limit),
			   "wgrad_deferral_limit needs "
			   "defer_embedding_wgrad_compute");
}

static void check_expert_overlap(const struct place *p, const struct shape *s,
				 struct report *r)
{
	int64_t vp = p->virtual_pipeline_model_parallel_size;

	if (p->delay_wgrad_compute && !p->overlap_moe_expert_parallel_comm)
		report_add(r, "place-expert-overlap", ERROR,
			   AT(delay_wgrad_compute),
			   "delay_wgrad_compute needs "
			   "overlap_moe_expert_parallel_comm");
	if (!p->overlap_moe_expert_parallel_comm)
		return;
	if (p->expert_model_parallel_size == 1 || s->mtp_num_layers > 1 ||
	    p->recompute_granularity == RECOMPUTE_FULL ||
	    place_names(&p->recompute_modules, "moe"))
		report_add(r, "place-expert-overlap", ERROR,
			   AT(overlap_moe_expert_parallel_comm),
			   "overlap_moe_expert_parallel_comm needs "
			   "expert_model_parallel_size above 1 (it is %" PRId64
			   "), mtp_num_layers of at most 1 (it is %" PRId64
			   "), and neither full recompute nor that of moe",
			   p->expert_model_parallel_size, s->mtp_num_layers);
	if (p->pipeline_model_parallel_size > 1 && IS_SET(vp) && vp == 1)
		report_add(r, "place-expert-overlap", ERROR,
			   AT(overlap_moe_expert_parallel_comm),
			   "in a pipeline, overlap_moe_expert_parallel_comm "
			   "needs virtual stages: only they have two "
			   "micro-batches at hand");
}

/* The delta rule's heads are cut over tp and cp. */
static void check_delta(const struct place *p, const struct shape *s,
			struct report *r)
{
	int64_t ranks =
		p->tensor_model_parallel_size * p->context_parallel_size;
	int64_t keys = s->linear_num_key_heads;
	int64_t values = s->linear_num_value_heads;

	if ((s->experimental_attention_variant != VARIANT_GDN &&
	     s->experimental_attention_variant != VARIANT_GDN2) ||
	    (keys % ranks == 0 && values % ranks == 0))
		return;
	report_add(r, "place-delta-heads", ERROR,
		   AT(tensor_model_parallel_size),
		   "linear_num_key_heads %" PRId64
		   " and linear_num_value_heads %" PRId64
		   " are not both multiples of tp %" PRId64 " x cp %" PRId64
		   " = %" PRId64,
		   keys, values, p->tensor_model_parallel_size,
		   p->context_parallel_size, ranks);
	report_suggest_divisors(r, "tp x cp", keys, ranks);
}

/* Layers with sizes of their own are cut like the others. */
static void check_own_layers(const struct place *p, const struct shape *s,
			     struct report *r)
{
	const struct ints *groups = &s->heterogeneous_num_query_groups;
	const struct ints *widths = &s->heterogeneous_ffn_hidden_size;
	int64_t tp = p->tensor_model_parallel_size;

	for (int i = 0; i < groups->count; i++)
		if (groups->item[i] > 0 && IS_SET(s->num_attention_heads) &&
		    s->num_attention_heads % groups->item[i] == 0 &&
		    s->num_attention_heads % tp == 0 &&
		    !place_heads_fit(s->num_attention_heads, groups->item[i],
				     tp)) {
			report_add(r, "place-own-layers", ERROR,
				   AT(tensor_model_parallel_size),
				   "layer %d: its %" PRId64
				   " groups and tensor_model_parallel_size "
				   "%" PRId64 " do not divide one another",
				   i, groups->item[i], tp);
			place_suggest_tp(p, s, r);
			break;
		}
	for (int i = 0; i < widths->count; i++)
		if (widths->item[i] > 0 && widths->item[i] % tp) {
			report_add(r, "place-own-layers", ERROR,
				   AT(tensor_model_parallel_size),
				   "layer %d: its feed-forward width %" PRId64
				   " is not a multiple of "
				   "tensor_model_parallel_size %" PRId64,
				   i, widths->item[i], tp);
			place_suggest_tp(p, s, r);
			break;
		}
}

void place_check_comm(const struct place *p, const struct shape *s,
		      struct report *r)
{
	check_context(p, s, r);
	check_pipeline(p, r);
	check_expert_overlap(p, s, r);
	check_delta(p, s, r);
	check_own_layers(p, s, r);
	if (p->tp_comm_overlap && !p->sequence_parallel) {
		report_add(r, "place-tp-overlap", ERROR, AT(tp_comm_overlap),
			   "tp_comm_overlap hides the gathers and scatters of "
			   "sequence_parallel, which is false");
		report_suggest(r, "sequence_parallel = true");
	}
}
