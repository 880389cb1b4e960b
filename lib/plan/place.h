/* SPDX-License-Identifier: Apache-2.0 */
/* Where the pieces lie: the parallel sizes, the stages and the rank grids. */
#ifndef PLAN_PLACE_H
#define PLAN_PLACE_H

#include "lib/plan/field.h"

struct shape;

enum place_sharding {
	SHARD_NONE,
	SHARD_OPTIM,
	SHARD_OPTIM_GRADS,
	SHARD_OPTIM_GRADS_PARAMS
};
enum place_sharp { SHARP_NONE, SHARP_DP, SHARP_DP_REPLICA };
enum place_recompute { RECOMPUTE_NONE, RECOMPUTE_FULL, RECOMPUTE_SELECTIVE };
enum place_method { METHOD_NONE, METHOD_UNIFORM, METHOD_BLOCK };

struct place {
	struct origin from[FIELDS_MAX];

	int64_t tensor_model_parallel_size;
	int64_t pipeline_model_parallel_size;
	int64_t virtual_pipeline_model_parallel_size;
	int64_t num_layers_per_virtual_pipeline_stage;
	int64_t num_virtual_stages_per_pipeline_rank;
	int64_t context_parallel_size;
	struct texts cp_comm_type; /* one, or one a layer */
	struct ints hierarchical_context_parallel_sizes;
	int64_t expert_model_parallel_size, expert_tensor_parallel_size;
	bool sequence_parallel;
	int64_t num_layers_in_first_pipeline_stage;
	int64_t num_layers_in_last_pipeline_stage;
	bool account_for_embedding_in_pipeline_split;
	bool account_for_loss_in_pipeline_split;
	const char *pipeline_model_parallel_layout;
	bool overlap_p2p_comm, overlap_p2p_comm_warmup_flush;
	bool batch_p2p_comm;
	bool variable_seq_lengths, deallocate_pipeline_outputs;
	bool mtp_standalone;
	bool defer_embedding_wgrad_compute;
	int64_t wgrad_deferral_limit;
	bool tp_comm_overlap, tp_comm_overlap_ag, tp_comm_overlap_rs;
	bool tp_comm_overlap_rs_dgrad;
	bool tp_comm_bulk_dgrad, tp_comm_bulk_wgrad;
	bool overlap_moe_expert_parallel_comm, delay_wgrad_compute;
	bool parallel_output, scatter_embedding_sequence_parallel;
	int64_t microbatch_group_size_per_vp_stage;
	bool use_tp_pp_dp_mapping;
	bool use_sharp;
	int sharp_enabled_group; /* enum place_sharp */
	bool use_distributed_optimizer;
	int data_parallel_sharding_strategy; /* enum place_sharding */
	int64_t num_distributed_optimizer_instances;
	bool use_layer_wise_distributed_optimizer;
	bool use_megatron_fsdp, use_torch_fsdp2;
	int outer_dp_sharding_strategy; /* enum place_sharding */
	bool nccl_ub, fsdp_double_buffer;
	bool grad_reduce_in_fp32, average_in_collective;
	bool overlap_grad_reduce, overlap_param_gather;
	bool overlap_param_gather_with_optimizer_step, align_param_gather;
	int64_t bucket_size; /* parameters; unset: see its row */
	int64_t num_buckets;
	bool pad_buckets_for_high_nccl_busbw;
	int64_t make_vocab_size_divisible_by;
	bool should_pad_vocab;
	int recompute_granularity; /* enum place_recompute */
	int recompute_method;	   /* enum place_method */
	int64_t recompute_num_layers;
	struct texts recompute_modules;
	int64_t mhc_recompute_layer_num;
	bool distribute_saved_activations;
	bool cpu_offloading;
	int64_t cpu_offloading_num_layers;
	bool cpu_offloading_activations, cpu_offloading_weights;
	bool fine_grained_activation_offloading;
	struct texts offload_modules;
	bool optimizer_cpu_offload;
	double optimizer_offload_fraction;
	bool use_cpu_initialization, init_model_with_meta_device;
	int64_t distributed_timeout_minutes;
};

extern const struct group place_group;

/* Fill what was not given. */
void place_finalize(struct place *p, const struct shape *shape);

/*
 * Report everything wrong with P for SHAPE and, unless it is 0, WORLD ranks:
 * sizes, divisibility, stages (every layer exactly once), rank grids.
 */
void place_check(const struct place *p, const struct shape *shape,
		 int64_t world, struct report *r);

/* Vocabulary rows with padding: a multiple of what TP needs. */
int64_t place_padded_vocab(const struct place *p, int64_t vocab_size);

#endif
