/* SPDX-License-Identifier: Apache-2.0 */
/* stage-build: what every rank of a config owns and does. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cli.h"
#include "lib/base/log.h"
#include "lib/base/sys.h"
#include "lib/base/write.h"
#include "lib/plan/gpu.h"
#include "lib/plan/grid_rule.h"
#include "lib/plan/hook.h"
#include "lib/plan/show.h"
#include "lib/plan/verdict.h"

struct options {
	struct cluster cluster;
	int64_t rank; /* -1: not given */
	bool json, sbatch, explain, allow_plugins;
	const char *svg, *html, *gpu;
	struct cli_list sets;
};

static int parse(struct options *o, int argc, char **argv, int *first,
		 enum cli_found *found, struct err *e)
{
	const struct cli_opt opts[] = {
		{"world", 0, CLI_INT, &o->cluster.world, "N",
		 "ranks (SLURM_NTASKS, else the fewest that fit)", 1,
		 GRID_WORLD_MAX},
		{"rank", 0, CLI_INT, &o->rank, "R",
		 "one rank in detail; with --json only its entry", 0,
		 GRID_WORLD_MAX - 1},
		{"json", 0, CLI_FLAG, &o->json, NULL, "print a JSON object", 0,
		 0},
		{"svg", 0, CLI_STRING, &o->svg, "FILE",
		 "draw layers x ranks and the step's timeline too", 0, 0},
		{"html", 0, CLI_STRING, &o->html, "FILE",
		 "the same and all else as one page", 0, 0},
		{"gpu-memory", 0, CLI_SIZE, &o->cluster.gpu_memory, "SIZE",
		 "of one GPU (80G), to draw the ranks' beside it", 1 << 20,
		 (int64_t)1 << 50},
		{"gpu", 0, CLI_STRING, &o->gpu, "NAME",
		 "whose times are estimated: " GPU_NAMES " (h200)", 0, 0},
		{"sbatch", 0, CLI_FLAG, &o->sbatch, NULL,
		 "print the #SBATCH lines that fit", 0, 0},
		{"per-node", 0, CLI_INT, &o->cluster.gpus_per_node, "N",
		 "ranks of a node (8, or the world)", 1, GRID_WORLD_MAX},
		{"explain", 0, CLI_FLAG, &o->explain, NULL,
		 "why each layer has its spec, where values come from", 0, 0},
		{"allow-plugins", 0, CLI_FLAG, &o->allow_plugins, NULL,
		 "load spec.plugins, which runs their code, to look into them",
		 0, 0},
		{"set", 0, CLI_LIST, &o->sets, "PATH=VALUE",
		 "change one setting, as the file would say it", 0, 0},
		{0},
	};
	const struct cli cli = {
		.program = "stage-build",
		.usage = "[options] CONFIG",
		.about = "Prints which layers, bytes, work and messages each "
			 "rank of CONFIG has\n(-: standard input), as the "
			 "programs that train-worker would run say.",
		.opts = opts,
	};

	if (cli_parse(&cli, argc, argv, first, found, e))
		return -1;
	if (*found == CLI_ENDED)
		return 0;
	if (argc - *first != 1)
		return err_set(e, CODE_USAGE,
			       "needs one CONFIG, got %d; see --help",
			       argc - *first);
	if (o->json + o->sbatch + o->explain > 1)
		return err_set(e, CODE_USAGE,
			       "--json, --sbatch and --explain exclude each "
			       "other");
	if (o->rank >= 0 && (o->sbatch || o->explain))
		return err_set(e, CODE_USAGE,
			       "--rank goes with the table and --json only");
	return 0;
}

/* The fewest ranks that both grids tile. */
static int64_t fewest_ranks(const struct place *p)
{
	int64_t dense = grid_dense_ranks(p), expert = grid_expert_ranks(p);
	int64_t world = dense > expert ? dense : expert, step = world;

	while (world <= GRID_WORLD_MAX && (world % dense || world % expert))
		world += step;
	return world;
}

static int choose_world(struct options *o, const struct place *p,
			const char **from, struct err *e)
{
	const char *tasks = getenv("SLURM_NTASKS");

	*from = "--world";
	if (o->cluster.world)
		return 0;
	if (tasks && *tasks) {
		*from = "SLURM_NTASKS";
		if (cli_int(tasks, 1, GRID_WORLD_MAX, &o->cluster.world, e))
			return err_wrap(e, "SLURM_NTASKS: ");
		return 0;
	}
	*from = "the fewest ranks that fit, for no --world was given";
	o->cluster.world = fewest_ranks(p);
	log_info("world %" PRId64 ": the fewest ranks that fit; --world says "
		 "otherwise",
		 o->cluster.world);
	return 0;
}

/* Read and judge the config; what there is to say of it goes to stderr. */
static int read_config(struct options *o, const char *file, struct verdict *v,
		       struct arena *a, const char **from, struct err *e)
{
	int64_t world;

