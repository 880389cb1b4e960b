/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "lib/plan/conf_read.h"
#include "lib/plan/import.h"

const char *const *import_ends(enum config_format format)
{
	static const char *const own[] = {".cfg", NULL};
	static const char *const megatron[] = {".yaml", ".yml",	   ".sh",
					       ".bash", ".sbatch", ".slurm",
					       ".job",	".args",   NULL};
	static const char *const hf[] = {"config.json", NULL};

	switch (format) {
	case CONFIG_OWN: break;
	case CONFIG_VLLM:
	case CONFIG_MEGATRON: return megatron;
	case CONFIG_HF: return hf;
	}
	return own;
}

static bool ends_with(const char *file, const char *end)
{
	size_t n = strlen(file), len = strlen(end);

	return n > len && !strcmp(file + n - len, end);
}

/* Every JSON file is Hugging Face's, whatever its name. */
static bool by_ending(const char *file, enum config_format *out)
{
	if (ends_with(file, ".json")) {
		*out = CONFIG_HF;
		return true;
	}
	for (*out = CONFIG_OWN; *out <= CONFIG_MEGATRON; (*out)++)
		for (const char *const *end = import_ends(*out); *end; end++)
			if (ends_with(file, *end))
				return true;
	return false;
}

/* How a file begins; what cannot be read twice is not touched. */
static void read_start(const char *file, char *start, size_t room)
{
	struct conf_file f;
	ssize_t n = 0;

	if (strcmp(file, "-") && !conf_open(&f, file)) {
		if (S_ISREG(f.st.st_mode))
			n = read(f.fd, start, room - 1);
		close(f.fd);
	}
	start[n > 0 ? n : 0] = 0;
}

enum config_format import_guess(const char *file)
{
	enum config_format out;
	char start[256];
	const char *p = start;

	if (by_ending(file, &out))
		return out;
	read_start(file, start, sizeof(start));
	while (isspace((unsigned char)*p))
		p++;
	if (*p == '{')
		return CONFIG_HF;
	return strncmp(p, "#!", 2) && strncmp(p, "--", 2) ? CONFIG_OWN
							  : CONFIG_MEGATRON;
}
