/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/grid_rule.h"
#include "lib/plan/place_rule.h"
#include "lib/plan/shape.h"
#include "lib/plan/stage_rule.h"

#define AT PLACE_AT

static bool given(const struct place *p, const void *value)
{
	return field_from(&place_group, p, value)->kind == ORIGIN_GIVEN;
}

bool place_heads_fit(int64_t heads, int64_t groups, int64_t tp)
{
	return heads % tp == 0 && (groups % tp == 0 || tp % groups == 0);
}

/* Of layers with sizes of their own, too. */
static bool own_layers_fit(const struct shape *s, int64_t tp)
{
	const struct ints *groups = &s->heterogeneous_num_query_groups;
	const struct ints *widths = &s->heterogeneous_ffn_hidden_size;

	for (int i = 0; i < groups->count; i++)
		if (groups->item[i] > 0 &&
		    !place_heads_fit(s->num_attention_heads, groups->item[i],
				     tp))
			return false;
	for (int i = 0; i < widths->count; i++)
		if (widths->item[i] > 0 && widths->item[i] % tp)
			return false;
	return true;
}

bool place_tp_fits(const struct shape *s, int64_t tp)
{
	int64_t shared = s->moe_shared_expert_intermediate_size;

	if (!place_heads_fit(s->num_attention_heads, shape_groups(s), tp) ||
	    !own_layers_fit(s, tp))
		return false;
	if (shape_uses_ffn(s) && IS_SET(s->ffn_hidden_size) &&
	    s->ffn_hidden_size % tp)
		return false;
	if (s->mtp_num_layers && IS_SET(s->hidden_size) && s->hidden_size % tp)
		return false;
	return !s->num_moe_experts || !IS_SET(shared) || shared % tp == 0;
}

/* The same of what follows from tp in P. */
static bool tp_fits(const struct place *p, const struct shape *s, int64_t tp)
{
	if (p->sequence_parallel &&
	    s->seq_length % (p->context_parallel_size * tp))
		return false;
	if (s->num_moe_experts && IS_SET(s->moe_ffn_hidden_size) &&
	    !given(p, &p->expert_tensor_parallel_size) &&
	    s->moe_ffn_hidden_size % tp)
		return false;
	return place_tp_fits(s, tp);
}

void place_suggest_tp(const struct place *p, const struct shape *s,
		      struct report *r)
{
	int64_t below = p->tensor_model_parallel_size - 1;
	int64_t above = below + 2;

	if (!IS_SET(s->num_attention_heads) || !IS_SET(s->num_query_groups))
		return;
	while (below > 0 && !tp_fits(p, s, below))
		below--;
	while (above <= s->num_attention_heads && !tp_fits(p, s, above))
		above++;
	if (below > 0)
		report_suggest(r, "tensor_model_parallel_size = %" PRId64 "%s",
			       below,
			       below == 1 && p->sequence_parallel
				       ? " with sequence_parallel = false"
				       : "");
	if (above <= s->num_attention_heads)
		report_suggest(r, "tensor_model_parallel_size = %" PRId64,
			       above);
}

static void check_heads(const struct place *p, const struct shape *s,
			struct report *r)
{
	int64_t tp = p->tensor_model_parallel_size;
	int64_t heads = s->num_attention_heads, groups = shape_groups(s);

	if (!IS_SET(heads) || !IS_SET(groups))
		return;
	if (heads % tp) {
		report_add(r, "place-heads", ERROR,
			   AT(tensor_model_parallel_size),
			   "num_attention_heads %" PRId64
			   " is not a multiple of tensor_model_parallel_size "
			   "%" PRId64,
			   heads, tp);
		place_suggest_tp(p, s, r);
	} else if (groups % tp && tp % groups) {
		report_add(r, "place-groups", ERROR,
			   AT(tensor_model_parallel_size),
			   "num_query_groups %" PRId64
			   " and tensor_model_parallel_size %" PRId64
			   " do not divide one another",
			   groups, tp);
		place_suggest_tp(p, s, r);
	}
}

static void check_width(const struct place *p, const struct shape *s,
			const char *id, const char *name, int64_t width,
			struct report *r)
{
	int64_t tp = p->tensor_model_parallel_size;

	if (!IS_SET(width) || width % tp == 0)
		return;
	report_add(r, id, ERROR, AT(tensor_model_parallel_size),
		   "%s %" PRId64 " is not a multiple of "
		   "tensor_model_parallel_size %" PRId64,
		   name, width, tp);
	place_suggest_tp(p, s, r);
}

