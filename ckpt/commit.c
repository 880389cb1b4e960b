/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/commit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/crc.h"
#include "ckpt/index.h"
#include "ckpt/io.h"
#include "lib/base/sys.h"

enum { STALE_SECONDS = 3600 };

static const char *const folders[] = {"model", "experts", "optim"};
enum { FOLDERS = sizeof(folders) / sizeof(*folders) };

static void tell(const struct commit *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void tell(const struct commit *c, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (!c->say)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	c->say(line);
}

void commit_paths(struct commit *c, const char *run_dir,
		  const struct ckpt_progress *p, void (*say)(const char *),
		  struct arena *a)
{
	*c = (struct commit){.run_dir = arena_strdup(a, run_dir), .say = say};
	format_step(c->name, p->step);
	c->step = arena_printf(a, "%s/%s", run_dir, c->name);
	c->temp = arena_printf(a, "%s/" FORMAT_TEMP "%s-%016" PRIx64, run_dir,
			       c->name, p->nonce);
}

static bool starts(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* Whether the entry NAME of the run's folder was left by a dead job. */
static bool is_stale(const struct commit *c, const char *name, const char *path)
{
	size_t len = strlen(FORMAT_TEMP);

	if (starts(name, FORMAT_DEAD))
		return true;
	if (!starts(name, FORMAT_TEMP))
		return false;
	return starts(name + len, c->name) ||
	       time(NULL) - io_changed(path) > STALE_SECONDS;
}

static void remove_stale(const struct commit *c, struct arena *a)
{
	DIR *d = opendir(c->run_dir);

	for (struct dirent *at; d && (at = readdir(d));) {
		const char *path =
			arena_printf(a, "%s/%s", c->run_dir, at->d_name);

		if (!is_stale(c, at->d_name, path))
			continue;
		tell(c, "removing %s, left by a dead job", path);
		io_remove(path);
	}
	if (d)
		closedir(d);
}

static int begin(struct commit *c, struct arena *a, struct err *e)
{
	if (sys_make_dir(c->run_dir, &c->made, e))
		return -1;
	remove_stale(c, a);
	if (mkdir(c->temp, 0777))
		return io_failed("create folder", c->temp, e);
	for (int i = 0; i < FOLDERS; i++) {
		const char *path =
			arena_printf(a, "%s/%s", c->temp, folders[i]);

		if (mkdir(path, 0777))
			return io_failed("create folder", path, e);
	}
	return 0;
}

int commit_begin(struct commit *c, struct err *e)
{
	struct arena a = {0};
	int rc;

	if (arena_open(&a, e))
		return -1;
	rc = begin(c, &a, e);
	arena_close(&a);
	return rc;
}

void commit_abort(const struct commit *c)
{
	io_remove(c->temp);
	sys_remove_dir(c->run_dir, c->made);
}

/* The rows of all files, as they are on the disk. */
static int collect(const struct commit *c, struct index *x, struct arena *a,
		   struct err *e)
{
	const struct manifest *m = x->manifest;

	for (int i = 0; i < m->count; i++) {
		struct h5 *f;
		int rc;

		if (h5_open(&f,
			    arena_printf(a, "%s/%s", c->temp, m->files[i].name),
			    e))
			return -1;
		rc = index_read(x, f, i, e);
		h5_close(f);
		if (rc)
			return -1;
	}
	index_sort(x, a);
	return index_check(x, e);
}

static int write_tables(struct h5 *f, const struct index *x,
			const struct head *h, struct arena *a, struct err *e)
{
	const struct manifest *m = x->manifest;
	char *names = arena_alloc(a, (size_t)m->count + 1, FORMAT_FILE);

	for (int i = 0; i < m->count; i++)
		memcpy(names + (size_t)i * FORMAT_FILE, m->files[i].name,
		       FORMAT_FILE);
	if (head_write(h, f, FORMAT_INDEX, e) || index_write(x, f, e) ||
	    h5_files_write(f, m->count, names, e))
		return -1;
	return h5_finish(f, e);
}

/* Size and checksum of the whole file, which is synced. */
static int seal(const char *path, struct manifest_file *out, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		rc = io_failed("read", path, e);
	} else {
		out->size = st.st_size;
		rc = io_checksum(fd, 0, st.st_size, path, &out->crc, e);
	}
	if (!rc && fsync(fd))
		rc = io_failed("sync", path, e);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int write_index(const struct commit *c, const struct index *x,
		       const struct head *h, struct manifest_file *out,
		       struct arena *a, struct err *e)
{
	const char *path = arena_printf(a, "%s/" FORMAT_INDEX, c->temp);
	struct h5 *f;
	int rc;

	if (h5_create(&f, path, e))
		return -1;
	rc = write_tables(f, x, h, a, e);
	h5_close(f);
	return rc ? rc : seal(path, out, e);
}

static int finish(const struct commit *c, const struct head *h,
		  const struct weights *w, struct manifest *m, struct arena *a,
		  struct err *e)
{
	struct index x;

	for (int i = 0; i < m->count; i++)
		m->index.rows += m->files[i].rows;
	index_open(&x, w, m, a);
	if (collect(c, &x, a, e) || write_index(c, &x, h, &m->index, a, e) ||
	    manifest_write(m, c->temp, e))
		return -1;
	for (int i = 0; i < FOLDERS; i++) {
		const char *path =
			arena_printf(a, "%s/%s", c->temp, folders[i]);

		/* an empty one goes: a model without experts */
		if (rmdir(path) && io_sync_dir(path, e))
			return -1;
	}
	return io_sync_dir(c->temp, e);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct manifest_file *)a)->name,
		      ((const struct manifest_file *)b)->name);
}

