/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which code computes attention on a GPU, how cuDNN is asked, and the scratch
 * that it takes: pure functions of the dims, so that what is planned without
 * a GPU is what runs on one.
 */
#ifndef KERNELS_ATTN_PLAN_H
#define KERNELS_ATTN_PLAN_H

#include "kernels/kern.h"

/*
 * Attention to a cache takes KERN_AT_ROWS queries of a group at a time, and
 * KERN_AT_KEYS of the keys that they see, whose part of the result goes to the
 * scratch: Dv sums, the largest score and the sum of exponentials, in float.
 * Where parts begin follows from a key's position alone, so that a text gets
 * the same bits beside any others.  So many tiles of queries go together as
 * KERN_AT_MOST bytes hold, at least one.
 */
#define KERN_AT_ROWS 4
#define KERN_AT_KEYS 256
#define KERN_AT_MOST ((int64_t)64 << 20)

static inline int64_t kern_at_parts(int64_t room)
{
	return (room + KERN_AT_KEYS - 1) / KERN_AT_KEYS;
}

/* Tiles of each of the B * G groups. */
static inline int64_t kern_at_tiles(const struct kern_attn_dims *d)
{
	return (d->T * (d->H / d->G) + KERN_AT_ROWS - 1) / KERN_AT_ROWS;
}

static inline int64_t kern_at_tile_bytes(const struct kern_attn_dims *d,
					 int64_t room)
{
	return KERN_AT_ROWS * kern_at_parts(room) * (d->Dv + 2) *
	       (int64_t)sizeof(float);
}

static inline int64_t kern_at_together(const struct kern_attn_dims *d,
				       int64_t room)
{
	int64_t all = d->B * d->G * kern_at_tiles(d);
	int64_t most = KERN_AT_MOST / kern_at_tile_bytes(d, room);

	return all < most ? all : most > 1 ? most : 1;
}

/* Bytes of attn_at's scratch on a GPU. */
static inline size_t kern_attn_at_scratch_cuda(const struct kern_attn_dims *d,
					       int64_t room)
{
	return (size_t)(kern_at_together(d, room) *
			kern_at_tile_bytes(d, room));
}

/*
 * Bytes of workspace for a backward of cuDNN's: it is cut into launches of
 * about KERN_CUDNN_AIM, which costs 4% at (64, 12, 12, 1024, 64), but not
 * below a whole sample unless that is more than KERN_CUDNN_MOST: at
 * (2, 32, 8, 8192, 128), 4.4 GB, half a sample costs 5%, a quarter 20%.
 */
#define KERN_CUDNN_AIM	((int64_t)800 << 20)
#define KERN_CUDNN_MOST ((int64_t)5 << 30)

/*
 * cuDNN's tensors have four dims, each with one stride, and in qkv the heads
 * of one group lie between its neighbours' k and v.  So with H = G a launch
 * takes whole samples; else its batch is samples of one group, or groups of
 * one sample, whichever needs fewer launches.
 */
struct kern_cudnn_view {
	int64_t count;	   /* of batches, one behind the other */
	int64_t batch;	   /* entries of a batch */
	int64_t heads, kv; /* of an entry; kv is heads or 1 */
	int64_t chunk;	   /* entries of a backward's launch; 0: impossible */
	bool samples;	   /* entries are samples, else groups */
};

/*
 * Bytes of the gradient of a head's scores, which the deterministic backward
 * keeps.  On H200s the engine's tiles are 128 x 64, others' may be larger.
 */
static inline int64_t kern_cudnn_head(const struct kern_attn_dims *d)
{
	int64_t row = (d->T + 127) / 128 * 128;

	return row * row * 2;
}

static inline struct kern_cudnn_view kern_cudnn_view(
	const struct kern_attn_dims *d)
{
	int64_t per = d->H / d->G, head = kern_cudnn_head(d);
	int64_t entry, least, launches;
	bool whole = per == 1 && d->H * head <= KERN_CUDNN_MOST;
	struct kern_cudnn_view v;

	v.samples = whole || d->G == 1 ||
		    (d->B > d->G && KERN_CUDNN_AIM / (per * head) > d->G);
	v.count = whole ? 1 : v.samples ? d->G : d->B;
	v.batch = v.samples ? d->B : d->G;
	v.heads = whole ? d->H : per;
	v.kv = whole ? d->H : 1;
	entry = v.heads * head;
	least = v.samples ? 1 : d->G;
	if (least > KERN_CUDNN_MOST / entry)
		least = KERN_CUDNN_MOST / entry;
	v.chunk = KERN_CUDNN_AIM / entry;
	if (v.chunk < least)
		v.chunk = least;
	if (v.chunk < 1)
		return v;
	launches = (v.batch + v.chunk - 1) / v.chunk;
	v.chunk = (v.batch + launches - 1) / launches; /* of equal size */
	return v;
}

static inline int64_t kern_cudnn_round(int64_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

/* Bytes of workspace that cuDNN's engine may ask for. */
static inline int64_t kern_cudnn_workspace(const struct kern_attn_dims *d)
{
	struct kern_cudnn_view v = kern_cudnn_view(d);
	int64_t heads = v.chunk * v.heads, bytes;

	bytes = heads * kern_cudnn_head(d) + 256;
	if (v.heads != v.kv) /* dk and dv of each query head, in 16 bits */
		bytes += 2 * kern_cudnn_round(heads * d->T * d->D * 2);
	return bytes;
}

/* Bytes of a launch's sums of dout o; the workspace lies behind them. */
static inline int64_t kern_cudnn_sums(const struct kern_attn_dims *d)
{
	struct kern_cudnn_view v = kern_cudnn_view(d);

	return kern_cudnn_round(v.chunk * v.heads * d->T * 4);
}

/*
 * Whether there is nothing beside causal attention and dropout: a window of all
 * T tokens is nothing.
 */
static inline bool kern_attn_plain(const struct kern_attn_dims *d)
{
	return (!d->window || d->window >= d->T) && d->sink == KERN_SINK_NONE &&
	       !d->docs && d->Dv == d->D;
}

/*
 * The attention that runs for dims D and elements of SIZE bytes: cuDNN's if
 * d->backend wants it, HAS_CUDNN, and it can: 16 bits, no dropout of
 * attention, D a multiple of 8 up to 256, a head's workspace within bounds, and it is
 * plain.
 */
static inline enum kern_attn kern_attn_backend(const struct kern_attn_dims *d,
					       bool has_cudnn, size_t size)
{
	return d->backend == KERN_ATTN_CUDNN && has_cudnn && size == 2 &&
			       !(d->drop.p > 0) && kern_attn_plain(d) &&
			       d->D % 8 == 0 && d->D <= 256 &&
			       kern_cudnn_view(d).chunk > 0
		       ? KERN_ATTN_CUDNN
		       : KERN_ATTN_OWN;
}

/* attn_scratch of the GPU's tables: always enough for the own kernel, too. */
static inline size_t kern_attn_scratch_cuda(const struct kern_attn_dims *d,
					    bool has_cudnn, size_t size)
{
	int64_t bytes = d->B * d->H * d->T * (int64_t)sizeof(float), other = 0;

	if (kern_attn_backend(d, has_cudnn, size) == KERN_ATTN_CUDNN)
		other = kern_cudnn_sums(d) + kern_cudnn_workspace(d);
	return (size_t)(bytes > other ? bytes : other);
}

#endif
