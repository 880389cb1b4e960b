/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step as data: one rank's training step (and its evaluation step) as an
 * ordered list of ops over planned buffers.  stage-build sums it and draws
 * it; train-worker runs it.  So what is planned is what runs.
 */
#ifndef PLAN_PROG_H
#define PLAN_PROG_H

#include "kernels/kern.h"
#include "lib/plan/config.h"
#include "lib/plan/sched.h"
#include "lib/plan/slice.h"

/* Memory is one allocation per family; offsets are in bytes. */
enum family {
	FAMILY_PARAM,
	FAMILY_GRAD,
	FAMILY_OPTIM, /* master weights where they differ, then m, then v */
	FAMILY_ACT,
	FAMILY_COMM,
	FAMILY_HOST, /* what the host writes and reads: scalars, ids, labels */
	FAMILIES
};

struct ref {
	int64_t at;
	int family; /* -1: no buffer (NULL) */
};

enum op_kind {
	KIND_FORWARD,
	KIND_BACKWARD, /* input gradients */
	KIND_WGRAD,    /* weight gradients */
	KIND_RECOMPUTE,
	KIND_COMM,
	KIND_OPTIM,
	KINDS
};

enum op_queue { QUEUE_COMPUTE, QUEUE_COMM, QUEUE_COPY };

/*
 * Compute ops are kern.h's: REF holds its pointers and N its integers in the
 * order of its arguments.  OP_COMM starts a collective or message from ref[0]
 * to ref[1], with ref[2] as scratch; OP_WAIT waits for op WAIT.
 */
enum op_code {
	OP_EMBED_FWD,
	OP_EMBED_BWD,
	OP_POS_FWD,
	OP_POS_BWD,
	OP_DROP,
	OP_JITTER,
	OP_RESID,
	OP_NORM_FWD,
	OP_NORM_BWD,
	OP_LINEAR_FWD,
	OP_LINEAR_SUM,
	OP_LINEAR_BWD_X,
	OP_LINEAR_BWD_W,
	OP_BIAS_BWD,
	OP_ROPE,
	OP_LATENT_FWD,
	OP_LATENT_BWD,
	OP_ATTN_FWD,
	OP_ATTN_BWD,
	OP_ACT_FWD,
	OP_ACT_BWD,
	OP_ROUTE_FWD,
	OP_TALLY,
	OP_ROUTE_LOSS,
	OP_ROUTE_BWD,
	OP_BALANCE,
	OP_GATHER,
	OP_COMBINE,
	OP_EXPERTS_FWD,
	OP_EXPERTS_BWD_X,
	OP_EXPERTS_BWD_W,
	OP_EXPERT_ACT_FWD,
	OP_EXPERT_ACT_BWD,
	OP_EXPERT_BIAS_FWD,
	OP_EXPERT_BIAS_BWD,
	OP_CE_MAX,
	OP_CE_SUMS,
	OP_CE_GRAD,
	OP_SUMSQ,
	OP_METRICS,
	OP_CLIP,
	OP_ADAMW,
	OP_ZERO,
	OP_COPY,
	OP_JOIN,
	OP_CUT,
	OP_MIX_FWD,
	OP_MIX_BWD,
	OP_POS_AT,
	OP_ROPE_AT,
	OP_LATENT_AT,
	OP_ATTN_AT,
	OP_COMM,
	OP_WAIT,
	OP_CODES
};

/* Groups of ranks that ops communicate over. */
enum prog_group {
	GROUP_TP,
	GROUP_KV, /* slice.h's kv_ranks, among which are copies of k and v */
	GROUP_CP,
	GROUP_DP_CP, /* the ranks that share the dense flat buffers */
	GROUP_EP,    /* the ranks that deal out the experts of a layer */
	GROUP_ETP,   /* and that cut one of them */
	GROUP_EDP,   /* the ranks that share the experts' flat buffers */
	GROUP_PP,
	GROUP_EMBED,  /* the pipeline ranks with a copy of the embedding */
	GROUP_LOOKUP, /* those of them that look tokens up */
	GROUP_WORLD,
	PROG_GROUPS
};

/* What a collective's elements are: kern.h's two types, or doubles. */
enum prog_type { TYPE_ELEM, TYPE_SUM, TYPE_F64 };

enum prog_comm {
	PROG_SUM,
	PROG_MAX,
	PROG_REDUCE_SCATTER,
	PROG_ALL_GATHER,
	PROG_SEND,
	PROG_RECV,
	PROG_COMMS
};