	if (verdict_read(v, file, o->sets.item, o->sets.count, a, e) ||
	    choose_world(o, &v->config->place, from, e))
		return -1;
	world = o->cluster.world;
	verdict_reach(v, &(struct cluster){.world = world});
	if (report_count(&v->report, WARNING))
		fputs(verdict_text(v, a), stderr);
	if (!v->valid)
		return err_set(e, CODE_FINDINGS,
			       "'%s' does not make a plan for world %" PRId64,
			       file, world);
	if (o->rank >= world)
		return err_set(e, CODE_USAGE,
			       "--rank: %" PRId64
			       " is not below the world of %" PRId64,
			       o->rank, world);
	return 0;
}

static int write_picture(const char *path,
			 void (*draw)(FILE *, const struct show *),
			 const struct show *s, struct err *e)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int bad;

	if (!f)
		return err_sys(e, CODE_STORAGE, "cannot draw '%s'", path);
	draw(f, s);
	bad = ferror(f);
	if (fclose(f) || bad)
		bad = err_sys(e, CODE_STORAGE, "cannot draw '%s'", path);
	else
		bad = write_file(path, text, true, s->a, e);
	free(text);
	return bad;
}

static int one_rank(const struct options *o, const struct show *s,
		    struct err *e)
{
	const struct config *c = s->sum->config;
	int world = s->sum->grid.world, rank = (int)o->rank;
	struct plan p;

	if (!s->sum->counted)
		return err_set(e, CODE_FINDINGS,
			       "no rank in detail: the weights of linear "
			       "attention and of gates are not known yet");
	if (s->sum->planned ? plan_build(&p, c, world, rank, s->a, e)
			    : plan_slice(&p, c, world, rank, s->a, e))
		return -1;
	show_rank(stdout, s, &p);
	return 0;
}

static int print(const struct options *o, const struct show *s, struct err *e)
{
	if ((o->svg && write_picture(o->svg, show_svg, s, e)) ||
	    (o->html && write_picture(o->html, show_html, s, e)))
		return -1;
	if (o->sbatch)
		show_sbatch(stdout, s, (int)o->cluster.gpus_per_node);
	else if (o->json)
		show_json(stdout, s, (int)o->rank);
	else if (o->rank >= 0)
		return one_rank(o, s, e);
	else
		show_table(stdout, s);
	if (o->explain)
		show_explain(stdout, s);
	return 0;
}

/* Without --per-node a node has CLUSTER_PER_NODE ranks. */
static void choose_node(struct cluster *cl)
{
	if (!cl->gpus_per_node)
		cl->gpus_per_node = CLUSTER_PER_NODE;
	if (cl->gpus_per_node > cl->world)
		cl->gpus_per_node = cl->world;
}

/* Loaded, and whether they have the hooks that C names. */
static int open_plugins(struct plugins *p, const struct config *c,
			struct arena *a, struct err *e)
{
	const struct texts *lists[] = {&c->spec.pre_wrap_hooks,
				       &c->spec.post_wrap_hooks};
	struct hook h;
	int bad = plugins_open(p, &c->spec, a, e);

	for (int i = 0; i < 2; i++)
		for (int k = 0; k < lists[i]->count && !bad; k++)
			bad = hook_parse(&h, lists[i]->item[k], e) ||
			      (h.kind == HOOK_PLUGIN &&
			       !plugins_hook(p, h.text, e));
	if (bad) {
		plugins_close(p);
		e->code = CODE_FINDINGS;
	}
	return bad ? -1 : 0;
}

static int work(struct options *o, const char *file, struct arena *a,
		struct err *e)
{
	struct estimate estimate;
	struct plugins plugins = {0};
	struct sum sum;
	struct show s = {.file = file,
			 .a = a,
			 .sum = &sum,
			 .estimate = &estimate,
			 .cluster = &o->cluster,
			 .plugins = o->allow_plugins ? &plugins : NULL};
	struct verdict v;
	int bad;

	if (cluster_gpu(&o->cluster, o->gpu, e) ||
	    read_config(o, file, &v, a, &s.world_from, e))
		return -1;
	choose_node(&o->cluster);
	if (o->allow_plugins && open_plugins(&plugins, v.config, a, e))
		return -1;
	if (sum_build(&sum, v.config, (int)o->cluster.world, a, e) ||
	    estimate_build(&estimate, v.config, &o->cluster, a, e)) {
		plugins_close(&plugins);
		if (e->code == CODE_CONFIG)
			e->code = CODE_FINDINGS;
		return -1;
	}
	bad = print(o, &s, e) || sys_flush_stdout(e);
	plugins_close(&plugins);
	return bad ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options o = {.rank = -1};
	enum cli_found found;
	enum code code = CODE_DONE;
	struct arena a = {0};
	struct err e;
	int first;

	/* A file too large is an error of write, not the end of the program. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("stage-build", -1, LOG_INFO);
	if (parse(&o, argc, argv, &first, &found, &e) ||
	    (found == CLI_RUN &&
	     (arena_open(&a, &e) || work(&o, argv[first], &a, &e)))) {
		log_error("%s", e.text);
		code = e.code;
	}
	arena_close(&a);
	free(o.sets.item);
	return code;
}
