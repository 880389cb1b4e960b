/* SPDX-License-Identifier: Apache-2.0 */
/* Reshard, verify, compare and list checkpoints. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/tools.h"
#include "lib/base/cli.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"

/* What the command line says. */
struct args {
	const char *config, *tolerance;
	struct cli_list sets;
	int64_t world;
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

/* The findings that are errors, one a line. */
static void print_findings(const struct report *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct finding *f = &r->list[i];

		if (f->severity != ERROR)
			continue;
		if (f->file && f->line)
			fprintf(stderr, "%s:%d: ", f->file, f->line);
		else if (f->file)
			fprintf(stderr, "%s: ", f->file);
		fprintf(stderr, "%s%s%s [%s]\n", f->path, *f->path ? ": " : "",
			f->message, f->id);
	}
}

static void print_layout(const struct grid *g)
{
	printf("%d ranks: tp %d, pp %d, vp %d, cp %d, dp %d\n", g->world, g->tp,
	       g->pp, g->vp, g->cp, g->dp);
}

static int print_plan(struct ckpt *c, const struct config *target,
		      const struct grid *g, struct err *e)
{
	struct ckpt_plan p;

	if (ckpt_reshard_plan(c, target, g, &p, e))
		return -1;
	print_layout(g);
	printf("%d files, %" PRId64 " pieces, %" PRId64 " moves\n"
	       "reads %" PRId64 " bytes, writes %" PRId64
	       " bytes, shortest run %" PRId64 " bytes\n",
	       p.files, p.pieces, p.moves, p.bytes_read, p.bytes_written,
	       p.smallest_run);
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

/* A step of a step's folder would be found by nobody. */
static int check_target(const char *dst, struct arena *a, struct err *e)
{
	if (access(arena_printf(a, "%s/" FORMAT_MANIFEST, dst), F_OK))
		return 0;
	return err_set(e, CODE_USAGE,
		       "%s is a step; DST is a run's folder, in which the new "
		       "step is made",
		       dst);
}

static void say_passed(const char *line)
{
	log_warn("%s", line);
}

static int do_reshard(const struct args *a, struct err *e)
{
	struct ckpt *c;
	int rc;

	if (check_target(a->operand[1], a->arena, e))
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
			       count > 1 ? "s" : "", count > 1 ? "" : "s");
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

/* One weight and role of a listing. */
struct entry {
	const struct weight *weight;
	const char *role, *dtype;
	int64_t pieces;
	char digest[33]; /* empty unless asked for */
};

typedef void print_entry(void *arg, const struct entry *entry);

static int list(struct ckpt *c, bool digest, print_entry *print, void *arg,
		struct err *e)
{
	const struct index *x = &c->index;

	for (int i = 0; i < c->weights.count * ROLES; i++) {
		int weight = i / ROLES, role = i % ROLES;
		struct entry entry = {.weight = &c->weights.list[weight],
				      .role = format_role(role)};
		struct digest d;
		int64_t first, end;

		if (!x->has[role])
			continue;
		entry.dtype = format_dtype((int)x->dtype[role]);
		index_range(x, weight, (enum ckpt_role)role, &first, &end);
		for (int64_t k = first; k < end; k++)
			entry.pieces += !x->list[x->order[k]].piece.replica;
		if (digest) {
			if (ckpt_digest(c, weight, (enum ckpt_role)role, &d, e))
				return -1;
			digest_text(&d, entry.digest);
		}
		print(arg, &entry);
	}
	return 0;
}

static void print_line(void *arg, const struct entry *entry)
{
	const struct weight *w = entry->weight;
	char dims[48];

	(void)arg;
	if (w->ndim > 1)
		snprintf(dims, sizeof(dims), "%" PRId64 " x %" PRId64,
			 w->dim[0], w->dim[1]);
	else
		snprintf(dims, sizeof(dims), "%" PRId64, w->dim[0]);
	printf("%-28s %-6s %-4s %16s %6" PRId64 "%s%s\n", w->name, entry->role,
	       entry->dtype, dims, entry->pieces, *entry->digest ? "  " : "",
	       entry->digest);
}

static void add_json(void *arg, const struct entry *entry)
{
	const struct weight *w = entry->weight;
	json_t *shape = json_array(), *o;

	for (int i = 0; i < w->ndim; i++)
		json_array_append_new(shape, json_integer(w->dim[i]));
	o = json_pack("{s:s, s:s, s:s, s:o, s:I}", "name", w->name, "role",
		      entry->role, "dtype", entry->dtype, "shape", shape,
		      "pieces", (json_int_t)entry->pieces);
	if (*entry->digest)
		json_object_set_new(o, "digest", json_string(entry->digest));
	json_array_append_new(arg, o);
}

static int64_t total_bytes(const struct ckpt *c)
{
	int64_t n = c->manifest.index.size;

	for (int i = 0; i < c->manifest.count; i++)
		n += c->manifest.files[i].size;
	return n;
}

static int list_json(struct ckpt *c, bool digest, struct err *e)
{
	const struct ckpt_progress *p = ckpt_progress(c);
	json_t *weights = json_array(), *place = json_object(), *top;
	int rc = list(c, digest, add_json, weights, e);

	for (int i = 0; i < c->head.place.count; i++)
		json_object_set_new(place, c->head.place.list[i].name,
				    json_string(c->head.place.list[i].text));
	top = json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:o, s:i, s:I, s:o}",
			"path", c->dir, "step", (json_int_t)p->step,
			"consumed_samples", (json_int_t)p->consumed_samples,
			"seed", (json_int_t)p->seed, "shape_hash",
			c->manifest.shape_hash, "world",
			(json_int_t)c->head.world, "place", place, "files",
			c->manifest.count, "bytes", (json_int_t)total_bytes(c),
			"weights", weights);
	if (!rc) {
		json_dumpf(top, stdout, JSON_COMPACT);
		putchar('\n');
	}
	json_decref(top);
	return rc;
}