static void check_expert_width(const struct place *p, int64_t width,
			       struct report *r)
{
	int64_t etp = p->expert_tensor_parallel_size;

	if (!IS_SET(width) || width % etp == 0)
		return;
	report_add(r, "place-moe-ffn", ERROR, AT(expert_tensor_parallel_size),
		   "moe_ffn_hidden_size %" PRId64
		   " is not a multiple of expert_tensor_parallel_size "
		   "%" PRId64,
		   width, etp);
	report_suggest_divisors(r, "expert_tensor_parallel_size", width, etp);
}

static void check_widths(const struct place *p, const struct shape *s,
			 struct report *r)
{
	if (shape_uses_ffn(s))
		check_width(p, s, "place-ffn", "ffn_hidden_size",
			    s->ffn_hidden_size, r);
	if (s->num_moe_experts) {
		check_expert_width(p, s->moe_ffn_hidden_size, r);
		check_width(p, s, "place-shared-ffn",
			    "moe_shared_expert_intermediate_size",
			    s->moe_shared_expert_intermediate_size, r);
	}
	if (s->mtp_num_layers)
		check_width(p, s, "place-mtp-hidden", "hidden_size",
			    s->hidden_size, r);
}

/* Vocabulary that is not padded but must be cut. */
static void check_unpadded(const struct place *p, int64_t vocab,
			   struct report *r)
{
	int64_t tp = p->tensor_model_parallel_size;

	if (vocab % tp == 0)
		return;
	report_add(r, "place-vocab", ERROR, AT(should_pad_vocab),
		   "vocab_size %" PRId64
		   " is not a multiple of tensor_model_parallel_size %" PRId64
		   " and should_pad_vocab is false",
		   vocab, tp);
	report_suggest(r,
		       "should_pad_vocab = true with "
		       "make_vocab_size_divisible_by = 1 (%" PRId64 " rows)",
		       (vocab + tp - 1) / tp * tp);
	report_suggest(r,
		       "should_pad_vocab = true with "
		       "make_vocab_size_divisible_by = 128 (%" PRId64 " rows)",
		       (vocab + 128 * tp - 1) / (128 * tp) * (128 * tp));
}

static void check_vocab(const struct place *p, const struct shape *s,
			struct report *r)
{
	int64_t vocab = s->vocab_size, tp = p->tensor_model_parallel_size;
	int64_t unit = p->make_vocab_size_divisible_by, rows, per_rank, empty;

	if (!IS_SET(vocab))
		return;
	if (!p->should_pad_vocab) {
		check_unpadded(p, vocab, r);
		return;
	}
	rows = place_padded_vocab(p, vocab);
	per_rank = rows / tp;
	empty = tp - (vocab + per_rank - 1) / per_rank;
	if (rows > vocab)
		report_add(r, "place-vocab-padding", NOTE,
			   AT(make_vocab_size_divisible_by),
			   "vocab_size %" PRId64
			   " is padded to a multiple of %" PRId64
			   " x tp %" PRId64 ": %" PRId64 " rows, %" PRId64
			   " a rank, %" PRId64 " padding (%.2f%%)",
			   vocab, unit, tp, rows, per_rank, rows - vocab,
			   100.0 * (double)(rows - vocab) / (double)rows);
	if (empty > 0) {
		report_add(r, "place-vocab-empty", WARNING,
			   AT(make_vocab_size_divisible_by),
			   "the last %" PRId64 " of tp %" PRId64
			   " ranks hold only padding: %" PRId64
			   " rows a rank for vocab_size %" PRId64,
			   empty, tp, per_rank, vocab);
		report_suggest(r, "make_vocab_size_divisible_by = 1");
	}
}

static void check_sequence(const struct place *p, const struct shape *s,
			   struct report *r)
{
	int64_t tp = p->tensor_model_parallel_size;
	int64_t cp = p->context_parallel_size, length = s->seq_length;

