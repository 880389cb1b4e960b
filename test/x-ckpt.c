/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints without training, for the tests of ckpt-merge:
 *   x-ckpt save DIR STEP WORLD DTYPE SET...   all ranks save
 *   x-ckpt load PATH WORLD DTYPE SET...       all ranks load and check
 * DTYPE is f32, f64 or bf16.  load prints the number of wrong elements.
 */
#include <inttypes.h>

#include "test/ckpt-sim.h"

static enum ckpt_dtype dtype_of(const char *name)
{
	for (int i = 0; format_dtype(i); i++)
		if (!strcmp(format_dtype(i), name))
			return (enum ckpt_dtype)i;
	sim_die(name, "no such dtype");
	return CKPT_F32;
}

static void open_words(struct sim *s, char **word, int n)
{
	char sets[4096] = "";
	size_t used = 0;

	for (int i = 2; i < n; i++)
		used += (size_t)snprintf(sets + used, sizeof(sets) - used,
					 "%s ", word[i]);
	sim_open(s, sets, atoll(word[0]));
	s->dtype = dtype_of(word[1]);
}

int main(int argc, char **argv)
{
	struct err e = {0};
	struct sim s;
	int64_t wrong;

	if (argc > 6 && !strcmp(argv[1], "save")) {
		open_words(&s, argv + 4, argc - 4);
		s.progress.step = atoll(argv[3]);
		return sim_save(&s, argv[2]);
	}
	if (argc < 6 || strcmp(argv[1], "load"))
		sim_die("usage",
			"save DIR STEP | load PATH, WORLD DTYPE SET...");
	open_words(&s, argv + 3, argc - 3);
	wrong = sim_load(&s, argv[2], &e);
	if (wrong < 0)
		sim_die(argv[2], e.text);
	printf("%" PRId64 "\n", wrong);
	return wrong != 0;
}
