/* SPDX-License-Identifier: Apache-2.0 */
/* Reshard, verify, compare, list, import and export checkpoints. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/hf.h"
#include "ckpt/tools.h"
#include "lib/base/cli.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/plan/grid_rule.h"

/* Of a file of safetensors, where nobody says how many. */
#define SHARD_BYTES INT64_C(5000000000)

/* What the command line says. */
struct args {
	const char *config, *tolerance;
	struct cli_list sets;
	int64_t world, shard;
	bool dry_run, force, digest, json;
	const char **operand;
	struct arena *arena;
};

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

/* A progress bar, on a terminal only. */
struct bar {
	const char *what;
	bool shown;
	double began, drawn;
};

static int draw(void *arg, int64_t done, int64_t total)
{
	static const char full[] = "########################################";
	struct bar *b = arg;
	double t = sys_seconds(),
	       part = total ? (double)done / (double)total : 1;
	int width = (int)sizeof(full) - 1, fill;

	if (stopped)
		return 1;
	if (t - b->drawn < 0.1 || !isatty(STDERR_FILENO))
		return 0;
	fill = (int)(part * width);
	if (fill > width)
		fill = width;
	b->drawn = t;
	b->shown = true;
	fprintf(stderr, "\r%s [%-*.*s] %3.0f%%, %.0f s left ", b->what, width,
		fill, full, 100 * part,
		part > 0 ? (t - b->began) * (1 - part) / part : 0.0);
	return 0;
}

static struct bar bar_begin(const char *what)
{
	double t = sys_seconds();

	return (struct bar){.what = what, .began = t, .drawn = t};
}

static void bar_end(const struct bar *b)
{
	if (b->shown)
		fprintf(stderr, "\r%*s\r", 79, "");
}

/* The findings from severity FROM on, one a line. */
static void print_from(const struct report *r, enum severity from)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = &r->list[i];

		if (f->severity < from)
			continue;
		if (f->file && f->line)
			fprintf(stderr, "%s:%d: ", f->file, f->line);
		else if (f->file)
			fprintf(stderr, "%s: ", f->file);
		fprintf(stderr, "%s%s%s%s [%s]\n", f->path,
			*f->path ? ": " : "",
			f->severity == ERROR ? "" : "warning: ", f->message,
			f->id);
	}
}

static void print_findings(const struct report *r)
{
	print_from(r, ERROR);
}

static void print_layout(const struct grid *g)
{
	printf("%d rank%s: tp %d, pp %d, vp %d, cp %d, dp %d\n", g->world,
	       plural(g->world), g->tp, g->pp, g->vp, g->cp, g->dp);
}

static int print_plan(struct ckpt *c, const struct config *target,
		      const struct grid *g, struct err *e)
{
	struct ckpt_plan p;

	if (ckpt_reshard_plan(c, target, g, &p, e))
		return -1;
	print_layout(g);
	printf("%d file%s, %" PRId64 " piece%s, %" PRId64 " move%s\n"
	       "reads %" PRId64 " bytes, writes %" PRId64
	       " bytes, shortest run %" PRId64 " bytes\n",
	       p.files, plural(p.files), p.pieces, plural(p.pieces), p.moves,
	       plural(p.moves), p.bytes_read, p.bytes_written, p.smallest_run);
	return 0;
}

static int reshard_open(struct ckpt *c, const struct args *a, struct err *e)
{
	struct report r = {.arena = a->arena};
	struct config *target = arena_alloc(a->arena, 1, sizeof(*target));
	struct bar bar = bar_begin("reshard");
	const struct ckpt_watch watch = {draw, &bar};
	struct grid g;
	int rc;

	if (ckpt_target(c, a->config, a->sets.item, a->sets.count, a->world,
			target, &g, a->arena, &r, e)) {
		print_findings(&r);
		return -1;
	}
	if (a->dry_run)
		return print_plan(c, target, &g, e);
	rc = ckpt_reshard(c, target, &g, a->operand[1], a->force, &watch, e);
	bar_end(&bar);
	if (rc)
		return -1;
	printf("%s\n",
	       ckpt_step_path(a->operand[1], ckpt_progress(c)->step, a->arena));
	return 0;
}

static void say_passed(const char *line)
{
	log_warn("%s", line);
}