	if (cp > 1 && length % (2 * cp)) {
		report_add(r, "place-context", ERROR, AT(context_parallel_size),
			   "seq_length %" PRId64
			   " is not a multiple of 2 * context_parallel_size = "
			   "%" PRId64,
			   length, 2 * cp);
		report_suggest(r, "seq_length = %" PRId64,
			       (length + 2 * cp - 1) / (2 * cp) * (2 * cp));
		if (length % 2 == 0)
			report_suggest_divisors(r, "context_parallel_size",
						length / 2, cp);
	}
	if (!p->sequence_parallel)
		return;
	if (tp == 1) {
		report_add(r, "place-sequence-parallel", ERROR,
			   AT(sequence_parallel),
			   "sequence_parallel needs "
			   "tensor_model_parallel_size above 1");
		report_suggest(r, "sequence_parallel = false");
	} else if (length % cp == 0 && length / cp % tp) {
		report_add(r, "place-sequence", ERROR, AT(sequence_parallel),
			   "seq_length %" PRId64 " / cp %" PRId64 " = %" PRId64
			   " tokens are not a multiple of "
			   "tensor_model_parallel_size %" PRId64,
			   length, cp, length / cp, tp);
		report_suggest(r, "seq_length = %" PRId64,
			       (length + cp * tp - 1) / (cp * tp) * (cp * tp));
		report_suggest(r, "sequence_parallel = false");
	}
}

/* num_layers_per_virtual_pipeline_stage cuts an even split. */
static void check_chunk_layers(const struct place *p, const struct shape *s,
			       struct report *r)
{
	int64_t n = p->num_layers_per_virtual_pipeline_stage;
	int64_t pp = p->pipeline_model_parallel_size;
	int64_t slots = s->num_layers +
			p->account_for_embedding_in_pipeline_split +
			p->account_for_loss_in_pipeline_split;

	if (!IS_SET(n))
		return;
	if (IS_SET(p->num_layers_in_first_pipeline_stage) ||
	    IS_SET(p->num_layers_in_last_pipeline_stage)) {
		report_add(r, "place-virtual-layers", ERROR,
			   AT(num_layers_per_virtual_pipeline_stage),
			   "stages of different sizes have no one number of "
			   "layers in a chunk");
		report_suggest(r, "num_virtual_stages_per_pipeline_rank");
	} else if (IS_SET(s->num_layers) && slots % pp == 0 && slots / pp % n) {
		report_add(r, "place-virtual-layers", ERROR,
			   AT(num_layers_per_virtual_pipeline_stage),
			   "%" PRId64 " layer%s / pp %" PRId64 " = %" PRId64
			   " a rank, not a multiple of num_layers_per_"
			   "virtual_pipeline_stage %" PRId64,
			   slots, plural(slots), pp, slots / pp, n);
		report_suggest_divisors(r,
					"num_layers_per_virtual_pipeline_stage",
					slots / pp, n);
	}
}

static void check_virtual(const struct place *p, const struct shape *s,
			  struct report *r)
{
	int64_t vp = p->virtual_pipeline_model_parallel_size;
	int64_t n = p->num_layers_per_virtual_pipeline_stage;
	int64_t chunks = p->num_virtual_stages_per_pipeline_rank;
	int64_t pp = p->pipeline_model_parallel_size;

	if (IS_SET(n) + IS_SET(chunks) + !!p->pipeline_model_parallel_layout >
	    1)
		report_add(r, "place-virtual-ways", ERROR,
			   AT(virtual_pipeline_model_parallel_size),
			   "give only one of num_layers_per_virtual_pipeline_"
			   "stage, num_virtual_stages_per_pipeline_rank and "
			   "pipeline_model_parallel_layout");
	check_chunk_layers(p, s, r);
	if (IS_SET(vp) && IS_SET(chunks) && vp != chunks) {
		report_add(r, "place-virtual-count", ERROR,
			   AT(virtual_pipeline_model_parallel_size),
			   "virtual_pipeline_model_parallel_size %" PRId64
			   " is not num_virtual_stages_per_pipeline_rank "
			   "%" PRId64,
			   vp, chunks);
		report_suggest(r, "no virtual_pipeline_model_parallel_size");
	}
	if (IS_SET(vp) && IS_SET(n) && IS_SET(s->num_layers) &&
	    given(p, &p->virtual_pipeline_model_parallel_size) &&
	    s->num_layers + p->account_for_embedding_in_pipeline_split +
			    p->account_for_loss_in_pipeline_split !=
		    pp * vp * n) {
		report_add(r, "place-virtual-count", ERROR,
			   AT(virtual_pipeline_model_parallel_size),
			   "pp %" PRId64 " x vp %" PRId64 " x %" PRId64
			   " layer%s a chunk is not num_layers %" PRId64,
			   pp, vp, n, plural(n), s->num_layers);
		report_suggest(r, "no virtual_pipeline_model_parallel_size");
	}
}

