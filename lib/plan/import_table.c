/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import_table.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
static const struct import_row rows[] = {
	{"--norm-epsilon", "layernorm_epsilon", NULL},
	{"--layernorm-epsilon", "layernorm_epsilon", NULL},
	{"--apply-layernorm-1p", "layernorm_zero_centered_gamma", "true"},
	{"--disable-bias-linear", "add_bias_linear", "false"},
	{"--num-experts", "num_moe_experts", NULL},
	{"--swiglu", "gated_linear_unit", "true"},
	{"--swiglu", "activation_func", "silu"},
	{"--quick-geglu", "gated_linear_unit", "true"},
	{"--quick-geglu", "activation_func", "quick_gelu"},
	{"--squared-relu", "activation_func", "relu2"},
	{"--openai-gelu", "activation_func", "gelu_tanh"},
	{"--untie-embeddings-and-output-weights",
	 "share_embeddings_and_output_weights", "false"},
	{"--use-rope-scaling", "rope_scaling", "true"},
	{"--rotary-seq-len-interpolation-factor",
	 "seq_len_interpolation_factor", NULL},
	{"--decoder-first-pipeline-num-layers",
	 "num_layers_in_first_pipeline_stage", NULL},
	{"--decoder-last-pipeline-num-layers",
	 "num_layers_in_last_pipeline_stage", NULL},
	{"--microbatch-group-size-per-virtual-pipeline-stage",
	 "microbatch_group_size_per_vp_stage", NULL},
	{"--no-overlap-p2p-communication", "overlap_p2p_comm", "false"},
	{"--overlap-p2p-communication-warmup-flush",
	 "overlap_p2p_comm_warmup_flush", "true"},
	{"--accumulate-allreduce-grads-in-fp32", "grad_reduce_in_fp32", "true"},
	{"--ddp-bucket-size", "bucket_size", NULL},
	{"--ddp-num-buckets", "num_buckets", NULL},
	{"--ddp-average-in-collective", "average_in_collective", "true"},
	{"--ddp-pad-buckets-for-high-nccl-busbw",
	 "pad_buckets_for_high_nccl_busbw", "true"},
	{"--use-nccl-ub", "nccl_ub", "true"},
	{"--no-pad-vocab-size", "should_pad_vocab", "false"},
	{"--disable-pad-vocab-size", "should_pad_vocab", "false"},
	{"--recompute-activations", "recompute_granularity", "selective"},
	{"--bf16", "params_dtype", "bf16"},
	{"--fp16", "params_dtype", "fp16"},
	{"--fp8-format", "fp8", NULL},
	{"--fp8-param-gather", "fp8_param", "true"},
	{"--fp4-format", "fp4", NULL},
	{"--fp4-param-gather", "fp4_param", "true"},
	{"--output-logit-dtype", "logit_dtype", NULL},
	{"--no-bias-gelu-fusion", "bias_activation_fusion", "false"},
	{"--no-bias-swiglu-fusion", "bias_activation_fusion", "false"},
	{"--no-rope-fusion", "apply_rope_fusion", "false"},
	{"--te-rng-tracker", "use_te_rng_tracker", "true"},
	{"--enable-cuda-graph", "cuda_graph_impl", "local"},
	{"--external-cuda-graph", "cuda_graph_impl", "transformer_engine"},
	{"--cuda-graph-scope", "cuda_graph_modules", NULL},
	{"--no-initialization", "perform_initialization", "false"},
	{"--muon-no-split-qkv", "muon_split_qkv", "false"},
	{"--persistent-save-interval", "save_interval", NULL},
	{"--override-opt_param-scheduler", "override_opt_param_scheduler",
	 "true"},
	{"--use-checkpoint-opt_param-scheduler",
	 "use_checkpoint_opt_param_scheduler", "true"},
};

static const char *const rules[] = {
	"--group-query-attention", "--no-position-embedding",
	"--padded-vocab-size", "--rope-scaling-factor",
	"--use-rotary-position-embeddings", "--checkpoint-activations", "--model-parallel-size", "--warmup",
	"--batch-size", NULL,
};

