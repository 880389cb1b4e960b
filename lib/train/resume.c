/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "lib/base/log.h"

int resume_choose(struct resume *r, const struct config *c,
		  void (*say)(const char *line), struct err *e)
{
	struct ckpt *ck;

	*r = (struct resume){.step = -1};
	if (c->run.dir && ckpt_newest(c->run.dir, &c->shape, say, &r->step, e))
		return -1;
	if (r->step >= 0) {
		r->path = c->run.dir;
		r->own = true;
		return 0;
	}
	if (!c->run.load)
		return 0;
	if (ckpt_open(&ck, c->run.load, &c->shape, say, e))
		return err_wrap(e, "run.load: ");
	r->path = c->run.load;
	r->weights_only = c->run.finetune;
	r->step = r->weights_only ? 0 : ckpt_progress(ck)->step;
	ckpt_close(ck);
	return 0;
}

static void say(const char *line)
{
	log_info("%s", line);
}

static struct ckpt_memory memory_of(const struct trainer *t)
{
	const struct prog *p = &t->plan.prog;

	return (struct ckpt_memory){
		.dtype = p->elem == sizeof(double) ? CKPT_F64 : CKPT_F32,
		.param = t->exec.base[FAMILY_PARAM],
		.m = t->exec.base[FAMILY_OPTIM] + p->m,
		.v = t->exec.base[FAMILY_OPTIM] + p->v,
		.own_shard = t->plan.slice.zero,
	};
}

int resume_load(const struct resume *r, struct trainer *t, struct arena *a,
		struct err *e)
{
	struct ckpt_memory mem = memory_of(t);
	struct ckpt_item *items;
	int model, optim, n;
	int64_t seed;
	struct ckpt *ck;

	if (!r->path)
		return 0;
	if (ckpt_open(&ck, r->path, &t->plan.config->shape, NULL, e))
		return -1;
	ckpt_items(&t->plan.slice, &mem, CKPT_LOAD, a, &items, &model, &optim);
	n = r->weights_only ? model : model + optim;
	if (!r->weights_only) {
		t->step = ckpt_progress(ck)->step;
		t->consumed_samples = ckpt_progress(ck)->consumed_samples;
	}
	seed = ckpt_progress(ck)->seed;
	n = ckpt_read(ck, &t->plan.weights, items, n, e);
	ckpt_close(ck);
	if (n)
		return err_wrap(e, "load '%s': ", r->path);
	if (t->plan.rank == 0 && !r->weights_only &&
	    seed != t->plan.config->run.seed)
		log_warn("run.seed is %" PRId64
			 ", '%s' was trained with %" PRId64
			 ": samples and dropout go on in another order",
			 t->plan.config->run.seed, r->path, seed);
	if (t->plan.rank == 0)
		log_info("%s from '%s', step %" PRId64,
			 r->own ? "resumed" : "loaded", r->path, t->step);
	return 0;
}

/* Every rank's BYTES, in rank order, through the world's group. */
static int gather(void *arg, const void *mine, size_t bytes, void *all,
		  struct err *e)
{
	struct comm_group *world = arg;
	size_t words = (bytes + 3) / 4, size = (size_t)comm_group_size(world);
	char *room = calloc(size + 1, 4 * words);
	struct comm_req req = {
		.op = COMM_ALL_GATHER,
		.group = world,
		.type = COMM_F32,
		.n = (int64_t)words,
		.name = "gather",
	};
	int bad;

	if (!room)
		return err_set(e, CODE_LAUNCH, "out of memory");
	memcpy(room + size * 4 * words, mine, bytes);
	req.send = room + size * 4 * words;
	req.recv = room;
	bad = comm_start(&req, e) || comm_wait(&req, e) < 0;
	for (size_t i = 0; i < size && !bad; i++)
		memcpy((char *)all + i * bytes, room + i * 4 * words, bytes);
	free(room);
	return bad ? -1 : 0;
}

int resume_save(struct trainer *t, const struct boot *boot, struct err *e)
{
	const struct config *c = t->plan.config;
	struct ckpt_memory mem = memory_of(t);
	struct ckpt_progress progress = {
		.step = t->step,
		.consumed_samples = t->consumed_samples,
		.seed = c->run.seed,
		.nonce = boot->nonce,
	};
	struct ckpt_peers peers = {
		.rank = boot->rank,
		.world = boot->world,
		.arg = t->group[GROUP_WORLD],
		.gather = gather,
		.say = say,
	};

	return ckpt_save(c->run.dir, c, &t->plan.weights, &t->plan.grid,
			 &t->plan.slice, &mem, &progress,
			 IS_SET(c->run.save_retain) ? (int)c->run.save_retain
						    : 0,
			 &peers, e);
}
