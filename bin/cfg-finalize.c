/* SPDX-License-Identifier: Apache-2.0 */
/* Validate configs, complete them and say everything that is wrong. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cli.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/plan/check.h"
#include "lib/plan/grid_rule.h"
#include "lib/plan/inputs.h"
#include "lib/plan/show_suggest.h"
#include "lib/plan/verdict.h"

/* A worker takes so much of the address space: its stack, its arena. */
enum { JOBS_MAX = 64, WORKER_MIB = 32 };

struct options {
	int64_t jobs, vocab;
	struct cluster on;
	const char *gpu;
	const char *from;
	enum config_format format;
	bool suggest, json, force, list_checks, list_settings;
	const char *output, *output_dir;
	struct cli_list sets;
};

/* What came of one input. */
struct outcome {
	char *text;  /* findings and verdict, with malloc */
	char *final; /* the finalised file for standard output, or NULL */
	enum code code;
	bool valid, ready;
	struct err trouble; /* why the finalised file was not written */
};

/* Inputs are taken in order by workers and printed in order by main. */
struct batch {
	const struct options *opt;
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

static int write_all(int fd, const char *text)
{
	size_t left = strlen(text);
	ssize_t n;

	for (; left; text += n, left -= (size_t)n) {
		n = write(fd, text, left);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return -1;
	}
	return 0;
}

/* A device or pipe takes the text as it comes. */
static int write_special(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY), bad;

	bad = fd < 0 || write_all(fd, text);
	if (bad)
		err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	if (fd >= 0)
		close(fd);
	return bad ? -1 : 0;
}

/* Give the complete file TMP its name; without FORCE only if that is free. */
static int publish(const char *tmp, const char *path, bool force, struct err *e)
{
	if (force && !rename(tmp, path))
		return 0;
	if (!force && !link(tmp, path)) {
		unlink(tmp);
		return 0;
	}
	if (errno == EEXIST)
		err_set(e, CODE_USAGE, "'%s' exists; --force replaces it",
			path);
	else
		err_sys(e, CODE_STORAGE, "cannot write '%s'", path);
	unlink(tmp);
	return -1;
}

/* PATH holds TEXT, or what it held before. */
static int write_file(const char *path, const char *text, bool force,
		      struct arena *a, struct err *e)
{
	const char *tmp = arena_printf(a, "%s.tmp-%ld", path, (long)getpid());
	struct stat st;
	int fd, bad, there = !stat(path, &st);

	if (there && !S_ISREG(st.st_mode))
		return write_special(path, text, e);
	if (there && !force)
		return err_set(e, CODE_USAGE,
			       "'%s' exists; --force replaces it", path);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_sys(e, CODE_STORAGE, "cannot write '%s'", tmp);
	bad = write_all(fd, text) || fsync(fd);
	if (close(fd) || bad) {
		err_sys(e, CODE_STORAGE, "cannot write '%s'", tmp);
		unlink(tmp);
		return -1;
	}
	return publish(tmp, path, force, e);
}

