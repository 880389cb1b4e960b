/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

double sys_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int sys_flush_stdout(struct err *e)
{
	static const char what[] = "cannot write standard output";

	if (fflush(stdout))
		return err_sys(e, CODE_STORAGE, "%s", what);
	if (ferror(stdout)) /* a part before; its errno is gone */
		return err_set(e, CODE_STORAGE, "%s: a part was refused", what);
	return 0;
}

static int make_one(const char *path, struct err *e)
{
	if (mkdir(path, 0777) && errno != EEXIST)
		return err_sys(e, CODE_STORAGE, "cannot make folder '%s'",
			       path);
	return 0;
}

int sys_make_parents(const char *path, struct err *e)
{
	char *folder = strdup(path);
	int bad = 0;

	if (!folder)
		return err_set(e, CODE_LAUNCH, "out of memory");
	for (char *s = folder; !bad && *s && (s = strchr(s + 1, '/'));) {
		*s = 0;
		bad = make_one(folder, e);
		*s = '/';
	}
	free(folder);
	return bad;
}

int sys_make_dir(const char *path, struct err *e)
{
	return sys_make_parents(path, e) ? -1 : make_one(path, e);
}
