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
#include "lib/plan/check.h"

/* A worker takes so much of the address space: its stack, its arena. */
enum { WORKER_MIB = 32 };

/* Inputs are taken in order by workers and handed on in order. */
struct batch {
	const struct batch_options *opt;
	const struct inputs *in;
	struct outcome *outcome;
	struct batch_sum *sum;
	size_t next;
	pthread_mutex_t lock;
	pthread_cond_t done;
};

static void worst(enum code *code, enum code other)
{
	if (other > *code)
		*code = other;
}

static char *keep(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		arena_exhausted();
	return copy;
}

static int write_final(const struct batch_options *opt, const struct input *in,
		       const struct verdict *v, struct outcome *out)
{
	struct arena *a = v->report.arena;
	const char *text = config_text(v->config, a), *path = opt->output;

	if (path && !strcmp(path, "-")) {
		out->final = keep(text);
		return 0;
	}
	if (!path)
		path = arena_printf(a, "%s/%s", opt->output_dir, in->name);
	if (!opt->output && sys_make_parents(path, &out->trouble))
		return -1;
	return write_file(path, text, opt->force, a, &out->trouble);
}

/* Workers count together. */
static void count(struct batch *b, const struct verdict *v)
{
	struct batch_sum *sum = b->sum;
	int checks;
	const struct check *table = check_table(&checks);

	pthread_mutex_lock(&b->lock);
	sum->valid += v->valid;
	sum->unserved += v->valid && !v->served;
	sum->invalid += v->readable && !v->valid;
	sum->unreadable += !v->readable;
	for (size_t i = 0; i < v->report.count; i++)
		if (v->report.list[i].severity == ERROR)
			sum->errors[check_find(v->report.list[i].id) - table]++;
	pthread_mutex_unlock(&b->lock);
}

static void work(struct batch *b, const struct input *in, struct outcome *out)
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
		v.world = opt->on.world;
	else
		verdict_reach(&v, &opt->on);
	out->code = verdict_code(&v);
	out->readable = v.readable;
	out->valid = v.valid;
	out->served = v.served;
	if (v.valid && (opt->output || opt->output_dir) &&
	    write_final(opt, in, &v, out))
		worst(&out->code, out->trouble.code);
	out->text =
		keep(opt->json ? verdict_json(&v, &a) : verdict_text(&v, &a));
	if (opt->plain)
		out->plain = keep(verdict_text(&v, &a));
	count(b, &v);
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
		free(out->plain);
		free(out->final);
	}
	return code;
}

int batch_run(const struct batch_options *opt, const struct inputs *in,
	      void (*each)(void *arg, const struct input *input,
			   const struct outcome *out),
	      void *arg, enum code *code, struct batch_sum *sum,
	      struct arena *a, struct err *e)
{
	pthread_t thread[BATCH_JOBS_MAX];
	int threads = 0, wanted = workers(opt->jobs);
	struct batch b = {.opt = opt, .in = in, .sum = sum};
	int checks;

	check_table(&checks);
	*sum = (struct batch_sum){
		.inputs = in->count,
		.errors = arena_alloc(a, (size_t)checks, sizeof(*sum->errors)),
	};
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

/* The check after those of more errors than MOST, or as many and before I. */
static int next_most(const struct batch_sum *sum, int checks, size_t most,
		     int at)
{
	int best = -1;

	for (int i = 0; i < checks; i++) {
		size_t n = sum->errors[i];

		if (n && (n < most || (n == most && i > at)) &&
		    (best < 0 || n > sum->errors[best]))
			best = i;
	}
	return best;
}

const char *batch_summary(const struct batch_sum *sum, struct arena *a)
{
	enum { SHOWN = 5 };
	int checks, at = -1;
	const struct check *table = check_table(&checks);
	const char *text = arena_printf(
		a,
		"%zu input%s: %zu valid (%zu not served), %zu invalid, %zu "
		"unreadable",
		sum->inputs, plural((long long)sum->inputs), sum->valid,
		sum->unserved, sum->invalid, sum->unreadable);

	for (int n = 0; n < SHOWN; n++) {
		at = next_most(sum, checks, at < 0 ? SIZE_MAX : sum->errors[at],
			       at);
		if (at < 0)
			break;
		text = arena_printf(a, "%s%s %s %zu", text,
				    n ? "," : "; most errors:", table[at].id,
				    sum->errors[at]);
	}
	return arena_printf(a, "%s\n", text);
}