/* Of the model, with the value that says nothing. */
static const struct {
	const char *flag, *neutral;
} models[] = {
	{"--activation-func-clamp-value", NULL},
	{"--activation-offload-fraction", "1.0"},
	{"--apply-query-key-layer-scaling", NULL},
	{"--apply-residual-connection-post-layernorm", NULL},
	{"--attention-output-gate", NULL},
	{"--attention-softmax-in-fp32", NULL},
	{"--batch-invariant-mode", NULL}, {"--cache-mla-latents", NULL},
	{"--cp-comm-type", "p2p"}, {"--cpu-offloading-num-layers", "0"},
	{"--create-all-gather-group", NULL},
	{"--cross-entropy-fusion-impl", "native"},
	{"--cross-entropy-loss-fusion", NULL}, {"--cuda-graph-impl", "none"},
	{"--cuda-graph-modules", NULL}, {"--cuda-graph-warmup-steps", "3"},
	{"--ddp-reduce-scatter-with-fp32-accumulation", NULL},
	{"--decoder-num-layers", NULL}, {"--decoder-seq-length", NULL},
	{"--defer-embedding-wgrad-compute", NULL},
	{"--delay-offload-until-cuda-graph", NULL},
	{"--delay-wgrad-compute", NULL},
	{"--delta-offload-bytes-across-pp-ranks", "0"},
	{"--deterministic-mode", NULL},
	{"--disable-bf16-reduced-precision-matmul", NULL},
	{"--disable-dsa-indexer-rotate-activation", NULL},
	{"--disable-dsa-indexer-scoring-relu", NULL},
	{"--disable-fp8-wgrad", NULL}, {"--disable-mamba-mem-eff-path", NULL},
	{"--disable-symmetric-registration", NULL},
	{"--distribute-saved-activations", NULL},
	{"--dsa-indexer-head-dim", NULL},
	{"--dsa-indexer-k-norm-epsilon", NULL},
	{"--dsa-indexer-k-norm-fp32", NULL}, {"--dsa-indexer-n-heads", NULL},
	{"--dsa-indexer-rope-interleaved", NULL},
	{"--dsa-indexer-skip-topk-offset", "0"}, {"--dsa-indexer-topk", NULL},
	{"--dsa-indexer-topk-freq", "1"},
	{"--enable-full-sharding-in-hsdp", NULL},
	{"--enable-mhc-connections", NULL}, {"--encoder-num-layers", NULL},
	{"--encoder-seq-length", NULL},
	{"--ep-overlap-early-attn-memory-release", NULL},
	{"--experimental-attention-variant", NULL},
	{"--expert-tensor-parallel-num-weight-shards", NULL},
	{"--fine-grained-activation-offloading", NULL},
	{"--fine-grained-offloading-max-inflight-offloads", NULL},
	{"--first-last-layers-bf16", NULL},
	{"--flash-attention-version", NULL}, {"--fp16-lm-cross-entropy", NULL},
	{"--fp32-residual-connection", NULL},
	{"--fp4-quantizer-factory", NULL}, {"--fp4-recipe", "nvfp4"},
	{"--fp8-amax-compute-algo", "most_recent"},
	{"--fp8-amax-history-len", "1"}, {"--fp8-interval", "1"},
	{"--fp8-margin", "0"}, {"--fp8-output-proj", NULL},
	{"--fp8-quantizer-factory", NULL}, {"--fp8-recipe", "delayed"},
	{"--fsdp-double-buffer", NULL}, {"--fsdp-manual-registration", NULL},
	{"--fused-residual-rmsnorm", NULL}, {"--gdp-cutedsl-kernel", NULL},
	{"--gdp-num-chunk-states-to-recompute", "2"},
	{"--gdp-num-householder", "3"}, {"--glu-linear-offset", "0.0"},
	{"--gtp-remat-opt-in-modules", NULL},
	{"--heterogeneous-layers-config-encoded-json", NULL},
	{"--heterogeneous-layers-config-path", NULL},
	{"--hierarchical-context-parallel-sizes", NULL},
	{"--high-priority-a2a-comm-stream", NULL},
	{"--hybrid-context-parallel", NULL}, {"--hybrid-layer-pattern", NULL},
	{"--hybrid-override-pattern", NULL},
	{"--init-model-with-meta-device", NULL}, {"--is-hybrid-model", NULL},
	{"--keep-fp8-transpose-cache", NULL},
	{"--linear-attention-freq", NULL}, {"--linear-conv-kernel-dim", "4"},
	{"--linear-key-head-dim", "128"}, {"--linear-num-key-heads", "16"},
	{"--linear-num-value-heads", "32"}, {"--linear-value-head-dim", "128"},
	{"--mamba-head-dim", "64"}, {"--mamba-num-groups", "8"},
	{"--mamba-num-heads", NULL}, {"--mamba-state-dim", "128"},
	{"--mamba-training-ssm-states-dtype", NULL},
	{"--max-seqlen-per-dp-cp-rank", NULL},
	{"--megatron-fsdp-version", "1"}, {"--mhc-init-gating-factor", "0.01"},
	{"--mhc-num-residual-streams", "4"},
	{"--mhc-recompute-layer-num", NULL},
	{"--mhc-sinkhorn-iterations", "20"},
	{"--min-offloaded-tensor-size", NULL},
	{"--mla-down-proj-fusion", NULL}, {"--mlp-chunks-for-prefill", "1"},
	{"--mlp-chunks-for-training", "1"},
	{"--moe-apply-probs-on-input", NULL},
	{"--moe-combine-bwd-dtype", "bf16"},
	{"--moe-dispatch-fwd-dtype", "bf16"}, {"--moe-enable-deepep", NULL},
	{"--moe-enable-routing-replay", NULL},
	{"--moe-expert-capacity-factor", NULL},
	{"--moe-expert-rank-capacity-factor", NULL},
	{"--moe-flex-dispatcher-backend", "deepep"},
	{"--moe-grouped-gemm", NULL}, {"--moe-latent-size", NULL},
	{"--moe-layer-recompute", NULL},
	{"--moe-mlp-glu-interleave-size", NULL},
	{"--moe-pad-expert-input-to-capacity", NULL},
	{"--moe-paged-stash", NULL},
	{"--moe-paged-stash-buffer-size-factor-cpu", "0.0"},
	{"--moe-paged-stash-buffer-size-factor-cuda", "1.1"},
	{"--moe-paged-stash-page-size", "64"}, {"--moe-permute-fusion", NULL},
	{"--moe-permute-fusion-into-hybridep", NULL},
	{"--moe-router-dtype", NULL},
	{"--moe-router-enable-expert-bias", NULL},
	{"--moe-router-fusion", NULL}, {"--moe-router-group-topk", NULL},
	{"--moe-router-num-groups", NULL},
	{"--moe-router-padding-for-fp8", NULL},
	{"--moe-router-padding-for-quantization", NULL},
	{"--moe-router-pre-softmax", NULL},
	{"--moe-router-topk-scaling-factor", NULL},
	{"--moe-shared-expert-gate", NULL},
	{"--moe-shared-expert-glu-interleave-size", NULL},
	{"--moe-shared-expert-overlap", NULL},
	{"--moe-single-grouped-bias", NULL},
	{"--moe-single-grouped-weight", NULL},
	{"--moe-token-dispatcher-type", "allgather"},
	{"--moe-token-drop-policy", "probs"},
	{"--moe-use-grouped-tensor", NULL}, {"--mrope-section", NULL},
	{"--mscale", "1.0"}, {"--mscale-all-dim", "0.0"},
	{"--mtp-hybrid-override-pattern", NULL}, {"--mtp-standalone", NULL},
	{"--mup-attn-scale-power", "1.0"}, {"--mup-base-head-dim", NULL},
	{"--mup-base-hidden-size", NULL}, {"--mup-embedding-mult", "1.0"},
	{"--mup-output-mult", "1.0"}, {"--mup-width-mult", "1.0"},
	{"--no-bias-dropout-fusion", NULL},
	{"--no-dsa-indexer-rotate-activation", NULL},
	{"--no-dsa-indexer-scoring-relu", NULL}, {"--no-fp8-wgrad", NULL},
	{"--no-gradient-accumulation-fusion", NULL},
	{"--no-gradient-reduce-div-fusion", NULL},
	{"--no-masked-softmax-fusion", NULL},
	{"--no-persist-layer-norm", NULL}, {"--no-pin-cpu-grads", NULL},
	{"--no-pin-cpu-params", NULL},
	{"--no-use-layer-wise-param-layout", NULL},
	{"--no-yarn-correction-range-round-to-int", NULL},
	{"--num-distributed-optimizer-instances", "1"},
	{"--num-layers-at-end-in-bf16", "1"}, {"--offload-modules", NULL},
	{"--optimizer-cpu-offload", NULL}, {"--optimizer-cuda-graph", NULL},
	{"--optimizer-offload-fraction", "1.0"},
	{"--outer-dp-sharding-strategy", "no_shard"},
	{"--overlap-cpu-optimizer-d2h-h2d", NULL},
	{"--overlap-dispatch-backward-with-experts-wgrad", NULL},
	{"--overlap-moe-expert-parallel-comm", NULL},
	{"--overlap-param-gather-with-optimizer-step", NULL},
	{"--pipeline-model-parallel-comm-backend", NULL},
	{"--qk-l2-norm", NULL}, {"--recompute-modules", NULL},
	{"--relative-attention-max-distance", NULL},
	{"--relative-attention-num-buckets", NULL},
	{"--reuse-grad-buf-for-mxfp8-param-ag", NULL}, {"--rope-type", NULL},
	{"--rotary-scaling-factor", "1.0"}, {"--sft", NULL},
	{"--softmax-type", "vanilla"}, {"--spec", NULL},
	{"--suggested-communication-unit-size", NULL},
	{"--te-precision-config-file", NULL},
	{"--tensor-parallel-num-weight-shards", NULL},
	{"--torch-fsdp2-no-reshard-after-forward", NULL},
	{"--tp-comm-overlap", NULL}, {"--use-checkpoint-args", NULL},
	{"--use-cpu-initialization", NULL},
	{"--use-fused-weighted-squared-relu", NULL},
	{"--use-grouped-gemm-for-dense-mlp", NULL},
	{"--use-grouped-gemm-for-shared-expert", NULL},
	{"--use-megatron-fsdp", NULL},
	{"--use-mp-args-from-checkpoint-args", NULL}, {"--use-mup", NULL},
	{"--use-te-activation-func", NULL}, {"--use-torch-fsdp2", NULL},
	{"--use-torch-optimizer-for-cpu-offload", NULL},
	{"--use-transformer-engine-op-fuser", NULL},
	{"--wgrad-deferral-limit", "0"}, {"--window-attn-skip-freq", NULL},
	{"--window-size", NULL}, {"--yaml-cfg", NULL},
	{"--yarn-beta-fast", NULL}, {"--yarn-beta-slow", NULL},
	{"--yarn-correction-range-round-to-int", NULL},
	{"--yarn-original-max-position-embeddings", NULL},
};

