/* SPDX-License-Identifier: Apache-2.0 */
/* Whose question a setting of vLLM, Hugging Face or Megatron answers. */
#include <stdlib.h>
#include <string.h>

#include "lib/plan/classify.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* Each table is sorted by name. */
/* clang-format off */
static const struct class_known vllm[] = {
	{"additional-config", ASKS_NONE, NULL, "of a plugin"},
	{"all2all-backend", ASKS_SPEC, "spec.moe_token_dispatcher_type", NULL},
	{"allowed-local-media-path", ASKS_NONE, NULL, "which files a request may name"},
	{"allowed-origins", ASKS_NONE, NULL, "the service"},
	{"api-key", ASKS_NONE, NULL, "the service"},
	{"api-server-count", ASKS_NONE, NULL, "the service"},
	{"async-scheduling", ASKS_RUN, NULL, "scheduling of requests"},
	{"attention-backend", ASKS_SPEC, "spec.attention_backend", NULL},
	{"attention-config", ASKS_SPEC, "spec.attention_backend", NULL},
	{"block-size", ASKS_SPEC, NULL, "tokens in a page of the cache"},
	{"calculate-kv-scales", ASKS_SPEC, NULL, "scales of a cache in fp8"},
	{"chat-template", ASKS_NONE, NULL, "text of a request"},
	{"code-revision", ASKS_NONE, NULL, "which version of the files"},
	{"collect-detailed-traces", ASKS_NONE, NULL, "logs"},
	{"compilation-config", ASKS_SPEC, "spec.cuda_graph_impl", "what is compiled, fused and captured"},
	{"config", ASKS_NONE, NULL, "another file of arguments"},
	{"config-format", ASKS_SHAPE, NULL, "how the shape is written"},
	{"context-parallel-size", ASKS_PLACE, "place.context_parallel_size", NULL},
	{"convert", ASKS_SHAPE, NULL, "another head: there is only the language model's here"},
	{"cp-kv-cache-interleave-size", ASKS_PLACE, NULL, "how tokens are dealt out to ranks"},
	{"cpu-offload-gb", ASKS_PLACE, "place.cpu_offloading", NULL},
	{"cuda-graph-sizes", ASKS_SPEC, "spec.cuda_graph_modules", "sizes that are captured"},
	{"cudagraph-capture-sizes", ASKS_SPEC, "spec.cuda_graph_modules", "sizes that are captured"},
	{"data-parallel-address", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"data-parallel-backend", ASKS_PLACE, NULL, "the launcher's"},
	{"data-parallel-external-lb", ASKS_PLACE, NULL, "how requests reach the replicas"},
	{"data-parallel-hybrid-lb", ASKS_PLACE, NULL, "how requests reach the replicas"},
	{"data-parallel-rank", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"data-parallel-rpc-port", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"data-parallel-size", ASKS_PLACE, NULL, "follows from the world: --world N"},
	{"data-parallel-size-local", ASKS_PLACE, NULL, "the launcher's: ranks of a node"},
	{"data-parallel-start-rank", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"dcp-kv-cache-interleave-size", ASKS_PLACE, NULL, "how tokens are dealt out to ranks"},
	{"decode-context-parallel-size", ASKS_PLACE, "place.context_parallel_size", "of the cache alone"},
	{"device", ASKS_SPEC, "spec.device", NULL},
	{"disable-cascade-attn", ASKS_SPEC, "spec.attention_backend", "one of its kernels"},
	{"disable-chunked-mm-input", ASKS_RUN, NULL, "scheduling of requests"},
	{"disable-custom-all-reduce", ASKS_SPEC, NULL, "which code adds over ranks"},
	{"disable-hybrid-kv-cache-manager", ASKS_RUN, NULL, "how the cache is kept"},
	{"disable-log-requests", ASKS_NONE, NULL, "logs"},
	{"disable-log-stats", ASKS_NONE, NULL, "logs"},
	{"disable-sliding-window", ASKS_SHAPE, "shape.window_size", NULL},
	{"disable-uvicorn-access-log", ASKS_NONE, NULL, "logs"},
	{"distributed-executor-backend", ASKS_PLACE, NULL, "the launcher's: srun here"},
	{"download-dir", ASKS_NONE, NULL, "where files are kept"},
	{"dtype", ASKS_SPEC, "spec.params_dtype", NULL},
	{"ec-transfer-config", ASKS_PLACE, NULL, "a cache that moves between servers"},
	{"enable-auto-tool-choice", ASKS_NONE, NULL, "text of an answer"},
	{"enable-chunked-prefill", ASKS_RUN, NULL, "scheduling of requests"},
	{"enable-dbo", ASKS_PLACE, "place.overlap_moe_expert_parallel_comm", "two micro-batches in turn"},
	{"enable-eplb", ASKS_PLACE, NULL, "which rank has which expert, moved while it runs"},
	{"enable-expert-parallel", ASKS_PLACE, "place.expert_model_parallel_size", "tp * dp of it"},
	{"enable-log-requests", ASKS_NONE, NULL, "logs"},
	{"enable-lora", ASKS_SHAPE, NULL, "adapters change the function; there is no setting here"},
	{"enable-lora-bias", ASKS_SHAPE, NULL, "adapters change the function; there is no setting here"},
	{"enable-prefix-caching", ASKS_RUN, NULL, "what the cache keeps"},
	{"enable-prompt-adapter", ASKS_SHAPE, NULL, "adapters change the function; there is no setting here"},
	{"enable-reasoning", ASKS_NONE, NULL, "text of an answer"},
	{"enable-sequence-parallel", ASKS_PLACE, "place.sequence_parallel", NULL},
	{"enable-sleep-mode", ASKS_NONE, NULL, "memory that is lent to other programs"},
	{"enforce-eager", ASKS_SPEC, "spec.cuda_graph_impl = \"none\"", NULL},
	{"eplb-config", ASKS_PLACE, NULL, "which rank has which expert, moved while it runs"},
	{"expert-placement-strategy", ASKS_PLACE, NULL, "which rank has which expert"},
	{"fully-sharded-loras", ASKS_PLACE, NULL, "how adapters are cut"},
	{"generation-config", ASKS_RUN, NULL, "how answers are drawn"},
	{"gpu-memory-utilization", ASKS_RUN, NULL, "how much memory the cache may take"},
	{"guided-decoding-backend", ASKS_RUN, NULL, "how answers are drawn"},
	{"headless", ASKS_NONE, NULL, "the service"},
	{"hf-config-path", ASKS_SHAPE, NULL, "another config.json is another shape"},
	{"hf-overrides", ASKS_SHAPE, NULL, "keys of config.json, changed: another model"},
	{"hf-token", ASKS_NONE, NULL, "whose files"},
	{"host", ASKS_NONE, NULL, "the service"},
	{"ignore-patterns", ASKS_NONE, NULL, "which files are read"},
	{"kernel-config", ASKS_SPEC, NULL, "which kernels compute it"},
	{"kv-cache-dtype", ASKS_SPEC, NULL, "training keeps no cache"},
	{"kv-cache-memory-bytes", ASKS_RUN, NULL, "how much memory the cache may take"},
	{"kv-events-config", ASKS_NONE, NULL, "events for other services"},
	{"kv-offloading-backend", ASKS_PLACE, NULL, "a cache in the host's memory"},
	{"kv-offloading-size", ASKS_PLACE, NULL, "a cache in the host's memory"},
	{"kv-transfer-config", ASKS_PLACE, NULL, "a cache that moves between servers"},
	{"limit-mm-per-prompt", ASKS_RUN, NULL, "what a request may hold"},
	{"load-format", ASKS_NONE, NULL, "how weights are stored"},
	{"logits-processor-pattern", ASKS_RUN, NULL, "how answers are drawn"},
	{"logits-processors", ASKS_RUN, NULL, "how answers are drawn"},
	{"logprobs-mode", ASKS_RUN, NULL, "what is said of an answer"},
	{"long-lora-scaling-factors", ASKS_SHAPE, NULL, "positions of adapters; there is no setting here"},
	{"long-prefill-token-threshold", ASKS_RUN, NULL, "scheduling of requests"},
	{"lora-dtype", ASKS_SPEC, NULL, "the precision of adapters"},
	{"lora-extra-vocab-size", ASKS_SHAPE, NULL, "rows of the vocabulary that an adapter adds"},
	{"lora-modules", ASKS_SHAPE, NULL, "adapters change the function; there is no setting here"},
	{"mamba-block-size", ASKS_SPEC, NULL, "pages of a state; no such layer here"},
	{"mamba-cache-dtype", ASKS_SPEC, NULL, "precision of a state; no such layer here"},
	{"mamba-ssm-cache-dtype", ASKS_SPEC, NULL, "precision of a state; no such layer here"},
	{"master-addr", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"master-port", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"max-cpu-loras", ASKS_RUN, NULL, "adapters at once"},
	{"max-cudagraph-capture-size", ASKS_SPEC, "spec.cuda_graph_modules", "sizes that are captured"},
	{"max-log-len", ASKS_NONE, NULL, "logs"},
	{"max-logprobs", ASKS_RUN, NULL, "what is said of an answer"},
	{"max-long-partial-prefills", ASKS_RUN, NULL, "scheduling of requests"},
	{"max-lora-rank", ASKS_SHAPE, NULL, "the size of adapters; there is no setting here"},
	{"max-loras", ASKS_RUN, NULL, "adapters at once"},
	{"max-model-len", ASKS_SHAPE, "shape.seq_length", "at most max_position_embeddings of them"},
	{"max-num-batched-tokens", ASKS_RUN, "run.micro_batch_size", "tokens at once"},
	{"max-num-partial-prefills", ASKS_RUN, NULL, "scheduling of requests"},
	{"max-num-seqs", ASKS_RUN, "run.micro_batch_size", "sequences at once"},
	{"max-parallel-loading-workers", ASKS_RUN, NULL, "how fast weights are read"},
	{"max-prompt-adapters", ASKS_RUN, NULL, "adapters at once"},
	{"max-seq-len-to-capture", ASKS_SPEC, "spec.cuda_graph_modules", "sizes that are captured"},
	{"mm-encoder-tp-mode", ASKS_PLACE, NULL, "whether an encoder is cut or copied"},
	{"mm-processor-cache-gb", ASKS_RUN, NULL, "what the cache keeps"},
	{"mm-processor-kwargs", ASKS_RUN, NULL, "how a request's images are read"},
	{"model", ASKS_SHAPE, NULL, "its config.json is the shape: --from hf reads it"},
	{"model-impl", ASKS_SPEC, "spec.transformer_impl", NULL},
	{"model-loader-extra-config", ASKS_NONE, NULL, "how weights are stored"},
	{"moe-backend", ASKS_SPEC, "spec.moe_grouped_gemm", NULL},
	{"multi-step-stream-outputs", ASKS_RUN, NULL, "scheduling of requests"},
	{"ngram-prompt-lookup-max", ASKS_SPEC, NULL, "the same answers by other code"},
	{"ngram-prompt-lookup-min", ASKS_SPEC, NULL, "the same answers by other code"},
	{"nnodes", ASKS_PLACE, NULL, "the launcher's: sbatch --nodes"},
	{"node-rank", ASKS_PLACE, NULL, "the launcher's: PMIx tells it here"},
	{"num-gpu-blocks-override", ASKS_RUN, NULL, "how much memory the cache may take"},
	{"num-lookahead-slots", ASKS_RUN, NULL, "scheduling of requests"},
	{"num-redundant-experts", ASKS_PLACE, NULL, "copies of experts"},
	{"num-scheduler-steps", ASKS_RUN, NULL, "scheduling of requests"},
	{"num-speculative-tokens", ASKS_SPEC, NULL, "the same answers by other code"},
	{"otlp-traces-endpoint", ASKS_NONE, NULL, "logs"},
	{"override-generation-config", ASKS_RUN, NULL, "how answers are drawn"},
	{"override-pooler-config", ASKS_SHAPE, NULL, "another head: there is only the language model's here"},
	{"pipeline-parallel-size", ASKS_PLACE, "place.pipeline_model_parallel_size", NULL},
	{"pooler-config", ASKS_SHAPE, NULL, "another head: there is only the language model's here"},
	{"port", ASKS_NONE, NULL, "the service"},
	{"preemption-mode", ASKS_RUN, NULL, "scheduling of requests"},
	{"prefill-context-parallel-size", ASKS_PLACE, "place.context_parallel_size", NULL},
	{"prefix-caching-hash-algo", ASKS_RUN, NULL, "what the cache keeps"},
	{"profiler-config", ASKS_NONE, NULL, "profiles"},
	{"quantization", ASKS_SPEC, "spec.fp8", "the same function in fewer bits; fp4, or a format that is none of ours"},
	{"quantization-param-path", ASKS_SPEC, NULL, "scales of a cache in fp8"},
	{"ray-workers-use-nsight", ASKS_NONE, NULL, "profiles"},
	{"reasoning-parser", ASKS_NONE, NULL, "text of an answer"},
	{"response-role", ASKS_NONE, NULL, "text of a request"},
	{"revision", ASKS_NONE, NULL, "which version of the files"},
	{"root-path", ASKS_NONE, NULL, "the service"},
	{"rope-scaling", ASKS_SHAPE, "shape.rope_scaling", "with rope_scaling_factor and the yarn settings"},
	{"rope-theta", ASKS_SHAPE, "shape.rotary_base", NULL},
	{"runner", ASKS_SHAPE, NULL, "another head: there is only the language model's here"},
	{"safetensors-load-strategy", ASKS_NONE, NULL, "how weights are read"},
	{"scheduler-cls", ASKS_RUN, NULL, "scheduling of requests"},
	{"scheduler-delay-factor", ASKS_RUN, NULL, "scheduling of requests"},
	{"scheduling-policy", ASKS_RUN, NULL, "scheduling of requests"},
	{"seed", ASKS_RUN, "run.seed", NULL},
	{"served-model-name", ASKS_NONE, NULL, "a name in the service"},
	{"show-hidden-metrics-for-version", ASKS_NONE, NULL, "logs"},
	{"skip-tokenizer-init", ASKS_NONE, NULL, "the tokenizer"},
	{"spec-decoding-acceptance-method", ASKS_SPEC, NULL, "the same answers by other code"},
	{"speculative-config", ASKS_SPEC, NULL, "the same answers by other code; drafts with MTP need shape.mtp_num_layers"},
	{"speculative-draft-tensor-parallel-size", ASKS_PLACE, "place.tensor_model_parallel_size", "of the draft model"},
	{"speculative-model", ASKS_SPEC, NULL, "the same answers by other code"},
	{"speculative-model-quantization", ASKS_SPEC, NULL, "the same answers by other code"},
	{"ssl-certfile", ASKS_NONE, NULL, "the service"},
	{"ssl-keyfile", ASKS_NONE, NULL, "the service"},
	{"stream-interval", ASKS_RUN, NULL, "scheduling of requests"},
	{"structured-outputs-config", ASKS_RUN, NULL, "how answers are drawn"},
	{"swap-space", ASKS_PLACE, NULL, "a cache in the host's memory"},
	{"task", ASKS_SHAPE, NULL, "another head: there is only the language model's here"},
	{"tensor-parallel-size", ASKS_PLACE, "place.tensor_model_parallel_size", NULL},
	{"tokenizer", ASKS_NONE, NULL, "the tokenizer"},
	{"tokenizer-mode", ASKS_NONE, NULL, "the tokenizer"},
	{"tokenizer-pool-size", ASKS_NONE, NULL, "the tokenizer"},
	{"tokenizer-pool-type", ASKS_NONE, NULL, "the tokenizer"},
	{"tokenizer-revision", ASKS_NONE, NULL, "the tokenizer"},
	{"tool-call-parser", ASKS_NONE, NULL, "text of an answer"},
	{"trust-remote-code", ASKS_NONE, NULL, "whose code is trusted"},
	{"uds", ASKS_NONE, NULL, "the service"},
	{"use-tqdm-on-load", ASKS_NONE, NULL, "logs"},
	{"use-v2-block-manager", ASKS_RUN, NULL, "how the cache is kept"},
	{"uvicorn-log-level", ASKS_NONE, NULL, "logs"},
	{"worker-cls", ASKS_PLACE, NULL, "the launcher's"},
	{"worker-extension-cls", ASKS_PLACE, NULL, "the launcher's"},
	{"worker-use-ray", ASKS_PLACE, NULL, "the launcher's: srun here"},
};