static int do_reshard(const struct args *a, struct err *e)
{
	struct ckpt *c;
	int rc;

	if (ckpt_check_run_dir(a->operand[1], a->arena, e))
		return -1;
	if (ckpt_open(&c, a->operand[0], NULL, say_passed, e))
		return -1;
	rc = reshard_open(c, a, e);
	ckpt_close(c);
	return rc;
}

static void say_problem(const char *line)
{
	fprintf(stderr, "%s\n", line);
}

static int do_verify(const struct args *a, struct err *e)
{
	struct bar bar = bar_begin("verify");
	const struct ckpt_watch watch = {draw, &bar};
	const char *step;
	int rc;

	if (ckpt_find(a->operand[0], &step, a->arena, e))
		return -1;
	rc = ckpt_verify(step, say_problem, &watch, e);
	bar_end(&bar);
	if (rc)
		return -1;
	printf("%s: sound\n", step);
	return 0;
}

static void say_difference(const struct ckpt_difference *d)
{
	printf("%s %s: ", d->weight, format_role(d->role));
	if (d->why)
		printf("%s\n", d->why);
	else
		printf("%" PRId64 " of %" PRId64
		       " elements differ, max |a - b| %.3g (max |a| %.3g)\n",
		       d->elements, d->of, d->max, d->scale);
}

static int diff_open(struct ckpt *x, struct ckpt *y, double tolerance,
		     struct arena *a, struct err *e)
{
	const char *shapes = head_difference(ckpt_shape(x), ckpt_shape(y), a);
	struct bar bar = bar_begin("diff");
	const struct ckpt_watch watch = {draw, &bar};
	int count, rc;

	if (*shapes)
		return err_set(e, CODE_FINDINGS,
			       "two different models (first / second): %s",
			       shapes);
	rc = ckpt_diff(x, y, tolerance, say_difference, &count, &watch, e);
	bar_end(&bar);
	if (rc)
		return -1;
	if (count)
		return err_set(e, CODE_FINDINGS, "%d weight%s differ%s", count,
			       plural(count), count > 1 ? "" : "s");
	printf("%s\n", tolerance < 0 ? "equal, bit for bit" : "equal");
	return 0;
}

static int parse_tolerance(const char *text, double *out, struct err *e)
{
	char *end;

	*out = -1;
	if (!text)
		return 0;
	*out = strtod(text, &end);
	if (end == text || *end || !(*out >= 0) || isinf(*out))
		return err_set(e, CODE_USAGE,
			       "--tolerance: '%s' is not a number from 0 on",
			       text);
	return 0;
}

static int do_diff(const struct args *a, struct err *e)
{
	struct ckpt *x, *y;
	double tolerance;
	int rc;

	if (parse_tolerance(a->tolerance, &tolerance, e) ||
	    ckpt_open(&x, a->operand[0], NULL, say_passed, e))
		return -1;
	rc = ckpt_open(&y, a->operand[1], NULL, say_passed, e);
	if (!rc) {
		rc = diff_open(x, y, tolerance, a->arena, e);
		ckpt_close(y);
	}
	ckpt_close(x);
	return rc;
}

static int do_ls(const struct args *a, struct err *e)
{
	struct ckpt *c;
	int rc;

	if (ckpt_open(&c, a->operand[0], NULL, say_passed, e))
		return -1;
	rc = (a->json ? ckpt_list_json : ckpt_list)(c, a->digest, stdout, e);
	ckpt_close(c);
	return rc;
}

static int do_config(const struct args *a, struct err *e)
{
	struct ckpt *c;

	if (ckpt_open(&c, a->operand[0], NULL, say_passed, e))
		return -1;
	printf("# %s, shape %s\nshape:\n{\n", c->dir, c->manifest.shape_hash);
	for (int i = 0; i < c->head.shape.count; i++)
		printf("\t%s = %s;\n", c->head.shape.list[i].name,
		       c->head.shape.list[i].text);
	printf("};\n");
	ckpt_close(c);
	return 0;
}

/* The shape of the config file, complete and checked. */
static int read_shape(const struct args *a, struct config *c, struct err *e)
{
	struct report r = {.arena = a->arena};

	if (config_load(a->config, a->sets.item, a->sets.count, a->arena, c, &r,
			e))
		return -1;
	shape_finalize(&c->shape);
	shape_check(&c->shape, &r);
	print_findings(&r);
	if (report_count(&r, ERROR))
		return err_set(e, CODE_FINDINGS, "%s has %zu error%s",
			       a->config, report_count(&r, ERROR),
			       plural((long long)report_count(&r, ERROR)));
	return 0;
}

