/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that only save and load: one process each to save (they meet in
 * shared memory), one after the other to load.  Every element's bits are a
 * hash of what it is, so nothing but its place can be wrong unnoticed.
 */
#ifndef TEST_CKPT_SIM_H
#define TEST_CKPT_SIM_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/ckpt.h"

struct sim {
	struct arena arena;
	struct config config;
	struct grid grid;
	struct stages stages;
	struct weights weights;
	enum ckpt_dtype dtype;
	struct ckpt_progress progress;
	int keep;
};

/* One rank's slice and buffers. */
struct sim_rank {
	struct slice slice;
	struct ckpt_memory mem;
	int64_t elements[ROLES]; /* of each buffer */
};

#define SIM_PAD 0xa5 /* every byte that no weight covers */

static inline void sim_die(const char *what, const char *why)
{
	fprintf(stderr, "# sim: %s: %s\n", what, why);
	exit(99);
}

/*
 * A model and a layout; SETS are separated by blanks.  Returns why they are
 * not valid, or NULL; S is to be closed in any case.
 */
static inline const char *sim_try(struct sim *s, const char *sets,
				  int64_t world)
{
	const char *list[64];
	struct report r = {0};
	struct err *e;
	char *copy, *save = NULL;
	int n = 0;

	memset(s, 0, sizeof(*s));
	if (arena_open(&s->arena, &(struct err){0}))
		sim_die("arena", "no memory");
	e = arena_alloc(&s->arena, 1, sizeof(*e));
	r.arena = &s->arena;
	copy = arena_strdup(&s->arena, sets);
	for (char *t = strtok_r(copy, " ", &save); t && n < 64;
	     t = strtok_r(NULL, " ", &save))
		list[n++] = t;
	if (config_load("/dev/null", list, n, &s->arena, &s->config, &r, e))
		return e->text;
	shape_finalize(&s->config.shape);
	place_finalize(&s->config.place, &s->config.shape);
	shape_check(&s->config.shape, &r);
	place_check(&s->config.place, &s->config.shape, world, &r);
	for (size_t i = 0; i < r.count; i++)
		if (r.list[i].severity == ERROR)
			return r.list[i].message;
	if (grid_build(&s->grid, &s->config.place, world, e) ||
	    stages_build(&s->stages, &s->config.place, &s->config.shape,
			 &s->arena, e))
		return e->text;
	weights_build(&s->weights, &s->config.shape, &s->arena);
	s->progress = (struct ckpt_progress){
		.step = 10, .consumed_samples = 80, .seed = 1, .nonce = 0xabc};
	return NULL;
}

static inline void sim_open(struct sim *s, const char *sets, int64_t world)
{
	const char *why = sim_try(s, sets, world);

	if (why)
		sim_die(sets, why);
}

static inline void sim_close(struct sim *s)
{
	arena_close(&s->arena);
}

static inline uint64_t sim_bits(int weight, int role, int64_t index)
{
	uint64_t x =
		(uint64_t)index * 0x9e3779b97f4a7c15u +
		(uint64_t)(weight * ROLES + role + 1) * 0xd1b54a32d192ed03u;

	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	return x ^ (x >> 32);
}

static inline void sim_put(char *at, enum ckpt_dtype t, uint64_t bits)
{
	/* A number, so that it can be converted and compared too. */
	double d = (double)(bits >> 40) / (1 << 24) - 0.5;
	float f = (float)d;
	uint16_t half = (uint16_t)bits;

	if (t == CKPT_F64)
		memcpy(at, &d, 8);
	else if (t == CKPT_F32)
		memcpy(at, &f, 4);
	else
		memcpy(at, &half, 2);
}

static inline char *sim_buffer(int64_t elements, enum ckpt_dtype t)
{
	size_t n = (size_t)elements * ckpt_dtype_size(t) + 1;
	char *p = malloc(n);

	if (!p)
		sim_die("memory", "none left");
	memset(p, SIM_PAD, n);
	return p;
}

static inline void sim_rank_open(const struct sim *s, int rank,
				 struct sim_rank *k, struct arena *a)
{
	int64_t(*shard)[2], own = 0;
	enum ckpt_dtype state = s->dtype;
	int n;