static const struct class_known hf[] = {
	{"_attn_implementation", ASKS_SPEC, "spec.attention_backend", NULL},
	{"attn_implementation", ASKS_SPEC, "spec.attention_backend", NULL},
	{"bos_token_id", ASKS_NONE, NULL, "the tokenizer"},
	{"cache_implementation", ASKS_SPEC, NULL, "training keeps no cache"},
	{"decoder_start_token_id", ASKS_NONE, NULL, "the tokenizer"},
	{"device_map", ASKS_PLACE, "place.pipeline_model_parallel_layout", "which device has which layer"},
	{"dtype", ASKS_SPEC, "spec.params_dtype", NULL},
	{"eos_token_id", ASKS_NONE, NULL, "the tokenizer"},
	{"ep_size", ASKS_PLACE, "place.expert_model_parallel_size", NULL},
	{"gradient_checkpointing", ASKS_PLACE, "place.recompute_granularity", NULL},
	{"load_in_4bit", ASKS_SPEC, NULL, "the same function in fewer bits"},
	{"load_in_8bit", ASKS_SPEC, NULL, "the same function in fewer bits"},
	{"low_cpu_mem_usage", ASKS_RUN, NULL, "how weights are read"},
	{"max_memory", ASKS_PLACE, NULL, "what a device may hold"},
	{"model_type", ASKS_SHAPE, NULL, "the family: it decides what keys mean and what is missing"},
	{"offload_folder", ASKS_PLACE, "place.cpu_offloading", NULL},
	{"offload_state_dict", ASKS_PLACE, "place.cpu_offloading", NULL},
	{"output_attentions", ASKS_RUN, NULL, "what is returned"},
	{"output_hidden_states", ASKS_RUN, NULL, "what is returned"},
	{"output_router_logits", ASKS_RUN, NULL, "what is returned"},
	{"pad_token_id", ASKS_NONE, NULL, "the tokenizer"},
	{"pretraining_tp", ASKS_PLACE, "place.tensor_model_parallel_size", "of who trained it"},
	{"quantization_config", ASKS_SPEC, "spec.fp8", "the same function in fewer bits"},
	{"static_cache", ASKS_SPEC, NULL, "training keeps no cache"},
	{"torch_dtype", ASKS_SPEC, "spec.params_dtype", NULL},
	{"torchscript", ASKS_SPEC, NULL, "how it is compiled"},
	{"tp_plan", ASKS_PLACE, "place.tensor_model_parallel_size", "which weights are cut"},
	{"tp_size", ASKS_PLACE, "place.tensor_model_parallel_size", NULL},
	{"unk_token_id", ASKS_NONE, NULL, "the tokenizer"},
	{"use_bfloat16", ASKS_SPEC, "spec.params_dtype", NULL},
	{"use_cache", ASKS_RUN, NULL, "training keeps no cache"},
};

