/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/log.h"

/*
 * The address sanitizer is told what was handed out, to the byte; all else of
 * a piece, and a gap behind each, is out of bounds.
 */
#ifdef __has_feature
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { GAP = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(p, n)	  ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
enum { GAP = 0 };
#endif

/* Pieces double; pages are committed when they are first written. */
enum { PIECE_FIRST = 1 << 20, PIECE_DOUBLED = 64 << 20 };

/* At the start of a piece: the one before. */
struct piece {
	char *before;
	size_t size;
};

/* SIZE bytes, if that leaves ARENA_SPARE to others. */
static char *map(size_t size)
{
	char *p = mmap(NULL, size + ARENA_SPARE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	munmap(p + size, ARENA_SPARE);
	return p;
}

/* A new piece with room for BYTES; -1: there is none. */
static int grow(struct arena *a, size_t bytes)
{
	size_t size = PIECE_FIRST, need;
	struct piece head;
	char *base;

	if (__builtin_add_overflow(bytes, sizeof(head) + PIECE_FIRST, &need) ||
	    need > SIZE_MAX / 2)
		return -1;
	need -= need % PIECE_FIRST;
	if (a->size)
		size = a->size < PIECE_DOUBLED ? 2 * a->size : a->size;
	if (size < need)
		size = need;
	base = map(size);
	if (!base && size > need)
		base = map(size = need);
	if (!base)
		return -1;
	head = (struct piece){a->base, a->size};
	memcpy(base, &head, sizeof(head));
	ASAN_POISON_MEMORY_REGION(base + sizeof(head), size - sizeof(head));
	*a = (struct arena){base, sizeof(head), size};
	return 0;
}

int arena_open(struct arena *a, struct err *e)
{
	memset(a, 0, sizeof(*a));
	if (grow(a, 0))
		return err_set(e, CODE_LAUNCH,
			       "out of memory: less than %d MiB are left; see "
			       "ulimit -v",
			       (PIECE_FIRST + ARENA_SPARE) >> 20);
	return 0;
}

void arena_close(struct arena *a)
{
	while (a->base) {
		struct piece head;

		memcpy(&head, a->base, sizeof(head));
		ASAN_UNPOISON_MEMORY_REGION(a->base, a->size);
		munmap(a->base, a->size);
		a->base = head.before;
		a->size = head.size;
	}
	memset(a, 0, sizeof(*a));
}

void arena_exhausted(void)
{
	log_error("out of memory; see ulimit -v");
	_exit(CODE_LAUNCH);
}

void *arena_alloc(struct arena *a, size_t count, size_t size)
{
	size_t wanted, bytes;
	void *p;

	if (__builtin_mul_overflow(count, size, &wanted) ||
	    wanted > SIZE_MAX - 15 - GAP)
		arena_exhausted();
	bytes = (wanted + GAP + 15) & ~(size_t)15;
	if (bytes > a->size - a->used && grow(a, bytes))
		arena_exhausted();
	p = a->base + a->used;
	ASAN_UNPOISON_MEMORY_REGION(p, wanted);
	a->used += bytes;
	return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
	char *copy = arena_alloc(a, len + 1, 1);

	memcpy(copy, s, len);
	return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
	va_list again;
	char *text;
	int len;

	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	assert(len >= 0);
	text = arena_alloc(a, (size_t)len + 1, 1);
	vsnprintf(text, (size_t)len + 1, fmt, ap);
	return text;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	text = arena_vprintf(a, fmt, ap);
	va_end(ap);
	return text;
}

void *arena_grow(struct arena *a, void *array, size_t count, size_t *cap,
		 size_t size)
{
	void *bigger;

	if (count < *cap)
		return array;
	*cap = *cap ? 2 * *cap : 16;
	bigger = arena_alloc(a, *cap, size);
	if (count)
		memcpy(bigger, array, count * size);
	return bigger;
}
