/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/commit.h"
#include "ckpt/tools.h"

int ckpt_tick(const struct ckpt_watch *w, int64_t done, int64_t total,
	      struct err *e)
{
	if (w && w->tick && w->tick(w->arg, done, total))
		return err_set(e, CODE_FINDINGS, "interrupted");
	return 0;
}

int ckpt_find(const char *path, const char **step, struct arena *a,
	      struct err *e)
{
	int64_t *steps;
	int n;

	*step = path;
	if (load_is_step(path, a))
		return 0;
	if (commit_list(path, a, &steps, &n, e))
		return -1;
	if (n == 0)
		return err_set(e, CODE_CKPT, "no checkpoint in %s", path);
	*step = ckpt_step_path(path, steps[0], a);
	return 0;
}

struct verify {
	struct ckpt *c;
	void (*say)(const char *line);
	const struct ckpt_watch *watch;
	int64_t problems, total;
};

/* One more problem of the checkpoint, or of this process: that ends it. */
static int problem(struct verify *v, const struct err *why, struct err *e)
{
	if (why->code == CODE_LAUNCH) {
		*e = *why;
		return -1;
	}
	v->problems++;
	if (v->say)
		v->say(why->text);
	return 0;
}

/* The dataset of a row is where and what the row says. */
static int check_dataset(const struct ckpt *c, struct h5 *f,
			 const struct row *row, int nth, struct err *e)
{
	const struct ckpt_piece *p = &row->piece;
	const struct weight *w = &c->weights.list[p->weight];
	bool whole = p->hi - p->lo == box_elements(&p->box);
	int ndim = whole ? w->ndim : 1;
	char path[FORMAT_PATH];
	struct h5_data d;

	format_path(path, p->role, w->name, nth);
	if (h5_data_find(f, path, &d, e))
		return -1;
	if (d.dtype != p->dtype || d.ndim != ndim || d.at != row->at)
		return err_set(e, CODE_CKPT,
			       "%s: %s is not as the index says: %s at byte "
			       "%" PRId64 ", not %s at byte %" PRId64,
			       c->manifest.files[row->file].name, path,
			       format_dtype(d.dtype), d.at,
			       format_dtype(p->dtype), row->at);
	for (int i = 0; i < ndim; i++)
		if (d.dim[i] != (whole ? p->box.cnt[i] : p->hi - p->lo))
			return err_set(e, CODE_CKPT,
				       "%s: %s has %" PRId64
				       " elements along axis %d, the index "
				       "says otherwise",
				       c->manifest.files[row->file].name, path,
				       d.dim[i], i);
	return 0;
}

/* How many pieces of each weight and role a file has had so far: zeros. */
static int *counters(const struct index *x, int file, struct arena *a)
{
	int last = 0;

	for (int64_t i = x->file_first[file]; i < x->file_first[file + 1]; i++)
		if (x->list[i].piece.weight > last)
			last = x->list[i].piece.weight;
	return arena_alloc(a, ((size_t)last + 1) * ROLES, sizeof(int));
}

/* Every row's dataset is there, and no other. */
static int check_datasets(struct verify *v, struct h5 *f, int file,
			  struct arena *a, struct err *e)
{
	const struct index *x = &v->c->index;
	int *seen = counters(x, file, a);
	int64_t want = 0, have;

	for (int64_t i = x->file_first[file]; i < x->file_first[file + 1];
	     i++) {
		const struct ckpt_piece *p = &x->list[i].piece;
		int *nth = &seen[p->weight * ROLES + (int)p->role];

		if (p->replica)
			continue;
		want++;
		if (check_dataset(v->c, f, &x->list[i], (*nth)++, e))
			return -1;
	}
	if (h5_data_count(f, &have, e))
		return -1;
	if (have != want)
		return err_set(e, CODE_CKPT,
			       "%s: %" PRId64
			       " datasets, the index has %" PRId64,
			       v->c->manifest.files[file].name, have, want);
	return 0;
}

/* HDF5's own view of a file, once its bytes are known to be sound. */
static int check_container(struct verify *v, int file, struct err *e)
{
	struct ckpt *c = v->c;
	struct arena a;
	struct h5 *f;
	int rc;

	if (h5_open(&f,
		    arena_printf(&c->arena, "%s/%s", c->dir,
				 c->manifest.files[file].name),
		    e))
		return -1;
	rc = arena_open(&a, e);
	if (!rc) {
		rc = check_datasets(v, f, file, &a, e);
		arena_close(&a);
	}
	h5_close(f);
	return rc;
}

/* Read a row's payload to its end, where its checksum is compared. */
static int check_payload(struct verify *v, int64_t row, struct err *e)
{
	const struct ckpt_piece *p = &v->c->index.list[row].piece;
	int64_t bytes = (p->hi - p->lo) * (int64_t)ckpt_dtype_size(p->dtype);

	for (int64_t at = 0; at < bytes; at += LOAD_WINDOW) {
		int64_t n = bytes - at < LOAD_WINDOW ? bytes - at : LOAD_WINDOW;

		if (load_payload(v->c, row, at, n, v->c->window, e))
			return -1;
	}
	return 0;
}

static int check_file(struct verify *v, int file, struct err *e)
{
	const struct index *x = &v->c->index;
	struct err why;
	int fd;

	if (load_file(v->c, file, &fd, &why))
		return problem(v, &why, e);
	if (check_container(v, file, &why) && problem(v, &why, e))
		return -1;
	for (int64_t i = x->file_first[file]; i < x->file_first[file + 1];
	     i++) {
		if (x->list[i].piece.replica)
			continue;
		if (check_payload(v, i, &why) && problem(v, &why, e))
			return -1;
		if (ckpt_tick(v->watch, v->c->bytes_read, v->total, e))
			return -1;
	}
	return 0;
}

static int verify_all(struct verify *v, const char *step, struct err *e)
{
	const struct manifest *m = &v->c->manifest;

	for (int i = 0; i < m->count; i++)
		v->total += m->files[i].size;
	for (int i = 0; i < m->count; i++)
		if (check_file(v, i, e))
			return -1;
	if (v->problems)
		return err_set(e, CODE_CKPT,
			       "checkpoint %s: %" PRId64 " problem%s", step,
			       v->problems, v->problems > 1 ? "s" : "");
	return 0;
}

int ckpt_verify(const char *step, void (*say)(const char *line),
		const struct ckpt_watch *watch, struct err *e)
{
	struct verify v = {.say = say, .watch = watch};
	int rc;

	if (ckpt_open(&v.c, step, NULL, NULL, e))
		return -1;
	rc = verify_all(&v, step, e);
	ckpt_close(v.c);
	return rc;
}
