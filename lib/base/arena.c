/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Address space only: pages are committed when they are first written. */
#define ARENA_SPACE ((size_t)16 << 30)

int arena_open(struct arena *a, struct err *e)
{
	size_t size = ARENA_SPACE;
	void *base;

	/* A limit on address space (ulimit -v) may ask for less. */
	do {
		base = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (base != MAP_FAILED)
			break;
		size /= 2;
	} while (size >= (size_t)1 << 20);
	if (base == MAP_FAILED)
		return err_sys(e, CODE_LAUNCH, "cannot reserve memory");
	*a = (struct arena){.base = base, .size = size};
	return 0;
}

void arena_close(struct arena *a)
{
	if (a->base)
		munmap(a->base, a->size);
	memset(a, 0, sizeof(*a));
}

void *arena_alloc(struct arena *a, size_t count, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(count, size, &bytes))
		bytes = SIZE_MAX;
	assert(bytes <= a->size - a->used && "arena exhausted");
	bytes = (bytes + 15) & ~(size_t)15;
	p = a->base + a->used;
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
