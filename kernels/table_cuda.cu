/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the GPU's ops. */
#include "kernels/kern_cuda.h"

#define TABLE(T)                                                              \
	.size = sizeof(T), .sum = sizeof(float),                              \
	.embed_fwd = cuda_embed<T>::fwd, .embed_bwd = cuda_embed<T>::bwd,     \
	.pos_fwd = cuda_embed<T>::pos_fwd, .pos_bwd = cuda_embed<T>::pos_bwd, \
	.drop = cuda_drop<T>::drop, .jitter = cuda_drop<T>::jitter,           \
	.resid = cuda_norm<T>::resid, .norm_fwd = cuda_norm<T>::fwd,          \
	.norm_bwd = cuda_norm<T>::bwd, .linear_fwd = cuda_linear<T>::fwd,     \
	.linear_sum = cuda_linear<T>::sum,                                    \
	.linear_bwd_x = cuda_linear<T>::bwd_x,                                \
	.linear_bwd_w = cuda_linear<T>::bwd_w,                                \
	.bias_bwd = cuda_linear<T>::bias_bwd, .rope = cuda_rope<T>::rope,     \
	.latent_fwd = cuda_latent<T>::fwd, .latent_bwd = cuda_latent<T>::bwd, \
	.attn_fwd = cuda_attn<T>::fwd, .attn_bwd = cuda_attn<T>::bwd,         \
	.attn_scratch = cuda_attn<T>::scratch,                                \
	.pos_at = cuda_embed<T>::pos_at, .rope_at = cuda_rope<T>::at,         \
	.latent_at = cuda_latent<T>::at, .attn_at = cuda_attn_at<T>::at,      \
	.act_fwd = cuda_act<T>::fwd, .act_bwd = cuda_act<T>::bwd,             \
	.route_fwd = cuda_route<T>::fwd, .tally = cuda_tally,                 \
	.route_loss = cuda_route_loss, .route_bwd = cuda_route<T>::bwd,       \
	.balance = cuda_route<T>::balance, .gather = cuda_moe<T>::gather,     \
	.combine = cuda_moe<T>::combine, .experts_fwd = cuda_moe<T>::fwd,     \
	.experts_bwd_x = cuda_moe<T>::bwd_x,                                  \
	.experts_bwd_w = cuda_moe<T>::bwd_w,                                  \
	.expert_act_fwd = cuda_expert_act<T>::fwd,                            \
	.expert_act_bwd = cuda_expert_act<T>::bwd,                            \
	.expert_bias_fwd = cuda_expert_bias<T>::fwd,                          \
	.expert_bias_bwd = cuda_expert_bias<T>::bwd,                          \
	.ce_max = cuda_ce<T>::max, .ce_sums = cuda_ce<T>::sums,               \
	.ce_grad = cuda_ce<T>::grad, .sumsq = cuda_sumsq,                     \
	.metrics = cuda_metrics, .clip = cuda_clip, .adamw = cuda_adamw<T>,   \
	.zero = cuda_zero, .copy = cuda_copy, .join = cuda_join,              \
	.cut = cuda_cut, .mix_fwd = cuda_mix_fwd, .mix_bwd = cuda_mix_bwd

const struct kern kern_cuda_f32 = {.name = "cuda_f32", TABLE(float)};
const struct kern kern_cuda_bf16 = {.name = "cuda_bf16", TABLE(bf16)};
const struct kern kern_cuda_fp16 = {.name = "cuda_fp16", TABLE(fp16)};