/* Of the training alone. */
static const char *const runs[] = {
	"--rampup-batch-size", "--step-batch-size-schedule",
	"--decrease-batch-size-if-needed", "--iterations-to-skip",
	"--data-parallel-random-init", "--lr-decay-samples",
	"--lr-warmup-samples", "--lr-wsd-decay-samples", "--decoupled-lr",
	"--decoupled-min-lr", "--freeze-all-layers",
	"--override-opt-param-scheduler", "--override-opt_param-scheduler",
	"--use-checkpoint-opt-param-scheduler",
	"--use-checkpoint-opt_param-scheduler",
	"--apply-wd-to-qk-layernorm", "--sgd-momentum",
	"--no-weight-decay-cond-type", "--head-lr-mult",
	"--init-method-xavier-uniform", "--loss-scale",
	"--initial-loss-scale", "--min-loss-scale", "--loss-scale-window",
	"--hysteresis", "--use-precision-aware-optimizer",
	"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype",
	"--exp-avg-sq-dtype", "--grad-reduce-in-bf16",
	"--eval-global-batch-size", "--eval-micro-batch-size",
	"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss",
	"--dataloader-inter-document-masking", "--exit-interval",
	"--mask-prob", "--short-seq-prob", "--sample-rate",
	"--no-initialization", "--moe-use-upcycling",
	"--moe-upcycling-granularity", "--mtp-detach-heads", "--mtp-hsm",
	"--qk-clip", "--qk-clip-alpha", "--qk-clip-threshold",
	"--moe-router-force-load-balancing", "--moe-router-force-biased",
	"--moe-router-bias-update-rate", "--moe-z-loss-coeff",
	"--moe-aux-loss-coeff", "--moe-router-load-balancing-type",
	"--moe-router-quantile-balancing-ema", "--moe-input-jitter-eps",
	"--dsa-indexer-loss-coeff", "--dsa-indexer-use-sparse-loss", NULL,
};

