/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "lib/plan/grid.h"
#include "lib/plan/place_rule.h"
#include "lib/plan/shape.h"

#define AT PLACE_AT

static void check_full(const struct place *p, const struct stages *st,
		       struct report *r)
{
	int64_t n = p->recompute_num_layers, most = 0;

	for (int i = 0; i < st->count; i++)
		if (st->stage[i].num_layers > most)
			most = st->stage[i].num_layers;
	if (n <= most || !st->count)
		return;
	report_add(r, "place-recompute-layers", ERROR, AT(recompute_num_layers),
		   "recompute_num_layers %" PRId64 " is more than the %" PRId64
		   " layer%s of the largest stage",
		   n, most, plural(most));
	report_suggest(r, "recompute_num_layers = %" PRId64, most);
}

static void check_recompute(const struct place *p, const struct stages *st,
			    struct report *r)
{
	bool full = p->recompute_granularity == RECOMPUTE_FULL;

	if (full != (p->recompute_method != METHOD_NONE) ||
	    full != IS_SET(p->recompute_num_layers)) {
		report_add(r, "place-recompute", ERROR,
			   AT(recompute_granularity),
			   "recompute_method and recompute_num_layers belong "
			   "to recompute_granularity \"full\", and only to it");
		report_suggest(r, full ? "recompute_method = \"uniform\" with "
					 "recompute_num_layers = 1"
				       : "neither of them");
	} else if (full)
		check_full(p, st, r);
	if (p->distribute_saved_activations &&
	    (!full || p->sequence_parallel ||
	     p->tensor_model_parallel_size == 1))
		report_add(r, "place-recompute-cut", ERROR,
			   AT(distribute_saved_activations),
			   "distribute_saved_activations needs full recompute "
			   "with tp above 1; with sequence_parallel they are "
			   "cut already");
}

/* A module that there is nothing of. */
static void check_module(const struct place *p, const char *name, bool there,
			 const char *wants, struct report *r)
{
	if (there || !place_names(&p->recompute_modules, name))
		return;
	report_add(r, "place-recompute-modules", ERROR, AT(recompute_modules),
		   "\"%s\" needs %s", name, wants);
}

static void check_modules(const struct place *p, const struct shape *s,
			  struct report *r)
{
	int variant = s->experimental_attention_variant;

	if (p->recompute_granularity != RECOMPUTE_SELECTIVE)
		return;
	check_module(p, "mla_up_proj", s->multi_latent_attention,
		     "multi_latent_attention", r);
	check_module(p, "gdn_norm_out",
		     variant == VARIANT_GDN || variant == VARIANT_GDN2,
		     "experimental_attention_variant gdn or gdn2", r);
	check_module(p, "mhc", s->enable_mhc_connections,
		     "enable_mhc_connections", r);
	check_module(p, "moe", s->num_moe_experts, "num_moe_experts", r);
	check_module(p, "moe_act", s->num_moe_experts, "num_moe_experts", r);
	check_module(p, "shared_experts",
		     IS_SET(s->moe_shared_expert_intermediate_size),
		     "moe_shared_expert_intermediate_size", r);
}

static void check_offload(const struct place *p, const struct shape *s,
			  struct report *r)
{
	int64_t n = p->cpu_offloading_num_layers;

	if (!p->cpu_offloading)
		return;
	if (IS_SET(s->num_layers) && n >= s->num_layers) {
		report_add(r, "place-offload", ERROR,
			   AT(cpu_offloading_num_layers),
			   "cpu_offloading_num_layers %" PRId64
			   " is not below num_layers %" PRId64,
			   n, s->num_layers);
		report_suggest(r, "cpu_offloading_num_layers = %" PRId64,
			       s->num_layers - 1);
	}
	if (p->pipeline_model_parallel_size > 1 ||
	    p->recompute_granularity != RECOMPUTE_NONE)
		report_add(r, "place-offload", ERROR, AT(cpu_offloading),
			   "cpu_offloading goes with neither "
			   "pipeline_model_parallel_size %" PRId64
			   " above 1 nor recompute",
			   p->pipeline_model_parallel_size);
}

void place_check_memory(const struct place *p, const struct shape *s,
			const struct stages *st, struct report *r)
{
	check_recompute(p, st, r);
	check_modules(p, s, r);
	check_offload(p, s, r);
	if (p->fine_grained_activation_offloading &&
	    !p->offload_modules.count) {
		report_add(r, "place-offload-modules", ERROR,
			   AT(fine_grained_activation_offloading),
			   "offload_modules says what to offload, and is not "
			   "given");
		report_suggest(r, "offload_modules = [\"core_attn\"]");
	}
}

