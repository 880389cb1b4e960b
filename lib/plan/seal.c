/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/seal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/write.h"
#include "lib/plan/conf_read.h"
#include "lib/plan/estimate.h"

/* As trisect_seal.lua computes it, in doubles. */
static uint32_t sum_of(const char *text)
{
	uint64_t h = 0;

	for (; *text; text++)
		h = (h * 1000003 + (unsigned char)*text) % 4294967291;
	return (uint32_t)h;
}

/* The last part of a path, without what would end a word. */
static const char *plain_name(const char *file, struct arena *a)
{
	enum { NAME_MAX_LEN = 100 };
	const char *slash = strrchr(file, '/');
	char *name =
		arena_printf(a, "%.*s", NAME_MAX_LEN, slash ? slash + 1 : file);

	for (char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._+-", *p))
			*p = '_';
	return name;
}

static const char *memory_text(int64_t bytes, struct arena *a)
{
	int64_t mib = (bytes >> 20) + 1, gib = (bytes >> 30) + 1;

	if (gib > 9)
		return arena_printf(a, " memory=%" PRId64 "G", gib);
	return arena_printf(a, " memory=%" PRId64 "M", mib);
}

/* What is expected of memory and time, as far as it can be. */
static const char *expected(const struct verdict *v, const struct cluster *cl,
			    bool gpus, struct arena *a)
{
	const struct run *run = &v->config->run;
	const char *text = "";
	int64_t family[FAMILIES], bytes;
	struct estimate est;
	bool planned;
	struct err e;
	int pp;

	bytes = cluster_memory(cl, v->config, family, &pp, &planned, &e);
	if (bytes > 0)
		text = memory_text(bytes, a);
	if (gpus && !estimate_build(&est, v->config, cl, a, &e) && est.step > 0)
		text = arena_printf(a, "%s step=%.3gs", text, est.step);
	if (IS_SET(run->train_iters))
		text = arena_printf(a, "%s steps=%" PRId64, text,
				    run->train_iters);
	return text;
}

static const char *number(const char *key, int64_t n, struct arena *a)
{
	return n ? arena_printf(a, " %s=%" PRId64, key, n) : "";
}

int seal_build(const char **out, const struct verdict *v,
	       const struct cluster *cl, bool gpus, struct err *e)
{
	struct arena *a = v->report.arena;
	struct cluster on = *cl;
	const char *body;

	cluster_finish(&on);
	if (!on.nodes && on.gpus_per_node && on.world % on.gpus_per_node == 0)
		on.nodes = on.world / on.gpus_per_node;
	if (!on.world)
		return err_set(e, CODE_USAGE,
			       "a seal is for a number of ranks: --world N, or "
			       "--nodes N with --gpus-per-node G");
	if (!v->counted)
		return err_set(e, CODE_USAGE,
			       "a seal has the shape's hash, which wants the "
			       "vocabulary: --vocab-size N");
	body = arena_printf(
		a, "seal=1 shape=%s world=%" PRId64 "%s%s%s%s file=%s", v->hash,
		on.world, number("nodes", on.nodes, a),
		number("per-node", on.gpus_per_node, a),
		number("gpus-per-node", gpus ? on.gpus_per_node : 0, a),
		expected(v, &on, gpus, a), plain_name(v->file, a));
	*out = arena_printf(a, "%s sum=%08" PRIx32, body, sum_of(body));
	return 0;
}

static bool begins(const char *line, const char *end, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(end - line) >= n && !memcmp(line, with, n);
}

/* The end of the comments that a script begins with; *BEHIND: of #SBATCH. */
static const char *header_end(const char *text, const char **behind)
{
	const char *line = text, *end;

	*behind = text + strcspn(text, "\n");
	for (; *line; line = end + (*end == '\n')) {
		const char *first = line + strspn(line, " \t\r");

		end = line + strcspn(line, "\n");
		if (*first != '#' && *first != '\n' && *first)
			return line;
		if (begins(line, end, "#SBATCH"))
			*behind = end;
	}
	return line;
}

/* Lines FROM .. TO but seals, to T; returns the end. */
static char *copy_lines(char *t, const char *from, const char *to)
{
	while (from < to) {
		const char *end = from + strcspn(from, "\n");
		size_t n;

		end += *end == '\n';
		n = (size_t)(end - from);
		if (!begins(from, end, SEAL_PREFIX "seal=")) {
			memcpy(t, from, n);
			t += n;
		}
		from = end;
	}
	return t;
}

const char *seal_script(const char *text, const char *seal, struct arena *a)
{
	const char *line = arena_printf(a, SEAL_PREFIX "%s\n", seal);
	const char *behind, *end;
	char *out, *t;

	if (strncmp(text, "#!", 2))
		return NULL;
	end = header_end(text, &behind);
	behind += *behind == '\n';
	out = arena_alloc(a, strlen(text) + strlen(line) + 2, 1);
	t = copy_lines(out, text, behind);
	if (t > out && t[-1] != '\n')
		*t++ = '\n';
	t = stpcpy(t, line);
	t = copy_lines(t, behind, end);
	stpcpy(t, end);
	return out;
}

int seal_write(const char *file, const char *seal, struct arena *a,
	       struct err *e)
{
	char *path = realpath(file, NULL); /* not the link to it */
	const char *text, *real;
	struct conf_file f;

	if (!path)
		return err_sys(e, CODE_USAGE, "cannot read '%s'", file);
	real = arena_strdup(a, path);
	free(path);
	if (conf_open(&f, real) || conf_read(&f, SEAL_SCRIPT_MAX, a))
		return err_sys(e, CODE_USAGE, "cannot read '%s'", file);
	text = strlen(f.text) == f.len ? seal_script(f.text, seal, a) : NULL;
	if (!text)
		return err_set(e, CODE_USAGE,
			       "'%s' is no batch script: its first line does "
			       "not begin with #!, or it has a NUL byte",
			       file);
	return write_file(real, text, true, a, e);
}