int commit_manifest(const struct commit *c, const struct head *h,
		    const struct weights *w, struct manifest_file *files,
		    int count, struct err *e)
{
	struct manifest m = {
		.step = h->progress.step,
		.nonce = h->progress.nonce,
		.index = {.name = FORMAT_INDEX},
		.files = files,
		.count = count,
	};
	struct arena a = {0};
	int rc;

	memcpy(m.shape_hash, h->shape_hash, sizeof(m.shape_hash));
	qsort(files, (size_t)count, sizeof(*files), by_name);
	if (arena_open(&a, e))
		return -1;
	rc = finish(c, h, w, &m, &a, e);
	arena_close(&a);
	return rc;
}

/* Move FROM out of the way, as PREFIX + NAME + a free number. */
static int set_aside(const struct commit *c, const char *from,
		     const char *prefix, const char *name, char **to,
		     struct arena *a, struct err *e)
{
	for (int i = 0; i < 1000; i++) {
		*to = arena_printf(a, "%s/%s%s.%d", c->run_dir, prefix, name,
				   i);
		if (!rename(from, *to))
			return 0;
		if (errno != EEXIST && errno != ENOTEMPTY)
			break;
	}
	return io_failed("rename", from, e);
}

/*
 * The new step in the old one's place, which is set aside.  Both change
 * places at once where the file system can do that.
 */
static int swap(const struct commit *c, bool bad, char **old, struct arena *a,
		struct err *e)
{
	const char *prefix = bad ? FORMAT_BAD : FORMAT_DEAD;

	if (!renameat2(AT_FDCWD, c->temp, AT_FDCWD, c->step, RENAME_EXCHANGE))
		return set_aside(c, c->temp, prefix, c->name, old, a, e);
	if (set_aside(c, c->step, prefix, c->name, old, a, e))
		return -1;
	if (rename(c->temp, c->step))
		return io_failed("rename", c->temp, e);
	return 0;
}

static int end(const struct commit *c, bool bad, struct arena *a, struct err *e)
{
	char *old = NULL;
	struct err hint;

	if (!access(c->step, F_OK)) {
		if (swap(c, bad, &old, a, e))
			return -1;
	} else if (rename(c->temp, c->step)) {
		return io_failed("rename", c->temp, e);
	}
	if (io_sync_dir(c->run_dir, e))
		return -1;
	if (old && bad)
		tell(c, "%s was not complete: renamed to %s", c->step, old);
	if (old && !bad)
		io_remove(old);
	/* A hint for people: the checkpoint is complete without it. */
	if (io_write_text(arena_printf(a, "%s/" FORMAT_LATEST, c->run_dir),
			  arena_printf(a, "%s\n", c->name), &hint))
		tell(c, "%s", hint.text);
	return 0;
}

int commit_end(const struct commit *c, bool bad, struct err *e)
{
	struct arena a = {0};
	int rc;

	if (arena_open(&a, e))
		return -1;
	rc = end(c, bad, &a, e);
	arena_close(&a);
	return rc;
}

static int newest_first(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

int commit_list(const char *run_dir, struct arena *a, int64_t **steps,
		int *count, struct err *e)
{
	DIR *d = opendir(run_dir);
	size_t n = 0, cap = 0;
	int64_t step;

	*steps = NULL;
	*count = 0;
	if (!d && errno != ENOENT)
		return err_sys(e, CODE_CKPT, "cannot open folder %s", run_dir);
	for (struct dirent *at; d && (at = readdir(d));) {
		if (format_step_parse(at->d_name, &step))
			continue;
		*steps = arena_grow(a, *steps, n, &cap, sizeof(**steps));
		(*steps)[n++] = step;
	}
	if (d)
		closedir(d);
	if (n)
		qsort(*steps, n, sizeof(**steps), newest_first);
	*count = (int)n;
	return 0;
}

/* Whether the step has a manifest that can be believed. */
static bool is_sound(const char *path)
{
	struct arena a = {0};
	struct manifest m;
	struct err e;
	bool sound;

	if (arena_open(&a, &e))
		return false;
	sound = !manifest_read(&m, path, &a, &e);
	arena_close(&a);
	return sound;
}

void commit_retain(const struct commit *c, int keep)
{
	struct arena a = {0};
	int64_t *steps;
	struct err e;
	int n;

	if (keep < 1 || arena_open(&a, &e))
		return;
	if (commit_list(c->run_dir, &a, &steps, &n, &e))
		n = 0;
	for (int i = 0; i < n; i++) {
		const char *path = ckpt_step_path(c->run_dir, steps[i], &a);
		char name[FORMAT_STEP], *to;

		format_step(name, steps[i]);
		if (!is_sound(path) || keep-- > 0 || !strcmp(name, c->name))
			continue;
		if (!set_aside(c, path, FORMAT_DEAD, name, &to, &a, &e))
			io_remove(to);
	}
	arena_close(&a);
}