/* Both ends of two stages in chunks: a division by zero elsewhere. */
static void say_ends(const struct place *p, struct report *r)
{
	int64_t vp = p->virtual_pipeline_model_parallel_size;

	if (p->pipeline_model_parallel_size == 2 && IS_SET(vp) && vp > 1 &&
	    IS_SET(p->num_layers_in_first_pipeline_stage) &&
	    IS_SET(p->num_layers_in_last_pipeline_stage))
		report_add(r, "place-split-pair", NOTE,
			   AT(num_layers_in_last_pipeline_stage),
			   "Megatron-LM divides by the number of middle "
			   "stages, which is 0 here, and ends; the split is "
			   "allowed");
}

static void check_experts(const struct place *p, const struct shape *s,
			  struct report *r)
{
	int64_t ep = p->expert_model_parallel_size;
	int64_t experts = s->num_moe_experts;

	if (ep > 1 && !experts) {
		report_add(r, "place-experts", ERROR,
			   AT(expert_model_parallel_size),
			   "expert_model_parallel_size %" PRId64
			   " needs num_moe_experts",
			   ep);
		report_suggest(r, "expert_model_parallel_size = 1");
	}
	if (experts % ep) {
		report_add(r, "place-experts-divide", ERROR,
			   AT(expert_model_parallel_size),
			   "num_moe_experts %" PRId64
			   " is not a multiple of expert_model_parallel_size "
			   "%" PRId64,
			   experts, ep);
		report_suggest_divisors(r, "expert_model_parallel_size",
					experts, ep);
	}
	if (experts && s->add_bias_linear &&
	    p->expert_tensor_parallel_size > 1 &&
	    p->expert_tensor_parallel_size == p->tensor_model_parallel_size)
		report_add(r, "place-expert-bias", NOTE,
			   AT(expert_tensor_parallel_size),
			   "Megatron-LM refuses experts with add_bias_linear "
			   "and expert_tensor_parallel_size %" PRId64
			   " above 1; here they are allowed",
			   p->expert_tensor_parallel_size);
	if (ep > 1 && experts && p->tensor_model_parallel_size > 1 &&
	    !p->sequence_parallel) {
		report_add(r, "place-expert-sequence", WARNING,
			   AT(sequence_parallel),
			   "without sequence_parallel the dispatcher sends "
			   "every token tp %" PRId64 " times",
			   p->tensor_model_parallel_size);
		report_suggest(r, "sequence_parallel = true");
	}
}

/* A flag that follows from the stages. */
static void check_standalone(const struct place *p, const struct stages *st,
			     struct report *r)
{
	bool apart = false;

	for (int i = 0; i < st->count; i++)
		apart |= st->stage[i].mtp_layers &&
			 st->stage[i].pp != st->pp - 1;
	if (!st->count || apart == p->mtp_standalone)
		return;
	report_add(r, "place-mtp-standalone", ERROR, AT(mtp_standalone),
		   "MTP is %son the last pipeline rank, by "
		   "pipeline_model_parallel_layout: mtp_standalone follows "
		   "from it",
		   apart ? "not " : "");
	report_suggest(r, "no mtp_standalone");
}

static void check_world(const struct place *p, int64_t world, struct report *r)
{
	int64_t dense = grid_dense_ranks(p), expert = grid_expert_ranks(p);
	struct grid g;
	const char *id;
	struct err e;

	if (!world || !grid_try(&g, p, world, &id, &e))
		return;
	report_add(r, id, ERROR, AT(tensor_model_parallel_size), "%s", e.text);
	if (world % dense && dense <= GRID_WORLD_MAX) {
		if (world > dense)
			report_suggest(r, "a world of %" PRId64,
				       world / dense * dense);
		report_suggest(r, "a world of %" PRId64,
			       (world / dense + 1) * dense);
	} else if (world % expert && expert <= GRID_WORLD_MAX) {
		report_suggest_divisors(r, "expert_model_parallel_size",
					world / p->pipeline_model_parallel_size,
					p->expert_model_parallel_size);
	}
}

void place_check(const struct place *p, const struct shape *s, int64_t world,
		 struct report *r)
{
	struct stages stages = {0};

	check_heads(p, s, r);
	check_widths(p, s, r);
	check_vocab(p, s, r);
	check_sequence(p, s, r);
	check_virtual(p, s, r);
	say_ends(p, r);
	if (IS_SET(s->num_layers) && stages_place(&stages, p, s, r))
		stages.count = 0;
	check_experts(p, s, r);
	check_standalone(p, &stages, r);
	place_check_comm(p, s, r);
	place_check_sharding(p, s, world, r);
	place_check_memory(p, s, &stages, r);
	check_world(p, world, r);
}
