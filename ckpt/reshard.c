/* SPDX-License-Identifier: Apache-2.0 */
/* From one layout to another, a few megabytes at a time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/commit.h"
#include "ckpt/hf.h"
#include "ckpt/io.h"
#include "ckpt/items.h"
#include "ckpt/pack.h"
#include "ckpt/plan.h"
#include "ckpt/tools.h"

struct reshard {
	struct arena arena;
	struct ckpt *c;
	const struct config *target;
	const struct grid *grid;
	struct stages stages;
	struct items_role role[ROLES];
	struct head head;
	struct commit commit;
	struct manifest_file *files;
	int count; /* of FILES */
	const struct ckpt_watch *watch;
	char *buffer;
	int64_t done;
	struct ckpt_plan plan;
};

static int open_reshard(struct reshard *r, struct err *e)
{
	const struct index *x = &r->c->index;

	if (arena_open(&r->arena, e))
		return -1;
	for (int i = 0; i < ROLES; i++)
		r->role[i] = (struct items_role){x->has[i], x->dtype[i], NULL};
	r->files = arena_alloc(&r->arena, CKPT_FILES * (size_t)r->grid->world,
			       sizeof(*r->files));
	r->buffer = arena_alloc(&r->arena, PACK_BYTES, 1);
	return stages_build(&r->stages, &r->target->place, &r->target->shape,
			    &r->arena, e);
}

/* One rank of the target. */
struct rank {
	struct arena arena;
	struct slice slice;
	struct ckpt_item *items;
	int count[CKPT_FILES], all;
};

static int rank_open(struct rank *k, struct reshard *r, int rank, struct err *e)
{
	if (arena_open(&k->arena, e))
		return -1;
	slice_build(&k->slice, &r->target->shape, &r->target->place, r->grid,
		    &r->stages, &r->c->weights, grid_coord(r->grid, rank),
		    &k->arena);
	k->all = items_build(&k->slice, r->role, false, CKPT_SAVE, &k->arena,
			     &k->items, k->count);
	return 0;
}

/* What one piece of the target needs. */
static void plan_piece(struct reshard *r, const struct ckpt_piece *to)
{
	const struct index *x = &r->c->index;
	int64_t size = (int64_t)ckpt_dtype_size(to->dtype), first, end;
	struct move m[PLAN_MOVES];

	r->plan.pieces++;
	index_range(x, to->weight, to->role, &first, &end);
	for (int64_t i = first; i < end; i++) {
		const struct row *row = &x->list[x->order[i]];
		int n = row->piece.replica ? 0 : plan_moves(&row->piece, to, m);

		r->plan.moves += n;
		for (int k = 0; k < n; k++) {
			int64_t run = m[k].len * size;

			r->plan.bytes_read += run * m[k].rows;
			if (!r->plan.smallest_run || run < r->plan.smallest_run)
				r->plan.smallest_run = run;
		}
	}
}

static int plan_all(struct reshard *r, struct err *e)
{
	for (int i = 0; i < r->grid->world; i++) {
		struct rank k = {0};

		if (rank_open(&k, r, i, e))
			return -1;
		for (int f = 0; f < CKPT_FILES; f++)
			r->plan.files += k.count[f] > 0;
		r->plan.bytes_written += pack_bytes(k.items, k.all);
		for (int p = 0; p < k.all; p++)
			plan_piece(r, &k.items[p].piece);
		arena_close(&k.arena);
	}
	return 0;
}

int ckpt_reshard_plan(struct ckpt *c, const struct config *target,
		      const struct grid *grid, struct ckpt_plan *out,
		      struct err *e)
{
	struct reshard r = {.c = c, .target = target, .grid = grid};
	int rc = open_reshard(&r, e);

	if (!rc)
		rc = plan_all(&r, e);
	*out = r.plan;
	arena_close(&r.arena);
	return rc;
}

static int from_source(void *arg, const struct ckpt_item *item, int64_t lo,
		       int64_t n, const void **data, struct err *e)
{
	struct reshard *r = arg;
	struct ckpt_item part = *item;

	part.piece.lo = item->piece.lo + lo;
	part.piece.hi = part.piece.lo + n;
	part.data = r->buffer;
	if (ckpt_read(r->c, &r->c->weights, &part, 1, e))
		return -1;
	*data = r->buffer;
	r->done += n * (int64_t)ckpt_dtype_size(item->piece.dtype);
	return ckpt_tick(r->watch, r->done, r->plan.bytes_read, e);
}

static int write_file(struct reshard *r, const char *name,
		      const struct ckpt_item *items, int n, struct err *e)
{
	const struct feed feed = {from_source, r};

	if (n == 0)
		return 0;
	return pack_write(r->commit.temp, name, &r->head, &r->c->weights, items,
			  n, &feed, &r->files[r->count++], e);
}