static void check_gather(const struct place *p, struct report *r)
{
	int64_t vp = p->virtual_pipeline_model_parallel_size;

	if (p->overlap_param_gather &&
	    !((p->use_distributed_optimizer || p->use_megatron_fsdp ||
	       p->use_layer_wise_distributed_optimizer) &&
	      p->overlap_grad_reduce))
		report_add(r, "place-param-gather", ERROR,
			   AT(overlap_param_gather),
			   "overlap_param_gather needs "
			   "use_distributed_optimizer = true and "
			   "overlap_grad_reduce = true");
	if (p->overlap_param_gather_with_optimizer_step &&
	    (!p->use_distributed_optimizer || !p->overlap_param_gather ||
	     (IS_SET(vp) && vp == 1)))
		report_add(r, "place-param-gather-step", ERROR,
			   AT(overlap_param_gather_with_optimizer_step),
			   "a gather beside the optimizer's step needs "
			   "use_distributed_optimizer, overlap_param_gather "
			   "and virtual stages: it is that of the first chunk");
	if (IS_SET(p->bucket_size) && IS_SET(p->num_buckets))
		report_add(r, "place-buckets", ERROR, AT(num_buckets),
			   "bucket_size %" PRId64 " and num_buckets %" PRId64
			   " are both given; give one of them",
			   p->bucket_size, p->num_buckets);
}

static void check_fsdp(const struct place *p, const struct shape *s,
		       struct report *r)
{
	if (p->use_megatron_fsdp && p->use_torch_fsdp2)
		report_add(r, "place-fsdp", ERROR, AT(use_torch_fsdp2),
			   "use_megatron_fsdp and use_torch_fsdp2 are two ways "
			   "of the same; give one of them");
	if (p->use_torch_fsdp2 && (p->pipeline_model_parallel_size > 1 ||
				   p->expert_model_parallel_size > 1 ||
				   p->use_distributed_optimizer ||
				   s->share_embeddings_and_output_weights))
		report_add(r, "place-fsdp", ERROR, AT(use_torch_fsdp2),
			   "use_torch_fsdp2 needs pp 1 (it is %" PRId64
			   "), ep 1 (it is %" PRId64
			   "), no use_distributed_optimizer and untied "
			   "embeddings",
			   p->pipeline_model_parallel_size,
			   p->expert_model_parallel_size);
	if (p->outer_dp_sharding_strategy != SHARD_NONE &&
	    p->num_distributed_optimizer_instances == 1)
		report_add(r, "place-fsdp", ERROR,
			   AT(outer_dp_sharding_strategy),
			   "there are no groups of data parallel ranks to "
			   "share anything: it needs "
			   "num_distributed_optimizer_instances above 1");
}

/* Reductions in the switches. */
static void check_sharp(const struct place *p, struct report *r)
{
	if (p->sharp_enabled_group == SHARP_NONE)
		return;
	if (!p->use_sharp)
		report_add(r, "place-sharp", ERROR, AT(sharp_enabled_group),
			   "sharp_enabled_group needs use_sharp");
	else if (p->sharp_enabled_group == SHARP_DP_REPLICA &&
		 p->num_distributed_optimizer_instances == 1)
		report_add(r, "place-sharp", ERROR, AT(sharp_enabled_group),
			   "there are no replicas of optimizer state: "
			   "\"dp_replica\" needs "
			   "num_distributed_optimizer_instances above 1");
}

/* Groups of data parallel ranks that each hold all of the state. */
static void check_instances(const struct place *p, int64_t world,
			    struct report *r)
{
	int64_t n = p->num_distributed_optimizer_instances;
	struct grid g;
	struct err e;

	if (n == 1)
		return;
	if (!p->use_distributed_optimizer && !p->use_megatron_fsdp) {
		report_add(r, "place-instances", ERROR,
			   AT(num_distributed_optimizer_instances),
			   "without use_distributed_optimizer every rank holds "
			   "all of the optimizer state");
		return;
	}
	if (!world || grid_build(&g, p, world, &e) ||
	    (g.dp * g.cp % n == 0 && g.edp % n == 0))
		return;
	report_add(r, "place-instances", ERROR,
		   AT(num_distributed_optimizer_instances),
		   "dp x cp = %d and expert dp %d are not both multiples of "
		   "num_distributed_optimizer_instances %" PRId64,
		   g.dp * g.cp, g.edp, n);
	report_suggest_divisors(r, "num_distributed_optimizer_instances", g.edp,
				n);
}

void place_check_sharding(const struct place *p, const struct shape *s,
			  int64_t world, struct report *r)
{
	bool zero = p->data_parallel_sharding_strategy != SHARD_NONE;

	if (zero != p->use_distributed_optimizer) {
		report_add(r, "place-sharding", ERROR,
			   AT(data_parallel_sharding_strategy),
			   "use_distributed_optimizer = %s contradicts "
			   "data_parallel_sharding_strategy",
			   p->use_distributed_optimizer ? "true" : "false");
		report_suggest(r, "use_distributed_optimizer = %s",
			       zero ? "true" : "false");
	}
	check_gather(p, r);
	check_fsdp(p, s, r);
	check_instances(p, world, r);
	check_sharp(p, r);
}
