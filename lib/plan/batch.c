/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/batch.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/sys.h"
#include "lib/base/write.h"

/* A worker takes so much of the address space: its stack, its arena. */
enum { WORKER_MIB = 32 };

/* Inputs are taken in order by workers and handed on in order. */
struct batch {
	const struct batch_options *opt;
	const struct inputs *in;
	struct outcome *outcome;
	size_t next;
	pthread_mutex_t lock;
	pthread_cond_t done;
};

static void worst(enum code *code, enum code other)
{
	if (other > *code)
		*code = other;
}

static int write_final(const struct batch_options *opt, const struct input *in,
		       const struct verdict *v, struct outcome *out)
{
	struct arena *a = v->report.arena;
	const char *text = config_text(v->config, a), *path = opt->output;

	if (path && !strcmp(path, "-")) {
		out->final = strdup(text);
		if (!out->final)
			arena_exhausted();
		return 0;
	}
	if (!path)
		path = arena_printf(a, "%s/%s", opt->output_dir, in->name);
	if (!opt->output && sys_make_parents(path, &out->trouble))
		return -1;
	return write_file(path, text, opt->force, a, &out->trouble);
}

static void work(const struct batch *b, const struct input *in,
		 struct outcome *out)
{
	const struct batch_options *opt = b->opt;
	struct arena a = {0};
	struct err unreadable; /* the report has it too */
	struct verdict v;

	if (arena_open(&a, &out->trouble)) {
		out->code = out->trouble.code;
		return;
	}
	if (verdict_import(&v, opt->format, in->file, opt->sets, opt->set_count,
			   &a, &unreadable))
		v.world = opt->world;
	else
		verdict_reach(&v, opt->world);
	out->code = verdict_code(&v);
	out->valid = v.valid;
	if (v.valid && (opt->output || opt->output_dir) &&
	    write_final(opt, in, &v, out))
		worst(&out->code, out->trouble.code);
	out->text =
		strdup(opt->json ? verdict_json(&v, &a) : verdict_text(&v, &a));
	if (!out->text)
		arena_exhausted();
	arena_close(&a);
}

static void *worker(void *arg)
{
	struct batch *b = arg;
	struct outcome out;
	size_t i;

	for (;;) {
		pthread_mutex_lock(&b->lock);
		i = b->next++;
		pthread_mutex_unlock(&b->lock);
		if (i >= b->in->count)
			return NULL;
		memset(&out, 0, sizeof(out));
		work(b, &b->in->list[i], &out);
		pthread_mutex_lock(&b->lock);
		b->outcome[i] = out;
		b->outcome[i].ready = true;
		pthread_cond_signal(&b->done);
		pthread_mutex_unlock(&b->lock);
	}
}

/* Workers below a limit on address space, which each would cut into. */
static int workers(int wanted)
{
	struct rlimit limit;
	rlim_t fit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return wanted;
	mallopt(M_ARENA_MAX, 1); /* else 64 MiB a thread */
	fit = (limit.rlim_cur >> 20) / WORKER_MIB;
	return fit < 3 ? 1 : fit - 2 < (rlim_t)wanted ? (int)fit - 2 : wanted;
}

/* Wait for each outcome in turn and hand it on. */
static enum code hand_on(struct batch *b,
			 void (*each)(void *arg, const struct input *input,
				      const struct outcome *out),
			 void *arg)
{
	enum code code = CODE_DONE;

	for (size_t i = 0; i < b->in->count; i++) {
		struct outcome *out = &b->outcome[i];

		pthread_mutex_lock(&b->lock);
		while (!out->ready)
			pthread_cond_wait(&b->done, &b->lock);
		pthread_mutex_unlock(&b->lock);
		each(arg, &b->in->list[i], out);
		worst(&code, out->code);
		free(out->text);
		free(out->final);
	}
	return code;
}

int batch_run(const struct batch_options *opt, const struct inputs *in,
	      void (*each)(void *arg, const struct input *input,
			   const struct outcome *out),
	      void *arg, enum code *code, struct err *e)
{
	pthread_t thread[BATCH_JOBS_MAX];
	int threads = 0, wanted = workers(opt->jobs);
	struct batch b = {.opt = opt, .in = in};

	b.outcome = calloc(in->count + 1, sizeof(*b.outcome));
	if (!b.outcome)
		return err_set(e, CODE_LAUNCH, "out of memory");
	pthread_mutex_init(&b.lock, NULL);
	pthread_cond_init(&b.done, NULL);
	while (threads < wanted && (size_t)threads < in->count &&
	       !pthread_create(&thread[threads], NULL, worker, &b))
		threads++;
	if (!threads)
		worker(&b);
	*code = hand_on(&b, each, arg);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	pthread_cond_destroy(&b.done);
	pthread_mutex_destroy(&b.lock);
	free(b.outcome);
	return 0;
}

static int by_output(const void *a, const void *b)
{
	const struct input *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* No two inputs may write the same file. */
int batch_check(const struct batch_options *opt, const struct inputs *in,
		struct arena *a, struct err *e)
{
	struct input *sorted = arena_alloc(a, in->count, sizeof(*sorted));

	if (opt->output && opt->output_dir)
		return err_set(e, CODE_USAGE,
			       "-o and --output-dir exclude each other");
	if (opt->output && in->count > 1)
		return err_set(e, CODE_USAGE,
			       "-o takes one input, not %zu; see --output-dir",
			       in->count);
	if (!opt->output_dir || !in->count)
		return 0;
	memcpy(sorted, in->list, in->count * sizeof(*sorted));
	qsort(sorted, in->count, sizeof(*sorted), by_output);
	for (size_t i = 1; i < in->count; i++)
		if (!strcmp(sorted[i - 1].name, sorted[i].name))
			return err_set(e, CODE_USAGE,
				       "'%s' and '%s' would both write '%s/%s'",
				       sorted[i - 1].file, sorted[i].file,
				       opt->output_dir, sorted[i].name);
	return 0;
}
