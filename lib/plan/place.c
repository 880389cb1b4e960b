/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/place.h"

#include <stdlib.h>
#include <string.h>

#include "lib/plan/layout.h"
#include "lib/plan/shape.h"

static void derive(struct place *p, int64_t *at, int64_t value, const char *why)
{
	*at = value;
	field_derived(&place_group, p, at, why);
}

static void derive_flag(struct place *p, bool *at, bool value, const char *why)
{
	*at = value;
	field_derived(&place_group, p, at, why);
}

static bool given(const struct place *p, const void *value)
{
	return field_from(&place_group, p, value)->kind == ORIGIN_GIVEN;
}

/*
 * Stages of a layout string, or 0 if it cannot be read, and whether its MTP
 * is on another of PP pipeline ranks than the last.
 */
static int64_t layout_stages(const char *text, int64_t pp, bool *standalone)
{
	struct arena a = {0};
	const char **stage;
	struct err e;
	int count = 0, column;

	*standalone = false;
	if (arena_open(&a, &e))
		arena_exhausted();
	if (layout_expand(text, &a, &stage, &count, &column, &e))
		count = 0;
	for (int i = 0; i < count; i++)
		if (strchr(stage[i], 'm') && i % pp != pp - 1)
			*standalone = true;
	arena_close(&a);
	return count;
}

/*
 * Chunks per rank from what was given; what does not divide stays unset and
 * is place_check's to report.
 */
static void derive_virtual(struct place *p, const struct shape *shape,
			   int64_t stages)
{
	int64_t *vp = &p->virtual_pipeline_model_parallel_size;
	int64_t per_chunk = p->num_layers_per_virtual_pipeline_stage;
	int64_t pp = p->pipeline_model_parallel_size, slots;

	if (IS_SET(*vp))
		return;
	if (p->pipeline_model_parallel_layout) {
		if (stages && stages % pp == 0)
			derive(p, vp, stages / pp,
			       "stages of the layout / "
			       "pipeline_model_parallel_size");
	} else if (IS_SET(p->num_virtual_stages_per_pipeline_rank)) {
		derive(p, vp, p->num_virtual_stages_per_pipeline_rank,
		       "num_virtual_stages_per_pipeline_rank");
	} else if (IS_SET(per_chunk)) {
		if (!IS_SET(shape->num_layers))
			return;
		slots = shape->num_layers +
			p->account_for_embedding_in_pipeline_split +
			p->account_for_loss_in_pipeline_split;
		if (slots % (pp * per_chunk) == 0)
			derive(p, vp, slots / pp / per_chunk,
			       "layers of a pipeline rank / "
			       "num_layers_per_virtual_pipeline_stage");
	} else {
		derive(p, vp, 1, "no interleaving asked for");
	}
}

/* The two ways to ask for ZeRO say the same; what was given wins. */
static void derive_sharding(struct place *p)
{
	int *strategy = &p->data_parallel_sharding_strategy;
	bool *optim = &p->use_distributed_optimizer;

	if (*optim && *strategy == SHARD_NONE && !given(p, strategy)) {
		*strategy = SHARD_OPTIM;
		field_derived(&place_group, p, strategy,
			      "use_distributed_optimizer");
	} else if (!*optim && *strategy != SHARD_NONE && !given(p, optim)) {
		derive_flag(p, optim, true, "data_parallel_sharding_strategy");
	}
}

static void derive_texts(struct place *p, struct texts *at,
			 const char *const *v, const char *why)
{
	*at = (struct texts){v, 1};
	field_derived(&place_group, p, at, why);
}

/* Choices that follow from others, where none was given. */
static void derive_choices(struct place *p, bool standalone)
{
	static const char *const p2p[] = {"p2p"}, *const core[] = {"core_attn"};

	if (p->context_parallel_size > 1 && !p->cp_comm_type.count)
		derive_texts(p, &p->cp_comm_type, p2p, "context_parallel_size");
	if (p->recompute_granularity == RECOMPUTE_SELECTIVE &&
	    !p->recompute_modules.count)
		derive_texts(p, &p->recompute_modules, core,
			     "recompute_granularity is selective");
	if (p->overlap_p2p_comm && !given(p, &p->batch_p2p_comm))
		derive_flag(p, &p->batch_p2p_comm, false,
			    "not overlap_p2p_comm");
	if (standalone && !given(p, &p->mtp_standalone))
		derive_flag(p, &p->mtp_standalone, true,
			    "where the layout has MTP");
}

void place_finalize(struct place *p, const struct shape *shape)
{
	int64_t pp = p->pipeline_model_parallel_size, stages = 0;
	bool standalone = false;

	if (p->pipeline_model_parallel_layout)
		stages = layout_stages(p->pipeline_model_parallel_layout, pp,
				       &standalone);
	derive_virtual(p, shape, stages);
	derive_choices(p, standalone);
	derive_sharding(p);
	if (!IS_SET(p->expert_tensor_parallel_size))
		derive(p, &p->expert_tensor_parallel_size,
		       p->tensor_model_parallel_size,
		       "tensor_model_parallel_size");
	if (!IS_SET(p->microbatch_group_size_per_vp_stage))
		derive(p, &p->microbatch_group_size_per_vp_stage,
		       p->pipeline_model_parallel_size,
		       "pipeline_model_parallel_size");
}

int64_t place_padded_vocab(const struct place *p, int64_t vocab_size)
{
	int64_t unit =
		p->make_vocab_size_divisible_by * p->tensor_model_parallel_size;

	if (!p->should_pad_vocab)
		return vocab_size;
	return (vocab_size + unit - 1) / unit * unit;
}
