/* SPDX-License-Identifier: Apache-2.0 */
/* train-worker: one rank of a training job. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cli.h"
#include "lib/base/log.h"
#include "lib/plan/plan.h"
#include "lib/train/data.h"
#include "lib/train/loop.h"

/* --max-new-tokens, if nobody says how many. */
enum { NEW_TOKENS = 64 };

struct options {
	struct cli_list sets;
	bool quiet, verbose;
	const char *eval;
	bool generate;
	const char *prompt_ids, *prompt_text;
	int64_t seed; /* -1: run.seed */
	struct gen_options gen;
	struct prompts prompts;
	struct loop_options loop;
};

static int choose_split(struct options *o, struct err *e)
{
	static const char *const names[DATA_SPLITS] = {
		[DATA_TRAIN] = "train",
		[DATA_VALID] = "valid",
		[DATA_TEST] = "test",
	};

	o->loop.eval = true;
	for (o->loop.split = 0; o->loop.split < DATA_SPLITS; o->loop.split++)
		if (!strcmp(o->eval, names[o->loop.split]))
			break;
	if (o->loop.split == DATA_SPLITS)
		return err_set(e, CODE_USAGE,
			       "--eval '%.100s' is none of train, valid and "
			       "test",
			       o->eval);
	if (o->loop.profile)
		return err_set(e, CODE_USAGE,
			       "--eval and --profile exclude each other");
	return 0;
}

/* What was said of a generation that there is not, or NULL. */
static const char *for_generate(const struct options *o)
{
	return o->prompt_ids			? "--prompt-ids"
	       : o->prompt_text			? "--prompt-text"
	       : o->gen.more			? "--max-new-tokens"
	       : o->gen.sampler.temperature > 0 ? "--temperature"
	       : o->gen.sampler.top_k		? "--top-k"
	       : o->gen.sampler.top_p < 1	? "--top-p"
	       : o->seed >= 0			? "--seed"
	       : o->gen.end >= 0		? "--end-id"
	       : o->gen.speculative		? "--speculative"
						: NULL;
}

static int choose_generate(struct options *o, struct err *e)
{
	const struct sampler *s = &o->gen.sampler;

	if (!o->generate)
		return err_set(e, CODE_USAGE, "%s goes with --generate only",
			       for_generate(o));
	if (o->eval || o->loop.profile)
		return err_set(e, CODE_USAGE,
			       "--generate and %s exclude each other",
			       o->eval ? "--eval" : "--profile");
	if (!o->prompt_ids == !o->prompt_text)
		return err_set(e, CODE_USAGE,
			       "--generate needs one of --prompt-ids and "
			       "--prompt-text");
	if (!(s->temperature > 0) && (s->top_k || s->top_p < 1))
		return err_set(e, CODE_USAGE,
			       "--top-k and --top-p need a --temperature above "
			       "0: without one the most likely token is taken");
	if (!(s->top_p > 0))
		return err_set(e, CODE_USAGE, "--top-p: 0 leaves no token");
	if (!o->gen.more)
		o->gen.more = NEW_TOKENS;
	o->loop.gen = &o->gen;
	o->loop.prompts = &o->prompts;
	return 0;
}

static int parse(struct options *o, int argc, char **argv, int *first,
		 enum cli_found *found, struct err *e)
{
	const struct cli_opt opts[] = {
		{"set", 0, CLI_LIST, &o->sets, "PATH=VALUE",
		 "change one setting, as the file would say it", 0, 0},
		{"quiet", 'q', CLI_FLAG, &o->quiet, NULL,
		 "say warnings and errors only", 0, 0},
		{"eval", 0, CLI_STRING, &o->eval, "SPLIT",
		 "only evaluate the checkpoint: train, valid or test", 0, 0},
		{"profile", 0, CLI_INT, &o->loop.profile, "STEP",
		 "print where the time of that step goes, op by op", 1,
		 INT64_MAX},
		{"generate", 0, CLI_FLAG, &o->generate, NULL,
		 "only continue prompts from the checkpoint", 0, 0},
		{"prompt-ids", 0, CLI_STRING, &o->prompt_ids, "FILE",
		 "a prompt a line: ids apart by spaces", 0, 0},
		{"prompt-text", 0, CLI_STRING, &o->prompt_text, "FILE",
		 "a prompt a line: bytes that are the ids", 0, 0},
		{"max-new-tokens", 0, CLI_INT, &o->gen.more, "N",
		 "after each prompt (64)", 1, 1 << 30},
		{"temperature", 0, CLI_REAL, &o->gen.sampler.temperature, "X",
		 "draw tokens; 0, the default: the most likely one", 0, 1000},
		{"top-k", 0, CLI_INT, &o->gen.sampler.top_k, "K",
		 "draw from the K most likely ones", 1, 1 << 30},
		{"top-p", 0, CLI_REAL, &o->gen.sampler.top_p, "P",
		 "from the fewest that have this share together", 0, 1},
		{"seed", 0, CLI_INT, &o->seed, "S", "of the draws (run.seed)",
		 0, INT64_MAX},
		{"end-id", 0, CLI_INT, &o->gen.end, "ID",
		 "this token ends a text", 0, 1 << 30},
		{"speculative", 0, CLI_FLAG, &o->gen.speculative, NULL,
		 "the same tokens, drafted by multi-token prediction", 0, 0},
		{"verbose", 'v', CLI_FLAG, &o->verbose, NULL, "say more", 0, 0},
		{0},
	};
	const struct cli cli = {
		.program = "train-worker",
		.usage = "[options] CONFIG",
		.about =
			"Trains the model of CONFIG as one rank of a job started "
			"by\n`srun --mpi=pmix`, by mpirun, or alone; starts or "
			"resumes in run.dir.",
		.opts = opts,
	};

