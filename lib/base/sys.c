/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/sys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

int sys_check_space(int64_t mib, const char *what, struct err *e)
{
	size_t bytes = (size_t)mib << 20;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return err_set(e, CODE_LAUNCH,
			       "out of memory: %s may want %" PRId64
			       " MiB of address space; see ulimit -v",
			       what, mib);
	munmap(p, bytes);
	return 0;
}

/* Make the folder PATH; MADE (or NULL) gets the length of the first made. */
static int make_one(const char *path, size_t *made, struct err *e)
{
	if (!mkdir(path, 0777)) {
		if (made && !*made)
			*made = strlen(path);
		return 0;
	}
	if (errno == EEXIST)
		return 0;
	return err_sys(e, CODE_STORAGE, "cannot make folder '%s'", path);
}

static int make_parents(const char *path, size_t *made, struct err *e)
{
	char *folder = strdup(path);
	int bad = 0;

	if (!folder)
		return err_set(e, CODE_LAUNCH, "out of memory");
	for (char *s = folder; !bad && *s && (s = strchr(s + 1, '/'));) {
		*s = 0;
		bad = make_one(folder, made, e);
		*s = '/';
	}
	free(folder);
	return bad;
}

int sys_make_parents(const char *path, struct err *e)
{
	return make_parents(path, NULL, e);
}

int sys_make_dir(const char *path, size_t *made, struct err *e)
{
	if (made)
		*made = 0;
	return make_parents(path, made, e) ? -1 : make_one(path, made, e);
}

void sys_remove_dir(const char *path, size_t made)
{
	size_t len = strlen(path);
	char *folder = strdup(path);

	while (folder && made && len >= made) {
		folder[len] = 0;
		rmdir(folder);
		while (len && folder[len - 1] == '/')
			len--;
		while (len && folder[len - 1] != '/')
			len--;
		while (len && folder[len - 1] == '/')
			len--;
	}
	free(folder);
}
