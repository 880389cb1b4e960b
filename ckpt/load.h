/* SPDX-License-Identifier: Apache-2.0 */
/* An open checkpoint from the inside. */
#ifndef CKPT_LOAD_H
#define CKPT_LOAD_H

#include "ckpt/head.h"
#include "ckpt/index.h"
#include "ckpt/manifest.h"

enum {
	LOAD_FILES = 32,       /* open at the same time */
	LOAD_WINDOW = 2 << 20, /* bytes read at once */
	LOAD_GAP = 64 << 10,   /* shorter gaps are read, not skipped */
};

/* How far the checksum of a row's payload has been followed. */
struct chain {
	int64_t next;
	uint32_t crc;
};

struct ckpt {
	struct arena arena;
	const char *dir;
	int folder; /* its descriptor */
	struct manifest manifest;
	struct head head;
	struct shape shape;
	struct weights weights;
	struct index index;
	struct chain *chain; /* by row */
	bool *proven;	     /* by file: all but its payloads is sound */
	struct {
		int file, fd;
	} open[LOAD_FILES];
	char *window;
	int64_t bytes_read;
};

/* Whether PATH is a step's folder (or is meant to be), not a run's. */
bool load_is_step(const char *path, struct arena *a);

/* Every file is sound between its payloads (their sizes are checked). */
int load_prove(struct ckpt *c, struct err *e);

/* Elements LO .. HI of the whole weight, row-major, in the stored dtype. */
int load_weight(struct ckpt *c, int weight, enum ckpt_role role, int64_t lo,
		int64_t hi, void *data, struct err *e);

/*
 * Bytes FIRST .. FIRST + N of a row's payload.  Once they have been read to
 * the end without a gap, their checksum is compared.
 */
int load_payload(struct ckpt *c, int64_t row, int64_t first, int64_t n,
		 void *data, struct err *e);

/* Read what of the payloads has not been followed to its end. */
int load_rest(struct ckpt *c, struct err *e);

/* The descriptor of a file, which is proven before its first use. */
int load_file(struct ckpt *c, int file, int *fd, struct err *e);

#endif
