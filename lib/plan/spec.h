/* SPDX-License-Identifier: Apache-2.0 */
/* Which code computes each layer, and in which precision. */
#ifndef PLAN_SPEC_H
#define PLAN_SPEC_H

#include "lib/plan/field.h"

struct shape;

enum spec_impl { IMPL_LOCAL, IMPL_TRANSFORMER_ENGINE, IMPL_INFERENCE };
enum spec_backend {
	BACKEND_AUTO,
	BACKEND_FLASH,
	BACKEND_FUSED,
	BACKEND_UNFUSED,
	BACKEND_LOCAL
};
enum spec_dtype { DTYPE_FP32, DTYPE_FP64, DTYPE_BF16, DTYPE_FP16 };
/* "auto" before the names of enum spec_dtype */
enum { DTYPE_AUTO, DTYPE_NAMED };
enum spec_fp8 { FP8_NONE, FP8_E4M3, FP8_HYBRID };
enum spec_fp8_recipe {
	FP8_DELAYED,
	FP8_TENSORWISE,
	FP8_MXFP8,
	FP8_BLOCKWISE,
	FP8_CUSTOM
};
enum spec_fp4 { FP4_NONE, FP4_E2M1 };
enum spec_fp4_recipe { FP4_NVFP4, FP4_CUSTOM };
enum spec_ce { CE_NATIVE, CE_TE };
enum spec_router { ROUTER_SAME, ROUTER_FP32, ROUTER_FP64 };
enum spec_dispatch { DISPATCH_ALLGATHER, DISPATCH_ALLTOALL, DISPATCH_FLEX };
enum spec_flex { FLEX_DEEPEP, FLEX_HYBRIDEP, FLEX_NCCLEP };
/* bits of what cuda_graph_modules names, in its order */
enum {
	CAPTURE_ATTN = 1 << 0,
	CAPTURE_MLP = 1 << 1,
	CAPTURE_MOE = 1 << 2,
	CAPTURE_ROUTER = 1 << 3,
	CAPTURE_PREPROCESS = 1 << 4,
	CAPTURE_ALL = (1 << 5) - 1
};
enum spec_graph { GRAPH_NONE, GRAPH_LOCAL, GRAPH_TE, GRAPH_ITERATION };
enum spec_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct spec {
	struct origin from[FIELDS_MAX];

	int transformer_impl;  /* enum spec_impl */
	int attention_backend; /* enum spec_backend */
	int params_dtype;      /* enum spec_dtype */
	int device;	       /* enum spec_device; whose table of ops */
	int64_t flash_attention_version;

	int pipeline_dtype; /* DTYPE_AUTO, or DTYPE_NAMED + enum spec_dtype */
	bool fp32_residual_connection, attention_softmax_in_fp32;
	bool fp16_lm_cross_entropy;
	int logit_dtype; /* 0: params_dtype */
	bool disable_bf16_reduced_precision_matmul;
	int fp8;	/* enum spec_fp8 */
	int fp8_recipe; /* enum spec_fp8_recipe */
	bool fp8_param;
	const char *fp8_quantizer_factory;
	int64_t fp8_margin, fp8_interval, fp8_amax_history_len;
	int fp8_amax_compute_algo;
	bool fp8_wgrad, fp8_output_proj;
	bool fp8_dot_product_attention, fp8_multi_head_attention;
	bool tp_only_amax_red, first_last_layers_bf16;
	int64_t num_layers_at_start_in_bf16, num_layers_at_end_in_bf16;
	int fp4;	/* enum spec_fp4 */
	int fp4_recipe; /* enum spec_fp4_recipe */
	bool fp4_param;
	const char *fp4_quantizer_factory;
	bool activation_func_fp8_input_store;

	bool bias_activation_fusion, masked_softmax_fusion;
	bool bias_dropout_fusion, apply_rope_fusion, fused_single_qkv_rope;
	bool fused_residual_rmsnorm, persist_layer_norm;
	bool memory_efficient_layer_norm, use_te_activation_func;
	bool gradient_accumulation_fusion, cross_entropy_loss_fusion;
	int cross_entropy_fusion_impl; /* enum spec_ce */
	bool deterministic_mode, batch_invariant_mode;
	bool use_transformer_engine_op_fuser, mla_down_proj_fusion;

	int moe_router_dtype;		 /* enum spec_router */
	int moe_token_dispatcher_type;	 /* enum spec_dispatch */
	int moe_flex_dispatcher_backend; /* enum spec_flex */
	bool moe_grouped_gemm, moe_permute_fusion, moe_router_fusion;
	bool moe_shared_expert_overlap;
	bool moe_pad_expert_input_to_capacity;
	bool moe_router_padding_for_quantization;

	int cuda_graph_impl; /* enum spec_graph */
	struct texts cuda_graph_modules;
	int64_t cuda_graph_warmup_steps;
	bool use_te_rng_tracker;

	struct texts pre_wrap_hooks, post_wrap_hooks; /* hook.h */
	struct texts plugins;			      /* plugin.h */
	struct texts overrides;			      /* override.h */
};

extern const struct group spec_group;

/* One layer's choice of code, and why. */
struct spec_row {
	const char *name; /* "local", "fused", "moe", ... */
	const char *norm, *attention, *mlp;
	const char *reason;
};

/* Fill what was not given, from what was. */
void spec_finalize(struct spec *s, const struct shape *shape);

void spec_check(const struct spec *s, const struct shape *shape,
		struct report *r);

/* The modules that are captured: CAPTURE_ALL without a list of them. */
unsigned spec_captures(const struct spec *s);

/* The row of decoder LAYER of the whole model, by its global number. */
struct spec_row spec_layer(const struct spec *s, const struct shape *shape,
			   int64_t layer);

/* The name of the attention that was asked for. */
const char *spec_backend_text(const struct spec *s);

/* Bytes of a parameter in memory, and of what sums are kept in. */
size_t spec_param_bytes(const struct spec *s);
size_t spec_sum_bytes(const struct spec *s);

/* Whether attention on a GPU is cuDNN's where that can do it. */
bool spec_uses_cudnn(const struct spec *s);

#endif
