/* SPDX-License-Identifier: Apache-2.0 */
/* Validate configs, complete them and say everything that is wrong. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cli.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/base/write.h"
#include "lib/plan/classify.h"
#include "lib/plan/diff.h"
#include "lib/plan/grid_rule.h"
#include "lib/plan/import.h"
#include "lib/plan/junit.h"
#include "lib/plan/seal.h"
#include "lib/plan/show_checks.h"
#include "lib/plan/show_suggest.h"

struct options {
	int64_t jobs, vocab;
	struct cluster on;
	const char *gpu;
	const char *from;
	enum config_format format;
	bool diff; /* the first word of the command line */
	bool classify, suggest, json, force, list_checks, list_settings;
	const char *output, *output_dir, *junit, *seal;
	bool gpus; /* the cluster was said in GPUs */
	struct cli_list sets, explain;
};

/* Where outcomes go. */
struct printed {
	const struct options *opt;
	struct junit junit;
};

static void worst(enum code *code, enum code other)
{
	if (other > *code)
		*code = other;
}

static void print_outcome(void *arg, const struct input *in,
			  const struct outcome *out)
{
	struct printed *p = arg;
	bool aside = p->opt->output && !strcmp(p->opt->output, "-");

	if (out->text)
		fputs(out->text, aside ? stderr : stdout);
	if (out->final)
		fputs(out->final, stdout);
	if (*out->trouble.text)
		log_error("%s: %s", in->file, out->trouble.text);
	if (p->opt->junit)
		junit_add(&p->junit, in->file, out);
}

/* What the operands stand for; those that cannot be listed stop no other. */
static enum code list_inputs(struct printed *p, struct inputs *in, int argc,
			     char **argv, struct arena *a)
{
	struct outcome out = {.code = CODE_DONE};

	for (int i = 0; i < argc; i++) {
		if (!inputs_add(in, argv[i], a, &out.trouble))
			continue;
		log_error("%s", out.trouble.text);
		worst(&out.code, out.trouble.code);
		if (p->opt->junit)
			junit_add(&p->junit, argv[i], &out);
	}
	return out.code;
}

/* The last words: a report, a line that sums up, the time it took. */
static enum code conclude(struct printed *p, const struct batch_sum *sum,
			  double seconds, struct arena *a)
{
	const struct options *opt = p->opt;
	struct err e;

	if (sum->inputs > 1 && !opt->json) {
		fputs(batch_summary(sum, a), stdout);
		log_info("%zu inputs in %.2f s", sum->inputs, seconds);
	}
	if (!opt->junit ||
	    !write_file(opt->junit, junit_close(&p->junit, a), true, a, &e))
		return CODE_DONE;
	log_error("%s", e.text);
	return e.code;
}

static enum code validate(const struct options *opt, int argc, char **argv,
			  struct arena *a)
{
	const struct batch_options batch = {
		.format = opt->format,
		.on = opt->on,
		.sets = opt->sets.item,
		.set_count = opt->sets.count,
		.jobs = (int)opt->jobs,
		.json = opt->json,
		.plain = opt->junit,
		.output = opt->output,
		.output_dir = opt->output_dir,
		.force = opt->force,
	};
	struct inputs in = {.ends = import_ends(opt->format),
			    .foreign = opt->format != CONFIG_OWN};
	struct printed p = {.opt = opt};
	struct batch_sum sum;
	enum code code, batch_code;
	double start = sys_seconds();
	struct err e;

	if (opt->junit)
		junit_open(&p.junit);
	code = list_inputs(&p, &in, argc, argv, a);
	if (batch_check(&batch, &in, a, &e) ||
	    batch_run(&batch, &in, print_outcome, &p, &batch_code, &sum, a,
		      &e)) {
		log_error("%s", e.text);
		return e.code;
	}
	worst(&code, batch_code);
	worst(&code, conclude(&p, &sum, sys_seconds() - start, a));
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
		 "translate the inputs from: megatron, hf (vllm: classify)", 0,
		 0},
		{"vocab-size", 0, CLI_INT, &o->vocab, "N",
		 "as --set shape.vocab_size=N", 1, INT32_MAX},
		{"suggest", 0, CLI_FLAG, &o->suggest, NULL,
		 "propose placements of one INPUT for --world", 0, 0},
		{"json", 0, CLI_FLAG, &o->json, NULL,
		 "one JSON object a line for each input", 0, 0},
		{"jobs", 'j', CLI_INT, &o->jobs, "N",
		 "inputs at a time (the number of cpus)", 1, BATCH_JOBS_MAX},
		{"output", 'o', CLI_STRING, &o->output, "FILE",
		 "write the finalised file; - is standard output", 0, 0},
		{"output-dir", 0, CLI_STRING, &o->output_dir, "DIR",
		 "write all finalised files below DIR", 0, 0},
		{"junit", 0, CLI_STRING, &o->junit, "FILE",
		 "write a JUnit report: a test case for each input", 0, 0},
		{"seal", 0, CLI_STRING, &o->seal, "SCRIPT",
		 "write into a batch script for which job this is", 0, 0},
		{"force", 0, CLI_FLAG, &o->force, NULL,
		 "replace files that exist", 0, 0},
		{"set", 0, CLI_LIST, &o->sets, "PATH=VALUE",
		 "as if the file said so: place.x=2", 0, 0},
		{"classify", 0, CLI_FLAG, &o->classify, NULL,
		 "sort the given settings: shape, spec, place, run", 0, 0},
		{"explain", 0, CLI_LIST, &o->explain, "ID",
		 "why a check is there, and a way out", 0, 0},
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
		"(a file that names one input a line).\n"
		"cfg-finalize diff A B compares two configs: diff --help.",
		opts};

	return cli_parse(&cli, argc, argv, first, found, e);
}

