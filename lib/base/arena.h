/* SPDX-License-Identifier: Apache-2.0 */
/* Bookkeeping memory: allocated piece by piece, freed all at once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "lib/base/err.h"

/*
 * An arena takes address space piece by piece and commits pages as they are
 * touched.  So that nobody has to ask after each allocation, only arena_open
 * can fail; where memory ends later, the program does (arena_exhausted).
 * Meant for configs, weight tables and programs (megabytes); the large buffers
 * of training are not taken from here.
 */
struct arena {
	char *base; /* the newest piece */
	size_t used;
	size_t size;
};

/*
 * What arenas leave of the address space to others: the libraries do not all
 * survive a malloc that fails.
 */
enum { ARENA_SPARE = 32 << 20 };

/* CODE_LAUNCH if there is less than a first piece and the spare. */
int arena_open(struct arena *a, struct err *e);

/*
 * End the program with CODE_LAUNCH and a line that says why: the only place
 * where a library does so.  For an arena, and for text of a few lines whose
 * malloc failed.
 */
void arena_exhausted(void) __attribute__((noreturn));

/* Free everything; accepts a zeroed arena. */
void arena_close(struct arena *a);

/* COUNT * SIZE zeroed bytes, aligned to 16. */
void *arena_alloc(struct arena *a, size_t count, size_t size);

/* A copy of the string, or of its first LEN bytes. */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t len);

/* printf into the arena. */
char *arena_printf(struct arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
char *arena_vprintf(struct arena *a, const char *fmt, va_list ap);

/*
 * Room for one more element in an array that grows in the arena: returns the
 * array, moved if it had to grow, with at least COUNT + 1 elements of SIZE.
 * CAP is the caller's record of the capacity.
 */
void *arena_grow(struct arena *a, void *array, size_t count, size_t *cap,
		 size_t size);

#endif
