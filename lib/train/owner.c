/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/base/sys.h"

static int refuse(int fd, const char *dir, struct err *e)
{
	char who[128] = "";
	ssize_t n = pread(fd, who, sizeof(who) - 1, 0);

	who[n > 0 ? n : 0] = 0;
	who[strcspn(who, "\n")] = 0;
	close(fd);
	return err_set(e, CODE_LAUNCH,
		       "another job trains in '%s' (%s); wait for it, end it, "
		       "or give this one a run.dir of its own",
		       dir, *who ? who : "unknown");
}

int owner_open(int *fd, const char *dir, const char *host, struct err *e)
{
	char path[4200], who[128];
	int len;

	*fd = -1;
	if (sys_make_dir(dir, NULL, e))
		return -1;
	snprintf(path, sizeof(path), "%s/.owner", dir);
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (*fd < 0)
		return err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	if (flock(*fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		int other = *fd;

		*fd = -1;
		return refuse(other, dir, e);
	}
	len = snprintf(who, sizeof(who), "host %.64s, pid %d\n", host,
		       (int)getpid());
	if (ftruncate(*fd, 0) || pwrite(*fd, who, (size_t)len, 0) != len) {
		owner_close(fd);
		return err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	}
	return 0;
}

void owner_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
