/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <xxhash.h>

#include "ckpt/ckpt.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/base/version.h"
#include "lib/plan/estimate.h"
#include "lib/train/data.h"
#include "lib/train/device_choice.h"
#include "lib/train/hooks.h"
#include "lib/train/metrics.h"
#include "lib/train/owner.h"
#include "lib/train/rate.h"
#include "lib/train/resume.h"
#include "lib/train/stop.h"
#include "lib/train/sync.h"
#include "lib/train/trainer.h"
#include "lib/train/watchdog.h"

struct loop {
	struct boot *boot;
	const struct config *c;
	const struct machine *machine;
	const struct loop_options *opt;
	struct arena arena;
	struct comm *comm;
	struct trainer trainer;
	struct prog_gen gen;  /* what it runs if it only generates */
	struct data *data[2]; /* training, validation */
	int32_t *window;
	struct metrics metrics;
	struct stop stop;
	struct watchdog *watchdog;
	struct resume resume;
	int64_t saved; /* the last step on disk, or -1 */
	int owner;     /* rank 0's hold on run.dir, or -1 */
};

static bool trains(const struct loop *l)
{
	return !l->opt->eval && !l->opt->gen;
}

/* The cpus that this rank may run on; none where that is not known. */
static cpu_set_t my_cpus(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set))
		CPU_ZERO(&set);
	return set;
}

/*
 * One rank's threads: what it is told, else its share of its cpus, which a
 * launcher may have bound to this rank alone.
 */
static int threads(const struct loop *l)
{
	const struct boot_card *card = l->boot->card;
	const struct boot_card *mine = &card[l->boot->rank];
	cpu_set_t set = my_cpus();
	int sharers = 0, n;

	if (IS_SET(l->c->run.num_threads))
		return (int)l->c->run.num_threads;
	for (int r = 0; r < l->boot->world; r++)
		sharers += card[r].cpus == mine->cpus &&
			   !strcmp(card[r].machine, mine->machine);
	n = CPU_COUNT(&set) / sharers;
	return n > 1 ? n : 1;
}

static int sample(void *arg, bool valid, int64_t index, int32_t *ids,
		  int32_t *labels, struct err *e)
{
	struct loop *l = arg;
	size_t bytes = (size_t)l->c->shape.seq_length * sizeof(int32_t);

	if (data_sample(l->data[valid], index, l->window, e))
		return -1;
	memcpy(ids, l->window, bytes);
	memcpy(labels, l->window + 1, bytes);
	return 0;
}

static int open_data(struct loop *l, struct err *e)
{
	const struct config *c = l->c;
	uint64_t seed = (uint64_t)c->run.seed;

	if (l->opt->gen)
		return 0;
	l->window = arena_alloc(&l->arena, (size_t)c->shape.seq_length + 1,
				sizeof(*l->window));
	if (l->opt->eval)
		return data_open(&l->data[1], &c->run, &c->shape,
				 (enum data_split)l->opt->split, seed, e);
	if (data_open(&l->data[0], &c->run, &c->shape, DATA_TRAIN, seed, e))
		return -1;
	if (IS_SET(c->run.eval_interval) &&
	    data_open(&l->data[1], &c->run, &c->shape, DATA_VALID, seed, e))
		return -1;
	return 0;
}

/* Agree with every other rank before anything heavy. */
static int meet(struct loop *l, struct err *e)
{
	cpu_set_t cpus = my_cpus();
	struct boot_card card = {
		.resume_step = l->resume.step,
		.cpus = XXH3_64bits(&cpus, sizeof(cpus)),
	};
	XXH128_hash_t h;
	const char *text = config_text(l->c, &l->arena);

	if (l->machine->device == DEVICE_CUDA &&
	    device_choice_open(l->boot, &card, e))
		return -1;
	snprintf(card.version, sizeof(card.version), "%s", TRISECT_VERSION);
	snprintf(card.kind, sizeof(card.kind), "%s",
		 l->machine->device == DEVICE_CUDA ? "a GPU" : "the CPU");
	shape_hash(&l->c->shape, card.shape_hash);
	h = XXH3_128bits(text, strlen(text));
	snprintf(card.config_hash, sizeof(card.config_hash),
		 "%016" PRIx64 "%016" PRIx64, (uint64_t)h.high64,
		 (uint64_t)h.low64);
	return boot_exchange(l->boot, &card, l->c->run.boot_timeout_seconds, e);
}

