/* SPDX-License-Identifier: Apache-2.0 */
/* A file of tokens, whatever its format: one array and where it may be cut. */
#ifndef TRAIN_DATA_FILE_H
#define TRAIN_DATA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum token_type {
	TOKEN_U8,
	TOKEN_I8,
	TOKEN_U16,
	TOKEN_I16,
	TOKEN_U32,
	TOKEN_I32,
	TOKEN_I64,
};

struct data_map {
	const unsigned char *base;
	size_t bytes;
};

struct data_file {
	char *path;	     /* of the tokens */
	struct data_map map; /* of the tokens */
	struct data_map index;
	const unsigned char *tokens;
	enum token_type type;
	int64_t count; /* tokens */
	int64_t units; /* what a split may not cut: documents or tokens */
	/* the first token of unit U (0 .. units); NULL: U itself */
	int64_t (*begin)(const struct data_file *f, int64_t u);
};

/* FORMAT is "auto", "text", "llmc" or "megatron"; CODE_USAGE. */
int data_file_open(struct data_file *f, const char *path, const char *format,
		   struct err *e);
void data_file_close(struct data_file *f); /* accepts a zeroed one */

/* The formats: fill what follows f->path, which is given. */
int data_text_open(struct data_file *f, struct err *e);
int data_llmc_open(struct data_file *f, struct err *e);
int data_megatron_open(struct data_file *f, struct err *e);

/* Map a whole regular file, which must not be empty. */
int data_map_open(struct data_map *m, const char *path, struct err *e);

size_t data_token_size(enum token_type type);
int64_t data_token(const struct data_file *f, int64_t i);

#endif
