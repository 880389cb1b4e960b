/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the CPU's ops, for the element type compiled for. */
#include "kernels/kern_cpu.h"

const struct kern K(cpu) = {
#if REAL_IS_FLOAT
	.name = "cpu_f32",
#else
	.name = "cpu_f64",
#endif
	.size = sizeof(REAL),
	.sum = sizeof(REAL),
	.embed_fwd = K(embed_fwd),
	.embed_bwd = K(embed_bwd),
	.pos_fwd = K(pos_fwd),
	.pos_bwd = K(pos_bwd),
	.drop = K(drop),
	.resid = K(resid),
	.norm_fwd = K(norm_fwd),
	.norm_bwd = K(norm_bwd),
	.linear_fwd = K(linear_fwd),
	.linear_bwd_x = K(linear_bwd_x),
	.linear_bwd_w = K(linear_bwd_w),
	.bias_bwd = K(bias_bwd),
	.rope = K(rope),
	.attn_fwd = K(attn_fwd),
	.attn_bwd = K(attn_bwd),
	.attn_scratch = K(attn_scratch),
	.act_fwd = K(act_fwd),
	.act_bwd = K(act_bwd),
	.ce_max = K(ce_max),
	.ce_sums = K(ce_sums),
	.ce_grad = K(ce_grad),
	.sumsq = K(sumsq),
	.metrics = K(metrics),
	.clip = K(clip),
	.adamw = K(adamw),
	.zero = K(zero),
	.copy = K(copy),
	.join = K(join),
	.cut = K(cut),
};
