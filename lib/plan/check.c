/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/check.h"

#include <string.h>

/* clang-format off */
static const struct check table[] = {
/* the text */
{"conf-unreadable", ERROR, "the file and its includes are readable text: no folder, no NUL byte, no cycle, at most 1 MiB and 4096 settings"},
{"conf-syntax", ERROR, "the text is libconfig: strings, comments and brackets closed, @include alone on its line"},
{"conf-duplicate", ERROR, "a setting is set once"},
{"conf-int-literal", ERROR, "an integer beyond 31 bits has the suffix L, and none is beyond 63"},
{"conf-group", ERROR, "the groups are shape, spec, place and run"},
{"conf-unknown", ERROR, "every setting is known"},
{"conf-wrong-group", ERROR, "a setting stands in the group that it belongs to"},
{"conf-type", ERROR, "a value has the type of its setting"},
{"conf-range", ERROR, "a value is within its setting's bounds"},
{"conf-choice", ERROR, "a choice is one of its setting's names"},
{"conf-set", ERROR, "--set wants GROUP.NAME=VALUE"},
{"conf-unused", NOTE, "a setting that means nothing without another one is said"},
/* the model */
{"shape-required", ERROR, "num_layers, hidden_size, num_attention_heads and vocab_size are given"},
{"shape-heads", ERROR, "without kv_channels, hidden_size % num_attention_heads = 0"},
{"shape-groups", ERROR, "num_attention_heads % num_query_groups = 0"},
{"shape-ffn", ERROR, "a derived ffn_hidden_size is at least 64"},
{"shape-ffn-derived", NOTE, "a gated ffn_hidden_size that was derived is said: 64 * floor(hidden_size / 24)"},
{"shape-qkv-bias", WARNING, "add_qkv_bias = false has no effect beside add_bias_linear = true"},
{"shape-positions", ERROR, "max_position_embeddings >= seq_length"},
{"shape-rotary", ERROR, "the rotated width floor(kv_channels * rotary_percent) is even and above 0"},
{"shape-no-rope", ERROR, "no_rope_freq: N divides num_layers, or a list of num_layers zeros and ones"},
{"shape-moe-layers", ERROR, "moe_layer_freq: N >= 1, or a list of num_layers zeros and ones"},
{"shape-moe-topk", ERROR, "moe_router_topk <= num_moe_experts"},
{"shape-moe-unused", ERROR, "moe_ffn_hidden_size and shared experts need num_moe_experts"},
{"shape-mla-rotary", ERROR, "multi_latent_attention goes with rope or yarn, not interleaved, and an even qk_pos_emb_head_dim"},
{"shape-size", ERROR, "the model has at most 2^50 parameters"},
/* the code */
{"spec-backend", NOTE, "an attention_backend that the CPU does not have is said"},
{"spec-inference", ERROR, "inference_optimized needs RMSNorm, no linear bias and no zero-centred gamma"},
{"spec-no-effect", NOTE, "a choice of code that train-worker has no use for, and that changes no result, is said"},
/* the places */
{"place-world", ERROR, "world % (tp * cp * pp) = 0"},
{"place-expert-world", ERROR, "world % (etp * ep * pp) = 0"},
{"place-pp-order", ERROR, "with use_tp_pp_dp_mapping and pp > 1, dp = expert dp: both grids have the same pipelines"},
{"place-heads", ERROR, "num_attention_heads % tp = 0"},
{"place-groups", ERROR, "num_query_groups % tp = 0 or tp % num_query_groups = 0"},
{"place-ffn", ERROR, "ffn_hidden_size % tp = 0"},
{"place-moe-ffn", ERROR, "moe_ffn_hidden_size % etp = 0"},
{"place-shared-ffn", ERROR, "moe_shared_expert_intermediate_size % tp = 0"},
{"place-mtp-hidden", ERROR, "with MTP, hidden_size % tp = 0"},
{"place-vocab", ERROR, "without should_pad_vocab, vocab_size % tp = 0"},
{"place-overlap", NOTE, "an overlap_* that was asked for is said to have no effect yet"},
{"place-no-effect", NOTE, "a placement that train-worker has no use for, and that changes no result, is said"},
{"place-vocab-padding", NOTE, "padding rows of the vocabulary and their waste are said"},
{"place-vocab-empty", WARNING, "no tp rank holds only padding of the vocabulary"},
{"place-sequence-parallel", ERROR, "sequence_parallel needs tp > 1"},
{"place-sequence", ERROR, "with sequence_parallel, seq_length / cp % tp = 0"},
{"place-context", ERROR, "with cp > 1, seq_length % (2 * cp) = 0"},
{"place-virtual", ERROR, "more than one virtual stage needs pp > 1"},
{"place-virtual-ways", ERROR, "virtual stages are said one way: layers per chunk, chunks per rank, or a layout"},
{"place-virtual-layers", ERROR, "num_layers_per_virtual_pipeline_stage: (layers / pp) % n = 0, and first and last are not given"},
{"place-virtual-count", ERROR, "virtual_pipeline_model_parallel_size is what the layout or the other setting gives"},
{"place-split", ERROR, "(num_layers + accounted embedding + loss) % pp = 0"},
{"place-split-chunks", ERROR, "the layers of every pipeline rank % vp = 0"},
{"place-split-ends", ERROR, "first + last <= num_layers, and layers remain exactly if middle stages do"},
{"place-split-middle", ERROR, "(num_layers - first - last) % middle stages = 0"},
{"place-split-ways", ERROR, "an uneven split is said one way: first and last, accounting, or a layout"},
{"place-layout", ERROR, "the layout is made of E t m L | ( ) *N, at most 4096 tokens"},
{"place-layout-stages", ERROR, "stages of the layout % pp = 0"},
{"place-layout-ends", ERROR, "the layout begins with its only E and ends with its only L"},
{"place-layout-layers", ERROR, "the layout has num_layers t"},
{"place-layout-mtp", ERROR, "the layout has its mtp_num_layers m in one stage: after every t, in a rank's last chunk, not on pipeline rank 0"},
{"place-experts", ERROR, "ep > 1 needs num_moe_experts"},
{"place-experts-divide", ERROR, "num_moe_experts % ep = 0"},
{"place-expert-bias", ERROR, "experts with biases need etp = 1"},
{"place-expert-sequence", WARNING, "ep > 1 with tp > 1 wants sequence_parallel"},
{"place-sharding", ERROR, "use_distributed_optimizer and data_parallel_sharding_strategy say the same"},
{"place-param-gather", ERROR, "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce"},
{"place-recompute", ERROR, "full recompute has a method and a number of layers, other recompute has neither"},
{"place-recompute-layers", ERROR, "recompute_num_layers <= layers of the largest stage"},
/* the run */
{"run-required", ERROR, "micro_batch_size is given"},
{"run-batch", ERROR, "global_batch_size % (micro_batch_size * dp) = 0"},
{"run-group", ERROR, "with virtual stages, pp <= microbatch_group_size_per_vp_stage <= micro-batches"},
{"run-group-rest", ERROR, "with virtual stages, micro-batches % group = 0 or >= pp"},
{"run-length", ERROR, "train_iters and train_samples exclude each other"},
{"run-samples", ERROR, "train_samples >= global_batch_size"},
{"run-length-unset", WARNING, "train_iters or train_samples is given"},
{"run-lr-unset", WARNING, "lr is given"},
{"run-lr-order", ERROR, "min_lr <= lr and lr_warmup_init <= lr"},
{"run-warmup", ERROR, "warm-up < lr_decay_iters"},
{"run-warmup-ways", ERROR, "lr_warmup_fraction and lr_warmup_iters exclude each other"},
{"run-wsd", ERROR, "WSD has lr_wsd_decay_iters <= lr_decay_iters"},
{"run-weight-decay", ERROR, "a weight decay that grows has start and end, a constant one has not"},
{"run-weight-decay-order", ERROR, "start_weight_decay <= end_weight_decay"},
{"run-dropout", ERROR, "dropout probabilities are below 1"},
{"run-finetune", ERROR, "finetune needs load"},
{"run-data-unset", WARNING, "data_path is given"},
{"run-data-format", ERROR, "data_format is auto, megatron, llmc or text"},
{"run-blend", ERROR, "a blend is weight, path, weight, path ... with weights above 0"},
{"run-split", ERROR, "split is one to three shares that are not negative, the first above 0"},
{"run-eval-split", ERROR, "eval_interval needs a validation share in split"},
{"run-no-effect", NOTE, "a setting that train-worker has no use for, and that changes no result, is said"},
/* what train-worker does not run yet */
{"served-mtp", WARNING, "train-worker runs no multi-token prediction yet"},
{"served-experts", WARNING, "train-worker runs no mixture of experts yet"},
{"served-attention", WARNING, "train-worker runs softmax attention over all tokens before, so far: no qk norms, sinks, windows, gates, latent or linear attention, heterogeneous layers"},
{"served-activation", WARNING, "train-worker runs activations without offset and limit, so far"},
{"served-residual", WARNING, "train-worker runs pre-norm residuals in params_dtype, so far"},
{"served-positions", WARNING, "train-worker runs learned positions and unscaled rope on every layer, so far"},
{"served-mup", WARNING, "train-worker runs no muP yet"},
{"served-context", WARNING, "train-worker runs no context or expert parallelism yet"},
{"served-sharding", WARNING, "train-worker shards only optimizer state (ZeRO-1) so far"},
{"served-recompute", WARNING, "train-worker recomputes nothing yet"},
{"served-offload", WARNING, "train-worker keeps everything in the device's memory, so far"},
{"served-precision", WARNING, "train-worker runs fp32 and fp64 on CPUs, fp32 and bf16 on GPUs so far"},
{"served-graphs", WARNING, "train-worker is not told what to capture as CUDA graphs yet"},
{"served-spec", WARNING, "train-worker does not train inference_optimized or batch_invariant_mode"},
{"served-step", WARNING, "train-worker plans steps of bounded length"},
{"served-batch", WARNING, "train-worker runs one global_batch_size, of training and evaluation, so far"},
{"served-optimizer", WARNING, "train-worker runs AdamW in fp32 with one learning rate, so far"},
{"served-loss-scale", WARNING, "train-worker scales no loss yet"},
{"served-schedule", WARNING, "train-worker runs schedules in steps, those of the config, so far"},
{"served-checkpoint", WARNING, "train-worker loads the newest step and keeps the newest checkpoints, so far"},
};
/* clang-format on */

const struct check *check_table(int *count)
{
	*count = sizeof(table) / sizeof(*table);
	return table;
}

const struct check *check_find(const char *id)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (!strcmp(table[i].id, id))
			return &table[i];
	return NULL;
}