static const char *const run_prefixes[] = {
	"--muon-", "--lion-", "--soap-", "--adaptive-muon-", "--fim-",
	"--logits-", NULL,
};

static const char *const model_prefixes[] = {
	"--vision-", "--dino-", "--biencoder-", "--ict-", "--retriever-",
	"--mamba-", "--gdp-", "--mhc-", "--dsa-", "--img-", "--patch-dim",
	"--num-channels", "--num-classes", "--swin-", "--hybrid-",
	"--relative-attention-", "--megatron-fsdp-", "--fsdp-", "--gtp-",
	"--moe-paged-stash", NULL,
};

static const char *const ignored[] = {
	"--save", "--load", "--data-path", "--finetune", "--pretrained-checkpoint",
	"--split", "--auto-detect-ckpt-format", "--mock-data",
	"--exit-signal", "--exit-signal-handler",
	"--exit-signal-handler-for-dataloader",
	"--exit-signal-handler-for-training", "--merge-file", "--vocab-file",
	"--vocab-extra-ids", "--trust-remote-code", "--chat-template",
	"--use-gigatoken", "--num-workers", "--num-dataset-builder-threads",
	"--no-mmap-bin-files", "--no-create-attention-mask-in-dataloader",
	"--create-attention-mask-in-dataloader", "--mid-level-dataset-surplus",
	"--allow-ambiguous-pad-tokens", "--phase-transition-iterations",
	"--train-data-path", "--valid-data-path", "--test-data-path",
	"--per-split-data-args-path", "--per-dataset-sequences-path",
	"--dataloader-type", "--dataloader-fast-cache-load",
	"--dataloader-defer-npy-index-mmap", "--object-storage-cache-path",
	"--distributed-backend", "--local-rank", "--lazy-mpu-init",
	"--nccl-communicator-config-path", "--disable-gloo-process-groups",
	"--enable-gloo-process-groups", "--use-sharp",
	"--sharp-enabled-group", "--high-priority-stream-groups",
	"--distributed-timeout-seconds-after-init", "--disable-jit-fuser",
	"--no-align-grad-reduce", "--disable-align-grad-reduce",
	"--no-align-param-gather", "--use-ring-exchange-p2p",
	"--manual-gc", "--manual-gc-interval", "--no-manual-gc-eval",
	"--disable-manual-gc-eval", "--empty-unused-memory-level",
	"--check-weight-hash-across-dp-replicas-interval",
	"--gpu-sniff-test-interval", "--train-sync-interval",
	"--no-check-for-nan-in-loss-and-grad", "--check-for-large-grads",
	"--check-for-spiky-loss", "--result-rejected-tracker-filename",
	"--error-injection-rate", "--error-injection-type", "--rerun-mode",
	"--timing-log-level", "--timing-log-option", "--logging-level",
	"--no-barrier-with-level-1-timing", "--nvtx-ranges",
	"--record-memory-history", "--record-shapes",
	"--memory-snapshot-path", "--use-pytorch-profiler",
	"--straggler-ctrlr-port", "--straggler-minmax-count",
	"--disable-straggler-on-startup", "--adlr-autoresume",
	"--adlr-autoresume-interval", "--enable-ft-package",
	"--calc-ft-timeouts", "--run-workload-inspector-server",
	"--no-one-logger", "--app-tag-run-name", "--app-tag-run-version",
	"--enable-msc", "--disable-msc", "--use-mcore-models",
	"--use-legacy-models", "--use-flash-attn", "--enable-experimental",
	"--async-save", "--async-strategy", "--use-persistent-ckpt-worker",
	"--use-dist-ckpt", "--exit-on-missing-checkpoint",
	"--override-ckpt-iteration", "--replication", "--replication-jump",
	"--replication-factor", "--verify-integrity", "--no-save-optim",
	"--no-save-rng", "--no-load-optim", "--no-load-rng",
	"--load-main-params-from-ckpt", "--no-save-tokenizer-assets",
	"--distrib-optim-fully-reshardable-mem-efficient",
	"--no-strict-fsdp-dtensor-load", "--skip-train", "--test-mode",
	"--full-validation", "--start-eval-at-iter",
	"--multiple-validation-sets", "--validation-set-names",
	"--dump-param-to-param-group-map", "--tp-comm-overlap-cfg",
	"--inference-rng-tracker", "--onnx-safe", "--bert-no-binary-head",
	"--config-logger-dir", "--flash-decode", "--symmetric-ar-type",
	"--moe-per-layer-logging", "--num-speculative-tokens",
	"--fake-process-group", "--config-file", NULL,
};