static void describe(void *arg, char *buf, size_t size)
{
	const struct loop *l = arg;
	const struct op *op = l->trainer.exec.now;

	if (op)
		op_text(op, buf, size);
	else if (l->trainer.exec.runs)
		snprintf(buf, size, "on the GPU, step %" PRId64,
			 l->trainer.step);
	else
		snprintf(buf, size, "between steps");
}

static void warn(void *arg, const char *text)
{
	(void)arg;
	log_warn("%s", text);
}

static void expire(void *arg, const char *text)
{
	struct loop *l = arg;

	boot_abort(l->boot, CODE_HANG, text);
}

/* OpenMP and BLIS end the program when they get no memory. */
enum { THREAD_MIB = 10, GEMM_MIB = 48 };

/* Planned, and with memory. */
static int open_trainer(struct loop *l, struct err *e)
{
	const struct config *c = l->c;
	struct boot *b = l->boot;
	struct gen_size size;

	if (!l->opt->gen)
		return trainer_open(&l->trainer, c, b->world, b->rank,
				    l->machine, l->comm, &l->arena, e);
	if (gen_plan(&size, c, b->world, l->opt->prompts, l->opt->gen, e) ||
	    trainer_open_gen(&l->trainer, &l->gen, &size, c, b->world, b->rank,
			     l->machine, l->comm, &l->arena, e))
		return -1;
	l->trainer.step = l->resume.step;
	return 0;
}

static int open_all(struct loop *l, struct err *e)
{
	const struct config *c = l->c;
	struct watchdog_hooks hooks = {describe, warn, expire, l};
	double timeout = 60.0 * (double)c->place.distributed_timeout_minutes;
	bool writes = l->boot->rank == 0 && trains(l);

	if (sys_check_space(GEMM_MIB + THREAD_MIB * (int64_t)threads(l),
			    "the threads (run.num_threads)", e))
		return -1;
	kern_cpu_init(threads(l));
	if (watchdog_open(&l->watchdog, &hooks, e))
		return -1;
	watchdog_phase(l->watchdog, "start", timeout);
	if (l->boot->world > 1 &&
	    comm_open(&l->comm, l->boot, l->machine->device == DEVICE_CUDA,
		      timeout, e))
		return -1;
	if (open_trainer(l, e) ||
	    sys_check_space(GEMM_MIB, "matrix products", e))
		return -1;
	l->trainer.profile = l->boot->rank ? 0 : l->opt->profile;
	watchdog_phase(l->watchdog, "load", timeout);
	if (resume_load(&l->resume, &l->trainer, &l->arena, e))
		return -1;
	if (!l->opt->gen && hooks_post_wrap(&l->trainer, e))
		return -1;
	l->saved = l->resume.own ? l->trainer.step : -1;
	return metrics_open(&l->metrics, writes ? c->run.dir : NULL,
			    l->trainer.step, c->run.log_interval,
			    c->run.train_iters, e);
}

static void close_all(struct loop *l)
{
	metrics_close(&l->metrics);
	trainer_close(&l->trainer);
	if (l->comm)
		comm_close(l->comm);
	if (l->watchdog)
		watchdog_close(l->watchdog);
	for (int i = 0; i < 2; i++)
		if (l->data[i])
			data_close(l->data[i]);
	stop_close(&l->stop);
	arena_close(&l->arena);
}

