/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "lib/plan/conf_read.h"
#include "lib/plan/import.h"

static bool by_ending(const char *file, enum config_format *out)
{
	static const struct {
		const char *end;
		enum config_format format;
	} ends[] = {
		{".cfg", CONFIG_OWN},	      {".json", CONFIG_HF},
		{".yaml", CONFIG_MEGATRON},   {".yml", CONFIG_MEGATRON},
		{".sh", CONFIG_MEGATRON},     {".bash", CONFIG_MEGATRON},
		{".sbatch", CONFIG_MEGATRON}, {".slurm", CONFIG_MEGATRON},
		{".job", CONFIG_MEGATRON},    {".args", CONFIG_MEGATRON},
	};
	size_t n = strlen(file);

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t len = strlen(ends[i].end);

		if (n > len && !strcmp(file + n - len, ends[i].end)) {
			*out = ends[i].format;
			return true;
		}
	}
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
