/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets: how parameters lie in the flat buffers that data parallelism
 * reduces and shards (Megatron's param_and_grad_buffer layout).
 */
#ifndef PLAN_BUCKET_H
#define PLAN_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/arena.h"

struct bucket {
	int64_t first, end; /* elements of the flat buffer, padding included */
	int64_t unpadded;   /* end of its last parameter, from FIRST */
};

struct buckets {
	int64_t *offset; /* of each parameter, in the order given */
	int *of;	 /* the bucket of each parameter */
	struct bucket *list;
	int count;
	int64_t elements; /* of all of them */
};

/*
 * Lay N parameters of SIZE[i] elements out in reverse order from element
 * FIRST on (a multiple of 64), each starting at a multiple of 64 elements.  A
 * bucket closes once it holds BUCKET_SIZE elements (0: never) and is padded
 * to a multiple of lcm(dp, 128).  A parameter with ALONE[i] has a bucket of
 * its own.
 */
void buckets_build(struct buckets *out, int64_t first, const int64_t *size,
		   const bool *alone, int n, int64_t bucket_size, int dp,
		   struct arena *a);

/* The part of bucket I that data-parallel rank D of DP owns. */
void bucket_shard(const struct buckets *b, int i, int d, int dp, int64_t *first,
		  int64_t *end);

#endif