static int report_step(struct loop *l, const struct trainer_result *r,
		       double eval_loss, struct err *e)
{
	const struct config *c = l->c;
	int64_t later = l->trainer.step - r->step;
	int64_t samples =
		l->trainer.consumed_samples - later * c->run.global_batch_size;
	double tokens =
		(double)(c->run.global_batch_size * c->shape.seq_length);
	double flops = estimate_flops(c);
	struct metrics_row row = {
		.step = r->step,
		.loss = r->loss,
		.grad_norm = r->grad_norm,
		.mtp_grad_norm = r->mtp_grad_norm,
		.lr = r->lr,
		.tokens = samples * c->shape.seq_length,
		.tokens_per_second = tokens / r->seconds,
		.tflops = flops / r->seconds / 1e12 / l->boot->world,
		.mfu = flops / r->seconds / l->boot->world /
		       l->machine->peak(l->trainer.plan.prog.elem),
		.step_ms = r->seconds * 1e3,
		.memory_bytes = l->trainer.exec.allocated,
		.eval_loss = eval_loss,
		.loss_scale = r->loss_scale,
		.skipped = r->skipped,
		.depths = r->depths,
		.mtp = r->mtp,
		.moe = r->moe,
	};

	return metrics_write(&l->metrics, &row, e);
}

static bool due(int64_t step, int64_t interval)
{
	return IS_SET(interval) && step % interval == 0;
}

static int save(struct loop *l, struct err *e)
{
	if (l->saved == l->trainer.step || !l->c->run.dir)
		return 0;
	watchdog_phase(l->watchdog, "save",
		       60.0 * (double)l->c->place.distributed_timeout_minutes);
	metrics_settle(&l->metrics);
	if (resume_save(&l->trainer, l->boot, e))
		return -1;
	l->saved = l->trainer.step;
	if (l->boot->rank == 0)
		log_info("saved step %" PRId64 " in '%s'", l->trainer.step,
			 l->c->run.dir);
	return 0;
}

/* The last step's row, with the evaluation that may be due after it. */
static int end_step(struct loop *l, const struct trainer_data *data,
		    const struct trainer_result *r, struct err *e)
{
	const struct run *run = &l->c->run;
	double eval_loss = NAN;

	if (due(r->step, run->sync_check_interval) &&
	    sync_check(&l->trainer, e))
		return -1;
	if (due(r->step, run->eval_interval)) {
		watchdog_phase(l->watchdog, "evaluation",
			       run->watchdog_seconds * (double)run->eval_iters);
		if (trainer_eval(&l->trainer, data, run->eval_iters, &eval_loss,
				 NULL, e))
			return -1;
	}
	return report_step(l, r, eval_loss, e);
}

/* Whether something other than a step comes next, which has to settle. */
static bool pauses(const struct loop *l)
{
	const struct run *run = &l->c->run;
	int64_t step = l->trainer.step;

	return step == run->train_iters || due(step, run->eval_interval) ||
	       due(step, run->save_interval) ||
	       due(step, run->sync_check_interval);
}

static int one_step(struct loop *l, struct trainer_result *r, struct err *e)
{
	struct trainer_data data = {l, sample};
	bool stop = stop_requested(&l->stop) != STOP_NO;

	watchdog_phase(l->watchdog, "step", l->c->run.watchdog_seconds);
	if (trainer_step(&l->trainer, &data, stop, r, e))
		return -1;
	if (r->step && r->step < l->trainer.step && report_step(l, r, NAN, e))
		return -1;
	if ((pauses(l) || r->stop) && r->step < l->trainer.step &&
	    trainer_settle(&l->trainer, r, e))
		return -1;
	return r->step == l->trainer.step ? end_step(l, &data, r, e) : 0;
}