static const struct class_known megatron[] = {
	{"--batch-size", ASKS_RUN, "run.micro_batch_size", "its old name, which Megatron refuses"},
	{"--checkpoint-activations", ASKS_PLACE, "place.recompute_granularity", "its old name, which Megatron refuses"},
	{"--data-path", ASKS_RUN, "run.data_path", "a path: not taken over"},
	{"--exit-signal-handler", ASKS_RUN, "run.exit_signal_handler", "train-worker always has one"},
	{"--finetune", ASKS_RUN, "run.finetune", "with a checkpoint in another format: not taken over"},
	{"--group-query-attention", ASKS_SHAPE, "shape.num_query_groups", "without it Megatron ignores --num-query-groups"},
	{"--load", ASKS_RUN, "run.load", "a checkpoint in another format: not taken over"},
	{"--mock-data", ASKS_RUN, "run.data_path", "no data: not taken over"},
	{"--model-parallel-size", ASKS_PLACE, "place.tensor_model_parallel_size", "its old name, which Megatron refuses"},
	{"--no-position-embedding", ASKS_SHAPE, "shape.position_embedding_type", NULL},
	{"--padded-vocab-size", ASKS_PLACE, "place.make_vocab_size_divisible_by", "the true vocabulary is the shape"},
	{"--pretrained-checkpoint", ASKS_RUN, "run.load", "a checkpoint in another format: not taken over"},
	{"--rope-scaling-factor", ASKS_SHAPE, "shape.rope_scaling_factor", NULL},
	{"--save", ASKS_RUN, "run.dir", "a path: not taken over"},
	{"--spec", ASKS_SPEC, "spec.transformer_impl", "code of its own"},
	{"--split", ASKS_RUN, "run.split", "goes with the data: not taken over"},
	{"--tokenizer-model", ASKS_NONE, NULL, "the tokenizer"},
	{"--tokenizer-type", ASKS_NONE, NULL, "the tokenizer"},
	{"--use-checkpoint-args", ASKS_SHAPE, NULL, "the checkpoint's own settings go over the command line's"},
	{"--use-mp-args-from-checkpoint-args", ASKS_PLACE, NULL, "the checkpoint's own settings go over the command line's"},
	{"--use-rotary-position-embeddings", ASKS_SHAPE, "shape.position_embedding_type", NULL},
	{"--warmup", ASKS_RUN, "run.lr_warmup_fraction", "its old name, which Megatron refuses"},
};