/* The options of "cfg-finalize diff". */
static int parse_diff(struct options *o, int argc, char **argv, int *first,
		      enum cli_found *found, struct err *e)
{
	const struct cli_opt opts[] = {
		{"from", 0, CLI_STRING, &o->from, "FORMAT",
		 "both are own, megatron or hf (by ending and contents)", 0, 0},
		{"vocab-size", 0, CLI_INT, &o->vocab, "N",
		 "as --set shape.vocab_size=N", 1, INT32_MAX},
		{"world", 0, CLI_INT, &o->on.world, "N",
		 "the number of ranks of both", 1, GRID_WORLD_MAX},
		{"set", 0, CLI_LIST, &o->sets, "PATH=VALUE",
		 "as if both files said so: run.seed=2", 0, 0},
		{"json", 0, CLI_FLAG, &o->json, NULL, "print one JSON object",
		 0, 0},
		{0},
	};
	const struct cli cli = {
		"cfg-finalize diff", "[OPTION]... A B",
		"Say which settings of two configs differ once everything is "
		"explicit, and\nwhether a job of B goes on from A's "
		"checkpoints.  Exit 0: the same shape,\n1: another, 2: one "
		"cannot be read.",
		opts};

	if (cli_parse(&cli, argc, argv, first, found, e))
		return -1;
	if (*found == CLI_RUN && argc - *first != 2)
		return err_set(e, CODE_USAGE,
			       "diff needs two configs, got %d; see --help",
			       argc - *first);
	return 0;
}

/* What the job would run on; its memory is one of so many ranks. */
static int choose_cluster(struct options *o, struct err *e)
{
	o->gpus = o->on.gpus_per_node || o->on.gpu_memory || o->gpu;
	if (cluster_gpu(&o->on, o->gpu, e))
		return -1;
	cluster_finish(&o->on);
	if (o->on.gpu_memory && !o->on.world && !o->from)
		return err_set(e, CODE_USAGE,
			       "--gpu-memory needs --world, or --nodes with "
			       "--gpus-per-node");
	if (o->on.nodes && !o->on.world && !o->from)
		return err_set(e, CODE_USAGE,
			       "--nodes needs --gpus-per-node or --world");
	return 0;
}