static int do_check(const struct args *a, struct err *e)
{
	struct config *want = arena_alloc(a->arena, 1, sizeof(*want));
	struct ckpt *c;
	const char *diff;

	if (!a->config)
		return err_set(e, CODE_USAGE, "check needs --config FILE");
	if (read_shape(a, want, e) ||
	    ckpt_open(&c, a->operand[0], NULL, say_passed, e))
		return -1;
	diff = head_difference(ckpt_shape(c), &want->shape, a->arena);
	if (!*diff)
		printf("%s: step %" PRId64 " can be loaded\n", c->dir,
		       ckpt_progress(c)->step);
	ckpt_close(c);
	if (*diff)
		return err_set(e, CODE_FINDINGS,
			       "cannot be loaded, another model (there / "
			       "wanted): %s",
			       diff);
	return 0;
}

static int do_import(const struct args *a, struct err *e)
{
	struct report r = {.arena = a->arena};
	struct bar bar = bar_begin("import");
	const struct ckpt_watch watch = {draw, &bar};
	int rc;

	rc = ckpt_import_hf(a->operand[0], a->config, a->operand[1], a->force,
			    &watch, a->arena, &r, e);
	bar_end(&bar);
	print_from(&r, WARNING);
	if (rc)
		return -1;
	printf("%s\n", ckpt_step_path(a->operand[1], 0, a->arena));
	return 0;
}

static int do_export(const struct args *a, struct err *e)
{
	struct bar bar = bar_begin("export");
	const struct ckpt_watch watch = {draw, &bar};
	struct ckpt *c;
	int rc;

	if (ckpt_open(&c, a->operand[0], NULL, say_passed, e))
		return -1;
	rc = ckpt_export_hf(c, a->operand[1], a->shard ? a->shard : SHARD_BYTES,
			    &watch, e);
	bar_end(&bar);
	ckpt_close(c);
	if (rc)
		return -1;
	printf("%s\n", a->operand[1]);
	return 0;
}

/*
 * A command: how many operands, which of the options are for it, and of which
 * group it uses settings.
 */
static const struct command {
	const char *name;
	int operands;
	const char *options, *group;
	int (*run)(const struct args *a, struct err *e);
} commands[] = {
	{"reshard", 2, "config set world dry-run force", "place", do_reshard},
	{"verify", 1, "", NULL, do_verify},
	{"diff", 2, "tolerance", NULL, do_diff},
	{"ls", 1, "digest json", NULL, do_ls},
	{"config", 1, "", NULL, do_config},
	{"check", 1, "config set", "shape", do_check},
	{"import-hf", 2, "config force", NULL, do_import},
	{"export-hf", 2, "max-shard-size", NULL, do_export},
};
enum { COMMANDS = sizeof(commands) / sizeof(*commands) };

/* Whether the option was given. */
static bool is_given(const struct cli_opt *o)
{
	switch (o->type) {
	case CLI_FLAG: return *(const bool *)o->value;
	case CLI_REAL: return *(const double *)o->value > 0;
	case CLI_SIZE:
	case CLI_INT: return *(const int64_t *)o->value;
	case CLI_STRING: return *(const char *const *)o->value;
	case CLI_LIST: return ((const struct cli_list *)o->value)->count;
	}
	return false;
}

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *s = words; (s = strstr(s, word)); s += len)
		if ((s == words || s[-1] == ' ') && (s[len] == ' ' || !s[len]))
			return true;
	return false;
}

/* A setting that the command does not use would be ignored. */
static int check_sets(const struct command *c, const struct cli_list *sets,
		      struct err *e)
{
	size_t len = c->group ? strlen(c->group) : 0;

	for (int i = 0; i < sets->count; i++)
		if (strncmp(sets->item[i], c->group, len) ||
		    sets->item[i][len] != '.')
			return err_set(e, CODE_USAGE,
				       "--set '%.200s': %s uses settings of "
				       "group %s alone: --set %s.NAME=VALUE",
				       sets->item[i], c->name, c->group,
				       c->group);
	return 0;
}