static int train(struct loop *l, enum code *code, struct err *e)
{
	const struct run *run = &l->c->run;
	const int64_t first = l->trainer.step, profile = l->trainer.profile;
	struct trainer_result r = {0};
	bool stop = false;
	char why[256];

	while (l->trainer.step < run->train_iters && !stop) {
		if (one_step(l, &r, e))
			return -1;
		stop = r.stop;
		if ((stop || due(l->trainer.step, run->save_interval)) &&
		    save(l, e))
			return -1;
	}
	if (profile > l->trainer.step || (profile && profile <= first))
		log_warn("--profile %" PRId64 ": the job ran steps %" PRId64
			 " to %" PRId64,
			 profile, first + 1, l->trainer.step);
	if (l->trainer.scaler.row > 0 &&
	    l->trainer.scaler.row == l->trainer.step - first)
		log_warn("none of this job's %" PRId64
			 " steps had finite gradients: nothing was learnt; "
			 "run.initial_loss_scale or run.loss_scale is too "
			 "large, or the job too short for a dynamic one to "
			 "sink",
			 l->trainer.scaler.row);
	if (save(l, e))
		return -1;
	*code = l->trainer.step < run->train_iters ? CODE_STOPPED : CODE_DONE;
	if (*code == CODE_STOPPED && stop_requested(&l->stop) != STOP_NO)
		log_info("stopped at step %" PRId64 ": %s", l->trainer.step,
			 stop_text(&l->stop, why, sizeof(why)));
	return 0;
}

/* Batches of an evaluation: run.eval_iters if somebody set it, else all. */
static int64_t eval_batches(const struct loop *l, int64_t windows)
{
	const struct run *run = &l->c->run;
	int64_t all = windows / run->global_batch_size;
	bool given = field_from(&run_group, run, &run->eval_iters)->kind ==
		     ORIGIN_GIVEN;

	return given && run->eval_iters < all ? run->eval_iters : all;
}

static int evaluate(struct loop *l, struct err *e)
{
	const char *const split[DATA_SPLITS] = {"train", "valid", "test"};
	const struct run *run = &l->c->run;
	struct trainer_data data = {l, sample};
	int64_t windows = data_windows(l->data[1]);
	int64_t batches = eval_batches(l, windows), samples;
	double loss, tokens;

	if (!batches)
		return err_set(e, CODE_USAGE,
			       "the %s split has %" PRId64
			       " samples of %" PRId64
			       " tokens, fewer than global_batch_size %" PRId64,
			       split[l->opt->split], windows,
			       l->c->shape.seq_length, run->global_batch_size);
	watchdog_phase(l->watchdog, "evaluation",
		       run->watchdog_seconds * (double)batches);
	if (trainer_eval(&l->trainer, &data, batches, &loss, &tokens, e))
		return -1;
	if (!(tokens > 0))
		return err_set(e, CODE_USAGE,
			       "no token of the %s split is scored: see "
			       "run.eod_mask_loss",
			       split[l->opt->split]);
	samples = batches * run->global_batch_size;
	if (l->boot->rank)
		return 0;
	log_info("step %" PRId64
		 ", %s: loss %.4f, perplexity %.2f, over %" PRId64
		 " of %" PRId64 " samples",
		 l->trainer.step, split[l->opt->split], loss, exp(loss),
		 samples, windows);
	printf("{\"step\": %" PRId64
	       ", \"split\": \"%s\", \"samples\": %" PRId64 ", \"tokens\": %.0f"
	       ", \"loss\": %.17g, \"perplexity\": %.17g}\n",
	       l->trainer.step, split[l->opt->split], samples, tokens, loss,
	       exp(loss));
	return sys_flush_stdout(e);
}

/* Each run of a list is a step to the watchdog. */
static bool gen_begins(void *arg)
{
	struct loop *l = arg;

	watchdog_phase(l->watchdog, "generation", l->c->run.watchdog_seconds);
	return stop_requested(&l->stop) != STOP_NO;
}

static int gen_gives(void *arg, const struct gen_text *x, struct err *e)
{
	struct loop *l = arg;

	return gen_print(x, l->opt->prompts->text, l->opt->gen->speculative,
			 &l->arena, e);
}

