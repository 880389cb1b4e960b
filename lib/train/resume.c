/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/resume.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "lib/base/log.h"
#include "lib/train/init.h"

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

/* Of enum spec_dtype. */
static const enum ckpt_dtype dtypes[] = {
	[DTYPE_FP32] = CKPT_F32,
	[DTYPE_FP64] = CKPT_F64,
	[DTYPE_BF16] = CKPT_BF16,
	[DTYPE_FP16] = CKPT_F16,
};

/* What is loaded or saved, as the host sees it; READ: with what is there. */
static int map_memory(struct trainer *t, bool read, struct ckpt_memory *mem,
		      struct err *e)
{
	const struct prog *p = &t->plan.prog;
	char *optim;

	*mem = (struct ckpt_memory){
		.dtype = dtypes[t->exec.dtype],
		.own_shard = slice_shards_optim(&t->plan.slice),
		.param = exec_map(&t->exec, FAMILY_PARAM, read, e),
	};
	if (!mem->param)
		return -1;
	optim = exec_map(&t->exec, FAMILY_OPTIM, read, e);
	if (!optim)
		return -1;
	if (p->master >= 0)
		mem->master = optim + p->master;
	mem->m = optim + p->m;
	mem->v = optim + p->v;
	return 0;
}

static int unmap_memory(struct trainer *t, const struct ckpt_memory *mem,
			bool write, struct err *e)
{
	const struct prog *p = &t->plan.prog;
	int bad = 0;

	if (mem->m &&
	    exec_unmap(&t->exec, FAMILY_OPTIM, (char *)mem->m - p->m, write, e))
		bad = -1;
	if (mem->param &&
	    exec_unmap(&t->exec, FAMILY_PARAM, mem->param, write, e))
		bad = -1;
	return bad;
}

/* One setting that decides which samples come, and has changed. */
static void warn_changed(const struct resume *r, const char *name,
			 const char *now, const char *was, const char *so)
{
	if (was && strcmp(now, was))
		log_warn("run.%s is %s, '%s' was trained with %s: %s", name,
			 now, r->path, was, so);
}

static void warn_order(const struct resume *r, const struct trainer *t,
		       const struct ckpt *ck, struct arena *a)
{
	const struct run *run = &t->plan.config->run;

	warn_changed(r, "seed", arena_printf(a, "%" PRId64, run->seed),
		     arena_printf(a, "%" PRId64, ckpt_progress(ck)->seed),
		     "samples and dropout go on in another order");
	for (int i = 0; ckpt_run_names[i]; i++)
		warn_changed(r, ckpt_run_names[i],
			     ckpt_run_value(run, ckpt_run_names[i], a),
			     ckpt_run_text(ck, ckpt_run_names[i]),
			     "other samples come from here on");
}

/* Everything; what was saved in another precision has other state. */
static int read_state(const struct resume *r, struct trainer *t,
		      struct ckpt *ck, struct arena *a, struct err *e)
{
	struct ckpt_memory mem;
	struct ckpt_item *items;
	struct err late;
	int count[CKPT_FILES], all, bad;

	if (ckpt_has_role(ck, ROLE_MASTER) != (t->plan.prog.master >= 0))
		return err_set(e, CODE_CKPT,
			       "'%s' has %s master weights, spec.params_dtype "
			       "asks for %s; run.load with run.finetune = true "
			       "takes its weights alone",
			       r->path,
			       t->plan.prog.master < 0 ? "float32" : "no",
			       t->plan.prog.master < 0 ? "none" : "some");
	bad = map_memory(t, false, &mem, e);
	if (!bad) {
		all = ckpt_items(&t->plan.slice, &mem, CKPT_LOAD, a, &items,
				 count);
		bad = ckpt_read(ck, &t->plan.weights, items, all, e);
	}
	if (unmap_memory(t, &mem, !bad, bad ? &late : e))
		bad = -1;
	return bad;
}

/* Weights alone, the most precise there are, into ALL in plain precision. */
static int read_weights(struct trainer *t, struct ckpt *ck, void *all,
			struct arena *a, struct err *e)
{
	enum ckpt_role role =
		ckpt_has_role(ck, ROLE_MASTER) ? ROLE_MASTER : ROLE_PARAM;
	enum ckpt_dtype dtype =
		t->plan.prog.elem == sizeof(double) ? CKPT_F64 : CKPT_F32;
	struct ckpt_item *items;
	int n = ckpt_weight_items(&t->plan.slice, role, dtype, all, a, &items);