static const char *const ignored_prefixes[] = {
	"--log-", "--tensorboard-", "--wandb-", "--otel-", "--profile",
	"--pytorch-profiler-", "--one-logger-", "--ft-", "--inprocess-",
	"--flight-recorder-", "--no-flight-recorder-",
	"--disable-flight-recorder-", "--no-log-", "--disable-log-",
	"--inference-", "--rl-", "--grpo-", "--langrl-", "--data-",
	"--ckpt-", "--no-ckpt-", "--disable-ckpt-", "--dist-ckpt-",
	"--async-ckpt-", "--save-", "--non-persistent-", "--tokenizer-",
	"--no-tokenizer-", "--disable-tokenizer-", "--tiktoken-",
	"--null-tokenizer-", "--moe-routing-trace-", "--tp-comm-",
	"--no-tp-comm-", "--disable-tp-comm-", "--nccl-", "--workload-",
	"--moe-hybridep-", "--moe-deepep-", "--moe-ncclep-",
	"--moe-flex-dispatcher-num-", "--kitchen-", "--use-kitchen-", NULL,
};
/* clang-format on */

bool import_table_row(int i, struct import_row *row)
{
	if (i >= (int)(sizeof(rows) / sizeof(*rows)))
		return false;
	*row = rows[i];
	return true;
}

static bool is_one(const char *const *list, const char *flag)
{
	while (*list && strcmp(*list, flag))
		list++;
	return *list;
}

static bool begins(const char *const *list, const char *flag)
{
	while (*list && strncmp(*list, flag, strlen(*list)))
		list++;
	return *list;
}

bool import_table_hides(const char *flag)
{
	return is_one(ignored, flag);
}

enum import_class import_table_class(const char *flag, const char **neutral)
{
	*neutral = NULL;
	if (is_one(rules, flag))
		return FLAG_RULE;
	if (is_one(runs, flag))
		return FLAG_RUN;
	if (is_one(ignored, flag))
		return FLAG_IGNORED;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		if (!strcmp(models[i].flag, flag)) {
			*neutral = models[i].neutral;
			return FLAG_MODEL;
		}
	if (begins(run_prefixes, flag))
		return FLAG_RUN;
	if (begins(model_prefixes, flag))
		return FLAG_MODEL;
	return begins(ignored_prefixes, flag) ? FLAG_IGNORED : FLAG_UNKNOWN;
}
