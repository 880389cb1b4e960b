/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of causal attention in cuDNN's backend API, and their plans. */
#ifndef KERNELS_ATTN_CUDNN_GRAPH_H
#define KERNELS_ATTN_CUDNN_GRAPH_H

#include <cudnn.h>

#include "kernels/attn_cudnn.h"

typedef cudnnBackendDescriptor_t desc_t;

/*
 * The library's calls.  It is opened when first needed, not linked, so that
 * programs start without it and can say what is missing.
 */
#define CUDNN_CALLS(X)                   \
	X(cudnnGetVersion)               \
	X(cudnnGetErrorString)           \
	X(cudnnCreate)                   \
	X(cudnnDestroy)                  \
	X(cudnnSetStream)                \
	X(cudnnBackendCreateDescriptor)  \
	X(cudnnBackendDestroyDescriptor) \
	X(cudnnBackendSetAttribute)      \
	X(cudnnBackendGetAttribute)      \
	X(cudnnBackendFinalize)          \
	X(cudnnBackendExecute)

struct cudnn {
#define CUDNN_MEMBER(name) decltype(&::name) name;
	CUDNN_CALLS(CUDNN_MEMBER)
#undef CUDNN_MEMBER
	char missing[256]; /* why it cannot be used, else empty */
};

const struct cudnn *cudnn_library(void);

/* What lies in memory. */
enum attn_tensor {
	ATTN_Q = 1,
	ATTN_K,
	ATTN_V,
	ATTN_O,
	ATTN_LSE,
	ATTN_DOUT,
	ATTN_DQ,
	ATTN_DK,
	ATTN_DV,
	ATTN_SUMS,  /* of dout o, (batch, heads, T): scratch */
	ATTN_SCALE, /* by value, from the host's memory: the scale, */
	ATTN_NEVER, /* -infinity */
	ATTN_ONE,   /* and 1 */
	ATTN_VIRTUAL
};

/*
 * A launch: kern_cudnn_view's, with BATCH entries; strides in elements.  Of
 * qkv (and dqkv) the batch's, a query head's, a key head's and a token's; of
 * o (and dout) the batch's and a token's; of lse the batch's.
 */
struct attn_graph {
	int64_t fp16; /* 1: of fp16, 0: of bf16 */
	int64_t bwd;  /* 1: the backward */
	int64_t batch, heads, kv, T, D;
	int64_t qkv_batch, q_head, kv_head, row, o_batch, o_row, lse_batch;
};

struct attn_graph attn_graph(const struct kern_attn_dims *d, bool fp16,
			     bool bwd, int64_t batch);

struct attn_engine {
	desc_t plan;	      /* NULL if it was not made */
	int64_t engine;	      /* cuDNN's number of it */
	int64_t workspace;    /* bytes; known even if compiling failed */
	cudnnStatus_t status; /* of the last step */
	const char *step;     /* its name */
};

/*
 * The plan of G's best engine, by cuDNN's own judgement (when measured, its
 * first choice was the fastest).  For HANDLE's device; or, if it is NULL, for
 * DEVICE, a description of one: what it compiles cannot be loaded without a
 * driver, then status is CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER.
 */
struct attn_engine attn_graph_plan(const struct cudnn *lib,
				   cudnnHandle_t handle, desc_t device,
				   const struct attn_graph *g);

#endif