static int list_text(struct ckpt *c, bool digest, struct err *e)
{
	const struct ckpt_progress *p = ckpt_progress(c);

	printf("%s: step %" PRId64 ", %" PRId64 " samples, %d files, %" PRId64
	       " bytes, shape %s\nsaved by %" PRId64 " ranks:",
	       c->dir, p->step, p->consumed_samples, c->manifest.count,
	       total_bytes(c), c->manifest.shape_hash, c->head.world);
	for (int i = 0; i < c->head.place.count; i++)
		printf(" %s=%s", c->head.place.list[i].name,
		       c->head.place.list[i].text);
	printf("\n%-28s %-6s %-4s %16s %6s%s\n", "weight", "role", "type",
	       "shape", "pieces", digest ? "  digest" : "");
	return list(c, digest, print_line, NULL, e);
}

static int do_ls(const struct args *a, struct err *e)
{
	struct ckpt *c;
	int rc;

	if (ckpt_open(&c, a->operand[0], NULL, say_passed, e))
		return -1;
	rc = a->json ? list_json(c, a->digest, e) : list_text(c, a->digest, e);
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
		return err_set(e, CODE_FINDINGS, "%s has %zu errors", a->config,
			       report_count(&r, ERROR));
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

/* A command: how many operands, which of the options are for it. */
static const struct command {
	const char *name;
	int operands;
	const char *options;
	int (*run)(const struct args *a, struct err *e);
} commands[] = {
	{"reshard", 2, "config set world dry-run force", do_reshard},
	{"verify", 1, "", do_verify},
	{"diff", 2, "tolerance", do_diff},
	{"ls", 1, "digest json", do_ls},
	{"config", 1, "", do_config},
	{"check", 1, "config set", do_check},
};
enum { COMMANDS = sizeof(commands) / sizeof(*commands) };

/* Whether the option was given. */
static bool is_given(const struct cli_opt *o)
{
	switch (o->type) {
	case CLI_FLAG: return *(const bool *)o->value;
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
			       (*out)->operands > 1 ? "s" : "", n - 1);
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
		 1 << 24},
		{"dry-run", 'n', CLI_FLAG, &a->dry_run, NULL,
		 "tell what reshard would do", 0, 0},
		{"force", 'f', CLI_FLAG, &a->force, NULL,
		 "replace a complete step in DST", 0, 0},
		{"tolerance", 't', CLI_STRING, &a->tolerance, "X",
		 "let |a - b| <= X pass (default: bit for bit)", 0, 0},
		{"digest", 'd', CLI_FLAG, &a->digest, NULL,
		 "digests, which no layout changes", 0, 0},
		{"json", 'j', CLI_FLAG, &a->json, NULL, "one JSON object", 0,
		 0},
		{0},
	};
	const struct cli cli = {
		.program = "ckpt-merge",
		.usage = "COMMAND [OPTION]... ARGUMENTS",
		.about =
			"Reshard, verify, compare and list checkpoints.  SRC "
			"is a run's folder or one step of it.\n\n"
			"  reshard SRC DST          to another layout, as a step "
			"of the run folder DST\n"
			"  verify SRC               read and check everything\n"
			"  diff A B                 compare, whatever their "
			"layouts\n"
			"  ls SRC                   weights and progress\n"
			"  config SRC               its shape as a config\n"
			"  check SRC --config FILE  can it be loaded?",
		.opts = opts,
	};
	const struct command *command;
	enum cli_found found;
	int first;

	if (cli_parse(&cli, argc, argv, &first, &found, e))
		return -1;
	if (found == CLI_ENDED)
		return 0;
	if (find_command(opts, argc - first, argv + first, &command, e))
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
