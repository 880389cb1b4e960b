/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/data_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int data_map_open(struct data_map *m, const char *path, struct err *e)
{
	/* A pipe must not keep us waiting for its writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	void *base;

	if (fd < 0)
		return err_sys(e, CODE_USAGE, "data: %s", path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0) {
		close(fd);
		return err_set(e, CODE_USAGE, "data: %s: %s", path,
			       S_ISREG(st.st_mode) ? "is empty"
						   : "is not a file");
	}
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (base == MAP_FAILED)
		return err_sys(e, CODE_USAGE, "data: cannot map %s", path);
	m->base = base;
	m->bytes = (size_t)st.st_size;
	return 0;
}

static void data_map_close(struct data_map *m)
{
	if (m->base)
		munmap((void *)m->base, m->bytes);
	m->base = NULL;
}

size_t data_token_size(enum token_type type)
{
	static const size_t sizes[] = {
		[TOKEN_U8] = 1,	 [TOKEN_I8] = 1,  [TOKEN_U16] = 2,
		[TOKEN_I16] = 2, [TOKEN_U32] = 4, [TOKEN_I32] = 4,
		[TOKEN_I64] = 8,
	};

	return sizes[type];
}

/* Files come from machines of this byte order, but need not be aligned. */
int64_t data_token(const struct data_file *f, int64_t i)
{
	size_t size = data_token_size(f->type);
	uint64_t bits = 0;

	memcpy(&bits, f->tokens + (size_t)i * size, size);
	switch (f->type) {
	case TOKEN_I8: return (int8_t)bits;
	case TOKEN_I16: return (int16_t)bits;
	case TOKEN_I32: return (int32_t)bits;
	default: return (int64_t)bits;
	}
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Whether there is a file named like the first N bytes of PATH + SUFFIX. */
static bool exists(const char *path, size_t n, const char *suffix)
{
	char name[4096];

	snprintf(name, sizeof(name), "%.*s%s", (int)n, path, suffix);
	return access(name, F_OK) == 0;
}

/* The first four bytes as a number, or 0. */
static uint32_t magic_of(const char *path)
{
	uint32_t magic = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return 0;
	if (read(fd, &magic, sizeof(magic)) != sizeof(magic))
		magic = 0;
	close(fd);
	return magic;
}

/* An index beside it means Megatron, a magic number llm.c, else text. */
static const char *guess(const char *path)
{
	size_t n = strlen(path);
	bool bin = ends_with(path, ".bin");
	uint32_t magic;

	if (ends_with(path, ".idx") || exists(path, n, ".idx") ||
	    (bin && exists(path, n - 4, ".idx")))
		return "megatron";
	magic = magic_of(path);
	if (magic == 20240520 || magic == 20240801)
		return "llmc";
	return bin && magic ? NULL : "text";
}

static int open_as(struct data_file *f, const char *format, struct err *e)
{
	if (!strcmp(format, "auto"))
		format = guess(f->path);
	if (!format)
		return err_set(e, CODE_USAGE,
			       "data: %s: neither an .idx beside it (megatron) "
			       "nor an llm.c header: say run.data_format if it "
			       "is text",
			       f->path);
	if (!strcmp(format, "text"))
		return data_text_open(f, e);
	if (!strcmp(format, "llmc"))
		return data_llmc_open(f, e);
	if (!strcmp(format, "megatron"))
		return data_megatron_open(f, e);
	return err_set(e, CODE_USAGE,
		       "data: run.data_format = \"%s\": auto, text, llmc or "
		       "megatron",
		       format);
}

int data_file_open(struct data_file *f, const char *path, const char *format,
		   struct err *e)
{
	*f = (struct data_file){.path = strdup(path)};
	if (!f->path)
		return err_set(e, CODE_FINDINGS, "data: no memory");
	if (!open_as(f, format ? format : "auto", e))
		return 0;
	data_file_close(f);
	return -1;
}

void data_file_close(struct data_file *f)
{
	data_map_close(&f->map);
	data_map_close(&f->index);
	free(f->path);
	f->path = NULL;
}
