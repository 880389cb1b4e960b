/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks write their files, rank 0 makes them a checkpoint. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "ckpt/commit.h"
#include "ckpt/io.h"
#include "ckpt/items.h"
#include "ckpt/load.h"
#include "ckpt/pack.h"

struct save {
	struct arena arena;
	const struct slice *slice;
	const struct weights *weights;
	const struct ckpt_peers *peers;
	struct commit commit;
	struct head head;
	struct ckpt_item *items;
	int count[CKPT_FILES], all;
	int64_t needed; /* bytes, of all ranks */
};

/* ALL has MINE of every rank. */
static int gather(const struct save *s, const void *mine, size_t bytes,
		  void *all, struct err *e)
{
	if (s->peers->world > 1)
		return s->peers->gather(s->peers->arg, mine, bytes, all, e);
	memcpy(all, mine, bytes);
	return 0;
}

/*
 * All ranks fail if one of them has (RC): with the error of the first that
 * did, so that all end with one code.
 */
static int agree(struct save *s, int rc, struct err *e)
{
	size_t world = (size_t)s->peers->world;
	int *all = arena_alloc(&s->arena, world, sizeof(*all)), first = -1;
	struct err *errs, mine = {0};

	if (gather(s, &rc, sizeof(rc), all, e))
		return -1;
	for (int i = s->peers->world - 1; i >= 0; i--)
		if (all[i])
			first = i;
	if (first < 0)
		return 0;
	if (rc)
		mine = *e;
	errs = arena_alloc(&s->arena, world, sizeof(*errs));
	if (gather(s, &mine, sizeof(mine), errs, e))
		return -1;
	*e = errs[first];
	return first == s->peers->rank ? -1 : err_wrap(e, "rank %d: ", first);
}

static int sum_bytes(struct save *s, struct err *e)
{
	int64_t mine = pack_bytes(s->items, s->all);
	int64_t *all =
		arena_alloc(&s->arena, (size_t)s->peers->world, sizeof(*all));

	if (gather(s, &mine, sizeof(mine), all, e))
		return -1;
	for (int i = 0; i < s->peers->world; i++)
		s->needed += all[i];
	return 0;
}

/* Whether the step is already there, complete, and of the same model. */
static int is_saved(const struct save *s, bool *saved, struct err *e)
{
	struct ckpt *old;
	struct err why;
	int rc = 0;

	*saved = false;
	if (ckpt_open(&old, s->commit.step, NULL, NULL, &why)) {
		if (why.code == CODE_CKPT)
			return 0;
		*e = why; /* not its fault */
		return -1;
	}
	if (!load_prove(old, &why)) {
		*saved = true;
		if (strcmp(old->manifest.shape_hash, s->head.shape_hash))
			rc = err_set(e, CODE_CKPT,
				     "%s is a checkpoint of another model; "
				     "give this run a folder of its own",
				     s->commit.step);
	}
	ckpt_close(old);
	return rc;
}

/* Rank 0: may we, and is there room. */
static int prepare(struct save *s, bool *saved, struct err *e)
{
	int64_t step = s->head.progress.step, room;

	if (step < 0 || step > FORMAT_STEP_MAX)
		return err_set(e, CODE_CKPT,
			       "step %" PRId64 " is not between 0 and %" PRId64,
			       step, FORMAT_STEP_MAX);
	if (is_saved(s, saved, e))
		return -1;
	if (*saved)
		return 0;
	if (commit_begin(&s->commit, e))
		return -1;
	room = io_free(s->commit.temp);
	if (room >= 0 && room < s->needed)
		return err_set(e, CODE_STORAGE, "%" PRId64 " byte%s free", room,
			       room == 1 ? " is" : "s are");
	return 0;
}

/* The first step of all ranks; SAVED: there is nothing to do. */
static int begin(struct save *s, bool *saved, struct err *e)
{
	size_t world = (size_t)s->peers->world;
	bool mine = false;
	bool *all = arena_alloc(&s->arena, world, sizeof(*all));
	int rc = 0;

	if (sum_bytes(s, e))
		return -1;
	if (s->peers->rank == 0)
		rc = prepare(s, &mine, e);
	if (agree(s, rc, e) || gather(s, &mine, sizeof(mine), all, e))
		return -1;
	*saved = all[0];
	return 0;
}

static int from_memory(void *arg, const struct ckpt_item *item, int64_t lo,
		       int64_t n, const void **data, struct err *e)
{
	(void)arg;
	(void)n;
	(void)e;
	*data = (const char *)item->data +
		lo * (int64_t)ckpt_dtype_size(item->piece.dtype);
	return 0;
}

/* This rank's files; a name stays empty where there is nothing to write. */
static int write_files(struct save *s, struct manifest_file out[CKPT_FILES],
		       struct err *e)
{
	static const struct feed feed = {.get = from_memory};
	const struct ckpt_item *item = s->items;
	char name[FORMAT_FILE];

	for (int i = 0; i < CKPT_FILES; item += s->count[i++]) {
		items_file(name, s->slice, (enum ckpt_file)i);
		if (s->count[i] &&
		    pack_write(s->commit.temp, name, &s->head, s->weights, item,
			       s->count[i], &feed, &out[i], e))
			return -1;
	}
	return 0;
}

/* Rank 0: everything is written, make it a checkpoint. */
static int complete(struct save *s, struct manifest_file *files, int n,
		    int keep, struct err *e)
{
	int count = 0;

	for (int i = 0; i < n; i++)
		if (*files[i].name)
			files[count++] = files[i];
	if (commit_manifest(&s->commit, &s->head, s->weights, files, count,
			    e) ||
	    commit_end(&s->commit, true, e))
		return -1;
	commit_retain(&s->commit, keep);
	return 0;
}

static int save_all(struct save *s, int keep, struct err *e)
{
	int world = s->peers->world, rc;
	struct manifest_file mine[CKPT_FILES] = {{{0}, 0, 0, 0}}, *all;
	bool saved;

	all = arena_alloc(&s->arena, (size_t)world, sizeof(mine));
	if (begin(s, &saved, e))
		return -1;
	if (saved) {
		if (s->peers->rank == 0 && s->peers->say)
			s->peers->say(arena_printf(
				&s->arena, "%s is there and complete: kept",
				s->commit.step));
		return 0;
	}
	rc = write_files(s, mine, e);
	if (agree(s, rc, e) || gather(s, mine, sizeof(mine), all, e))
		return -1;
	if (s->peers->rank == 0)
		rc = complete(s, all, CKPT_FILES * world, keep, e);
	return agree(s, rc, e);
}

int ckpt_save(const char *run_dir, const struct config *c,
	      const struct weights *w, const struct grid *g,
	      const struct slice *slice, const struct ckpt_memory *mem,
	      const struct ckpt_progress *progress, int keep,
	      const struct ckpt_peers *peers, struct err *e)
{
	struct save s = {
		.slice = slice,
		.weights = w,
		.peers = peers,
	};
	int rc;

	if (arena_open(&s.arena, e))
		return -1;
	commit_paths(&s.commit, run_dir, progress, peers->say, &s.arena);
	head_build(&s.head, c, g->world, progress, true, &s.arena);
	s.all = ckpt_items(slice, mem, CKPT_SAVE, &s.arena, &s.items, s.count);
	rc = save_all(&s, keep, e);
	if (rc && peers->rank == 0)
		commit_abort(&s.commit);
	if (rc)
		err_wrap(e, "saving %s (%" PRId64 " bytes): ", s.commit.step,
			 s.needed);
	arena_close(&s.arena);
	return rc;
}
