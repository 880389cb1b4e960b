/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "lib/base/json.h"
#include "lib/base/sys.h"
#include "lib/train/generate.h"

/* What is no UTF-8 is '?' there. */
static json_t *text_of(const struct gen_text *x, struct arena *a)
{
	size_t n = (size_t)x->count;
	char *s = arena_alloc(a, n + 1, 1);
	json_t *text;

	for (size_t i = 0; i < n; i++)
		s[i] = (char)x->ids[i];
	text = json_stringn(s, n);
	for (size_t i = 0; i < n && !text; i++)
		if ((unsigned char)s[i] > 127)
			s[i] = '?';
	return text ? text : json_stringn(s, n);
}

int gen_print(const struct gen_text *x, bool bytes, bool drafts,
	      struct arena *a, struct err *e)
{
	json_t *ids = json_array(), *line = json_object();

	for (int64_t i = 0; i < x->count; i++)
		json_array_append_new(ids, json_integer(x->ids[i]));
	json_object_set_new(line, "prompt", json_integer(x->prompt));
	json_object_set_new(line, "ids", ids);
	if (bytes)
		json_object_set_new(line, "text", text_of(x, a));
	json_object_set_new(line, "end",
			    json_string(x->ended ? "id" : "length"));
	if (drafts) {
		json_object_set_new(line, "drafts", json_integer(x->drafts));
		json_object_set_new(line, "accepted",
				    json_integer(x->accepted));
	}
	fputs(json_line(line, a), stdout);
	return sys_flush_stdout(e);
}
