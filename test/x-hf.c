/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-hf DIR: the tensors of a folder of safetensors, by name: type, shape and
 * the XXH3-128 of their bytes; then how many elements they have together.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "ckpt/safetensors.h"

static int print(struct safe *s, const struct safe_tensor *t, int64_t *sum,
		 struct err *e)
{
	char *data = malloc((size_t)t->bytes + 1);
	XXH128_canonical_t hash;
	int64_t n = 1;

	if (!data || safe_read(s, t, 0, (size_t)t->bytes, data, e))
		return -1;
	XXH128_canonicalFromHash(&hash, XXH3_128bits(data, (size_t)t->bytes));
	printf("%s %s %s ", t->name, t->dtype,
	       safe_shape(t->dim, t->ndim, s->arena));
	for (size_t i = 0; i < sizeof(hash.digest); i++)
		printf("%02x", hash.digest[i]);
	putchar('\n');
	free(data);
	for (int i = 0; i < t->ndim; i++)
		n *= t->dim[i];
	*sum += n;
	return 0;
}

int main(int argc, char **argv)
{
	struct arena a = {0};
	struct safe s = {0};
	int64_t sum = 0;
	struct err e;
	int bad;

	if (argc != 2) {
		fputs("usage: x-hf DIR\n", stderr);
		return 2;
	}
	bad = arena_open(&a, &e) || safe_open(&s, argv[1], &a, &e);
	for (size_t i = 0; !bad && i < s.count; i++)
		bad = print(&s, &s.list[i], &sum, &e);
	if (bad)
		fprintf(stderr, "x-hf: %s\n", e.text);
	else
		printf("%" PRId64 " elements\n", sum);
	safe_close(&s);
	arena_close(&a);
	return bad ? 1 : 0;
}
