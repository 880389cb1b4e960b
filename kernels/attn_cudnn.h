/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by cuDNN: bf16 or fp16, causal, the backward in the form that
 * gives the same bits each time.  The ops of kern_cuda_bf16 and kern_cuda_fp16
 * come here for dims whose kern_attn_backend is KERN_ATTN_CUDNN.  FP16: elements
 * are fp16, else bf16.
 */
#ifndef KERNELS_ATTN_CUDNN_H
#define KERNELS_ATTN_CUDNN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/attn_plan.h"
#include "lib/base/err.h"

/*
 * Load the library, once per process.  *VERSION (may be NULL) = its version,
 * 91900 for 9.19.0.  Fails with CODE_LAUNCH if the program was built without
 * it or it cannot be loaded, and says where it was looked for.
 */
int kern_cudnn_load(size_t *version, struct err *e);

/* Would that succeed?  What HAS_CUDNN means to the GPU's tables. */
bool kern_cudnn_there(void);

/*
 * Build what attention of D needs on Q, up to a second for each new kernel.
 * The ops do it themselves when called first; but not while a graph is
 * captured, so prepare, or run a step, before.  Nothing to do if dims D
 * resolve to the own kernel.  Fails with CODE_LAUNCH if cuDNN has no engine
 * for D or wants more workspace than kern_cudnn_workspace says.
 */
int kern_cudnn_prepare(struct queue *q, const struct kern_attn_dims *d,
		       bool fp16, struct err *e);

/* kern.h's attn_fwd and attn_bwd. */
void kern_cudnn_fwd(struct queue *q, void *o, void *lse, const void *qkv,
		    void *scratch, const struct kern_attn_dims *d, bool fp16);
void kern_cudnn_bwd(struct queue *q, void *dqkv, const void *dout,
		    const void *o, const void *lse, const void *qkv,
		    void *scratch, const struct kern_attn_dims *d, bool fp16);

/* Free what Q keeps for them. */
void kern_cudnn_release(struct queue *q);

#ifdef __cplusplus
}
#endif

#endif
