/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of safetensors: model.safetensors, or the shards that
 * model.safetensors.index.json names.  Headers are read whole and checked,
 * payloads are read where they are wanted.
 *
 * A file is 8 bytes (the header's length, little-endian), the header (JSON:
 * {"NAME": {"dtype", "shape", "data_offsets": [first, end]}, ..}), the bytes of
 * the tensors.  These fill what is behind the header, no hole and no overlap.
 */
#ifndef CKPT_SAFETENSORS_H
#define CKPT_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/arena.h"

#define SAFE_FILE  "model.safetensors"
#define SAFE_INDEX "model.safetensors.index.json"

enum { SAFE_DIMS = 4, SAFE_OPEN = 16, SAFE_HEADER_MAX = 100 * 1000 * 1000 };

struct safe_tensor {
	const char *name, *dtype; /* "F32", as the file says it */
	int64_t dim[SAFE_DIMS];
	int ndim;
	int file;
	int64_t at, bytes; /* in the file */
};

struct safe {
	const char *dir;
	struct arena *arena;
	const char **file; /* names in DIR */
	int files;
	struct safe_tensor *list; /* by name */
	size_t count, cap;
	struct {
		int file, fd;
	} open[SAFE_OPEN];
};

/*
 * Read all headers of folder DIR.  CODE_USAGE: there are no such files;
 * CODE_CKPT: one is not what it should be.  Texts are in A.
 */
int safe_open(struct safe *s, const char *dir, struct arena *a, struct err *e);
void safe_close(struct safe *s);

/* The tensor NAME, or NULL. */
const struct safe_tensor *safe_find(const struct safe *s, const char *name);

/* Bytes FIRST .. FIRST + N of the tensor. */
int safe_read(struct safe *s, const struct safe_tensor *t, int64_t first,
	      size_t n, void *data, struct err *e);

/* "(61, 32)" */
const char *safe_shape(const int64_t *dim, int ndim, struct arena *a);

/* The name of shard NTH (from 0) of COUNT, or of the only file. */
const char *safe_shard(int nth, int count, struct arena *a);

#endif
