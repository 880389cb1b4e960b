/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/kern.h"
#include "lib/plan/check.h"
#include "lib/plan/config.h"

static bool has_positions(const struct shape *s)
{
	if (s->position_embedding_type == POS_LEARNED ||
	    s->position_embedding_type == POS_NONE)
		return s->multi_latent_attention;
	return true;
}

static bool shape_has(const struct shape *s, enum feature feature)
{
	int variant = s->experimental_attention_variant;

	switch (feature) {
	case OF_GATED: return s->gated_linear_unit;
	case OF_WINDOW: return s->window_size.count;
	case OF_STREAMS: return s->enable_mhc_connections;
	case OF_GROUPED: return !s->multi_latent_attention;
	case OF_ROPE: return has_positions(s);
	case OF_GROUPED_ROPE:
		return has_positions(s) && !s->multi_latent_attention;
	case OF_ROPE_SCALING: return s->rope_scaling;
	case OF_MROPE: return s->position_embedding_type == POS_MROPE;
	case OF_YARN:
		return s->position_embedding_type == POS_YARN &&
		       !s->multi_latent_attention;
	case OF_LATENT: return s->multi_latent_attention;
	case OF_DELTA: return variant == VARIANT_GDN || variant == VARIANT_GDN2;
	case OF_INDEXER: return variant == VARIANT_DSA;
	case OF_MTP: return s->mtp_num_layers;
	case OF_MOE: return s->num_moe_experts;
	case OF_SHARED: return IS_SET(s->moe_shared_expert_intermediate_size);
	case OF_MUP: return s->use_mup;
	default: return true;
	}
}

static bool code_has(const struct config *c, enum feature feature)
{
	int optimizer = c->run.optimizer;

	switch (feature) {
	case OF_CONTEXT: return c->place.context_parallel_size > 1;
	case OF_RECOMPUTE:
		return c->place.recompute_granularity != RECOMPUTE_NONE;
	case OF_OFFLOAD: return c->place.cpu_offloading;
	case OF_FINE_OFFLOAD:
		return c->place.fine_grained_activation_offloading;
	case OF_TP_OVERLAP: return c->place.tp_comm_overlap;
	case OF_FSDP: return c->place.use_megatron_fsdp;
	case OF_FP8: return c->spec.fp8 != FP8_NONE;
	case OF_FP4: return c->spec.fp4 != FP4_NONE;
	case OF_GRAPHS: return c->spec.cuda_graph_impl != GRAPH_NONE;
	case OF_HALF:
		return c->spec.params_dtype == DTYPE_FP16 ||
		       c->spec.params_dtype == DTYPE_BF16;
	case OF_FP16: return c->spec.params_dtype == DTYPE_FP16;
	case OF_SGD: return optimizer == OPT_SGD;
	case OF_MUON:
		return optimizer == OPT_MUON || optimizer == OPT_ADAPTIVE_MUON;
	case OF_LION: return optimizer == OPT_LION;
	case OF_SOAP: return optimizer == OPT_SOAP;
	case OF_ADAPTIVE_MUON: return optimizer == OPT_ADAPTIVE_MUON;
	default: return true;
	}
}

static bool has(const struct config *c, enum feature feature)
{
	return shape_has(&c->shape, feature) && code_has(c, feature);
}

/* Why a config does not have a feature. */
static const char *const lacks[FEATURES] = {
	[OF_GATED] = "gated_linear_unit is false",
	[OF_WINDOW] = "window_size is not given",
	[OF_STREAMS] = "enable_mhc_connections is false",
	[OF_GROUPED] = "multi_latent_attention is true",
	[OF_ROPE] = "position_embedding_type has no rotation",
	[OF_GROUPED_ROPE] = "position_embedding_type has no rotation, or "
			    "multi_latent_attention is true",
	[OF_ROPE_SCALING] = "rope_scaling is false",
	[OF_MROPE] = "position_embedding_type is not mrope",
	[OF_YARN] = "position_embedding_type is not yarn, or "
		    "multi_latent_attention is true",
	[OF_LATENT] = "multi_latent_attention is false",
	[OF_DELTA] = "experimental_attention_variant is neither gdn nor gdn2",
	[OF_INDEXER] = "experimental_attention_variant is not dsa",
	[OF_MTP] = "mtp_num_layers is 0",
	[OF_MOE] = "num_moe_experts is 0",
	[OF_SHARED] = "moe_shared_expert_intermediate_size is not given",
	[OF_MUP] = "use_mup is false",
	[OF_CONTEXT] = "context_parallel_size is 1",
	[OF_RECOMPUTE] = "recompute_granularity is none",
	[OF_OFFLOAD] = "cpu_offloading is false",
	[OF_FINE_OFFLOAD] = "fine_grained_activation_offloading is false",
	[OF_TP_OVERLAP] = "tp_comm_overlap is false",
	[OF_FSDP] = "use_megatron_fsdp is false",
	[OF_FP8] = "fp8 is none",
	[OF_FP4] = "fp4 is none",
	[OF_GRAPHS] = "cuda_graph_impl is none",
	[OF_HALF] = "params_dtype is neither fp16 nor bf16",
	[OF_FP16] = "params_dtype is not fp16",
	[OF_SGD] = "optimizer is not sgd",
	[OF_MUON] = "optimizer is neither muon nor adaptive_muon",
	[OF_LION] = "optimizer is not lion",
	[OF_SOAP] = "optimizer is not soap",
	[OF_ADAPTIVE_MUON] = "optimizer is not adaptive_muon",
};