static int find_command(const struct cli_opt *opts, int n, char **words,
			const struct command **out, struct err *e)
{
	*out = NULL;
	for (int i = 0; n && i < COMMANDS; i++)
		if (!strcmp(commands[i].name, words[0]))
			*out = &commands[i];
	if (!*out)
		return err_set(e, CODE_USAGE, "%s%s%s; see --help",
			       n ? "unknown command '" : "a command is needed",
			       n ? words[0] : "", n ? "'" : "");
	if (n - 1 != (*out)->operands)
		return err_set(e, CODE_USAGE,
			       "%s takes %d operand%s, not %d; see --help",
			       words[0], (*out)->operands,
			       plural((*out)->operands), n - 1);
	for (int i = 1; i < n; i++)
		if (!*words[i])
			return err_set(e, CODE_USAGE,
				       "%s: operand %d is empty; see --help",
				       words[0], i);
	for (const struct cli_opt *o = opts; o->name; o++)
		if (is_given(o) && !has_word((*out)->options, o->name))
			return err_set(e, CODE_USAGE,
				       "--%s is not an option of %s", o->name,
				       words[0]);
	return 0;
}

static int run(struct args *a, int argc, char **argv, struct err *e)
{
	const struct cli_opt opts[] = {
		{"config", 'c', CLI_STRING, &a->config, "FILE",
		 "config whose layout (or shape) is wanted", 0, 0},
		{"set", 's', CLI_LIST, &a->sets, "PATH=VALUE",
		 "change one setting: place.pipeline_model_parallel_size=2", 0,
		 0},
		{"world", 'w', CLI_INT, &a->world, "N",
		 "ranks to reshard for (default: as many as saved it)", 1,
		 GRID_WORLD_MAX},
		{"dry-run", 'n', CLI_FLAG, &a->dry_run, NULL,
		 "tell what reshard would do", 0, 0},
		{"force", 'f', CLI_FLAG, &a->force, NULL,
		 "replace a complete step in DST", 0, 0},
		{"tolerance", 't', CLI_STRING, &a->tolerance, "X",
		 "let |a - b| <= X pass (default: bit for bit)", 0, 0},
		{"digest", 'd', CLI_FLAG, &a->digest, NULL,
		 "digests, which no layout changes", 0, 0},
		{"max-shard-size", 'm', CLI_SIZE, &a->shard, "SIZE",
		 "largest file of export-hf (default 5GB)", 1, INT64_MAX},
		{"json", 'j', CLI_FLAG, &a->json, NULL, "one JSON object", 0,
		 0},
		{0},
	};
	const struct cli cli = {
		.program = "ckpt-merge",
		.usage = "COMMAND [OPTION]... ARGUMENTS",
		.about =
			"Reshard, verify, compare and list checkpoints, and "
			"bring them from and to Hugging Face.\nSRC is a run's "
			"folder or one step of it.\n\n"
			"  reshard SRC DST          to another layout, as a step "
			"of the run folder DST\n"
			"  verify SRC               read and check everything\n"
			"  diff A B                 compare, whatever their "
			"layouts\n"
			"  ls SRC                   weights and progress\n"
			"  config SRC               its shape as a config\n"
			"  check SRC --config FILE  can it be loaded?\n"
			"  import-hf DIR DST        Hugging Face's folder DIR as step 0 "
			"of the run folder DST\n"
			"  export-hf SRC DIR        the weights as a folder that "
			"from_pretrained loads",
		.opts = opts,
	};
	const struct command *command;
	enum cli_found found;
	int first;

	if (cli_parse(&cli, argc, argv, &first, &found, e))
		return -1;
	if (found == CLI_ENDED)
		return 0;
	if (find_command(opts, argc - first, argv + first, &command, e) ||
	    check_sets(command, &a->sets, e))
		return -1;
	a->operand = (const char **)argv + first + 1;
	return command->run(a, e);
}

int main(int argc, char **argv)
{
	/* Static: what it points to lives as long as the program. */
	static struct args a;
	struct arena arena = {0};
	struct sigaction act = {.sa_handler = on_signal};
	struct err e = {0};
	int rc;

	log_open("ckpt-merge", -1, LOG_INFO);
	setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
	/* A file too large is an error of write, not the end of the program. */
	signal(SIGXFSZ, SIG_IGN);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	rc = arena_open(&arena, &e);
	a.arena = &arena;
	if (!rc)
		rc = run(&a, argc, argv, &e);
	if (!rc)
		rc = sys_flush_stdout(&e);
	if (rc)
		log_error("%s", e.text);
	arena_close(&arena);
	return rc ? (int)e.code : CODE_DONE;
}
