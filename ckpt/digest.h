/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fingerprint of a logical weight that no layout changes: the sum over its
 * elements of a hash of (index in the whole weight, bits), in any order.
 */
#ifndef CKPT_DIGEST_H
#define CKPT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

struct digest {
	uint64_t sum[2];
};

/*
 * Add N elements of SIZE bytes (2, 4 or 8) whose row-major indices in the
 * whole weight are INDEX, INDEX + 1, ...
 */
void digest_add(struct digest *d, int64_t index, const void *data, int64_t n,
		size_t size);

/* 32 hex digits and a 0. */
void digest_text(const struct digest *d, char hex[33]);

#endif
