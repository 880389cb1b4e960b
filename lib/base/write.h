/* SPDX-License-Identifier: Apache-2.0 */
/* Files written whole or not at all. */
#ifndef BASE_WRITE_H
#define BASE_WRITE_H

#include <stdbool.h>

#include "lib/base/arena.h"

/*
 * PATH holds TEXT, or what it held before; a device or pipe takes the text as
 * it comes.  What is replaced keeps its mode and, if possible, its owner.
 * CODE_USAGE: it is there and FORCE is not; CODE_STORAGE.
 */
int write_file(const char *path, const char *text, bool force, struct arena *a,
	       struct err *e);

#endif
