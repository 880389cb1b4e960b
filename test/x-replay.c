/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-replay TARGET FILE...: every file is given to the fuzz target, as libFuzzer
 * would; the program ends well if all of them do.
 */
#include "test/fuzz/fuzz.h"

static void replay(const struct fuzz_target *t, const char *name)
{
	FILE *f = fopen(name, "rb");
	uint8_t *data = malloc(8 << 20);
	size_t size;

	if (!f || !data)
		fuzz_wrong(name);
	size = fread(data, 1, 8 << 20, f);
	fclose(f);
	fuzz_one(t, data, size);
	free(data);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < FUZZ_TARGETS && argc > 2; i++) {
		if (strcmp(fuzz_targets[i].name, argv[1]) != 0)
			continue;
		for (int k = 2; k < argc; k++)
			replay(&fuzz_targets[i], argv[k]);
		printf("%d inputs\n", argc - 2);
		return 0;
	}
	fputs("usage: x-replay TARGET FILE...\n", stderr);
	return 2;
}
