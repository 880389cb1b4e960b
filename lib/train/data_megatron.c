/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Megatron's indexed datasets: PREFIX.bin has the tokens, PREFIX.idx
 *
 *	0	"MMIDIDX\0\0"
 *	9	version, uint64: 1
 *	17	dtype, uint8
 *	18	sequences S, uint64
 *	26	document bounds D, uint64: documents + 1
 *	34	lengths of sequences, int32 [S]
 *		their offsets in bytes, int64 [S]
 *		first sequence of each document, int64 [D]
 *		modes, int8 [S], only in multimodal datasets
 *
 * Source: megatron/core/datasets/indexed_dataset.py.  Sequences follow each
 * other without gaps, as its builder writes them, so the tokens are one
 * array.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/train/data_file.h"

#define MAGIC	     "MMIDIDX\0"
#define HEADER_BYTES 34

struct index {
	const char *path;
	const unsigned char *base;
	int64_t sequences, bounds;
};

static int64_t int_at(const unsigned char *p, size_t size)
{
	int64_t value = 0;

	memcpy(&value, p, size);
	return value;
}

static int64_t length(const struct index *x, int64_t s)
{
	return (int32_t)int_at(x->base + HEADER_BYTES + 4 * s, 4);
}

static int64_t offset(const struct index *x, int64_t s)
{
	return int_at(x->base + HEADER_BYTES + 4 * x->sequences + 8 * s, 8);
}

/* PREFIX, PREFIX.bin and PREFIX.idx all name the pair: set f->path to .bin */
static char *split_path(struct data_file *f)
{
	size_t n = strlen(f->path);
	char *index = malloc(n + 5), *tokens = malloc(n + 5);

	if (!index || !tokens) {
		free(index);
		free(tokens);
		return NULL;
	}
	if (n > 4 && (!strcmp(f->path + n - 4, ".bin") ||
		      !strcmp(f->path + n - 4, ".idx")))
		n -= 4;
	snprintf(index, n + 5, "%.*s.idx", (int)n, f->path);
	snprintf(tokens, n + 5, "%.*s.bin", (int)n, f->path);
	free(f->path);
	f->path = tokens;
	return index;
}

static int set_type(struct data_file *f, const struct index *x, struct err *e)
{
	static const struct {
		int code;
		enum token_type type;
	} types[] = {{1, TOKEN_U8},  {2, TOKEN_I8},  {3, TOKEN_I16},
		     {4, TOKEN_I32}, {5, TOKEN_I64}, {8, TOKEN_U16}};
	int code = x->base[17];

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].code == code) {
			f->type = types[i].type;
			return 0;
		}
	return err_set(e, CODE_USAGE,
		       "data: %s: dtype code %d, this reads integers (1, 2, 3, "
		       "4, 5, 8)",
		       x->path, code);
}

static int read_header(struct data_file *f, struct index *x, struct err *e)
{
	size_t bytes = f->index.bytes;
	int64_t want;

	if (bytes < HEADER_BYTES || memcmp(x->base, MAGIC, 9))
		return err_set(e, CODE_USAGE,
			       "data: %s: %zu bytes, does not begin with "
			       "MMIDIDX: not an index of Megatron",
			       x->path, bytes);
	if (int_at(x->base + 9, 8) != 1)
		return err_set(e, CODE_USAGE, "data: %s: version %lld, not 1",
			       x->path, (long long)int_at(x->base + 9, 8));
	x->sequences = int_at(x->base + 18, 8);
	x->bounds = int_at(x->base + 26, 8);
	want = (int64_t)(bytes - HEADER_BYTES);
	if (x->sequences >= 0 && x->bounds > 0 && x->sequences <= want / 12 &&
	    x->bounds <= want / 8) {
		want -= 12 * x->sequences + 8 * x->bounds;
		if (want == 0 || want == x->sequences)
			return set_type(f, x, e);
	}
	return err_set(e, CODE_USAGE,
		       "data: %s: %zu bytes do not hold the %lld sequences and "
		       "%lld document bounds of its header: truncated or still "
		       "being written",
		       x->path, bytes, (long long)x->sequences,
		       (long long)x->bounds);
}

/* Every sequence begins where the one before ends, the last at the end. */
static int check_sequences(struct data_file *f, const struct index *x,
			   struct err *e)
{
	int64_t size = (int64_t)data_token_size(f->type), end = 0;

	for (int64_t s = 0; s < x->sequences; s++) {
		if (offset(x, s) != end || length(x, s) < 0)
			return err_set(e, CODE_USAGE,
				       "data: %s: sequence %lld of %lld tokens "
				       "at byte %lld, the one before ends at "
				       "%lld",
				       x->path, (long long)s,
				       (long long)length(x, s),
				       (long long)offset(x, s), (long long)end);
		end += length(x, s) * size;
	}
	f->count = end / size;
	if (end == (int64_t)f->map.bytes)
		return 0;
	return err_set(e, CODE_USAGE,
		       "data: %s: %zu bytes, but %s says %lld tokens of %lld: "
		       "truncated, or not a pair",
		       f->path, f->map.bytes, x->path, (long long)f->count,
		       (long long)size);
}

static int check_documents(const struct index *x, struct err *e)
{
	const unsigned char *first = x->base + HEADER_BYTES + 12 * x->sequences;
	int64_t last = 0;

	for (int64_t d = 0; d < x->bounds; d++) {
		int64_t s = int_at(first + 8 * d, 8);

		if (s < last || s > x->sequences || (d == 0 && s != 0))
			return err_set(e, CODE_USAGE,
				       "data: %s: document %lld begins at "
				       "sequence %lld, after %lld and with "
				       "%lld in all",
				       x->path, (long long)d, (long long)s,
				       (long long)last,
				       (long long)x->sequences);
		last = s;
	}
	if (last == x->sequences)
		return 0;
	return err_set(e, CODE_USAGE,
		       "data: %s: its documents end at sequence %lld of %lld",
		       x->path, (long long)last, (long long)x->sequences);
}

static int64_t document_begin(const struct data_file *f, int64_t d)
{
	struct index x = {.base = f->index.base,
			  .sequences = int_at(f->index.base + 18, 8)};
	int64_t s = int_at(x.base + HEADER_BYTES + 12 * x.sequences + 8 * d, 8);

	if (s == x.sequences)
		return f->count;
	return offset(&x, s) / (int64_t)data_token_size(f->type);
}

static int open_pair(struct data_file *f, struct index *x, struct err *e)
{
	if (data_map_open(&f->index, x->path, e))
		return -1;
	x->base = f->index.base;
	if (read_header(f, x, e) || data_map_open(&f->map, f->path, e) ||
	    check_sequences(f, x, e) || check_documents(x, e))
		return -1;
	f->tokens = f->map.base;
	f->units = x->bounds - 1;
	f->begin = document_begin;
	return 0;
}

int data_megatron_open(struct data_file *f, struct err *e)
{
	char *path = split_path(f);
	struct index x = {.path = path};
	int rc;

	if (!path)
		return err_set(e, CODE_FINDINGS, "data: no memory");
	rc = open_pair(f, &x, e);
	free(path);
	return rc;
}