	return ckpt_read(ck, &t->plan.weights, items, n, e);
}

static int load_weights(struct trainer *t, struct ckpt *ck, struct arena *a,
			struct err *e)
{
	bool half = t->plan.prog.master >= 0;
	size_t n = (size_t)t->plan.slice.elements + 1;
	struct err late;
	void *all = half ? calloc(n, sizeof(float))
			 : exec_map(&t->exec, FAMILY_PARAM, true, e);
	int bad;

	if (!all)
		return half ? err_set(e, CODE_LAUNCH,
				      "cannot allocate %zu weights on the host",
				      n)
			    : -1;
	bad = read_weights(t, ck, all, a, e);
	if (half) {
		bad = bad || init_weights(&t->exec, &t->plan.slice, all, e);
		free(all);
	} else if (exec_unmap(&t->exec, FAMILY_PARAM, all, !bad,
			      bad ? &late : e)) {
		bad = -1;
	}
	return bad ? -1 : 0;
}

/* Steps, samples, and a dynamic scale of the loss. */
static void load_progress(struct trainer *t, const struct ckpt_progress *p)
{
	struct scaler *s = &t->scaler;

	t->step = p->step;
	t->consumed_samples = p->consumed_samples;
	s->skipped = p->skipped_steps;
	if (!(s->scale > 0 && p->loss_scale > 0) ||
	    !isnan(t->plan.config->run.loss_scale))
		return;
	s->scale = p->loss_scale;
	s->growth = p->scale_growth;
	s->hysteresis = p->scale_hysteresis;
}

int resume_load(const struct resume *r, struct trainer *t, struct arena *a,
		struct err *e)
{
	struct ckpt *ck;
	int bad;

	if (!r->path)
		return 0;
	if (ckpt_open(&ck, r->path, &t->plan.config->shape, NULL, e))
		return -1;
	if (!r->weights_only)
		load_progress(t, ckpt_progress(ck));
	bad = r->weights_only ? load_weights(t, ck, a, e)
			      : read_state(r, t, ck, a, e);
	if (!bad && t->plan.rank == 0 && !r->weights_only)
		warn_order(r, t, ck, a);
	ckpt_close(ck);
	if (bad)
		return err_wrap(e, "load '%s': ", r->path);
	if (t->plan.rank == 0)
		log_info("%s from '%s', step %" PRId64,
			 r->own ? "resumed" : "loaded", r->path, t->step);
	return 0;
}

/* Every rank's BYTES, in rank order, through the world's group. */
static int gather(void *arg, const void *mine, size_t bytes, void *all,
		  struct err *e)
{
	return comm_gather(arg, mine, bytes, all, e);
}

static int save_memory(struct trainer *t, const struct boot *boot,
		       const struct ckpt_memory *mem, struct err *e)
{
	const struct config *c = t->plan.config;
	struct ckpt_progress progress = {
		.step = t->step,
		.consumed_samples = t->consumed_samples,
		.seed = c->run.seed,
		.nonce = boot->nonce,
		.loss_scale = t->scaler.scale,
		.scale_growth = t->scaler.growth,
		.scale_hysteresis = t->scaler.hysteresis,
		.skipped_steps = t->scaler.skipped,
	};
	struct ckpt_peers peers = {
		.rank = boot->rank,
		.world = boot->world,
		.arg = t->group[GROUP_WORLD],
		.gather = gather,
		.say = say,
	};

	return ckpt_save(c->run.dir, c, &t->plan.weights, &t->plan.grid,
			 &t->plan.slice, mem, &progress,
			 IS_SET(c->run.save_retain) ? (int)c->run.save_retain
						    : 0,
			 &peers, e);
}

int resume_save(struct trainer *t, const struct boot *boot, struct err *e)
{
	struct ckpt_memory mem;
	struct err late;
	int bad = map_memory(t, true, &mem, e);

	if (!bad)
		bad = save_memory(t, boot, &mem, e);
	if (unmap_memory(t, &mem, false, bad ? &late : e))
		bad = -1;
	return bad;
}