	if (cli_parse(&cli, argc, argv, first, found, e))
		return -1;
	if (*found == CLI_RUN && argc - *first != 1)
		return err_set(e, CODE_USAGE,
			       "needs one CONFIG, got %d; see --help",
			       argc - *first);
	if (*found == CLI_RUN && (o->generate || for_generate(o)))
		return choose_generate(o, e);
	return o->eval ? choose_split(o, e) : 0;
}

/* "FILE:LINE: PATH: ", as far as they are known. */
static void place_text(const struct finding *f, const char *file, char *buf,
		       size_t size)
{
	char line[16] = "";

	if (f->file && f->line)
		snprintf(line, sizeof(line), ":%d", f->line);
	snprintf(buf, size, "%s%s: %s%s", f->file ? f->file : file, line,
		 f->path, *f->path ? ": " : "");
}

/* What only a training needs is not missing in a generation. */
static bool concerns(const struct finding *f, const struct options *o)
{
	return f->severity == ERROR ||
	       (f->severity == WARNING &&
		!(o->generate && !strncmp(f->path, "run.", 4)));
}

static void say_findings(const struct report *r, const char *file,
			 const struct options *o)
{
	char where[512];

	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = &r->list[i];

		if (!concerns(f, o))
			continue;
		place_text(f, file, where, sizeof(where));
		log_line(f->severity == ERROR ? LOG_ERROR : LOG_WARN,
			 "%s%s [%s]", where, f->message, f->id);
	}
}

/* What a valid config may leave open, but a job cannot. */
static int needed(const char *file, const struct run *r, bool eval,
		  struct err *e)
{
	const char *missing = !eval && !IS_SET(r->train_iters) ? "train_iters"
			      : !eval && isnan(r->lr)	       ? "lr"
			      : !r->data_path.count	       ? "data_path"
							       : NULL;

	if (missing)
		return err_set(e, CODE_CONFIG, "'%s': run.%s is not set", file,
			       missing);
	return 0;
}

/* The prompts, and what else follows from CONFIG for a generation. */
static int read_prompts(struct options *o, const struct config *c,
			struct arena *a, struct err *e)
{
	int64_t vocab = c->shape.vocab_size;
	const char *file = o->prompt_text ? o->prompt_text : o->prompt_ids;

	if (o->gen.end >= vocab)
		return err_set(e, CODE_USAGE,
			       "--end-id %" PRId64
			       " is not an id of the vocabulary, 0 to %" PRId64,
			       o->gen.end, vocab - 1);
	if (o->prompt_text && vocab > 256)
		return err_set(e, CODE_USAGE,
			       "--prompt-text is for vocabularies of bytes; "
			       "this one has %" PRId64
			       " tokens: --prompt-ids takes their ids",
			       vocab);
	o->gen.sampler.seed = (uint64_t)(o->seed < 0 ? c->run.seed : o->seed);
	return prompts_read(&o->prompts, file, o->prompt_text, vocab,
			    o->gen.more, c->shape.max_position_embeddings, a,
			    e);
}

/*
 * A generation runs by the same code whatever transformer_impl says;
 * inference_optimized is no reason to refuse it.
 */
