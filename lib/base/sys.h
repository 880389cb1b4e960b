/* SPDX-License-Identifier: Apache-2.0 */
/* Small things of the system that every room wants the same way. */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Monotonic time in seconds. */
double sys_seconds(void);

/*
 * End what was printed: CODE_STORAGE if any of it could not be written, be it
 * the last part or one before.
 */
int sys_flush_stdout(struct err *e);

/*
 * Whether MIB more of address space can be had, for libraries that would end
 * the program without them: CODE_LAUNCH, naming WHAT wants them.
 */
int sys_check_space(int64_t mib, const char *what, struct err *e);

/*
 * Make the folder PATH and those above it; one that is there is fine.  The
 * first *MADE bytes of PATH are the first folder that was not there; 0: all
 * were.  MADE may be NULL; it is set on failure, too.
 */
int sys_make_dir(const char *path, size_t *made, struct err *e);

/* Undo sys_make_dir, but for what has something in it by now. */
void sys_remove_dir(const char *path, size_t made);

/* Make the folders above PATH only. */
int sys_make_parents(const char *path, struct err *e);

#endif
