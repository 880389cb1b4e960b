/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/prompts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a line may hold. */
struct limits {
	bool text;
	int64_t vocab, more, room;
};

/* The next word of ids, of LEN characters, as one. */
static int read_id(const char *word, int len, int64_t vocab, int32_t *id,
		   struct err *e)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(word, &end, 10);
	if (end != word + len || word[0] == '+')
		return err_set(e, CODE_USAGE, "'%.*s' is not an id",
			       len < 40 ? len : 40, word);
	if (errno || n < 0 || n >= vocab)
		return err_set(e, CODE_USAGE,
			       "%.*s is not an id of the vocabulary, 0 to "
			       "%" PRId64,
			       len < 40 ? len : 40, word, vocab - 1);
	*id = (int32_t)n;
	return 0;
}

static int read_ids(const char *line, int64_t vocab, int32_t *ids, int64_t *n,
		    struct err *e)
{
	static const char blank[] = " \t\r";

	for (line += strspn(line, blank); *line; line += strspn(line, blank)) {
		int len = (int)strcspn(line, blank);

		if (read_id(line, len, vocab, &ids[(*n)++], e))
			return -1;
		line += len;
	}
	return 0;
}

static int read_bytes(const char *line, int64_t len, int64_t vocab,
		      int32_t *ids, int64_t *n, struct err *e)
{
	for (; *n < len; (*n)++) {
		ids[*n] = (unsigned char)line[*n];
		if (ids[*n] >= vocab)
			return err_set(e, CODE_USAGE,
				       "byte %" PRId64
				       " is %d, not in the vocabulary of "
				       "%" PRId64 " tokens",
				       *n + 1, (int)ids[*n], vocab);
	}
	return 0;
}

/* LINE of LEN bytes and a 0; an id has at least a byte and a blank. */
static int read_line(struct prompt *p, const char *line, size_t len,
		     const struct limits *l, struct arena *a, struct err *e)
{
	int32_t *ids = arena_alloc(a, len + 1, sizeof(*ids));
	int64_t n = 0;

	if (!l->text && strlen(line) != len)
		return err_set(e, CODE_USAGE, "has a byte 0");
	if (l->text ? read_bytes(line, (int64_t)len, l->vocab, ids, &n, e)
		    : read_ids(line, l->vocab, ids, &n, e))
		return -1;
	if (!n)
		return err_set(e, CODE_USAGE,
			       "an empty prompt: nothing to go on with");
	if (n > l->room - l->more)
		return err_set(e, CODE_USAGE,
			       "a prompt of %" PRId64 " tokens and %" PRId64
			       " new ones (--max-new-tokens) are more than "
			       "max_position_embeddings %" PRId64,
			       n, l->more, l->room);
	*p = (struct prompt){ids, n};
	return 0;
}

static int read_lines(struct prompts *out, FILE *f, const struct limits *l,
		      struct arena *a, struct err *e)
{
	size_t cap = 0, room = 0;
	char *line = NULL;
	ssize_t len;
	int bad = 0;

	while (!bad && (len = getline(&line, &room, f)) >= 0) {
		struct prompt *p;

		if (len && line[len - 1] == '\n')
			line[--len] = 0;
		out->list = arena_grow(a, out->list, (size_t)out->count, &cap,
				       sizeof(*out->list));
		p = &out->list[out->count++];
		bad = read_line(p, line, (size_t)len, l, a, e);
		if (bad)
			err_wrap(e, "line %" PRId64 ": ", out->count);
		else if (p->count > out->longest)
			out->longest = p->count;
	}
	free(line);
	if (!bad && ferror(f))
		bad = err_sys(e, CODE_USAGE, "cannot be read");
	if (!bad && !out->count)
		bad = err_set(e, CODE_USAGE, "has no prompts");
	return bad ? -1 : 0;
}

int prompts_read(struct prompts *out, const char *path, bool text,
		 int64_t vocab, int64_t more, int64_t room, struct arena *a,
		 struct err *e)
{
	const struct limits l = {text, vocab, more, room};
	FILE *f = fopen(path, "re");
	int bad;

	*out = (struct prompts){.text = text};
	if (!f)
		return err_sys(e, CODE_USAGE, "prompts: %s", path);
	bad = read_lines(out, f, &l, a, e);
	fclose(f);
	return bad ? err_wrap(e, "prompts: %s: ", path) : 0;
}
