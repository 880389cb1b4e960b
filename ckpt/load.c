/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/commit.h"
#include "ckpt/crc.h"
#include "ckpt/io.h"
#include "ckpt/pack.h"
#include "ckpt/plan.h"

/* The file is as long as it should be. */
static int check_size(struct ckpt *c, const struct manifest_file *f,
		      struct err *e)
{
	struct stat st;

	if (fstatat(c->folder, f->name, &st, 0))
		return err_sys(e, CODE_CKPT, "cannot read %s", f->name);
	if (st.st_size != f->size)
		return err_set(e, CODE_CKPT,
			       "%s has %lld bytes, the manifest says %" PRId64,
			       f->name, (long long)st.st_size, f->size);
	return 0;
}

/* Bytes of manifest.h5 before HDF5 looks at them. */
static int check_index(struct ckpt *c, struct err *e)
{
	const struct manifest_file *f = &c->manifest.index;
	int fd = openat(c->folder, f->name, O_RDONLY | O_CLOEXEC), rc;
	uint32_t crc = 0;

	if (fd < 0)
		return err_sys(e, CODE_CKPT, "cannot open %s", f->name);
	rc = io_checksum(fd, 0, f->size, f->name, &crc, e);
	close(fd);
	if (!rc && crc != f->crc)
		rc = err_set(e, CODE_CKPT,
			     "%s is damaged: crc %08" PRIx32
			     ", the manifest says %08" PRIx32,
			     f->name, crc, f->crc);
	return rc;
}

/* What the index file says, apart from the index itself. */
static int read_head(struct ckpt *c, struct h5 *f, struct err *e)
{
	const struct manifest *m = &c->manifest;

	if (head_read(&c->head, f, &c->arena, e) ||
	    head_shape(&c->head, &c->shape, &c->arena, e))
		return -1;
	if (c->head.progress.step != m->step ||
	    strcmp(c->head.shape_hash, m->shape_hash))
		return err_set(e, CODE_CKPT,
			       "step or shape of " FORMAT_INDEX
			       " are not the manifest's");
	return 0;
}

static int read_index(struct ckpt *c, struct err *e)
{
	struct h5 *f;
	int rc;

	if (h5_open(&f, arena_printf(&c->arena, "%s/" FORMAT_INDEX, c->dir), e))
		return -1;
	rc = read_head(c, f, e);
	if (!rc) {
		weights_build(&c->weights, &c->shape, &c->arena);
		index_open(&c->index, &c->weights, &c->manifest, &c->arena);
		rc = index_read(&c->index, f, -1, e);
	}
	h5_close(f);
	if (rc)
		return -1;
	index_sort(&c->index, &c->arena);
	return index_check(&c->index, e);
}

static int check_shape(struct ckpt *c, const struct shape *want, struct err *e)
{
	char hash[33];
	const char *diff;

	if (!want)
		return 0;
	shape_hash(want, hash);
	if (!strcmp(hash, c->manifest.shape_hash))
		return 0;
	diff = head_difference(&c->shape, want, &c->arena);
	return err_set(e, CODE_CKPT,
		       "another model (there / wanted): %s; load a checkpoint "
		       "of this shape or change the shape",
		       diff);
}

static int open_step(struct ckpt *c, const struct shape *shape, struct err *e)
{
	const struct manifest *m = &c->manifest;

	c->folder = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->folder < 0)
		return err_sys(e, CODE_CKPT, "cannot open the folder");
	if (manifest_read(&c->manifest, c->dir, &c->arena, e) ||
	    check_size(c, &m->index, e) || check_index(c, e))
		return -1;
	for (int i = 0; i < m->count; i++)
		if (check_size(c, &m->files[i], e))
			return -1;
	if (read_index(c, e) || check_shape(c, shape, e))
		return -1;
	c->chain = arena_alloc(&c->arena, (size_t)c->index.count + 1,
			       sizeof(*c->chain));
	c->proven = arena_alloc(&c->arena, (size_t)m->count + 1,
				sizeof(*c->proven));
	c->window = arena_alloc(&c->arena, LOAD_WINDOW, 1);
	return 0;
}

void ckpt_close(struct ckpt *c)
{
	if (!c)
		return;
	for (int i = 0; i < LOAD_FILES; i++)
		if (c->open[i].fd >= 0)
			close(c->open[i].fd);
	if (c->folder >= 0)
		close(c->folder);
	arena_close(&c->arena);
	free(c);
}

