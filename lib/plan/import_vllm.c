/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "lib/plan/import_megatron.h"

/* "--name" or "-n", but not "-1". */
static bool is_option(const char *text)
{
	return text[0] == '-' &&
	       (isalpha((unsigned char)text[1]) ||
		(text[1] == '-' && isalpha((unsigned char)text[2])));
}

/* The words that belong to the option at WORD I; "--name=value" has one. */
static size_t give_option(struct import *im, const struct words *w, size_t i)
{
	const char *name = w->list[i].text, *equals = strchr(name, '=');
	const char *value[] = {equals ? equals + 1 : NULL};
	size_t n = i + 1;

	if (equals)
		name = arena_strndup(im->arena, name, (size_t)(equals - name));
	while (n < w->count && !is_option(w->list[n].text))
		n++;
	if (!equals && n > i + 1)
		value[0] = w->list[i + 1].text;
	import_give(im, name, value, value[0] != NULL, w->list[i].line);
	return n;
}

/* "vllm serve MODEL --option value ...", or the options alone. */
static int read_words(struct import *im, const char *text, size_t len)
{
	struct words w = {.arena = im->arena};
	size_t i = 0;

	if (import_args(im, text, len, &w))
		return -1;
	for (; i < w.count && !is_option(w.list[i].text); i++)
		if (i && !strcmp(w.list[i - 1].text, "serve"))
			import_give(im, "model", &w.list[i].text, 1,
				    w.list[i].line);
	while (i < w.count)
		i = give_option(im, &w, i);
	return 0;
}

static int read_yaml(struct import *im, const char *text, size_t len)
{
	struct flags flags = {0};

	im->keys = true;
	if (import_yaml(im, text, len, &flags))
		return -1;
	for (size_t i = 0; i < flags.count; i++)
		import_give(im, flags.list[i].name, flags.list[i].value,
			    flags.list[i].values, flags.list[i].line);
	return 0;
}

int import_vllm(struct import *im, const char *text, size_t len)
{
	int bad = import_front(im->file, text) == FRONT_YAML
			  ? read_yaml(im, text, len)
			  : read_words(im, text, len);

	if (!bad && !im->givens)
		return import_give_up(im, 0, "no engine arguments");
	return bad;
}
