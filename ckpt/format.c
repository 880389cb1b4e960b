/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/format.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const roles[ROLES] = {"param", "master", "m", "v"};
static const struct {
	const char *name;
	size_t size;
} dtypes[] = {
	[CKPT_F32] = {"f32", 4},
	[CKPT_F64] = {"f64", 8},
	[CKPT_BF16] = {"bf16", 2},
	[CKPT_F16] = {"f16", 2},
};
enum { DTYPES = sizeof(dtypes) / sizeof(*dtypes) };

const char *format_role(int role)
{
	return role >= 0 && role < ROLES ? roles[role] : NULL;
}

const char *format_dtype(int dtype)
{
	return dtype >= 0 && dtype < DTYPES ? dtypes[dtype].name : NULL;
}

size_t ckpt_dtype_size(enum ckpt_dtype t)
{
	return dtypes[t].size;
}

void format_step(char out[FORMAT_STEP], int64_t step)
{
	snprintf(out, FORMAT_STEP, "step_%08" PRId64, step);
}

int format_step_parse(const char *name, int64_t *step)
{
	int64_t n = 0;

	if (strncmp(name, "step_", 5) || strlen(name) != 13)
		return -1;
	for (const char *s = name + 5; *s; s++) {
		if (!isdigit((unsigned char)*s))
			return -1;
		n = 10 * n + (*s - '0');
	}
	*step = n;
	return 0;
}

void format_model(char out[FORMAT_FILE], int pp, int tp)
{
	snprintf(out, FORMAT_FILE, "model/pp%02d-tp%02d.h5", pp, tp);
}

void format_experts(char out[FORMAT_FILE], int pp, int ep, int etp)
{
	snprintf(out, FORMAT_FILE, "experts/pp%02d-ep%03d-etp%02d.h5", pp, ep,
		 etp);
}

void format_optim(char out[FORMAT_FILE], int pp, int tp, int d)
{
	snprintf(out, FORMAT_FILE, "optim/pp%02d-tp%02d-d%03d.h5", pp, tp, d);
}

bool format_file_ok(const char *name)
{
	size_t len = strlen(name);

	if (len < 4 || len >= FORMAT_FILE || *name == '/' || strstr(name, ".."))
		return false;
	for (const char *s = name; *s; s++)
		if (!islower((unsigned char)*s) &&
		    !isdigit((unsigned char)*s) && !strchr("/-.", *s))
			return false;
	return !strcmp(name + len - 3, ".h5");
}

void format_path(char out[FORMAT_PATH], enum ckpt_role role, const char *weight,
		 int nth)
{
	char suffix[16] = "";

	if (nth)
		snprintf(suffix, sizeof(suffix), ".%d", nth);
	snprintf(out, FORMAT_PATH, FORMAT_DATA "/%s/%s%s", roles[role], weight,
		 suffix);
}
