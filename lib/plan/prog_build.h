/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of prog_build share; private to lib/plan/prog*.c. */
#ifndef PLAN_PROG_BUILD_H
#define PLAN_PROG_BUILD_H

#include "lib/plan/prog.h"

struct gen_build;

/* A planned buffer. */
struct buf {
	int64_t at, bytes;
	int family; /* -1: none */
};

#define NO_BUF ((struct buf){0, 0, -1})
#define NO_REF ((struct ref){0, -1})

/* Free space of a family, sorted by address; grows at its end. */
struct pool {
	struct buf *hole;
	size_t holes, cap;
	int64_t top, peak;
};

/* A norm's input and its statistics. */
struct norm_saved {
	struct buf x, stat;
};

/* What layers with as many key/value heads have in common. */
struct layer_kind {
	int64_t groups, G; /* in all, and on this rank */
	struct kern_attn_dims attn[2];
	struct kern_norm_dims knorm;
};

/* What a router's forward leaves, for its tokens and its backward. */
struct routed {
	struct buf logits, prob, map, tally;
};

/* What the forward of one layer leaves for its backward. */
struct layer_saved {
	struct buf x1, stat1, y1, qkv, o, lse; /* attention half */
	struct norm_saved q, k;		       /* with norms of their own */
	struct buf q_latent, kv_latent;	       /* what goes up to the heads */
	struct buf x2, stat2, y2, fc1, act;    /* mlp half */
	/* of a mixture of experts; fc1 and act are the experts' */
	struct routed router, gate; /* to all, and of the shared one */
	struct buf shared_fc1, shared_act;
};

/* What the forward of a depth of multi-token prediction leaves. */
struct depth_saved {
	struct norm_saved enorm, last;
	struct buf hstat; /* hnorm's; its input is the state before, */
	struct buf mixed; /* or this one, of the states before */
	struct buf z;	  /* both norms' outputs, side by side: (rows, 2C) */
	struct layer_saved layer;
};

/* What the forward of one chunk on one micro-batch leaves. */
struct chunk_saved {
	struct layer_saved *layer;
	struct norm_saved last; /* the decoder's final norm */
	/*
	 * States behind a final norm, the decoder's and then each depth's,
	 * and their gradients: [1 + depths] each, or NO_BUF.
	 */
	struct buf *h, *dh;
	struct depth_saved *depth; /* [depths] */
};

/* The residual stream and the branch that was not added to it yet. */
struct stream {
	struct buf x;
	bool owned; /* x is not kept by a layer's backward */
	struct buf branch;
	struct ref bias;
	uint32_t site;
};

/* A message whose buffer is still in use. */
struct in_flight {
	int op; /* index of its OP_COMM */
	struct buf buf;
};

/* Messages under way in one direction, oldest first: a ring. */
struct sends {
	struct in_flight *list;
	int first, count;
};

struct build {
	struct prog *out;
	struct prog_list *list;
	size_t cap;
	const struct prog_input *in;
	struct arena *a;
	struct pool pool[2]; /* FAMILY_ACT, FAMILY_COMM */
	bool too_large;	     /* a pool: the program is no good */
	bool train;
	bool device; /* for a GPU */
	const struct stage *stage;
	int mb, chunk;
	bool backward; /* the slot */
	int64_t layer;
	int64_t drawn_for; /* the layer that dropout's sites are counted by */
	int depth;	   /* 0: the main head; whose ids and labels */
	int64_t row0;	   /* of the micro-batch in the global batch */

	/* kern.h's legend; G and F, as attn and knorm, by layer_dims */
	int64_t B, T, N, C, H, G, D, Dv, F;
	int64_t rows;	   /* N, or this rank's share of it with sp */
	int64_t first_row; /* this rank's first, with sp */
	int tp;
	bool sp;
	double hidden_dropout, attention_dropout;
	const struct kern_norm_dims *norm;
	/* (N H, D) and (N G, D), or latent attention's two ranks */
	const struct kern_norm_dims *qnorm, *knorm;
	const struct kern_attn_dims *attn[2]; /* of all, and within a window */
	struct layer_kind *kind;
	int kinds;
	/* the decoder's, of depths, in evaluation; or NULL */
	const struct kern_moe_dims *moe;
	const struct kern_moe_dims *gate; /* of the shared expert, or NULL */
	struct buf tally; /* of all layers, double (layers, E) */
	struct buf attn_scratch, comm_scratch;
	/* gain_room's, and where its gradient goes that nobody reads */
	struct buf no_gain, no_gradient;
	int64_t room;		   /* what room_for has found to be wanted */
	struct chunk_saved *saved; /* [mb * vp + chunk] */
	struct sends sent[2];	   /* forward, backward */
	int sends_most;		   /* of each direction */
	struct gen_build *gen;	   /* of a generation, else NULL */
};

