/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/cluster.h"

#include <inttypes.h>
#include <string.h>

#include "lib/plan/estimate.h"
#include "lib/plan/gpu.h"
#include "lib/plan/place_rule.h"
#include "lib/plan/run_rule.h"
#include "lib/plan/show_text.h"
#include "lib/plan/sum.h"

int cluster_gpu(struct cluster *cl, const char *name, struct err *e)
{
	cl->gpu = gpu_find(name);
	if (!cl->gpu)
		return err_set(e, CODE_USAGE,
			       "--gpu '%.100s' is none of " GPU_NAMES, name);
	return 0;
}

void cluster_finish(struct cluster *cl)
{
	if (!cl->world)
		cl->world = cl->nodes * cl->gpus_per_node;
	if (!cl->gpus_per_node && cl->nodes && cl->world % cl->nodes == 0)
		cl->gpus_per_node = cl->world / cl->nodes;
}

/* "nodes of 4 GPUs" */
static const char *nodes_text(const struct cluster *cl, struct arena *a)
{
	return arena_printf(a, "nodes of %" PRId64 " GPU%s", cl->gpus_per_node,
			    plural(cl->gpus_per_node));
}

static void check_world(const struct cluster *cl, struct report *r)
{
	int64_t per = cl->gpus_per_node, most = cl->nodes * per;
	int64_t nodes = per ? (cl->world + per - 1) / per : 0;

	if (!cl->world ||
	    (per && !cl->nodes && (cl->world <= per || cl->world % per == 0)))
		return;
	if (per && !cl->nodes)
		report_add(r, "cluster-world", ERROR, "", NULL,
			   "world %" PRId64 " does not fill %s", cl->world,
			   nodes_text(cl, r->arena));
	else if (per && cl->world != most)
		report_add(r, "cluster-world", ERROR, "", NULL,
			   "world %" PRId64 " is not %" PRId64
			   " node%s x %" PRId64 " GPU%s = %" PRId64,
			   cl->world, cl->nodes, plural(cl->nodes), per,
			   plural(per), most);
	else if (!per && cl->nodes)
		report_add(r, "cluster-world", ERROR, "", NULL,
			   "world %" PRId64 " is not a multiple of %" PRId64
			   " node%s",
			   cl->world, cl->nodes, plural(cl->nodes));
	else
		return;
	if (per && cl->nodes)
		report_suggest(r, "--world %" PRId64, most);
	if (per && (cl->nodes || nodes > 1))
		report_suggest(r, "--nodes %" PRId64 " --world %" PRId64, nodes,
			       nodes * per);
}

/* SPAN ranks one behind the other leave their node. */
static bool leaves(const struct cluster *cl, int64_t span)
{
	return span > 1 && cl->gpus_per_node && cl->world > cl->gpus_per_node &&
	       cl->gpus_per_node % span;
}

static void check_nodes(const struct cluster *cl, const struct place *p,
			struct report *r)
{
	int64_t tp = p->tensor_model_parallel_size, per = cl->gpus_per_node;
	int64_t cp = p->context_parallel_size;
	int64_t etp = p->expert_tensor_parallel_size;
	int64_t ep = p->expert_model_parallel_size;
	const char *nodes = nodes_text(cl, r->arena);

	if (leaves(cl, tp)) {
		report_add(r, "cluster-tp-node", WARNING,
			   PLACE_AT(tensor_model_parallel_size),
			   "groups of %" PRId64
			   " tp ranks leave %s, and every layer waits for the "
			   "network",
			   tp, nodes);
		report_suggest_divisors(r, "tensor_model_parallel_size", per,
					tp);
	} else if (ep > 1 && leaves(cl, etp)) {
		report_add(r, "cluster-tp-node", WARNING,
			   PLACE_AT(expert_tensor_parallel_size),
			   "groups of %" PRId64 " etp ranks leave %s", etp,
			   nodes);
		report_suggest_divisors(r, "expert_tensor_parallel_size", per,
					etp);
	}
	if (cp > 1 && leaves(cl, tp * cp))
		report_add(r, "cluster-group-node", NOTE,
			   PLACE_AT(context_parallel_size),
			   "keys and values of tp %" PRId64 " x cp %" PRId64
			   " = %" PRId64 " ranks go over the network from %s",
			   tp, cp, tp * cp, nodes);
	if (ep > 1 && leaves(cl, ep * etp))
		report_add(r, "cluster-group-node", NOTE,
			   PLACE_AT(expert_model_parallel_size),
			   "tokens for experts of etp %" PRId64 " x ep %" PRId64
			   " = %" PRId64 " ranks go over the network from %s",
			   etp, ep, etp * ep, nodes);
}

static int64_t planned_memory(const struct sum *s, int64_t *family, int *pp)
{
	int64_t most = -1;

	for (int i = 0; i < s->grid.pp; i++)
		if (sum_bytes(&s->rank[i]) > most) {
			most = sum_bytes(&s->rank[i]);
			*pp = i;
		}
	memcpy(family, s->rank[*pp].bytes, sizeof(s->rank->bytes));
	return most;
}

