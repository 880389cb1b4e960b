/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/inputs.h"

#include <errno.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void add(struct inputs *in, const char *file, const char *name,
		struct arena *a)
{
	in->list =
		arena_grow(a, in->list, in->count, &in->cap, sizeof(*in->list));
	in->list[in->count++] = (struct input){
		arena_strdup(a, file),
		arena_printf(a, "%s%s", name, in->foreign ? ".cfg" : "")};
}

static void add_file(struct inputs *in, const char *file, struct arena *a)
{
	const char *slash = strrchr(file, '/');

	if (!strcmp(file, "-"))
		add(in, file, in->foreign ? "stdin" : "stdin.cfg", a);
	else
		add(in, file, slash ? slash + 1 : file, a);
}

static const char *const *ends_of(const struct inputs *in)
{
	static const char *const own[] = {".cfg", NULL};

	return in->ends ? in->ends : own;
}

/* What begins with a dot is an ending, all else a whole name. */
static bool has_end(const struct inputs *in, const FTSENT *entry)
{
	const char *name = entry->fts_name;
	size_t len;

	for (const char *const *end = ends_of(in); *end; end++) {
		len = **end == '.' ? strlen(*end) : entry->fts_namelen;
		if (entry->fts_namelen >= len &&
		    !strcmp(name + entry->fts_namelen - len, *end))
			return true;
	}
	return false;
}

static bool is_config(const struct inputs *in, const FTSENT *entry)
{
	struct stat st;

	if (!has_end(in, entry))
		return false;
	return entry->fts_info == FTS_F ||
	       (entry->fts_info == FTS_SL && !stat(entry->fts_accpath, &st) &&
		S_ISREG(st.st_mode));
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Walk TREE, which is below FOLDER. */
static int add_tree(struct inputs *in, FTS *tree, const char *folder,
		    struct arena *a, struct err *e)
{
	size_t len = strlen(folder);
	FTSENT *entry;
	const char *name;

	while ((entry = fts_read(tree))) {
		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
			errno = entry->fts_errno;
			return err_sys(e, CODE_USAGE, "cannot read folder '%s'",
				       entry->fts_path);
		}
		if (!is_config(in, entry))
			continue;
		name = entry->fts_path + len;
		name += strspn(name, "/");
		add(in, entry->fts_path, name, a);
	}
	return 0;
}

static int add_folder(struct inputs *in, const char *folder, struct arena *a,
		      struct err *e)
{
	char *path = arena_strdup(a, folder);
	char *roots[] = {path, NULL};
	size_t before = in->count, len = strlen(path);
	FTS *tree;
	int bad;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = 0;
	tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR,
			by_name);
	if (!tree)
		return err_sys(e, CODE_USAGE, "cannot read folder '%s'",
			       folder);
	bad = add_tree(in, tree, path, a, e);
	fts_close(tree);
	if (!bad && in->count == before)
		return err_set(e, CODE_USAGE, "no %s%s below '%s'",
			       **ends_of(in) == '.' ? "*" : "", *ends_of(in),
			       folder);
	return bad;
}

/* A folder, or whatever is to be read as a config. */
static int add_path(struct inputs *in, const char *path, struct arena *a,
		    struct err *e)
{
	struct stat st;

	if (strcmp(path, "-") && !stat(path, &st) && S_ISDIR(st.st_mode))
		return add_folder(in, path, a, e);
	add_file(in, path, a);
	return 0;
}

static int add_list(struct inputs *in, const char *list, struct arena *a,
		    struct err *e)
{
	FILE *f = strcmp(list, "-") ? fopen(list, "re") : stdin;
	size_t before = in->count, room = 0;
	char *line = NULL;
	int bad = 0;

	if (!f)
		return err_sys(e, CODE_USAGE, "cannot read list '%s'", list);
	while (!bad && getline(&line, &room, f) > 0) {
		line[strcspn(line, "\r\n")] = 0;
		if (*line && *line != '#')
			bad = add_path(in, line, a, e);
	}
	free(line);
	if (ferror(f))
		bad = err_sys(e, CODE_USAGE, "cannot read list '%s'", list);
	if (f != stdin)
		fclose(f);
	if (!bad && in->count == before)
		return err_set(e, CODE_USAGE, "list '%s' is empty", list);
	return bad;
}

int inputs_add(struct inputs *in, const char *operand, struct arena *a,
	       struct err *e)
{
	if (*operand == '@')
		return add_list(in, operand + 1, a, e);
	return add_path(in, operand, a, e);
}