	slice_build(&k->slice, &s->config.shape, &s->config.place, &s->grid,
		    &s->stages, &s->weights, grid_coord(&s->grid, rank), a);
	n = slice_shards(&k->slice, &shard, a);
	for (int i = 0; i < n; i++)
		own += shard[i][1] - shard[i][0];
	if (!slice_shards_optim(&k->slice))
		own = k->slice.elements;
	k->mem = (struct ckpt_memory){
		.dtype = s->dtype, .own_shard = slice_shards_optim(&k->slice)};
	if (s->dtype == CKPT_BF16) {
		state = CKPT_F32;
		k->mem.master = sim_buffer(own, state);
	}
	k->mem.param = sim_buffer(k->slice.elements, s->dtype);
	k->mem.m = sim_buffer(own, state);
	k->mem.v = sim_buffer(own, state);
	k->elements[ROLE_PARAM] = k->slice.elements;
	k->elements[ROLE_MASTER] = k->mem.master ? own : 0;
	k->elements[ROLE_M] = k->elements[ROLE_V] = own;
}

static inline void sim_rank_close(struct sim_rank *k)
{
	free(k->mem.param);
	free(k->mem.master);
	free(k->mem.m);
	free(k->mem.v);
}

/* Call SEE for each element of the item with what it should hold. */
static inline void sim_each(const struct sim *s, const struct ckpt_item *item,
			    void (*see)(char *at, enum ckpt_dtype t,
					uint64_t bits, void *arg),
			    void *arg)
{
	const struct ckpt_piece *p = &item->piece;
	const struct weight *w = &s->weights.list[p->weight];
	size_t size = ckpt_dtype_size(p->dtype);

	for (int64_t i = p->lo; i < p->hi; i++) {
		int64_t row = p->box.off[0] + i / p->box.cnt[1];
		int64_t col = p->box.off[1] + i % p->box.cnt[1];

		see((char *)item->data + (size_t)(i - p->lo) * size, p->dtype,
		    sim_bits(p->weight, (int)p->role, row * w->dim[1] + col),
		    arg);
	}
}

static inline void sim_see_put(char *at, enum ckpt_dtype t, uint64_t bits,
			       void *arg)
{
	(void)arg;
	sim_put(at, t, bits);
}

static inline void sim_see_check(char *at, enum ckpt_dtype t, uint64_t bits,
				 void *arg)
{
	char want[8];

	sim_put(want, t, bits);
	*(int64_t *)arg += memcmp(at, want, ckpt_dtype_size(t)) != 0;
	memset(at, SIM_PAD, ckpt_dtype_size(t));
}

static inline void sim_fill(const struct sim *s, struct sim_rank *k,
			    struct arena *a)
{
	struct ckpt_item *items;
	int count[CKPT_FILES];
	int n = ckpt_items(&k->slice, &k->mem, CKPT_LOAD, a, &items, count);

	for (int i = 0; i < n; i++)
		sim_each(s, &items[i], sim_see_put, NULL);
}

/* Ranks that meet in shared memory. */
enum { SIM_SLOT = 2048, SIM_RANKS = 64 };

struct sim_room {
	pthread_barrier_t barrier;
	int world;
	char slot[SIM_RANKS][SIM_SLOT];
};

static inline int sim_gather(void *arg, const void *mine, size_t bytes,
			     void *all, struct err *e)
{
	struct sim_room *room = *(struct sim_room **)arg;
	int rank = ((const int *)arg)[2];

	if (bytes > SIM_SLOT)
		return err_set(e, CODE_COMM, "slot too small");
	memcpy(room->slot[rank], mine, bytes);
	pthread_barrier_wait(&room->barrier);
	for (int i = 0; i < room->world; i++)
		memcpy((char *)all + (size_t)i * bytes, room->slot[i], bytes);
	pthread_barrier_wait(&room->barrier);
	return 0;
}

static inline struct sim_room *sim_room_open(int world)
{
	struct sim_room *room =
		mmap(NULL, sizeof(*room), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;

	if (room == MAP_FAILED || world > SIM_RANKS)
		sim_die("shared memory", "none");
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&room->barrier, &attr, (unsigned)world);
	room->world = world;
	return room;
}

