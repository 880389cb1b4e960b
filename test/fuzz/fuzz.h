/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every fuzz target does with its bytes: they are a file of its format,
 * which is read, finished and judged as the programs would.
 */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "lib/plan/config.h"
#include "lib/plan/import.h"

/* libFuzzer's entry. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_target {
	const char *name; /* also of its folder of inputs */
	enum config_format format;
	const char *end; /* of a file's name; NULL: no config, safetensors */
};

static const struct fuzz_target fuzz_targets[] = {
	{"own", CONFIG_OWN, ".cfg"},	   {"args", CONFIG_MEGATRON, ".args"},
	{"shell", CONFIG_MEGATRON, ".sh"}, {"yaml", CONFIG_MEGATRON, ".yaml"},
	{"hf", CONFIG_HF, ".json"},	   {"safetensors", CONFIG_HF, NULL},
};

enum { FUZZ_TARGETS = sizeof(fuzz_targets) / sizeof(*fuzz_targets) };

static inline void fuzz_wrong(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

/* A file in memory that the bytes are written to, the same each time. */
static inline const char *fuzz_file(const char *end, const void *data,
				    size_t size)
{
	static char name[64];
	int fd;

	snprintf(name, sizeof(name), "/dev/shm/tri-fuzz-%ld%s", (long)getpid(),
		 end);
	fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd))
		fuzz_wrong("cannot write to /dev/shm");
	return name;
}

/* All that the header promises can be read. */
static inline void fuzz_tensors(struct safe *s)
{
	char data[64];
	struct err e;

	for (size_t i = 0; i < s->count; i++) {
		const struct safe_tensor *t = &s->list[i];
		int64_t n = t->bytes < 64 ? t->bytes : 64;

		if (safe_find(s, t->name) != t ||
		    safe_read(s, t, t->bytes - n, (size_t)n, data, &e))
			fuzz_wrong("a tensor that cannot be read");
	}
}

/* The bytes are the model.safetensors of a folder. */
static inline void fuzz_safe(const uint8_t *data, size_t size)
{
	char dir[48], file[80];
	struct arena a = {0};
	struct safe s;
	struct err e;
	int bad;

	snprintf(dir, sizeof(dir), "/dev/shm/tri-fuzz-%ld", (long)getpid());
	snprintf(file, sizeof(file), "%s/" SAFE_FILE, dir);
	mkdir(dir, 0700);
	if (rename(fuzz_file(".part", data, size), file) || arena_open(&a, &e))
		fuzz_wrong("cannot write to /dev/shm");
	bad = safe_open(&s, dir, &a, &e);
	if (bad && e.code != CODE_CKPT)
		fuzz_wrong(e.text);
	if (!bad)
		fuzz_tensors(&s);
	safe_close(&s);
	arena_close(&a);
	unlink(file);
	rmdir(dir);
}

/* What a valid config is written as must be valid, and the same. */
static inline void fuzz_again(const struct config *c, int64_t world,
			      struct arena *a)
{
	const char *text = config_text(c, a), *file;
	struct report r = {.arena = a};
	struct config again;
	char hash[2][33];
	struct err e;
	bool bad;

	file = fuzz_file("-final.cfg", text, strlen(text));
	bad = config_load(file, NULL, 0, a, &again, &r, &e);
	unlink(file);
	if (bad)
		fuzz_wrong(e.text);
	config_finish(&again, world, &r);
	for (size_t i = 0; i < r.count; i++)
		if (r.list[i].severity == ERROR)
			fuzz_wrong(r.list[i].message);
	shape_hash(&c->shape, hash[0]);
	shape_hash(&again.shape, hash[1]);
	if (strcmp(hash[0], hash[1]) != 0)
		fuzz_wrong("written and read again it is another model");
}

static inline void fuzz_config(const struct fuzz_target *t, const uint8_t *data,
			       size_t size)
{
	const char *file = fuzz_file(t->end, data, size);
	struct arena a = {0};
	struct report r = {.arena = &a};
	struct config c;
	int64_t world;
	struct err e;
	int bad;

	if (arena_open(&a, &e))
		fuzz_wrong(e.text);
	bad = config_load_as(t->format, file, NULL, 0, &a, &c, &r, &e);
	unlink(file);
	if (bad && (e.code != CODE_USAGE || !report_count(&r, ERROR)))
		fuzz_wrong("unreadable, but no finding says so");
	if (!bad) {
		world = import_world(&c, &r);
		config_finish(&c, world, &r);
		if (!report_count(&r, ERROR) && shape_is_complete(&c.shape))
			fuzz_again(&c, world, &a);
	}
	arena_close(&a);
}

static inline void fuzz_one(const struct fuzz_target *t, const uint8_t *data,
			    size_t size)
{
	if (t->end)
		fuzz_config(t, data, size);
	else
		fuzz_safe(data, size);
}

/* A target of libFuzzer is one line: FUZZ("own") */
#define FUZZ(target)                                                    \
	int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)    \
	{                                                               \
		for (int i = 0; i < FUZZ_TARGETS; i++)                  \
			if (!strcmp(fuzz_targets[i].name, target))      \
				fuzz_one(&fuzz_targets[i], data, size); \
		return 0;                                               \
	}

#endif
