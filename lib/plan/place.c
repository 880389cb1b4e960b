/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/place.h"

#include <stdlib.h>
#include <string.h>

#include "lib/plan/layout.h"
#include "lib/plan/shape.h"

static const char *const shardings[] = {"no_shard", "optim", "optim_grads",
					"optim_grads_params", NULL};
static const char *const recomputes[] = {"none", "full", "selective", NULL};
static const char *const methods[] = {"none", "uniform", "block", NULL};

#define ROW(name, type, ...)                                                   \
	{                                                                      \
#name, FIELD_##type, offsetof(struct place, name), __VA_ARGS__ \
	}
/* clang-format off */
static const struct field fields[] = {
ROW(tensor_model_parallel_size, INT, "1", 1, 65536, NULL,
	"ranks that share every layer (tp)"),
ROW(pipeline_model_parallel_size, INT, "1", 1, 65536, NULL,
	"ranks that share the layers (pp)"),
ROW(virtual_pipeline_model_parallel_size, INT, NULL, 1, 16384, NULL,
	"chunks of layers on each pipeline rank; derived, 1: no interleaving"),
ROW(num_layers_per_virtual_pipeline_stage, INT, NULL, 1, 16384, NULL,
	"layers of a chunk; a way to say how many chunks"),
ROW(num_virtual_stages_per_pipeline_rank, INT, NULL, 1, 16384, NULL,
	"chunks of a pipeline rank; a way to say it directly"),
ROW(context_parallel_size, INT, "1", 1, 65536, NULL,
	"ranks that share every sequence (cp)"),
ROW(expert_model_parallel_size, INT, "1", 1, 65536, NULL,
	"ranks that share the experts (ep)"),
ROW(expert_tensor_parallel_size, INT, NULL, 1, 65536, NULL,
	"ranks that share every expert (etp); derived: "
	"tensor_model_parallel_size"),
ROW(sequence_parallel, BOOL, "false", 0, 0, NULL,
	"norms and dropout split by tokens over tp"),
ROW(num_layers_in_first_pipeline_stage, INT, NULL, 1, 16384, NULL,
	"layers of pipeline rank 0, all its chunks together"),
ROW(num_layers_in_last_pipeline_stage, INT, NULL, 1, 16384, NULL,
	"layers of the last pipeline rank, all its chunks together"),
ROW(account_for_embedding_in_pipeline_split, BOOL, "false", 0, 0, NULL,
	"the embedding takes the place of one layer"),
ROW(account_for_loss_in_pipeline_split, BOOL, "false", 0, 0, NULL,
	"the loss takes the place of one layer"),
ROW(pipeline_model_parallel_layout, TEXT, NULL, 0, 0, NULL,
	"every stage spelt out: \"Et*3|(tt|)*29,m|L\""),
ROW(overlap_p2p_comm, BOOL, "false", 0, 0, NULL,
	"messages between stages run beside the compute"),
ROW(microbatch_group_size_per_vp_stage, INT, NULL, 1, 1 << 20, NULL,
	"micro-batches that a chunk works off in a row; derived: "
	"pipeline_model_parallel_size"),
ROW(use_tp_pp_dp_mapping, BOOL, "false", 0, 0, NULL,
	"rank order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp"),
ROW(use_distributed_optimizer, BOOL, "false", 0, 0, NULL,
	"optimizer state sharded over data parallel ranks (ZeRO-1)"),
ROW(data_parallel_sharding_strategy, ENUM, "no_shard", 0, 0, shardings,
	"what data parallel ranks shard; optim is ZeRO-1"),
ROW(overlap_grad_reduce, BOOL, "false", 0, 0, NULL,
	"gradients are reduced bucket by bucket during the backward pass"),
ROW(overlap_param_gather, BOOL, "false", 0, 0, NULL,
	"parameters are gathered bucket by bucket during the forward pass"),
ROW(bucket_size, INT, NULL, 1, 1e15, NULL,
	"parameters of a gradient bucket; unset: max(40e6, 1e6 * dp * cp)"),
ROW(make_vocab_size_divisible_by, INT, "128", 1, 1 << 20, NULL,
	"rows; the padded vocabulary is a multiple of this times tp"),
ROW(should_pad_vocab, BOOL, "true", 0, 0, NULL,
	"pad the vocabulary; padding never enters the loss"),
ROW(recompute_granularity, ENUM, "none", 0, 0, recomputes,
	"which activations the backward pass computes again"),
ROW(recompute_method, ENUM, "none", 0, 0, methods,
	"of full recompute: uniform units, or the first layers of a stage"),
ROW(recompute_num_layers, INT, NULL, 1, 16384, NULL,
	"of full recompute: layers of a unit, or of a stage"),
ROW(distributed_timeout_minutes, INT, "10", 1, 1 << 20, NULL,
	"a collective that takes longer is an error, minutes"),
};
/* clang-format on */

const struct group place_group = {
	.name = "place",
	.fields = fields,
	.count = sizeof(fields) / sizeof(*fields),
	.size = sizeof(struct place),
};

static void derive(struct place *p, int64_t *at, int64_t value, const char *why)
{
	*at = value;
	field_derived(&place_group, p, at, why);
}

/* Stages of a layout string, or 0 if it cannot be read. */
static int64_t layout_stages(const char *text)
{
	struct arena a = {0};
	const char **stage;
	struct err e;
	int count = 0, column;

	if (arena_open(&a, &e))
		arena_exhausted();
	if (layout_expand(text, &a, &stage, &count, &column, &e))
		count = 0;
	arena_close(&a);
	return count;
}

/*
 * Chunks per rank from what was given; what does not divide stays unset and
 * is place_check's to report.
 */
static void derive_virtual(struct place *p, const struct shape *shape)
{
	int64_t *vp = &p->virtual_pipeline_model_parallel_size;
	int64_t per_chunk = p->num_layers_per_virtual_pipeline_stage;
	int64_t pp = p->pipeline_model_parallel_size, stages, slots;

	if (IS_SET(*vp))
		return;
	if (p->pipeline_model_parallel_layout) {
		stages = layout_stages(p->pipeline_model_parallel_layout);
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

	if (*optim && *strategy == SHARD_NONE &&
	    field_from(&place_group, p, strategy)->kind != ORIGIN_GIVEN) {
		*strategy = SHARD_OPTIM;
		field_derived(&place_group, p, strategy,
			      "use_distributed_optimizer");
	} else if (!*optim && *strategy != SHARD_NONE &&
		   field_from(&place_group, p, optim)->kind != ORIGIN_GIVEN) {
		*optim = true;
		field_derived(&place_group, p, optim,
			      "data_parallel_sharding_strategy");
	}
}

void place_finalize(struct place *p, const struct shape *shape)
{
	derive_virtual(p, shape);
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