/* What the process of one rank does; SPOIL may change its memory first. */
static inline int sim_rank_save(const struct sim *s, const char *dir, int rank,
				struct sim_room *room,
				void (*spoil)(struct sim_rank *k, int rank),
				struct err *e)
{
	struct {
		struct sim_room *room;
		int rank;
	} arg = {room, rank};
	struct ckpt_peers peers = {.rank = rank,
				   .world = s->grid.world,
				   .arg = &arg,
				   .gather = sim_gather};
	struct arena a = {0};
	struct sim_rank k;
	int rc;

	if (arena_open(&a, e))
		return -1;
	sim_rank_open(s, rank, &k, &a);
	sim_fill(s, &k, &a);
	if (spoil)
		spoil(&k, rank);
	rc = ckpt_save(dir, &s->config, &s->weights, &s->grid, &k.slice, &k.mem,
		       &s->progress, s->keep, &peers, e);
	sim_rank_close(&k);
	arena_close(&a);
	return rc;
}

/* Start all ranks; PID has room for them. */
static inline void sim_start(const struct sim *s, const char *dir,
			     struct sim_room *room,
			     void (*spoil)(struct sim_rank *k, int rank),
			     pid_t *pid)
{
	fflush(NULL);
	for (int i = 0; i < s->grid.world; i++) {
		struct err e = {0};

		pid[i] = fork();
		if (pid[i] < 0)
			sim_die("fork", "failed");
		if (pid[i] > 0)
			continue;
		if (!sim_rank_save(s, dir, i, room, spoil, &e))
			_exit(0);
		/* Where the parent finds it. */
		memcpy(room->slot[i], e.text, sizeof(e.text));
		_exit((int)e.code);
	}
}

/*
 * Save with all ranks; returns the exit code that all of them had, -1 if they
 * did not agree.  WHY (1024 bytes, or NULL) gets rank 0's error.
 */
static inline int sim_save_with(const struct sim *s, const char *dir,
				void (*spoil)(struct sim_rank *k, int rank),
				char *why)
{
	struct sim_room *room = sim_room_open(s->grid.world);
	pid_t pid[SIM_RANKS];
	int code = 0;

	sim_start(s, dir, room, spoil, pid);
	for (int i = 0; i < s->grid.world; i++) {
		int status, mine;

		waitpid(pid[i], &status, 0);
		mine = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		code = i && mine != code ? -1 : mine;
	}
	if (why)
		memcpy(why, room->slot[0], 1024);
	munmap(room, sizeof(*room));
	return code;
}

static inline int sim_save(const struct sim *s, const char *dir)
{
	char why[1024] = "";
	int code = sim_save_with(s, dir, NULL, why);

	if (code)
		fprintf(stderr, "# %s\n", why);
	return code;
}

/*
 * Load every rank from PATH; the number of elements that are not what they
 * should be, bytes touched that belong to no weight included.  -1: E.
 */
static inline int64_t sim_load(const struct sim *s, const char *path,
			       struct err *e)
{
	int64_t wrong = 0;
	struct ckpt *c;

	if (ckpt_open(&c, path, &s->config.shape, NULL, e))
		return -1;
	for (int rank = 0; rank < s->grid.world && wrong >= 0; rank++) {
		struct arena a = {0};
		struct sim_rank k;
		struct ckpt_item *items;
		int count[CKPT_FILES], all;

		if (arena_open(&a, e))
			return -1;
		sim_rank_open(s, rank, &k, &a);
		all = ckpt_items(&k.slice, &k.mem, CKPT_LOAD, &a, &items,
				 count);
		if (ckpt_read(c, &s->weights, items, all, e))
			wrong = -1;
		for (int i = 0; i < all && wrong >= 0; i++)
			sim_each(s, &items[i], sim_see_check, &wrong);
		/* What was checked is padding again: all must be padding. */
		for (int r = 0; r < ROLES && wrong >= 0; r++) {
			char *buf[ROLES] = {k.mem.param, k.mem.master, k.mem.m,
					    k.mem.v};
			enum ckpt_dtype t =
				r && k.mem.master ? CKPT_F32 : k.mem.dtype;
			int64_t n = k.elements[r] * (int64_t)ckpt_dtype_size(t);

			for (int64_t i = 0; i < n; i++)
				wrong += (unsigned char)buf[r][i] != SIM_PAD;
		}
		sim_rank_close(&k);
		arena_close(&a);
	}
	ckpt_close(c);
	return wrong;
}

#endif
