/* SPDX-License-Identifier: Apache-2.0 */
/* Every name and number on disk, once.  ckpt/FORMAT.md is its manual. */
#ifndef CKPT_FORMAT_H
#define CKPT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers of both are on disk. */
enum ckpt_role { ROLE_PARAM, ROLE_MASTER, ROLE_M, ROLE_V, ROLES };
enum ckpt_dtype { CKPT_F32, CKPT_F64, CKPT_BF16, CKPT_F16 };

size_t ckpt_dtype_size(enum ckpt_dtype t);

#define FORMAT_VERSION	1
#define FORMAT_MANIFEST "MANIFEST"
#define FORMAT_INDEX	"manifest.h5"
#define FORMAT_LATEST	"LATEST"

/* Folders that are not checkpoints (yet, or any more). */
#define FORMAT_TEMP ".tmp-"
#define FORMAT_BAD  ".bad-"
#define FORMAT_DEAD ".del-"

/* Inside an HDF5 file. */
#define FORMAT_ROWS	"/index"
#define FORMAT_FILES	"/files"
#define FORMAT_DATA	"/data"

#define FORMAT_STEP_MAX INT64_C(99999999)

enum {
	FORMAT_DIMS = 4,
	FORMAT_NAME = 48, /* of a weight, with its 0 */
	FORMAT_FILE = 48, /* of a file, with its 0 */
	FORMAT_PATH = 96, /* of a dataset: role, name, suffix */
	FORMAT_STEP = 16, /* "step_00000120" */
};

/*
 * A row of /index: one piece.  Little-endian, exactly as it lies in the file;
 * dims past NDIM are zero.  A replica has no bytes of its own.
 */
struct format_row {
	char name[FORMAT_NAME];
	int64_t shape[FORMAT_DIMS]; /* of the logical weight */
	int64_t off[FORMAT_DIMS];   /* the box */
	int64_t cnt[FORMAT_DIMS];
	int64_t lo, hi; /* elements of the box, row-major */
	int64_t at;	/* first byte in the file */
	int64_t bytes;	/* 0 for a replica */
	uint32_t crc;	/* CRC32C of the bytes */
	uint32_t file;	/* row of /files; 0 in the file itself */
	uint32_t replica;
	uint8_t role, dtype, ndim, pad;
};

/* "param"; NULL when the number is no role. */
const char *format_role(int role);
/* "f32"; NULL when the number is no dtype. */
const char *format_dtype(int dtype);

/* "step_00000120"; a name is a step only if it is exactly one. */
void format_step(char out[FORMAT_STEP], int64_t step);
int format_step_parse(const char *name, int64_t *step);

/* "model/pp01-tp00.h5", "experts/pp01-ep003-etp00.h5", "optim/pp01-tp00-d003.h5" */
void format_model(char out[FORMAT_FILE], int pp, int tp);
void format_experts(char out[FORMAT_FILE], int pp, int ep, int etp);
void format_optim(char out[FORMAT_FILE], int pp, int tp, int d);

/* Whether NAME can be a file of a checkpoint: no way out of its folder. */
bool format_file_ok(const char *name);

/* "/data/m/layers/0000/attn/qkv/w.1"; NTH counts from 0. */
void format_path(char out[FORMAT_PATH], enum ckpt_role role, const char *weight,
		 int nth);

#endif
