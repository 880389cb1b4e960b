/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llm.c's token files: a header of 256 int32 (magic, version, tokens), then
 * the tokens: uint16 for magic 20240520 (GPT-2), uint32 for 20240801 (Llama
 * 3).
 */
#include <string.h>

#include "lib/train/data_file.h"

#define HEADER_BYTES 1024

static const struct {
	int32_t magic, version;
	enum token_type type;
} kinds[] = {{20240520, 1, TOKEN_U16}, {20240801, 7, TOKEN_U32}};

static int read_header(struct data_file *f, const int32_t header[3],
		       struct err *e)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (header[0] != kinds[i].magic)
			continue;
		if (header[1] != kinds[i].version)
			return err_set(e, CODE_USAGE,
				       "data: %s: llm.c magic %d with version "
				       "%d, this reads %d",
				       f->path, header[0], header[1],
				       kinds[i].version);
		f->type = kinds[i].type;
		return 0;
	}
	return err_set(e, CODE_USAGE,
		       "data: %s: begins with %d, not an llm.c magic number "
		       "(20240520 or 20240801)",
		       f->path, header[0]);
}

int data_llmc_open(struct data_file *f, struct err *e)
{
	int32_t header[3];
	int64_t want;

	if (data_map_open(&f->map, f->path, e))
		return -1;
	if (f->map.bytes < HEADER_BYTES)
		return err_set(e, CODE_USAGE,
			       "data: %s: %zu bytes, the header alone has %d",
			       f->path, f->map.bytes, HEADER_BYTES);
	memcpy(header, f->map.base, sizeof(header));
	if (read_header(f, header, e))
		return -1;
	want = HEADER_BYTES + header[2] * (int64_t)data_token_size(f->type);
	if (header[2] < 0 || want != (int64_t)f->map.bytes)
		return err_set(e, CODE_USAGE,
			       "data: %s: %zu bytes, but its header says %d "
			       "tokens, that is %lld: truncated or still being "
			       "written",
			       f->path, f->map.bytes, header[2],
			       (long long)want);
	f->tokens = f->map.base + HEADER_BYTES;
	f->count = f->units = header[2];
	return 0;
}