/* Short options of the engine. */
static const struct {
	const char *letter, *name;
} letters[] = {
	{"O", "compilation-config"}, {"cc", "compilation-config"},
	{"dcp", "decode-context-parallel-size"}, {"dp", "data-parallel-size"},
	{"dpa", "data-parallel-address"}, {"dpb", "data-parallel-backend"},
	{"dpe", "data-parallel-external-lb"},
	{"dph", "data-parallel-hybrid-lb"}, {"dpl", "data-parallel-size-local"},
	{"dpn", "data-parallel-rank"}, {"dpp", "data-parallel-rpc-port"},
	{"dpr", "data-parallel-start-rank"}, {"ep", "enable-expert-parallel"},
	{"n", "nnodes"}, {"pp", "pipeline-parallel-size"},
	{"q", "quantization"}, {"r", "node-rank"},
	{"tp", "tensor-parallel-size"},
};

/* Where a place gets into what ought to be the same on every cluster. */
static const struct pollution {
	const char *name, *why;
} pollution[] = {
	{"calculate_per_token_loss", "off, Megatron takes the mean of each micro-batch and then of those: with ragged masks the loss depends on micro_batch_size and dp"},
	{"cp_comm_type", "as a list it has an entry for each layer: a place that is wrong once num_layers changes"},
	{"ep_size", "a place inside of the file that says what the model is: the next cluster has another"},
	{"init_method_std", "Megatron draws each shard with a seed of its rank, so first weights depend on tp and pp; here they are drawn by the element's global index"},
	{"make_vocab_size_divisible_by", "Megatron pads the vocabulary to a multiple of it x tp and records that as the model's; here padding is neither stored nor part of a softmax"},
	{"max-model-len", "a server's bound on requests goes over what the model was trained for"},
	{"moe_expert_capacity_factor", "the capacity is counted from a rank's own tokens: which ones are dropped depends on micro_batch_size, dp, ep and sequence_parallel"},
	{"moe_router_group_topk", "Megatron's old moe_router_topk_limited_devices took the groups from ep, so that routing depended on the cluster"},
	{"moe_router_num_groups", "Megatron's old moe_router_topk_limited_devices set it to ep, so that routing depended on the cluster"},
	{"mtp_loss_scaling_factor", "Megatron rescales it by a rank's own tokens, so that the loss depends on dp and cp"},
	{"mtp_num_layers", "Megatron takes the kind of an MTP layer from its stage: on one without decoder layers it becomes another; here it follows from the shape"},
	{"muon_tp_mode", "blockwise makes each shard orthogonal by itself: the update depends on tp"},
	{"num_query_groups", "with fewer groups than tp Megatron cuts the qkv matrix inside of a group, so a shard is no whole set of heads; here such ranks hold copies"},
	{"padded_vocab_size", "Megatron stores the padded size as the model's, and the padding takes part in every softmax: the loss depends on tp"},
	{"pipeline_model_parallel_layout", "a place by the number of the layer: wrong once num_layers changes, and of no use at another pp"},
	{"pretraining_tp", "a place inside of the file that says what the model is; above 1 products are summed in slices"},
	{"recompute_method", "block counts layers of a stage: how much is computed again depends on pp"},
	{"use_distributed_optimizer", "Megatron's optimizer state is cut by dp, and only some of its formats survive another dp, tp or pp; here it is stored whole, by tensor"},
	{"vocab_size", "Megatron pads it to a multiple of make_vocab_size_divisible_by x tp: embedding and head have rows that depend on tp; here the true one is the shape"},
};
/* clang-format on */