/* A setting that was given another value than its default, and what of it. */
struct remark {
	const struct group *group;
	const void *base;
	int row;
	const char *id;
	const char *what, *why; /* "is not run yet", "" */
};

/* All of a config, in the order of its settings. */
struct remarks {
	const struct config *c;
	struct arena *a;
	struct remark list[4 * FIELDS_MAX];
	int count;
};

/* Whether there is something to say of M's setting, and if so what. */
typedef bool judge(const struct config *c, struct remark *m);

/* What a variant of attention would take to run. */
static const char *const variant_needs[] = {
	[VARIANT_NONE] = "",
	[VARIANT_GDN] =
		": it needs a scan of the gated delta rule over the tokens, "
		"forward and backward, its short convolution, and their "
		"weights (decays, gated norm) in the table of weights",
	[VARIANT_GDN2] =
		": it needs a scan of the gated delta rule over the tokens, "
		"forward and backward, with gates for each channel, its short "
		"convolution, and their weights in the table "
		"of weights",
	[VARIANT_DSA] =
		": it needs an indexer beside latent attention (its "
		"projections and norm in the table of weights, its scores and "
		"choice of dsa_indexer_topk tokens, its loss), and attention "
		"to the chosen tokens alone",
};

static const char *needs(const struct config *c, const struct remark *m)
{
	const struct field *f = &m->group->fields[m->row];

	if (m->group != &shape_group ||
	    f->offset != offsetof(struct shape, experimental_attention_variant))
		return "";
	return variant_needs[c->shape.experimental_attention_variant];
}

static bool judge_served(const struct config *c, struct remark *m)
{
	const struct field *f = &m->group->fields[m->row];

	if (!f->unserved || !has(c, f->of))
		return false;
	m->id = f->unserved;
	m->what = check_find(m->id)->severity == NOTE
			  ? "has no effect on the results"
			  : "is not run yet";
	m->why = needs(c, m);
	return true;
}

static bool judge_use(const struct config *c, struct remark *m)
{
	const struct field *f = &m->group->fields[m->row];

	if (has(c, f->of))
		return false;
	m->id = "conf-unused";
	m->what = "means nothing while ";
	m->why = lacks[f->of];
	return true;
}

static void judge_group(struct remarks *all, const struct group *g,
			const void *base, judge *decide)
{
	const struct origin *from = base;

	for (int i = 0; i < g->count; i++) {
		struct remark *m = &all->list[all->count];

		if (from[i].kind != ORIGIN_GIVEN)
			continue;
		*m = (struct remark){.group = g, .base = base, .row = i};
		if (decide(all->c, m) &&
		    !field_is_default(&g->fields[i], base, all->a))
			all->count++;
	}
}

static bool alike(const struct remark *x, const struct remark *y)
{
	return x->what == y->what && x->why == y->why && !strcmp(x->id, y->id);
}

/* Remark I and, after it, the names of those that say the same. */
static void say(const struct remarks *all, int i, struct report *r)
{
	const struct remark *m = &all->list[i];
	const struct field *f = &m->group->fields[m->row];
	const char *others = "";

	for (int k = 0; k < i; k++)
		if (alike(&all->list[k], m))
			return;
	for (int k = i + 1; k < all->count; k++)
		if (alike(&all->list[k], m))
			others = arena_printf(
				r->arena, "%s%s%s", others,
				*others ? ", " : "; the same goes for ",
				all->list[k]
					.group->fields[all->list[k].row]
					.name);
	report_add(r, m->id, check_find(m->id)->severity,
		   arena_printf(r->arena, "%s.%s", m->group->name, f->name),
		   (const struct origin *)m->base + m->row,
		   "%s = %.200s %s%s%s", f->name,
		   field_text(f, m->base, r->arena), m->what, m->why, others);
}