static int choose_format(struct options *o, struct err *e)
{
	static const char *const names[] = {"own", "megatron", "hf", "vllm"};
	int i;

	if (!o->from)
		return 0;
	for (i = CONFIG_OWN; i <= CONFIG_VLLM; i++)
		if (!strcmp(o->from, names[i])) {
			o->format = (enum config_format)i;
			break;
		}
	if (i == CONFIG_VLLM && !o->classify)
		return err_set(e, CODE_USAGE,
			       "--from vllm goes with --classify only: engine "
			       "arguments are no whole config");
	if (i <= CONFIG_VLLM)
		return 0;
	return err_set(e, CODE_USAGE,
		       "--from '%.100s' is none of own, megatron and hf "
		       "(and vllm, to classify)",
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

static enum code run_explain(const struct options *o, struct arena *a)
{
	enum code code = CODE_DONE;
	struct err e;

	for (int i = 0; i < o->explain.count; i++) {
		if (i && code == CODE_DONE)
			putchar('\n');
		if (show_check(stdout, o->explain.item[i], a, &e)) {
			log_error("%s", e.text);
			worst(&code, e.code);
		}
	}
	return code;
}

static int read_side(const struct options *o, const char *file,
		     struct verdict *v, struct arena *a, struct err *e)
{
	enum config_format format = o->from ? o->format : import_guess(file);

	if (verdict_import(v, format, file, o->sets.item, o->sets.count, a, e))
		return -1;
	verdict_reach(v, &o->on);
	if (!v->valid)
		log_warn("%s is invalid, %zu errors: cfg-finalize says which",
			 file, report_count(&v->report, ERROR));
	return 0;
}

static enum code run_diff(const struct options *o, char **argv, struct arena *a)
{
	struct verdict v[2];
	struct diff d;
	struct err e;

	for (int i = 0; i < 2; i++)
		if (read_side(o, argv[i], &v[i], a, &e)) {
			log_error("%s", e.text);
			return CODE_USAGE;
		}
	diff_build(&d, &v[0], &v[1], a);
	fputs(o->json ? diff_json(&d, a) : diff_text(&d, a), stdout);
	return d.same_shape ? CODE_DONE : CODE_FINDINGS;
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

/* On GPUs, unless the config says otherwise or nothing says so. */
static bool on_gpus(const struct options *o, const struct config *c)
{
	return c->spec.device == DEVICE_CUDA ||
	       (c->spec.device == DEVICE_AUTO && o->gpus);
}

/* Judge one config; a valid one seals the script. */
static enum code run_seal(const struct options *o, int argc, char **argv,
			  struct arena *a)
{
	bool print = !strcmp(o->seal, "-");
	const char *seal;
	struct verdict v;
	struct err e;

	if (argc != 1) {
		log_error("--seal takes one config, not %d", argc);
		return CODE_USAGE;
	}
	if (!verdict_import(&v, o->format, argv[0], o->sets.item, o->sets.count,
			    a, &e))
		verdict_reach(&v, &o->on);
	fputs(o->json ? verdict_json(&v, a) : verdict_text(&v, a),
	      print ? stderr : stdout);
	if (!v.valid)
		return verdict_code(&v);
	if (seal_build(&seal, &v, &o->on, on_gpus(o, v.config), &e) ||
	    (!print && seal_write(o->seal, seal, a, &e))) {
		log_error("%s", e.text);
		return e.code;
	}
	if (print)
		printf("export " SEAL_VARIABLE "='%s'\n", seal);
	else
		log_info("%s: " SEAL_PREFIX "%s", o->seal, seal);
	return CODE_DONE;
}

/* Sort the settings of every input under the four questions. */
static enum code run_classify(const struct options *o, int argc, char **argv,
			      struct arena *a)
{
	struct inputs in = {.ends = import_ends(o->format)};
	enum code code = CODE_DONE;
	struct classes c;
	struct err e;

	for (int i = 0; i < argc; i++)
		if (inputs_add(&in, argv[i], a, &e)) {
			log_error("%s", e.text);
			worst(&code, e.code);
		}
	for (size_t i = 0; i < in.count; i++) {
		const char *file = in.list[i].file;
		struct arena own = {0};

		if (arena_open(&own, &e) ||
		    classify_file(&c, o->from ? o->format : import_guess(file),
				  file, &own, &e)) {
			log_error("%s", e.text);
			worst(&code, e.code);
		} else {
			fputs(o->json ? classify_json(&c, &own)
				      : classify_text(&c, &own),
			      stdout);
		}
		arena_close(&own);
	}
	return code;
}

/* Each of these is a run of its own. */
static int check_modes(const struct options *o, struct err *e)
{
	bool writes = o->output || o->output_dir || o->junit;

	if (o->suggest + o->classify + (o->seal != NULL) > 1)
		return err_set(e, CODE_USAGE,
			       "--suggest, --classify and --seal exclude each "
			       "other");
	if ((o->suggest || o->classify || o->seal) && writes)
		return err_set(e, CODE_USAGE,
			       "-o, --output-dir and --junit are for inputs "
			       "that are only judged");
	return 0;
}

static enum code run(const struct options *o, int argc, char **argv,
		     struct arena *a)
{
	if (o->diff)
		return run_diff(o, argv, a);
	if (o->explain.count)
		return run_explain(o, a);
	if (o->list_checks)
		show_checks(stdout);
	if (o->list_settings)
		show_settings(stdout, a);
	if (o->list_checks || o->list_settings)
		return CODE_DONE;
	if (o->suggest)
		return suggest(o, argc, argv, a);
	if (argc && o->classify)
		return run_classify(o, argc, argv, a);
	if (argc && o->seal)
		return run_seal(o, argc, argv, a);
	if (argc)
		return validate(o, argc, argv, a);
	log_error("no INPUT; see --help");
	return CODE_USAGE;
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct options o = {.jobs = cpus < 1		    ? 1
				    : cpus > BATCH_JOBS_MAX ? BATCH_JOBS_MAX
							    : cpus};
	struct arena a = {0};
	enum cli_found found;
	enum code code;
	struct err e;
	int first;

	/* A file too large is an error of write, not the end of the program. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("cfg-finalize", -1, LOG_INFO);
	o.diff = argc > 1 && !strcmp(argv[1], "diff");
	if ((o.diff ? parse_diff(&o, argc - 1, argv + 1, &first, &found, &e)
		    : parse(&o, argc, argv, &first, &found, &e)) ||
	    check_modes(&o, &e) || choose_cluster(&o, &e) ||
	    choose_format(&o, &e) || arena_open(&a, &e)) {
		log_error("%s", e.text);
		return e.code;
	}
	if (found == CLI_ENDED)
		return CODE_DONE;
	set_vocab(&o, &a);
	first += o.diff;
	code = run(&o, argc - first, argv + first, &a);
	if (sys_flush_stdout(&e)) {
		log_error("%s", e.text);
		code = e.code;
	}
	arena_close(&a);
	return code;
}