/* The step folder DIR. */
static int open_dir(struct ckpt **out, const char *dir,
		    const struct shape *shape, struct err *e)
{
	struct ckpt *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(e, CODE_LAUNCH, "out of memory");
	c->folder = -1;
	for (int i = 0; i < LOAD_FILES; i++)
		c->open[i].fd = -1;
	if (arena_open(&c->arena, e)) {
		free(c);
		return -1;
	}
	c->dir = arena_strdup(&c->arena, dir);
	if (open_step(c, shape, e)) {
		ckpt_close(c);
		return err_wrap(e, "checkpoint %s: ", dir);
	}
	*out = c;
	return 0;
}

/* A step folder has a manifest, or at least the name. */
bool load_is_step(const char *path, struct arena *a)
{
	const char *name;
	int64_t step;
	size_t len = strlen(path);
	char *copy = arena_strdup(a, path);

	if (!access(arena_printf(a, "%s/" FORMAT_MANIFEST, path), F_OK))
		return true;
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = 0;
	name = strrchr(copy, '/');
	return !format_step_parse(name ? name + 1 : copy, &step);
}

static int open_newest(struct ckpt **out, const char *run_dir,
		       const struct shape *shape, void (*say)(const char *line),
		       struct arena *a, struct err *e)
{
	int64_t step;

	if (ckpt_newest(run_dir, shape, say, &step, e))
		return -1;
	if (step < 0)
		return err_set(e, CODE_CKPT, "no checkpoint in %s", run_dir);
	return open_dir(out, ckpt_step_path(run_dir, step, a), shape, e);
}

int ckpt_open(struct ckpt **out, const char *path, const struct shape *shape,
	      void (*say)(const char *line), struct err *e)
{
	struct arena a = {0};
	int rc;

	if (arena_open(&a, e))
		return -1;
	if (load_is_step(path, &a))
		rc = open_dir(out, path, shape, e);
	else
		rc = open_newest(out, path, shape, say, &a, e);
	arena_close(&a);
	return rc;
}

const char *ckpt_step_path(const char *run_dir, int64_t step, struct arena *a)
{
	char name[FORMAT_STEP];

	format_step(name, step);
	return arena_printf(a, "%s/%s", run_dir, name);
}

/* Whether STEP of the run proves complete. */
static int prove_step(const char *run_dir, int64_t step,
		      const struct shape *shape, struct arena *a, struct err *e)
{
	struct ckpt *c;
	int rc;

	if (open_dir(&c, ckpt_step_path(run_dir, step, a), shape, e))
		return -1;
	rc = load_prove(c, e);
	ckpt_close(c);
	return rc;
}

static int newest(const char *run_dir, const struct shape *shape,
		  void (*say)(const char *line), int64_t *step, struct arena *a,
		  struct err *e)
{
	struct err why, first = {0};
	int64_t *steps;
	int n;

	*step = -1;
	if (commit_list(run_dir, a, &steps, &n, e))
		return -1;
	for (int i = 0; i < n; i++) {
		if (!prove_step(run_dir, steps[i], shape, a, &why)) {
			*step = steps[i];
			return 0;
		}
		if (why.code != CODE_CKPT) { /* not its fault */
			*e = why;
			return -1;
		}
		if (say)
			say(arena_printf(a, "passing over: %s", why.text));
		if (i == 0)
			first = why;
	}
	if (n == 0)
		return 0;
	*e = first;
	e->code = CODE_CKPT;
	return err_wrap(e, "none of %d checkpoints in %s can be used: ", n,
			run_dir);
}

int ckpt_newest(const char *run_dir, const struct shape *shape,
		void (*say)(const char *line), int64_t *step, struct err *e)
{
	struct arena a = {0};
	int rc;

	if (arena_open(&a, e))
		return -1;
	rc = newest(run_dir, shape, say, step, &a, e);
	arena_close(&a);
	return rc;
}

const struct ckpt_progress *ckpt_progress(const struct ckpt *c)
{
	return &c->head.progress;
}

const struct shape *ckpt_shape(const struct ckpt *c)
{
	return &c->shape;
}

const char *ckpt_run_text(const struct ckpt *c, const char *name)
{
	for (int i = 0; i < c->head.run.count; i++)
		if (!strcmp(c->head.run.list[i].name, name))
			return c->head.run.list[i].text;
	return NULL;
}

bool ckpt_has_role(const struct ckpt *c, enum ckpt_role role)
{
	return c->index.has[role];
}