int64_t cluster_memory(const struct cluster *cl, const struct config *config,
		       int64_t *family, int *pp, bool *planned, struct err *e)
{
	struct arena a = {0};
	struct report r = {.arena = &a};
	int64_t bytes = -1;
	struct estimate t;
	struct sum s;

	if (arena_open(&a, e))
		return -1;
	*planned = !config_unserved(config, &r) &&
		   !plan_unserved(config, cl->world, &r);
	if (*planned) {
		if (!sum_build(&s, config, (int)cl->world, &a, e))
			bytes = planned_memory(&s, family, pp);
	} else if (!estimate_build(&t, config, cl, &a, e)) {
		bytes = t.memory;
		*pp = t.worst;
		memcpy(family, t.rank[t.worst].bytes, sizeof(t.rank->bytes));
	}
	arena_close(&a);
	return bytes;
}

/* A way to need less memory, in words and as --set takes it. */
struct way {
	const char *text, *set[4];
};

/* Whether LOADED fits CL with SETS besides, and how much it then needs. */
static bool fits(const struct cluster *cl, const struct config *loaded,
		 const struct way *way, struct arena *a, int64_t *bytes)
{
	struct config *c = arena_alloc(a, 1, sizeof(*c));
	struct report r = {.arena = a};
	int64_t family[FAMILIES];
	int sets = 0, pp;
	bool planned;
	struct err e;

	*c = *loaded;
	while (sets < 4 && way->set[sets])
		sets++;
	config_set(c, way->set, sets, a, &r);
	config_finish(c, cl->world, &r);
	if (report_count(&r, ERROR))
		return false;
	*bytes = cluster_memory(cl, c, family, &pp, &planned, &e);
	return *bytes >= 0 &&
	       (double)*bytes <= CLUSTER_SHARE * (double)cl->gpu_memory;
}

/* PATH at TIMES / BY of what it is: 0, which nothing accepts, for a half. */
static struct way less(struct arena *a, const char *path, int64_t n,
		       int64_t times, int64_t by)
{
	n = n % by ? 0 : n * times / by;
	return (struct way){
		arena_printf(a, "%s = %" PRId64, strchr(path, '.') + 1, n),
		{arena_printf(a, "%s=%" PRId64, path, n)}};
}

/* Name the ways that fit, of those that change one thing each. */
static void suggest_memory(const struct cluster *cl,
			   const struct config *loaded, const struct config *c,
			   struct report *r)
{
	const struct place *p = &c->place;
	int64_t bytes;
	struct arena *a = r->arena;
	const struct way ways[] = {
		{"use_distributed_optimizer = true",
		 {"place.use_distributed_optimizer=true"}},
		{"recompute_granularity = \"full\" with recompute_method = "
		 "\"uniform\" and recompute_num_layers = 1",
		 {"place.recompute_granularity=full",
		  "place.recompute_method=uniform",
		  "place.recompute_num_layers=1",
		  "place.recompute_modules=unset"}},
		less(a, "run.micro_batch_size", c->run.micro_batch_size, 1, 2),
		less(a, "place.tensor_model_parallel_size",
		     p->tensor_model_parallel_size, 2, 1),
		less(a, "place.pipeline_model_parallel_size",
		     p->pipeline_model_parallel_size, 2, 1),
		less(a, "place.context_parallel_size", p->context_parallel_size,
		     2, 1),
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		if (fits(cl, loaded, &ways[i], a, &bytes))
			report_suggest(r, "%s (%s)", ways[i].text,
				       word_bytes(bytes).s);
	report_suggest(r, "--suggest, which searches all placements");
}

static const char *families_text(const int64_t *bytes, struct arena *a)
{
	const char *text = "";

	for (int f = 0; f < FAMILIES; f++)
		if (bytes[f])
			text = arena_printf(a, "%s%s%s %s", text,
					    *text ? ", " : "", family_name(f),
					    word_bytes(bytes[f]).s);
	return text;
}

static int64_t check_memory(const struct cluster *cl,
			    const struct config *loaded, const struct config *c,
			    struct report *r, bool *planned)
{
	int64_t family[FAMILIES], bytes, room = cl->gpu_memory;
	const struct run *run = &c->run;
	const char *how;
	struct err e;
	int pp;

	bytes = cluster_memory(cl, c, family, &pp, planned, &e);
	how = *planned ? "planned" : "estimated";
	if (bytes > room)
		report_add(
			r, "cluster-memory", ERROR, RUN_AT(micro_batch_size),
			"ranks of pipeline rank %d need %s (%s: %s), and the "
			"GPU has %s",
			pp, word_bytes(bytes).s, how,
			families_text(family, r->arena), word_bytes(room).s);
	else if ((double)bytes > CLUSTER_SHARE * (double)room)
		report_add(r, "cluster-memory-close", WARNING,
			   RUN_AT(micro_batch_size),
			   "ranks of pipeline rank %d need %s (%s: %s) of the "
			   "GPU's %s; 8%% of it should be left to the CUDA "
			   "context, the libraries' workspaces and NCCL, which "
			   "took 2.2G on two GPUs",
			   pp, word_bytes(bytes).s, how,
			   families_text(family, r->arena), word_bytes(room).s);
	else
		return bytes;
	suggest_memory(cl, loaded, c, r);
	return bytes;
}

int64_t cluster_check(const struct cluster *cl, const struct config *loaded,
		      const struct config *config, struct report *r,
		      bool *planned)
{
	*planned = false;
	check_world(cl, r);
	if (!cl->world || report_count(r, ERROR))
		return 0;
	check_nodes(cl, &config->place, r);
	if (!cl->gpu_memory || !shape_is_complete(&config->shape))
		return 0;
	return check_memory(cl, loaded, config, r, planned);
}