static void tell_generation(struct loop *l, const struct gen_sum *sum,
			    double seconds)
{
	char why[256];

	log_info("%" PRId64 " text%s, %" PRId64 " new tokens in %.2f s: "
		 "%.1f tokens/s",
		 sum->texts, plural(sum->texts), sum->tokens, seconds,
		 (double)sum->tokens / seconds);
	if (l->opt->gen->speculative && sum->passes)
		log_info("%" PRId64 " of %" PRId64
			 " drafts accepted: %.2f tokens a pass",
			 sum->accepted, sum->drafts,
			 (double)sum->tokens / (double)sum->passes);
	if (sum->stopped)
		log_info("stopped: %s",
			 stop_requested(&l->stop) == STOP_NO
				 ? "another rank was asked to"
				 : stop_text(&l->stop, why, sizeof(why)));
}

static int generate(struct loop *l, enum code *code, struct err *e)
{
	const struct gen_hooks hooks = {l, gen_begins, gen_gives};
	double begun = sys_seconds();
	struct gen_sum sum;

	if (gen_run(&l->trainer, &l->gen, l->opt->prompts, l->opt->gen, &hooks,
		    &sum, &l->arena, e))
		return -1;
	if (!l->boot->rank)
		tell_generation(l, &sum, sys_seconds() - begun);
	if (sum.stopped)
		*code = CODE_STOPPED;
	return 0;
}

static void tell_memory(const struct loop *l)
{
	struct rusage use;

	if (getrusage(RUSAGE_SELF, &use) == 0)
		log_debug("memory: %" PRId64 " bytes planned and allocated, "
			  "%ld bytes resident at the peak",
			  l->trainer.exec.allocated, 1024 * use.ru_maxrss);
}

static void say(const char *line)
{
	log_warn("%s", line);
}

/* Start afresh, resume, or find that nothing is left to do. */
static int start(struct loop *l, bool *done, struct err *e)
{
	const struct config *c = l->c;
	bool first = l->boot->rank == 0;

	if (first && c->run.dir && trains(l) &&
	    owner_open(&l->owner, c->run.dir, l->boot->machine, e))
		return -1;
	if (resume_choose(&l->resume, c, first ? say : NULL, e))
		return -1;
	if (!trains(l)) {
		if (!l->resume.path)
			return err_set(e, CODE_CKPT,
				       "nothing to %s: neither run.dir nor "
				       "run.load has a checkpoint",
				       l->opt->eval ? "evaluate"
						    : "generate from");
		if (l->opt->gen) {
			l->resume.weights_only = true;
			l->resume.own = false;
		}
		return 0;
	}
	*done = l->resume.own && l->resume.step >= c->run.train_iters;
	if (*done && first)
		log_info("'%s' has step %" PRId64 " of %" PRId64
			 ": nothing left to do",
			 c->run.dir, l->resume.step, c->run.train_iters);
	return 0;
}

int loop_run(struct boot *boot, const struct config *c, const struct machine *m,
	     const struct loop_options *opt, enum code *code, struct err *e)
{
	struct loop l = {.boot = boot,
			 .c = c,
			 .machine = m,
			 .opt = opt,
			 .saved = -1,
			 .owner = -1,
			 .metrics.fd = -1};
	bool done = false;
	int bad;

	*code = CODE_DONE;
	if (arena_open(&l.arena, e))
		return -1;
	bad = start(&l, &done, e);
	if (!bad && !done)
		bad = stop_open(&l.stop, trains(&l) ? c->run.dir : NULL,
				c->run.exit_duration_in_mins, e) ||
		      open_data(&l, e) || meet(&l, e) || open_all(&l, e) ||
		      (opt->eval  ? evaluate(&l, e)
		       : opt->gen ? generate(&l, code, e)
				  : train(&l, code, e));
	if (!bad && !done)
		tell_memory(&l);
	if ((!bad && !done) || boot->world == 1)
		close_all(&l);
	owner_close(&l.owner);
	return bad ? -1 : 0;
}
