/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ckpt/crc.h"

/* Dirty bytes after which the kernel is asked to begin writing. */
enum { START_BYTES = 32 << 20 };

int io_failed(const char *what, const char *path, struct err *e)
{
	return err_sys(e, CODE_STORAGE, "cannot %s %s", what, path);
}

int io_write(int fd, const void *data, size_t n, int64_t at, const char *path,
	     struct err *e)
{
	const char *p = data;

	while (n) {
		ssize_t done = pwrite(fd, p, n, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return io_failed("write", path, e);
		p += done;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

int io_read(int fd, void *data, size_t n, int64_t at, const char *path,
	    struct err *e)
{
	char *p = data;

	while (n) {
		ssize_t done = pread(fd, p, n, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_sys(e, CODE_CKPT, "cannot read %s", path);
		if (done == 0)
			return err_set(e, CODE_CKPT,
				       "%s ends at byte %" PRId64
				       ", %zu more are wanted",
				       path, at, n);
		p += done;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

int io_checksum(int fd, int64_t at, int64_t n, const char *path, uint32_t *crc,
		struct err *e)
{
	char buf[16384];

	while (n) {
		size_t len = n < (int64_t)sizeof(buf) ? (size_t)n : sizeof(buf);

		if (io_read(fd, buf, len, at, path, e))
			return -1;
		*crc = crc32c(*crc, buf, len);
		at += (int64_t)len;
		n -= (int64_t)len;
	}
	return 0;
}

int64_t io_free(const char *dir)
{
	struct statvfs fs;

	/* Some network and overlay file systems tell no sizes at all. */
	if (statvfs(dir, &fs) || !fs.f_blocks)
		return -1;
	return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

int io_reserve(int fd, int64_t size, const char *path, struct err *e)
{
	if (size == 0 || !fallocate(fd, 0, 0, size))
		return 0;
	if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)
		return 0;
	return err_sys(e, CODE_STORAGE, "%s needs %" PRId64 " bytes", path,
		       size);
}

void io_start(int fd, int64_t *started, int64_t end)
{
	if (end - *started < START_BYTES)
		return;
	sync_file_range(fd, *started, end - *started, SYNC_FILE_RANGE_WRITE);
	*started = end;
}

static int copy_bytes(int in, int out, const char *from, const char *to,
		      struct err *e)
{
	char buf[16384];
	int64_t at = 0;
	ssize_t n;

	while ((n = pread(in, buf, sizeof(buf), at)) > 0) {
		if (io_write(out, buf, (size_t)n, at, to, e))
			return -1;
		at += n;
	}
	if (n < 0)
		return err_sys(e, CODE_CKPT, "cannot read %s", from);
	return fsync(out) ? io_failed("sync", to, e) : 0;
}

int io_copy(const char *from, const char *to, struct err *e)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out, rc;

	if (in < 0)
		return err_sys(e, CODE_CKPT, "cannot open %s", from);
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (out < 0) {
		rc = io_failed("create", to, e);
	} else {
		rc = copy_bytes(in, out, from, to, e);
		close(out);
	}
	close(in);
	return rc;
}

static int write_synced(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int rc;

	if (fd < 0)
		return io_failed("create", path, e);
	rc = io_write(fd, text, strlen(text), 0, path, e);
	if (!rc && fsync(fd))
		rc = io_failed("sync", path, e);
	close(fd);
	return rc;
}

int io_write_text(const char *path, const char *text, struct err *e)
{
	struct arena a = {0};
	char *temp;
	int rc;

	if (arena_open(&a, e))
		return -1;
	temp = arena_printf(&a, "%s.tmp", path);
	rc = write_synced(temp, text, e);
	if (!rc && rename(temp, path))
		rc = io_failed("rename", temp, e);
	if (rc)
		unlink(temp);
	arena_close(&a);
	return rc;
}

int io_read_text(const char *path, size_t max, struct arena *a, char **text,
		 struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int rc = -1;

	if (fd < 0)
		return err_sys(e, CODE_CKPT, "cannot open %s", path);
	if (fstat(fd, &st)) {
		err_sys(e, CODE_CKPT, "cannot read %s", path);
	} else if (!S_ISREG(st.st_mode) || (size_t)st.st_size > max) {
		err_set(e, CODE_CKPT, "%s is not a file of at most %zu bytes",
			path, max);
	} else {
		*text = arena_alloc(a, (size_t)st.st_size + 1, 1);
		rc = io_read(fd, *text, (size_t)st.st_size, 0, path, e);
		if (!rc && memchr(*text, 0, (size_t)st.st_size))
			rc = err_set(e, CODE_CKPT, "%s is not a text", path);
	}
	close(fd);
	return rc;
}

int io_sync_dir(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return io_failed("open", path, e);
	rc = fsync(fd);
	/* Not every file system can sync a folder. */
	if (rc && (errno == EINVAL || errno == ENOTSUP))
		rc = 0;
	if (rc)
		io_failed("sync", path, e);
	close(fd);
	return rc;
}

/* What walk_tree does with each entry, after what is in it. */
typedef void visit(int dir, const char *name, const struct stat *st, void *arg);

static void walk_tree(int dir, const char *name, visit *see, void *arg)
{
	struct stat st;
	DIR *d = NULL;
	int fd;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return;
	if (S_ISDIR(st.st_mode)) {
		fd = openat(dir, name,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		d = fd < 0 ? NULL : fdopendir(fd);
		if (fd >= 0 && !d)
			close(fd);
	}
	for (struct dirent *at; d && (at = readdir(d));)
		if (strcmp(at->d_name, ".") && strcmp(at->d_name, ".."))
			walk_tree(dirfd(d), at->d_name, see, arg);
	if (d)
		closedir(d);
	see(dir, name, &st, arg);
}

static void remove_one(int dir, const char *name, const struct stat *st,
		       void *arg)
{
	(void)arg;
	unlinkat(dir, name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0);
}

void io_remove(const char *path)
{
	walk_tree(AT_FDCWD, path, remove_one, NULL);
}

static void latest(int dir, const char *name, const struct stat *st, void *arg)
{
	time_t *newest = arg;

	(void)dir;
	(void)name;
	if (st->st_mtime > *newest)
		*newest = st->st_mtime;
}

time_t io_changed(const char *path)
{
	time_t newest = 0;

	walk_tree(AT_FDCWD, path, latest, &newest);
	return newest;
}
