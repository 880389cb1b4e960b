/* SPDX-License-Identifier: Apache-2.0 */
/* The texts to go on with: a file of lines. */
#ifndef TRAIN_PROMPTS_H
#define TRAIN_PROMPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"

struct prompt {
	const int32_t *ids;
	int64_t count;
};

struct prompts {
	struct prompt *list;
	int64_t count;
	int64_t longest;
	bool text; /* ids are bytes */
};

/*
 * A prompt of each line of PATH: ids apart by spaces, or as TEXT the line's
 * bytes, of a vocabulary of VOCAB tokens.  Each is to leave MORE tokens of at
 * most ROOM.  Fails (CODE_USAGE) for a file that cannot be read, an empty
 * line or file, what is no id of the vocabulary, and a prompt too long, with
 * the number of the line.
 */
int prompts_read(struct prompts *out, const char *path, bool text,
		 int64_t vocab, int64_t more, int64_t room, struct arena *a,
		 struct err *e);

#endif