struct op {
	unsigned char code, kind, queue;
	unsigned char comm, group, type; /* of OP_COMM */
	bool flag;     /* OP_ADAMW: decay; OP_ROPE: backward */
	bool backward; /* in the backward slot of (mb, chunk) */
	int mb, chunk; /* -1: of no micro-batch */
	int64_t layer; /* or -1 */
	struct ref ref[9];
	int64_t n[5];	       /* of OP_COMM: elements */
	int peer, tag;	       /* of a message: place in GROUP_PP */
	int wait;	       /* OP_WAIT: index of the OP_COMM */
	struct kern_drop drop; /* its key is filled in by who runs it */
	const struct kern_norm_dims *norm;
	const struct kern_attn_dims *attn; /* its drop is the op's */
	const struct kern_moe_dims *moe;
	double flops;
	int64_t bytes; /* of OP_COMM: what this rank sends, of its scratch
			  and copies nothing */
};

/* Operations under way at a time, at most. */
enum { PROG_IN_FLIGHT = 64 };

struct prog_list {
	struct op *op;
	int count;
	int microbatches;
};

struct prog {
	struct prog_list train, eval;
	int64_t bytes[FAMILIES];
	size_t elem;	/* bytes of an element of kern.h's */
	size_t sum;	/* and of its sum type */
	int64_t tokens; /* of a micro-batch: B * T */
	int depths;	/* of multi-token prediction */
	/*
	 * Where the host's inputs and results are, in FAMILY_HOST: for the
	 * main head and then for each depth; SHARE and RIGHT for depths only.
	 */
	struct ref ids, labels;	 /* int32 (1 + depths, microbatches, B, T) */
	struct ref loss, coef;	 /* double (1 + depths, microbatches) */
	struct ref share, right; /* double (depths, microbatches) */
	/*
	 * With documents of their own, else none: int32 (microbatches, B, T),
	 * the position in its sample where a token's begins; and
	 * (1 + depths, microbatches, B, T), the positions to look up.
	 */
	struct ref doc, place;
	struct ref rope;   /* in FAMILY_ACT: the table, or none */
	struct ref room;   /* in FAMILY_ACT, of the CPU's ops on 16 bits */
	int64_t rope_half; /* R of kern.h */
	int64_t rope_rows; /* positions in the table */
	int64_t master; /* offset in FAMILY_OPTIM, -1: parameters are precise */
	int64_t m, v;
	int64_t optim_elements; /* of each of them */
};

/* Everything that a rank's program follows from. */
struct prog_input {
	const struct config *config;
	const struct grid *grid;
	const struct stages *stages;
	const struct weights *weights;
	const struct slice *slice;
};

/*
 * Whether a step of C can be planned.  If it is too long, or its schedule too
 * deep: -1, why, and *SETTING, the one to change ("run.micro_batch_size").
 */
int prog_check(const struct config *c, const struct grid *g,
	       const struct stages *st, const char **setting, struct err *e);

/*
 * The program of the rank that owns IN->slice.  Fails (CODE_CONFIG) for what
 * is not served yet.
 */
int prog_build(struct prog *out, const struct prog_input *in, struct arena *a,
	       struct err *e);

/*
 * Only what follows from the slice alone: OUT's elem, sum, master, m, v,
 * optim_elements, and the bytes of parameters, gradients and optimizer.
 */
void prog_state(struct prog *out, const struct slice *s,
		const struct spec *spec);

/*
 * Rows of logits that exist at a time, of TOKENS: equal pieces of what keeps
 * a GPU busy (DEVICE) or a CPU's caches full, where a row has ROW_BYTES.
 */
int64_t prog_head_rows(int64_t tokens, int64_t row_bytes, bool device);

/*
 * Attention of this rank's heads on one micro-batch: HEADS of queries
 * and GROUPS of keys and values.  HEAD0 is the first one's number.
 */
struct kern_attn_dims prog_attn_dims(const struct config *c, int64_t heads,
				     int64_t groups, int64_t head0);

/* Bytes of the scratch of attention, on a GPU or a CPU as C's device is. */
int64_t prog_attn_scratch(const struct config *c,
			  const struct kern_attn_dims *d);

/*
 * Bytes of the CPUs' scratch for reductions in a world of so many: room for a
 * rank's parameters, on average, within bounds.  The same on every rank, for a
 * group's ranks cut what they reduce by it.
 */
int64_t prog_comm_scratch(const struct config *c, int world);

/*
 * Bytes of memory that a compute op reads and writes if it touches each of its
 * arrays once (what it accumulates into twice): the floor of its time.
 */
int64_t prog_op_bytes(const struct prog *p, const struct op *op);

/* Of the same arrays: bytes of the room that 16 bits want on a CPU. */
int64_t prog_op_room(const struct op *op);

/* "layer 3 attn out forward", for messages and profiles. */
const char *op_text(const struct op *op, char *buf, size_t size);

const char *op_code_name(int code);
const char *prog_group_name(int group);
const char *prog_comm_name(int comm);
const char *family_name(int family);

#endif
