/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a file that a stranger may have made: no hang, no end of memory. */
#ifndef PLAN_CONF_READ_H
#define PLAN_CONF_READ_H

#include <sys/stat.h>

#include "lib/base/arena.h"

struct conf_file {
	int fd;
	struct stat st;
	char *text; /* a closing 0 is there */
	size_t len;
};

/* Open FILE ("-": standard input); no waiting for a writer.  -1 with errno. */
int conf_open(struct conf_file *f, const char *file);

/* All of it into A, then close it.  -1 with errno; EFBIG: more than MAX. */
int conf_read(struct conf_file *f, size_t max, struct arena *a);

/* The byte order mark that TEXT begins with and the way out, or NULL. */
const char *conf_mark(const char *text, size_t len);

#endif