static int set_for_generate(struct config *c, struct err *e)
{
	if (c->spec.transformer_impl == IMPL_INFERENCE)
		c->spec.transformer_impl = IMPL_LOCAL;
	return prog_gen_check(c, e);
}

/*
 * The config, finished for this world.  Every rank reads the same file and so
 * comes to the same verdict; rank 0 tells it.
 */
static int read_config(const char *file, const struct options *o,
		       const struct boot *boot, struct config *c,
		       const struct machine **m, struct arena *a, struct err *e)
{
	struct report r = {.arena = a};
	size_t errors, unserved = 0;

	if (config_load(file, o->sets.item, o->sets.count, a, c, &r, e))
		return -1;
	if (o->generate && !IS_SET(c->run.micro_batch_size))
		c->run.micro_batch_size = 1;
	config_finish(c, boot->world, &r);
	errors = report_count(&r, ERROR);
	if (o->generate && !errors && set_for_generate(c, e))
		return -1;
	if (!errors)
		unserved = (size_t)config_unserved(c, &r);
	if (!errors && !o->generate)
		unserved += plan_unserved(c, boot->world, &r);
	if (boot->rank == 0)
		say_findings(&r, file, o);
	if (errors)
		return err_set(e, CODE_CONFIG, "'%s' has %zu error%s", file,
			       errors, plural((long long)errors));
	if (unserved)
		return err_set(e, CODE_CONFIG,
			       "'%s' is valid but asks for what train-worker "
			       "does not serve yet",
			       file);
	if (!o->generate && needed(file, &c->run, o->loop.eval, e))
		return -1;
	*m = machine_choose(c->spec.device, c->spec.params_dtype, e);
	if (!*m)
		return -1;
	if (c->spec.device == (*m)->device)
		return 0;
	/* The device that was found may run less than the one assumed. */
	c->spec.device = (*m)->device;
	if (!config_unserved(c, &r))
		return 0;
	return err_set(e, CODE_CONFIG, "'%s' on %s: %s", file,
		       (*m)->device == DEVICE_CUDA ? "a GPU" : "CPUs",
		       r.list[r.count - 1].message);
}

static int end(struct boot *boot, const struct err *e)
{
	if (boot->world > 1)
		boot_abort(boot, e->code, e->text);
	log_error("%s", e->text);
	return e->code;
}

static int work(const char *file, struct options *o)
{
	enum log_level level = o->quiet	    ? LOG_WARN
			       : o->verbose ? LOG_DEBUG
					    : LOG_INFO;
	enum code code = CODE_DONE;
	const struct machine *machine = NULL;
	struct boot boot = {0};
	struct config config;
	struct arena arena;
	struct err e = {.code = CODE_FINDINGS};
	int bad;

	/* The limit of the bootstrap itself is known before the config is. */
	if (boot_open(&boot, 120, &e) || arena_open(&arena, &e))
		return end(&boot, &e);
	log_open("train-worker", boot.world > 1 ? boot.rank : -1, level);
	if (boot.hint[0])
		log_warn("%s", boot.hint);
	bad = read_config(file, o, &boot, &config, &machine, &arena, &e) ||
	      (o->generate && read_prompts(o, &config, &arena, &e));
	/* All ranks read the same file: one tells. */
	boot.common = bad && e.code != CODE_LAUNCH;
	if (bad || loop_run(&boot, &config, machine, &o->loop, &code, &e))
		return end(&boot, &e);
	boot_close(&boot);
	arena_close(&arena);
	return code;
}

/*
 * Code that is not ours, a plugin's, may call exit(): no scheduler shall take
 * that for the end of the job.
 */
static void at_exit(int status, void *ended)
{
	if (*(bool *)ended)
		return;
	log_error("exit(%d) was called before the job's end, by a plugin or a "
		  "library",
		  status);
	_exit(CODE_FINDINGS);
}

int main(int argc, char **argv)
{
	static bool ended;
	struct options o = {
		.seed = -1,
		.gen = {.sampler = {.top_p = 1}, .end = -1},
	};
	enum cli_found found;
	struct err e;
	int first, code;

	setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
	/* A limit on file sizes is an error of the write, not a signal. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("train-worker", -1, LOG_INFO);
	if (parse(&o, argc, argv, &first, &found, &e)) {
		log_error("%s", e.text);
		return e.code;
	}
	if (found == CLI_ENDED)
		return CODE_DONE;
	on_exit(at_exit, &ended);
	code = work(argv[first], &o);
	ended = true;
	return code;
}