static int write_rank(struct reshard *r, const struct rank *k, struct err *e)
{
	const struct ckpt_item *item = k->items;
	char name[FORMAT_FILE];

	for (int i = 0; i < CKPT_FILES; item += k->count[i++]) {
		items_file(name, &k->slice, (enum ckpt_file)i);
		if (write_file(r, name, item, k->count[i], e))
			return -1;
	}
	return 0;
}

static int write_ranks(struct reshard *r, struct err *e)
{
	for (int i = 0; i < r->grid->world; i++) {
		struct rank k = {0};
		int rc;

		if (rank_open(&k, r, i, e))
			return -1;
		rc = write_rank(r, &k, e);
		arena_close(&k.arena);
		if (rc)
			return -1;
	}
	return load_rest(r->c, e);
}

int ckpt_check_run_dir(const char *run_dir, struct arena *a, struct err *e)
{
	char *at = arena_strdup(a, run_dir);
	struct stat here, above;

	if (load_is_step(run_dir, a))
		return err_set(e, CODE_USAGE,
			       "%s is a step; DST is a run's folder, in which "
			       "the new step is made",
			       run_dir);
	/* From the first folder that is there, up as the system does. */
	while (stat(at, &here)) {
		char *slash = strrchr(at, '/');
		const char *name = slash ? slash + 1 : at;

		if (!strcmp(at, "."))
			return 0;
		if (!strcmp(name, ".."))
			return err_set(e, CODE_USAGE,
				       "%s goes up from a folder that is not "
				       "there",
				       run_dir);
		if (slash)
			*slash = 0;
		at = slash ? at : arena_strdup(a, ".");
		at = *at ? at : arena_strdup(a, "/");
	}
	for (;;) {
		if (!access(arena_printf(a, "%s/" FORMAT_MANIFEST, at), F_OK) &&
		    !access(arena_printf(a, "%s/" FORMAT_INDEX, at), F_OK))
			return err_set(e, CODE_USAGE,
				       "%s is inside of a step; DST is a run's "
				       "folder, in which the new step is made",
				       run_dir);
		at = arena_printf(a, "%s/..", at);
		if (stat(at, &above) || (above.st_dev == here.st_dev &&
					 above.st_ino == here.st_ino))
			return 0;
		here = above;
	}
}

int ckpt_check_old(const char *step, bool force, bool *bad, struct err *e)
{
	struct ckpt *old;
	struct err why;

	*bad = true;
	if (ckpt_open(&old, step, NULL, NULL, &why)) {
		if (why.code == CODE_CKPT)
			return 0;
		*e = why; /* not its fault */
		return -1;
	}
	*bad = load_prove(old, &why) != 0;
	ckpt_close(old);
	if (*bad || force)
		return 0;
	return err_set(e, CODE_CKPT,
		       "%s is there and complete; --force replaces it", step);
}

/* What came from Hugging Face beside the weights goes along. */
static int copy_texts(struct reshard *r, struct err *e)
{
	return hf_texts_copy(
		arena_printf(&r->arena, "%s/" HF_FOLDER, r->c->dir),
		arena_printf(&r->arena, "%s/" HF_FOLDER, r->commit.temp), true,
		e);
}

static int write_all(struct reshard *r, bool force, struct err *e)
{
	int64_t room;
	bool bad;

	if (plan_all(r, e) || ckpt_check_old(r->commit.step, force, &bad, e) ||
	    commit_begin(&r->commit, e))
		return -1;
	room = io_free(r->commit.temp);
	if (room >= 0 && room < r->plan.bytes_written)
		return err_set(e, CODE_STORAGE, "%" PRId64 " byte%s free", room,
			       room == 1 ? " is" : "s are");
	if (write_ranks(r, e) || copy_texts(r, e))
		return -1;
	if (commit_manifest(&r->commit, &r->head, &r->c->weights, r->files,
			    r->count, e))
		return -1;
	return commit_end(&r->commit, bad, e);
}

int ckpt_reshard(struct ckpt *c, const struct config *target,
		 const struct grid *grid, const char *run_dir, bool force,
		 const struct ckpt_watch *watch, struct err *e)
{
	struct reshard r = {
		.c = c, .target = target, .grid = grid, .watch = watch};
	int rc = open_reshard(&r, e);

	if (!rc)
		rc = ckpt_check_run_dir(run_dir, &r.arena, e);
	if (!rc) {
		head_build(&r.head, target, grid->world, &c->head.progress,
			   false, &r.arena);
		r.head.run = c->head.run;
		commit_paths(&r.commit, run_dir, &c->head.progress, NULL,
			     &r.arena);
		rc = write_all(&r, force, e);
		if (rc) {
			commit_abort(&r.commit);
			err_wrap(e, "resharding to %s (%" PRId64 " bytes): ",
				 r.commit.step, r.plan.bytes_written);
		}
	}
	arena_close(&r.arena);
	return rc;
}
