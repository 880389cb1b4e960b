/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All of TEXT; -1 with errno. */
static int write_all(int fd, const char *text)
{
	size_t left = strlen(text);
	ssize_t n;

	for (; left; text += n, left -= (size_t)n) {
		n = write(fd, text, left);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return -1;
	}
	return 0;
}

/* A device or pipe takes the text as it comes. */
static int write_special(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY), bad;

	bad = fd < 0 || write_all(fd, text);
	if (bad)
		err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	if (fd >= 0)
		close(fd);
	return bad ? -1 : 0;
}

/* Give the complete file TMP its name; without FORCE only if that is free. */
static int publish(const char *tmp, const char *path, bool force, struct err *e)
{
	if (force && !rename(tmp, path))
		return 0;
	if (!force && !link(tmp, path)) {
		unlink(tmp);
		return 0;
	}
	if (errno == EEXIST)
		err_set(e, CODE_USAGE, "'%s' exists; --force replaces it",
			path);
	else
		err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	unlink(tmp);
	return -1;
}

/* A file that is replaced belongs to whom it did, and does what it did. */
static int keep_rights(int fd, const struct stat *st)
{
	if (fchown(fd, st->st_uid, st->st_gid) && errno != EPERM)
		return -1;
	return fchmod(fd, st->st_mode & 07777);
}

int write_file(const char *path, const char *text, bool force, struct arena *a,
	       struct err *e)
{
	const char *tmp = arena_printf(a, "%s.tmp-%ld", path, (long)getpid());
	struct stat st;
	int fd, bad, there = !stat(path, &st);

	if (there && !S_ISREG(st.st_mode))
		return write_special(path, text, e);
	if (there && !force)
		return err_set(e, CODE_USAGE,
			       "'%s' exists; --force replaces it", path);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	bad = (there && keep_rights(fd, &st)) || write_all(fd, text) ||
	      fsync(fd);
	if (close(fd) || bad) {
		err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
		unlink(tmp);
		return -1;
	}
	return publish(tmp, path, force, e);
}