static int by_name(const void *key, const void *row)
{
	return strcmp(key, ((const struct class_known *)row)->name);
}

static int by_polluted(const void *key, const void *row)
{
	return strcmp(key, ((const struct pollution *)row)->name);
}

static const struct class_known *find(const struct class_known *table,
				      size_t count, const char *name)
{
	return bsearch(name, table, count, sizeof(*table), by_name);
}

/* "-O3" and "-tp": NAME has no dashes. */
static const struct class_known *find_letters(const char *name)
{
	if (*name == 'O')
		return find(vllm, COUNT(vllm), "compilation-config");
	for (size_t i = 0; i < COUNT(letters); i++)
		if (!strcmp(letters[i].letter, name))
			return find(vllm, COUNT(vllm), letters[i].name);
	return NULL;
}

const struct class_known *classify_vllm(const char *name)
{
	enum { NAME_MAX_LEN = 80 };
	const char *bare = name + strspn(name, "-");
	const struct class_known *known;
	char plain[NAME_MAX_LEN];
	size_t n = strcspn(bare, ".");

	if (n >= NAME_MAX_LEN)
		return NULL;
	memcpy(plain, bare, n);
	plain[n] = 0;
	for (char *p = plain; *p; p++)
		*p = *p == '_' ? '-' : *p;
	known = find(vllm, COUNT(vllm), plain);
	if (!known && !strncmp(plain, "no-", 3))
		known = find(vllm, COUNT(vllm), plain + 3);
	if (!known && bare == name + 1)
		known = find_letters(plain);
	return known;
}

const struct class_known *classify_hf(const char *key)
{
	return find(hf, COUNT(hf), key);
}

const struct class_known *classify_megatron(const char *flag)
{
	return find(megatron, COUNT(megatron), flag);
}

const char *classify_pollution(const char *name)
{
	const struct pollution *row = bsearch(name, pollution, COUNT(pollution),
					      sizeof(*pollution), by_polluted);

	return row ? row->why : NULL;
}
