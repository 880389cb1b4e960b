/* SPDX-License-Identifier: Apache-2.0 */
/* One file of a checkpoint, written in one pass. */
#ifndef CKPT_PACK_H
#define CKPT_PACK_H

#include "ckpt/head.h"
#include "ckpt/index.h"

/* Elements of a piece that are handed over at once. */
enum { PACK_BYTES = 2 << 20 };

/*
 * Where the elements come from: *data = elements LO .. LO + N of ITEM, valid
 * until the next call.
 */
struct feed {
	int (*get)(void *arg, const struct ckpt_item *item, int64_t lo,
		   int64_t n, const void **data, struct err *e);
	void *arg;
};

/*
 * Write the N items to DIR/NAME and sync it.  Fills OUT; on failure the file
 * is unfinished, CODE_STORAGE if it could not be written.
 */
int pack_write(const char *dir, const char *name, const struct head *h,
	       const struct weights *w, const struct ckpt_item *items, int n,
	       const struct feed *feed, struct manifest_file *out,
	       struct err *e);

/* Bytes that the payloads of the items take. */
int64_t pack_bytes(const struct ckpt_item *items, int n);

/*
 * CRC of the bytes of FD that are in none of the N extents (sorted): headers,
 * attributes, the index.  Fails if the extents overlap or reach past SIZE.
 */
int pack_between(int fd, const struct extent *part, int64_t n, int64_t size,
		 const char *path, uint32_t *crc, struct err *e);

#endif
