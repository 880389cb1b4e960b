/* SPDX-License-Identifier: Apache-2.0 */
/* A placement as settings. */
#include <inttypes.h>
#include <string.h>

#include "lib/plan/suggest_rule.h"

bool placement_alike(const struct placement *x, const struct placement *y)
{
	return x->tp == y->tp && x->pp == y->pp && x->cp == y->cp &&
	       x->ep == y->ep && x->etp == y->etp;
}

/* The words so far. */
struct words {
	const struct config *loaded;
	const char **set;
	int count;
	struct arena *a;
};

/* The field NAME of place or run, and its group's struct in LOADED. */
static const struct field *field_of(const struct config *loaded,
				    const char *path, const void **base,
				    int *row)
{
	bool place = !strncmp(path, "place.", 6);
	const struct group *g = place ? &place_group : &run_group;

	*base = place ? (const void *)&loaded->place : &loaded->run;
	*row = field_find(g, strchr(path, '.') + 1);
	return &g->fields[*row];
}

/* PATH = VALUE, unless LOADED says so already. */
static void put(struct words *w, const char *path, const char *value)
{
	const void *base;
	int row;
	const struct field *f = field_of(w->loaded, path, &base, &row);
	const char *now = field_text(f, base, w->a);
	size_t len = strlen(value);

	if (!strcmp(now, value) ||
	    (*now == '"' && !strncmp(now + 1, value, len) &&
	     !strcmp(now + 1 + len, "\"")))
		return;
	w->set[w->count++] = arena_printf(w->a, "%s=%s", path, value);
}

static void put_int(struct words *w, const char *path, int64_t n)
{
	put(w, path, arena_printf(w->a, "%" PRId64, n));
}

static void put_flag(struct words *w, const char *path, bool on)
{
	put(w, path, on ? "true" : "false");
}

/* Take back what LOADED was given. */
static void put_unset(struct words *w, const char *path)
{
	const void *base;
	int row;

	field_of(w->loaded, path, &base, &row);
	if (((const struct origin *)base)[row].kind != ORIGIN_DEFAULT)
		w->set[w->count++] = arena_printf(w->a, "%s=unset", path);
}

static void put_cut(struct words *w, const struct placement *p)
{
	static const char *const others[] = {
		"place.num_layers_per_virtual_pipeline_stage",
		"place.num_virtual_stages_per_pipeline_rank",
		"place.num_layers_in_first_pipeline_stage",
		"place.num_layers_in_last_pipeline_stage",
		"place.account_for_embedding_in_pipeline_split",
		"place.account_for_loss_in_pipeline_split",
		"place.microbatch_group_size_per_vp_stage",
	};

	put_int(w, "place.pipeline_model_parallel_size", p->pp);
	if (p->vp > 1 && !p->layout)
		put_int(w, "place.virtual_pipeline_model_parallel_size", p->vp);
	else
		put_unset(w, "place.virtual_pipeline_model_parallel_size");
	if (p->layout)
		put(w, "place.pipeline_model_parallel_layout",
		    arena_printf(w->a, "\"%s\"", p->layout));
	else
		put_unset(w, "place.pipeline_model_parallel_layout");
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		put_unset(w, others[i]);
}

static void put_again(struct words *w, const struct placement *p)
{
	static const char *const names[] = {"none", "selective", "full"};
	bool moe = w->loaded->shape.num_moe_experts > 0;

	put(w, "place.recompute_granularity", names[p->again]);
	if (p->again == AGAIN_MODULES)
		put(w, "place.recompute_modules",
		    moe ? "[\"layernorm\", \"moe_act\"]"
			: "[\"layernorm\", \"mlp\"]");
	else
		put_unset(w, "place.recompute_modules");
	if (p->again == AGAIN_LAYERS) {
		put(w, "place.recompute_method", "block");
		put_int(w, "place.recompute_num_layers", p->layers);
	} else {
		put_unset(w, "place.recompute_method");
		put_unset(w, "place.recompute_num_layers");
	}
}

static void put_sharding(struct words *w, const struct placement *p)
{
	bool all = p->sharding == SHARD_OPTIM_GRADS_PARAMS;

	put_flag(w, "place.use_distributed_optimizer", p->sharding);
	if (all)
		put(w, "place.data_parallel_sharding_strategy",
		    "optim_grads_params");
	else
		put_unset(w, "place.data_parallel_sharding_strategy");
	put_flag(w, "place.use_megatron_fsdp", all);
}

int placement_sets(const struct placement *p, const struct config *loaded,
		   const char **set, struct arena *a)
{
	struct words w = {loaded, set, 0, a};

	put_int(&w, "place.tensor_model_parallel_size", p->tp);
	put_cut(&w, p);
	put_int(&w, "place.context_parallel_size", p->cp);
	put_int(&w, "place.expert_model_parallel_size", p->ep);
	if (p->etp != p->tp)
		put_int(&w, "place.expert_tensor_parallel_size", p->etp);
	else
		put_unset(&w, "place.expert_tensor_parallel_size");
	put_flag(&w, "place.sequence_parallel", p->sp);
	put_int(&w, "run.micro_batch_size", p->micro);
	put_unset(&w, "run.eval_micro_batch_size");
	put_again(&w, p);
	put_sharding(&w, p);
	return w.count;
}

const char *placement_hints(const struct config *loaded, struct arena *a)
{
	static const char *const searched[] = {
		"tensor_model_parallel_size",
		"pipeline_model_parallel_size",
		"virtual_pipeline_model_parallel_size",
		"pipeline_model_parallel_layout",
		"num_layers_per_virtual_pipeline_stage",
		"num_virtual_stages_per_pipeline_rank",
		"num_layers_in_first_pipeline_stage",
		"num_layers_in_last_pipeline_stage",
		"account_for_embedding_in_pipeline_split",
		"account_for_loss_in_pipeline_split",
		"microbatch_group_size_per_vp_stage",
		"context_parallel_size",
		"expert_model_parallel_size",
		"expert_tensor_parallel_size",
		"sequence_parallel",
		"recompute_granularity",
		"recompute_method",
		"recompute_num_layers",
		"recompute_modules",
		"use_distributed_optimizer",
		"data_parallel_sharding_strategy",
		"use_megatron_fsdp",
	};
	const char *text = "";

	for (size_t i = 0; i < sizeof(searched) / sizeof(*searched); i++) {
		int row = field_find(&place_group, searched[i]);

		if (loaded->place.from[row].kind == ORIGIN_GIVEN)
			text = arena_printf(a, "%s%s%s = %.60s", text,
					    *text ? ", " : "", searched[i],
					    field_text(&place_group.fields[row],
						       &loaded->place, a));
	}
	return text;
}

void placement_config(struct config *out, const struct config *loaded,
		      const char *const *set, int sets, int64_t world,
		      struct report *r)
{
	*out = *loaded;
	config_set(out, set, sets, r->arena, r);
	config_finish(out, world, r);
}