#define REFS(...)                                           \
	(const struct ref[]){__VA_ARGS__},                  \
		(int)(sizeof((struct ref[]){__VA_ARGS__}) / \
		      sizeof(struct ref))
#define DIMS(...)                       \
	(const int64_t[]){__VA_ARGS__}, \
		(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* prog_dims.c */
/* Dims of this rank that every op takes from, for B samples of T tokens. */
void set_dims(struct build *b);
/* Those of b->layer, at the start of its forward and backward. */
void layer_dims(struct build *b);
/* Bytes of the scratch of attention, of any layer. */
int64_t attn_room(const struct build *b);

/* prog.c */
/* Room for a gain that is always 1, where norms without parameters need it. */
void gain_room(struct build *b);
/* Room for rope's table of so many positions, if there is one. */
void rope_room(struct build *b, int64_t rows);
/* Where so many bytes of FAMILY_HOST lie. */
int64_t host_room(struct prog *p, int64_t bytes);
/* Fails (CODE_CONFIG) with the first setting that is not served. */
int prog_served(const struct config *c, struct err *e);
/* X to the next stage, or to the one before; the message's op. */
int stage_send(struct build *b, const struct buf *x, bool backward);
/* And from there, a new (rows, C). */
struct buf stage_receive(struct build *b, bool backward);

/* prog_buf.c */
struct buf buf_new(struct build *b, int family, int64_t elements);
struct buf buf_sums(struct build *b, int family, int64_t elements);
struct buf buf_bytes(struct build *b, int family, int64_t bytes);
/* Also for NO_BUF; the handle becomes NO_BUF. */
void buf_free(struct build *b, struct buf *buf);
struct ref buf_ref(const struct buf *buf);
/* The part of BUF that starts ELEMENTS in; buf_at: so many bytes in. */
struct ref buf_part(const struct build *b, const struct buf *buf,
		    int64_t elements);
struct ref buf_at(const struct buf *buf, int64_t bytes);
/* Element ELEMENT of the flat buffers, in PARAM or GRAD. */
struct ref flat_ref(const struct build *b, int family, int64_t element);
/* A norm's gain, or its gradient; of PARTS, one that is always 1. */
struct ref gain_ref(const struct build *b, int family, enum part w);
/* A param's array of this chunk in PARAM or GRAD; NO_REF if not held. */
struct ref param_ref(const struct build *b, int family, enum part part,
		     int64_t layer);
struct op *emit(struct build *b, int code, int kind, const struct ref *refs,
		int ref_count, const int64_t *dims, int dim_count);
/* Start a collective of N elements over GROUP; returns the op's index. */
int emit_comm(struct build *b, int comm, int group, int type, struct ref send,
	      struct ref recv, int64_t n);
void emit_wait(struct build *b, int op);
/* Start and wait. */
void emit_collective(struct build *b, int comm, int group, int type,
		     struct ref send, struct ref recv, int64_t n);

/*
 * Once all buffers are planned, for each list: behind all other activations,
 * what its ops on elements of 16 bits want on CPUs.
 */
void room_for(struct build *b, const struct prog_list *l);

/*
 * prog_linear.c: products with their tensor-parallel communication; of all N
 * rows, or, _mine, of this rank's.
 */
void linear_forward(struct build *b, struct ref y, struct ref x, enum part w,
		    enum part bias, int64_t out, int64_t in);
/* Add W's gradient for DY (N, out) and X (N, in), and its bias's. */
void linear_weight(struct build *b, struct ref dy, struct ref x, enum part w,
		   enum part bias, int64_t out, int64_t in);
/* A new (N, in) = DY W. */
struct buf linear_input(struct build *b, struct ref dy, enum part w,
			int64_t out, int64_t in);
void linear_forward_mine(struct build *b, struct ref y, struct ref x,
			 enum part w, int64_t out, int64_t in);
void linear_weight_mine(struct build *b, struct ref dy, struct ref x,
			enum part w, int64_t out, int64_t in);
struct buf linear_input_mine(struct build *b, struct ref dy, enum part w,
			     int64_t out, int64_t in);
/* Rows of every tp rank: a new (N, C) under sp, else X itself. */
struct buf gather_rows(struct build *b, struct buf x);
struct buf gather_wide(struct build *b, struct buf x, int64_t width);
/* Free what gather_rows made of X. */
void gather_free(struct build *b, struct buf *gathered, const struct buf *x);
/* Add up over tp: X in place, or under sp a new (rows, C); frees X then. */
struct buf reduce_rows(struct build *b, struct buf x);
struct buf reduce_wide(struct build *b, struct buf x, int64_t width);

/* prog_layer.c */
void layer_forward(struct build *b, struct stream *s, struct layer_saved *v);
/* DX: the residual stream's gradient, in place. */
void layer_backward(struct build *b, struct buf *dx, struct layer_saved *v);
/* y = norm(stream with its branch added); the sum becomes the stream. */
struct buf stream_norm(struct build *b, struct stream *s, enum part w,
		       enum part bias, struct buf *stat);
/* Add the branch without a norm. */
void stream_settle(struct build *b, struct stream *s);
struct kern_drop dropout(const struct build *b, double p, uint32_t site);
/*
 * Dropout's sites of a layer.  The one for an embedding is 0 for the model's,
 * and for a depth's that of its layer.
 */
enum site { SITE_EMBEDDING, SITE_ATTENTION, SITE_PROJ, SITE_MLP };
uint32_t dropout_site(const struct build *b, enum site which);
/* What else is drawn has sites behind all of these. */
enum {
	SITES_JITTER = 1 << 29, /* + what dropout's layers are counted by */
	SITES_MIX = 1 << 30	/* + a depth */
};
/* BRANCH and its BIAS are to be added to the stream. */
void stream_branch(struct build *b, struct stream *s, struct buf branch,
		   enum part bias, enum site which);
/* In evaluation nothing is kept for a backward. */
void forget(struct build *b, struct buf *buf);
/*
 * The gradient of a branch's output, all rows: DX through the branch's
 * dropout, its bias's gradient on the way.  Both it and *MINE are for
 * branch_free.
 */
struct buf branch_gradient(struct build *b, const struct buf *dx,
			   enum part bias, enum site which, struct buf *mine);
void branch_free(struct build *b, struct buf *all, struct buf *mine,
		 const struct buf *dx);
/*
 * Half a layer that is one linear layer, W and the part after it, its bias: a
 * branch for its norm's output Y, and the gradient of Y, which frees Y.
 */
void replaced_forward(struct build *b, struct stream *s, enum part w,
		      enum site which, struct buf *y);
struct buf replaced_backward(struct build *b, const struct buf *dx, enum part w,
			     enum site which, struct buf *y);
/*
 * dx = DRES (or 0) + the norm's input gradient for DY, both of this rank's
 * rows; frees DY and V.
 */
void norm_input(struct build *b, const struct kern_norm_dims *dims,
		const struct buf *dx, struct ref dres, struct buf *dy,
		enum part w, enum part bias, struct norm_saved *v);

/* A new X + Y, (ROWS, C); frees both. */
struct buf sum_of(struct build *b, struct buf *x, struct buf *y, int64_t rows,
		  int kind);

/* prog_attn.c and prog_mlp.c: the halves of a layer */
/* A new (ROWS, BYTES): bytes AT .. of each row of X, STEP bytes long. */
struct buf columns(struct build *b, int kind, const struct buf *x, int64_t rows,
		   int64_t at, int64_t bytes, int64_t step);
/* Where each token's document begins, of this micro-batch; or none. */
struct ref documents(const struct build *b);
void attention_half(struct build *b, struct stream *s, struct layer_saved *v);
void attention_half_backward(struct build *b, struct buf *dx,
			     struct layer_saved *v);
void mlp_half(struct build *b, struct stream *s, struct layer_saved *v);
void mlp_half_backward(struct build *b, struct buf *dx, struct layer_saved *v);

/*
 * Y = norm(X) by itself, of weight W; X and the statistics are kept in V.  And
 * the gradient of X, whose DY it frees.
 */
struct buf inner_norm(struct build *b, struct buf x,
		      const struct kern_norm_dims *dims, enum part w,
		      struct norm_saved *v);
struct buf inner_norm_backward(struct build *b, struct buf dy,
			       const struct kern_norm_dims *dims, enum part w,
			       struct norm_saved *v);

/* prog_mla.c: latent attention's qkv for v->y1, rotated */
void latent_forward(struct build *b, struct layer_saved *v);
/* The gradient of y1, this rank's rows; frees DQKV. */
struct buf latent_backward(struct build *b, struct buf *dqkv,
			   struct layer_saved *v);

/* One mlp: its matrices; fc1's bias is the part after it. */
struct mlp {
	enum part fc1, fc2;
	enum part
		fc2_bias; /* added on the first rank of tp; PARTS: none here */
	int64_t width;	  /* on this rank */
	/* What its activations are multiplied by, and that one's gradient. */
	const struct kern_moe_dims *gate; /* or NULL */
	struct ref prob, row, dprob;
};

/* This rank's part of its output (N, C) for Y. */
struct buf mlp_forward(struct build *b, const struct mlp *m, struct ref y,
		       struct buf *fc1, struct buf *act);
/* Backwards: the activation's gradient for DY (N, C), frees ACT; */
struct buf mlp_output(struct build *b, const struct mlp *m, struct ref dy,
		      struct buf *act);
/* then that of fc1's output, frees DACT and FC1; */
struct buf mlp_act(struct build *b, const struct mlp *m, struct buf *dact,
		   struct buf *fc1);
/* and of fc1's weight for its input Y; */
void mlp_weight(struct build *b, const struct mlp *m, struct ref dfc1,
		struct ref y);
/* then this rank's part of that of Y, frees DFC1. */
struct buf mlp_input(struct build *b, const struct mlp *m, struct buf *dfc1);

/* prog_moe.c: experts in the place of the mlp */
void moe_dims(struct build *b);
/* At the start of a step. */
void moe_begin(struct build *b);
/* Whether the layer has experts. */
bool moe_has(const struct build *b);
/* This rank's part of the output (N, C) for Y, all rows of the norm's. */
struct buf moe_forward(struct build *b, struct buf y, struct layer_saved *v);
/*
 * The gradient of the norm's output, this rank's rows, for the mixture's DY
 * (N, C).
 */
struct buf moe_backward(struct build *b, struct buf dy, struct layer_saved *v);
/* At the step's end: N elements of a layer's expert bias, by their counts. */
void moe_balance(struct build *b, int64_t layer, struct ref bias,
		 struct ref master, struct ref count, int64_t n);

/* prog_ends.c: the first and the last stage */
/* Embeddings of DEPTH's ids, positions and dropout included. */
struct buf embed_forward(struct build *b);
void embed_backward(struct build *b, struct buf *dx);
/* The head's weight: its own, or the tied embedding on the same stage. */
struct ref head_weight(const struct build *b);
/* The loss of H (rows, C), DEPTH's state, and that state's gradient. */
struct buf head_loss(struct build *b, struct buf h);

/* prog_mtp.c: a depth of multi-token prediction, b->depth from 1 on */
void depth_forward(struct build *b, struct chunk_saved *v);
/* The same: its state, from the one before. */
struct buf depth_state(struct build *b, struct depth_saved *d,
		       struct buf before);
void depth_backward(struct build *b, struct chunk_saved *v);
/* Whether the backward of this stage's depths wants b->depth's state. */
bool depth_keeps(const struct build *b);
/* Depths' part in the whole: which stages have what of the states. */
bool stage_gets_states(const struct build *b); /* they come by messages */
int states_in(const struct build *b), states_out(const struct build *b);

/* prog_step.c: from gradients to updated parameters */
void step_finish(struct build *b);
/* The metrics and their sum over the world. */
void step_metrics(struct build *b);

#endif
