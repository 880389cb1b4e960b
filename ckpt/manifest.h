/* SPDX-License-Identifier: Apache-2.0 */
/* MANIFEST: the text, written last, that proves a checkpoint complete. */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include "ckpt/format.h"
#include "lib/base/arena.h"

/* CRC covers all bytes of the file but the payloads, which rows cover. */
struct manifest_file {
	char name[FORMAT_FILE];
	int64_t size, rows;
	uint32_t crc;
};

struct manifest {
	int64_t step;
	uint64_t nonce; /* of the job that saved it */
	char shape_hash[33];
	struct manifest_file index; /* manifest.h5; CRC of the whole file */
	struct manifest_file *files;
	int count;
};

int manifest_write(const struct manifest *m, const char *dir, struct err *e);

/* Everything read is checked: CODE_CKPT. */
int manifest_read(struct manifest *m, const char *dir, struct arena *a,
		  struct err *e);

#endif