static void judge_all(const struct config *c, judge *decide, struct report *r)
{
	struct remarks *all = arena_alloc(r->arena, 1, sizeof(*all));

	*all = (struct remarks){.c = c, .a = r->arena};
	judge_group(all, &shape_group, &c->shape, decide);
	judge_group(all, &spec_group, &c->spec, decide);
	judge_group(all, &place_group, &c->place, decide);
	judge_group(all, &run_group, &c->run, decide);
	for (int i = 0; i < all->count; i++)
		say(all, i, r);
}

void config_unused(const struct config *c, struct report *r)
{
	judge_all(c, judge_use, r);
}

/* Values of a setting of which train-worker runs some. */
#define UNSERVED(id, group, member, ...)                                    \
	report_add(r, id, WARNING, #group "." #member,                      \
		   field_from(&group##_group, &c->group, &c->group.member), \
		   __VA_ARGS__)

static void unserved_spec(const struct config *c, struct report *r)
{
	int dtype = c->spec.params_dtype;

	if (dtype == DTYPE_FP64 && c->spec.device == DEVICE_CUDA)
		UNSERVED("served-precision", spec, params_dtype,
			 "fp64 is run on CPUs only");
	if (c->spec.pipeline_dtype != DTYPE_NAMED + dtype)
		UNSERVED("served-precision", spec, pipeline_dtype,
			 "messages between stages have params_dtype so far");
	if (c->spec.transformer_impl == IMPL_INFERENCE)
		UNSERVED("served-spec", spec, transformer_impl,
			 "inference_optimized is not for training "
			 "(train-worker --generate takes it)");
}

static void unserved_balance(const struct config *c, struct report *r)
{
	const struct texts *types = &c->run.moe_router_load_balancing_type;

	for (int i = 0; i < types->count; i++) {
		const char *type = types->item[i];

		if (!strcmp(type, "quantile_balancing"))
			UNSERVED("served-experts", run,
				 moe_router_load_balancing_type,
				 "%s is not run yet", type);
	}
}

static void unserved_experts(const struct config *c, struct report *r)
{
	const struct place *p = &c->place;
	int router = c->spec.moe_router_dtype, dtype = c->spec.params_dtype;

	if (!c->shape.num_moe_experts)
		return;
	if (c->shape.num_moe_experts > KERN_EXPERTS)
		UNSERVED("served-experts", shape, num_moe_experts,
			 "at most %d experts are run so far", KERN_EXPERTS);
	if (c->shape.add_bias_linear && c->shape.moe_shared_expert_gate)
		UNSERVED("served-experts", shape, moe_shared_expert_gate,
			 "a shared expert with a bias is run without a gate "
			 "so far");
	if (p->expert_tensor_parallel_size != p->tensor_model_parallel_size)
		UNSERVED("served-experts", place, expert_tensor_parallel_size,
			 "experts are cut over tensor_model_parallel_size "
			 "ranks so far");
	if ((router == ROUTER_FP32 && dtype == DTYPE_FP64) ||
	    (router == ROUTER_FP64 && dtype != DTYPE_FP64))
		UNSERVED("served-experts", spec, moe_router_dtype,
			 "the router has params_dtype so far");
	unserved_balance(c, r);
}

static void unserved_run(const struct config *c, struct report *r)
{
	if (c->run.eval_global_batch_size != c->run.global_batch_size)
		UNSERVED("served-batch", run, eval_global_batch_size,
			 "evaluation has batches of global_batch_size so far");
	if (c->run.eval_micro_batch_size != c->run.micro_batch_size)
		UNSERVED("served-batch", run, eval_micro_batch_size,
			 "evaluation has batches of micro_batch_size so far");
}

int config_unserved(const struct config *c, struct report *r)
{
	size_t before = report_count(r, WARNING);

	judge_all(c, judge_served, r);
	if (c->place.data_parallel_sharding_strategy > SHARD_OPTIM)
		UNSERVED("served-sharding", place,
			 data_parallel_sharding_strategy,
			 "only no_shard and optim are run so far");
	unserved_experts(c, r);
	unserved_spec(c, r);
	unserved_run(c, r);
	return (int)(report_count(r, WARNING) - before);
}
