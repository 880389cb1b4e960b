/* SPDX-License-Identifier: Apache-2.0 */
/* Small things of the system that every room wants the same way. */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include "lib/base/err.h"

/* Monotonic time in seconds. */
double sys_seconds(void);

/*
 * End what was printed: CODE_STORAGE if any of it could not be written, be it
 * the last part or one before.
 */
int sys_flush_stdout(struct err *e);

/* Make the folder PATH and those above it; one that is there is fine. */
int sys_make_dir(const char *path, struct err *e);

/* The same for the folders above PATH only. */
int sys_make_parents(const char *path, struct err *e);

#endif