static int write_final(const struct options *opt, const struct input *in,
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
	const struct options *opt = b->opt;
	struct arena a = {0};
	struct err unreadable; /* the report has it too */
	struct verdict v;

	if (arena_open(&a, &out->trouble)) {
		out->code = out->trouble.code;
		return;
	}
	if (verdict_import(&v, opt->format, in->file, opt->sets.item,
			   opt->sets.count, &a, &unreadable))
		v.world = opt->on.world;
	else
		verdict_reach(&v, &opt->on);
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

/* Wait for each outcome in turn and print it. */
static enum code print_all(struct batch *b, size_t *valid)
{
	bool aside = b->opt->output && !strcmp(b->opt->output, "-");
	enum code code = CODE_DONE;

	for (size_t i = 0; i < b->in->count; i++) {
		struct outcome *out = &b->outcome[i];

		pthread_mutex_lock(&b->lock);
		while (!out->ready)
			pthread_cond_wait(&b->done, &b->lock);
		pthread_mutex_unlock(&b->lock);
		if (out->text)
			fputs(out->text, aside ? stderr : stdout);
		if (out->final)
			fputs(out->final, stdout);
		if (*out->trouble.text)
			log_error("%s: %s", b->in->list[i].file,
				  out->trouble.text);
		*valid += out->valid;
		worst(&code, out->code);
		free(out->text);
		free(out->final);
	}
	return code;
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

static enum code run_batch(const struct options *opt, const struct inputs *in)
{
	pthread_t thread[JOBS_MAX];
	int threads = 0, wanted = workers((int)opt->jobs);
	struct batch b = {.opt = opt, .in = in};
	enum code code;
	size_t valid = 0;

	b.outcome = calloc(in->count + 1, sizeof(*b.outcome));
	if (!b.outcome) {
		log_error("out of memory");
		return CODE_LAUNCH;
	}
	pthread_mutex_init(&b.lock, NULL);
	pthread_cond_init(&b.done, NULL);
	while (threads < wanted && (size_t)threads < in->count &&
	       !pthread_create(&thread[threads], NULL, worker, &b))
		threads++;
	if (!threads)
		worker(&b);
	code = print_all(&b, &valid);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	if (in->count > 1 && !opt->json)
		printf("%zu inputs: %zu valid, %zu not\n", in->count, valid,
		       in->count - valid);
	pthread_cond_destroy(&b.done);
	pthread_mutex_destroy(&b.lock);
	free(b.outcome);
	return code;
}

static int by_output(const void *a, const void *b)
{
	const struct input *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* No two inputs may write the same file. */
static int check_outputs(const struct options *opt, const struct inputs *in,
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

static void print_checks(void)
{
	const struct check *check;
	int count;

	check = check_table(&count);
	for (int i = 0; i < count; i++)
		printf("%-24s %-8s %s\n", check[i].id,
		       severity_name(check[i].severity), check[i].rule);
}

static const char *names_of(const struct field *f, struct arena *a)
{
	const char *out = "";

	for (int i = 0; f->names[i]; i++)
		out = arena_printf(a, "%s%s\"%s\"", out, i ? ", " : "",
				   f->names[i]);
	return out;
}

static const char *kind_of(const struct field *f, struct arena *a)
{
	switch (f->type) {
	case FIELD_INT:
	case FIELD_INTS:
		return arena_printf(a, "integer, %.0f to %.0f%s", f->min,
				    f->max,
				    f->type == FIELD_INTS ? ", or a list" : "");
	case FIELD_FLOAT:
	case FIELD_FLOATS:
		return arena_printf(
			a, "number, %.15g to %.15g%s", f->min, f->max,
			f->type == FIELD_FLOATS ? ", or a list" : "");
	case FIELD_BOOL: return "true or false";
	case FIELD_TEXT: return "string";
	case FIELD_TEXTS:
		return f->names ? arena_printf(a, "%s, or a list of them",
					       names_of(f, a))
				: "string, or a list";
	case FIELD_ENUM: return names_of(f, a);
	}
	return "";
}

static void print_settings(struct arena *a)
{
	const struct group *groups[] = {&shape_group, &spec_group, &place_group,
					&run_group};

	for (int g = 0; g < 4; g++)
		for (int i = 0; i < groups[g]->count; i++) {
			const struct field *f = &groups[g]->fields[i];

			printf("%s.%s\n    %s; default: %s\n    %s\n",
			       groups[g]->name, f->name, kind_of(f, a),
			       f->initial ? f->initial : "unset", f->help);
			if (f->unserved)
				printf("    other values: see %s\n",
				       f->unserved);
		}
}

/* What a folder is searched for. */
static const char *const *ends_of(enum config_format format)
{
	static const char *const megatron[] = {".yaml", ".yml",	   ".sh",
					       ".bash", ".sbatch", ".slurm",
					       ".args", NULL};
	static const char *const hf[] = {"config.json", NULL};

	switch (format) {
	case CONFIG_OWN: break;
	case CONFIG_MEGATRON: return megatron;
	case CONFIG_HF: return hf;
	}
	return NULL;
}

/* Validate the operands; those that cannot be listed do not stop the rest. */
static enum code validate(const struct options *opt, int argc, char **argv,
			  struct arena *a)
{
	struct inputs in = {.ends = ends_of(opt->format),
			    .foreign = opt->format != CONFIG_OWN};
	enum code code = CODE_DONE;
	struct err e;

	for (int i = 0; i < argc; i++)
		if (inputs_add(&in, argv[i], a, &e)) {
			log_error("%s", e.text);
			worst(&code, e.code);
		}
	if (check_outputs(opt, &in, a, &e)) {
		log_error("%s", e.text);
		return e.code;
	}
	worst(&code, run_batch(opt, &in));
	return code;
}

static int parse(struct options *o, int argc, char **argv, int *first,
		 enum cli_found *found, struct err *e)
{
	const struct cli_opt opts[] = {
		{"world", 0, CLI_INT, &o->on.world, "N",
		 "the number of ranks, for all that depends on it", 1,
		 GRID_WORLD_MAX},
		{"nodes", 0, CLI_INT, &o->on.nodes, "N", "nodes of the job", 1,
		 GRID_WORLD_MAX},
		{"gpus-per-node", 0, CLI_INT, &o->on.gpus_per_node, "G",
		 "GPUs, and ranks, of a node", 1, 1024},
		{"gpu-memory", 0, CLI_SIZE, &o->on.gpu_memory, "SIZE",
		 "of one GPU (80G): whether a rank fits", 1 << 20,
		 (int64_t)1 << 50},
		{"gpu", 0, CLI_STRING, &o->gpu, "NAME",
		 "whose times --suggest predicts (h200)", 0, 0},
		{"from", 0, CLI_STRING, &o->from, "FORMAT",
		 "translate the inputs from: megatron, hf", 0, 0},
		{"vocab-size", 0, CLI_INT, &o->vocab, "N",
		 "as --set shape.vocab_size=N", 1, INT32_MAX},
		{"suggest", 0, CLI_FLAG, &o->suggest, NULL,
		 "propose placements of one INPUT for --world", 0, 0},
		{"json", 0, CLI_FLAG, &o->json, NULL,
		 "one JSON object a line for each input", 0, 0},
		{"jobs", 'j', CLI_INT, &o->jobs, "N",
		 "inputs at a time (the number of cpus)", 1, JOBS_MAX},
		{"output", 'o', CLI_STRING, &o->output, "FILE",
		 "write the finalised file; - is standard output", 0, 0},
		{"output-dir", 0, CLI_STRING, &o->output_dir, "DIR",
		 "write all finalised files below DIR", 0, 0},
		{"force", 0, CLI_FLAG, &o->force, NULL,
		 "replace files that exist", 0, 0},
		{"set", 0, CLI_LIST, &o->sets, "PATH=VALUE",
		 "as if the file said so: place.x=2", 0, 0},
		{"list-checks", 0, CLI_FLAG, &o->list_checks, NULL,
		 "print every check and exit", 0, 0},
		{"list-settings", 0, CLI_FLAG, &o->list_settings, NULL,
		 "print every setting and exit", 0, 0},
		{0},
	};
	const struct cli cli = {
		"cfg-finalize", "[OPTION]... INPUT...",
		"Validate configs, complete them and say everything that is "
		"wrong.\nINPUT: a file, a folder (every *.cfg below it; "
		"with --from megatron *.yaml,\n*.sh and the like, with "
		"--from hf config.json), - (standard input) or @LIST\n"
		"(a file that names one input a line).",
		opts};

	return cli_parse(&cli, argc, argv, first, found, e);
}

/* What the job would run on; its memory is one of so many ranks. */
static int choose_cluster(struct options *o, struct err *e)
{
	if (cluster_gpu(&o->on, o->gpu, e))
		return -1;
	cluster_finish(&o->on);
	if (o->on.gpu_memory && !o->on.world && !o->from)
		return err_set(e, CODE_USAGE,
			       "--gpu-memory needs --world, or --nodes with "
			       "--gpus-per-node");
	return 0;
}

static int choose_format(struct options *o, struct err *e)
{
	static const char *const names[] = {"own", "megatron", "hf"};

	if (!o->from)
		return 0;
	for (int i = CONFIG_OWN; i <= CONFIG_HF; i++)
		if (!strcmp(o->from, names[i])) {
			o->format = (enum config_format)i;
			return 0;
		}
	return err_set(e, CODE_USAGE,
		       "--from '%.100s' is none of own, megatron and hf",
		       o->from);
}

/* --vocab-size is one more --set. */
static void set_vocab(struct options *o, struct arena *a)
{
	size_t count = (size_t)o->sets.count;
	const char **item;

	if (!o->vocab)
		return;
	item = arena_alloc(a, count + 1, sizeof(*item));
	if (count)
		memcpy(item, o->sets.item, count * sizeof(*item));
	item[count] = arena_printf(a, "shape.vocab_size=%" PRId64, o->vocab);
	o->sets.item = item;
	o->sets.count++;
}

/* Propose placements of the one input; none is a finding. */
static enum code suggest(const struct options *o, int argc, char **argv,
			 struct arena *a)
{
	struct suggest s;
	struct err e;

	if (argc != 1)
		err_set(&e, CODE_USAGE, "--suggest takes one INPUT, not %d",
			argc);
	else if (!suggest_load(&s, argv[0], o->format, &o->on, o->sets.item,
			       o->sets.count, a, &e)) {
		(o->json ? show_suggest_json : show_suggest)(stdout, &s,
							     argv[0], a);
		return s.rows ? CODE_DONE : CODE_FINDINGS;
	}
	log_error("%s", e.text);
	return e.code;
}

static enum code run(const struct options *o, int argc, char **argv,
		     struct arena *a)
{
	if (o->list_checks)
		print_checks();
	if (o->list_settings)
		print_settings(a);
	if (o->list_checks || o->list_settings)
		return CODE_DONE;
	if (o->suggest)
		return suggest(o, argc, argv, a);
	if (argc)
		return validate(o, argc, argv, a);
	log_error("no INPUT; see --help");
	return CODE_USAGE;
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct options o = {.jobs = cpus < 1	      ? 1
				    : cpus > JOBS_MAX ? JOBS_MAX
						      : cpus};
	struct arena a = {0};
	enum cli_found found;
	enum code code;
	struct err e;
	int first;

	/* A file too large is an error of write, not the end of the program. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("cfg-finalize", -1, LOG_INFO);
	if (parse(&o, argc, argv, &first, &found, &e) ||
	    choose_cluster(&o, &e) || choose_format(&o, &e) ||
	    arena_open(&a, &e)) {
		log_error("%s", e.text);
		return e.code;
	}
	if (found == CLI_ENDED)
		return CODE_DONE;
	set_vocab(&o, &a);
	code = run(&o, argc - first, argv + first, &a);
	if (sys_flush_stdout(&e)) {
		log_error("%s", e.text);
		code = e.code;
	}
	arena_close(&a);
	return code;
}
