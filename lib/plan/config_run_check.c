/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "lib/plan/config_rule.h"
#include "lib/plan/place_rule.h"
#include "lib/plan/run_rule.h"
#include "lib/plan/shape_rule.h"

static bool any_coefficient(const struct run *run)
{
	for (int i = 0; i < run->moe_aux_loss_coeff.count; i++)
		if (run->moe_aux_loss_coeff.item[i] != 0)
			return true;
	return false;
}

/* Ways of balancing that have no loss to weigh. */
static void check_lossless(const struct config *c, struct report *r)
{
	const struct run *run = &c->run;
	const struct texts *types = &run->moe_router_load_balancing_type;
	bool quantile = place_names(types, "quantile_balancing");

	if ((quantile || place_names(types, "sinkhorn")) &&
	    any_coefficient(run)) {
		report_add(r, "run-balance-loss", ERROR,
			   RUN_AT(moe_aux_loss_coeff),
			   "\"%s\" balances without a loss: its coefficient "
			   "must be 0",
			   quantile ? "quantile_balancing" : "sinkhorn");
		report_suggest(r, "moe_aux_loss_coeff = 0.0");
	}
	if (quantile && (c->spec.moe_router_fusion ||
			 IS_SET(c->shape.moe_router_num_groups)))
		report_add(r, "run-balance-loss", ERROR,
			   RUN_AT(moe_router_load_balancing_type),
			   "\"quantile_balancing\" has neither "
			   "moe_router_fusion nor moe_router_num_groups");
}

static void check_balance(const struct config *c, struct report *r)
{
	const struct run *run = &c->run;
	const struct shape *s = &c->shape;
	const struct texts *types = &run->moe_router_load_balancing_type;
	int coeffs = run->moe_aux_loss_coeff.count;

	if (types->count != coeffs)
		report_add(r, "run-balance", ERROR, RUN_AT(moe_aux_loss_coeff),
			   "%d type%s of moe_router_load_balancing_type want "
			   "as many coefficients, not %d",
			   types->count, plural(types->count), coeffs);
	check_lossless(c, r);
	if (!isnan(s->moe_expert_capacity_factor) &&
	    (place_names(types, "sinkhorn") ||
	     place_names(types, "quantile_balancing"))) {
		report_add(r, "run-balance-capacity", ERROR,
			   RUN_AT(moe_router_load_balancing_type),
			   "moe_expert_capacity_factor %g goes with aux_loss, "
			   "seq_aux_loss, global_aux_loss and none",
			   s->moe_expert_capacity_factor);
		report_suggest(r, "moe_router_load_balancing_type = "
				  "\"aux_loss\"");
	}
	if (s->moe_router_topk == 1 &&
	    s->moe_router_score_function == SCORE_SOFTMAX &&
	    !s->moe_router_pre_softmax && !place_names(types, "sinkhorn")) {
		report_add(r, "shape-moe-single", ERROR,
			   SHAPE_AT(moe_router_topk),
			   "the softmax over moe_router_topk 1 is always 1: "
			   "the router would get no gradient");
		report_suggest(r, "moe_router_pre_softmax = true");
	}
}

/* Which tokens a full expert drops depends on what it sees at a time. */
static void say_capacity(const struct config *c, struct report *r)
{
	const struct shape *s = &c->shape;
	double factor = s->moe_expert_capacity_factor, share;
	int64_t micro = c->run.micro_batch_size, tokens;

	if (isnan(factor) || factor <= 0 || !IS_SET(micro))
		return;
	tokens = s->seq_length * micro * s->moe_router_topk;
	share = (double)tokens / (double)s->num_moe_experts;
	report_add(
		r, "run-capacity", NOTE, SHAPE_AT(moe_expert_capacity_factor),
		"an expert takes ceil(seq_length %" PRId64
		" x micro_batch_size %" PRId64 " x topk %" PRId64 " / %" PRId64
		" experts x %g) = %.0f tokens of a micro-batch: what is "
		"dropped depends on micro_batch_size",
		s->seq_length, micro, s->moe_router_topk, s->num_moe_experts,
		factor, ceil(share * factor));
}

/* The loss of the experts' use by all tokens of the step, so far. */
static void say_global(const struct config *c, struct report *r)
{
	const struct run *run = &c->run;

	if (!place_names(&run->moe_router_load_balancing_type,
			 "global_aux_loss"))
		return;
	report_add(r, "run-balance-global", NOTE,
		   RUN_AT(moe_router_load_balancing_type),
		   "global_aux_loss goes by what experts had so far in the "
		   "step, on all of dp: its gradient depends on dp and "
		   "micro_batch_size");
}

static void check_mtp(const struct config *c, struct report *r)
{
	const struct run *run = &c->run;

	if (!run->mtp_hsm || c->shape.mtp_num_layers >= 2)
		return;
	report_add(r, "run-mtp-mix", ERROR, RUN_AT(mtp_hsm),
		   "there is nothing to mix with mtp_num_layers %" PRId64
		   ": it needs 2 or more",
		   c->shape.mtp_num_layers);
	report_suggest(r, "mtp_hsm = false");
}

/* Documents that are told apart need what ends them. */
static void check_documents(const struct config *c, struct report *r)
{
	const struct run *run = &c->run;
	bool apart = run->reset_attention_mask || run->reset_position_ids ||
		     run->eod_mask_loss;

	if (apart && !IS_SET(run->eod_id)) {
		report_add(r, "run-documents", ERROR, RUN_AT(eod_id),
			   "reset_attention_mask, reset_position_ids and "
			   "eod_mask_loss need eod_id, the token that ends a "
			   "document");
		report_suggest(r, "eod_id = 0");
	}
	if (!apart && IS_SET(run->eod_id) && run->eod_id < c->shape.vocab_size)
		report_add(r, "run-no-effect", NOTE, RUN_AT(eod_id),
			   "eod_id alone tells no documents apart: "
			   "reset_attention_mask, reset_position_ids and "
			   "eod_mask_loss do");
	if (IS_SET(run->eod_id) && run->eod_id >= c->shape.vocab_size) {
		report_add(r, "run-documents", ERROR, RUN_AT(eod_id),
			   "eod_id %" PRId64 " is none of vocab_size %" PRId64
			   " tokens",
			   run->eod_id, c->shape.vocab_size);
		report_suggest(r, "eod_id = %" PRId64, c->shape.vocab_size - 1);
	}
}

static void check_optimizer(const struct config *c, struct report *r)
{
	const struct run *run = &c->run;
	const struct place *p = &c->place;
	bool muon = run->optimizer == OPT_MUON ||
		    run->optimizer == OPT_ADAPTIVE_MUON;

	if (p->use_distributed_optimizer && run->optimizer != OPT_ADAM &&
	    run->optimizer != OPT_SGD &&
	    !p->use_layer_wise_distributed_optimizer)
		report_add(r, "run-layer-wise", NOTE, RUN_AT(optimizer),
			   "this optimizer wants whole matrices: "
			   "use_distributed_optimizer is read as "
			   "use_layer_wise_distributed_optimizer");
	if (muon && run->muon_tp_mode == MUON_BLOCKWISE &&
	    p->tensor_model_parallel_size > 1) {
		report_add(r, "run-muon", WARNING, RUN_AT(muon_tp_mode),
			   "\"blockwise\" makes each of tp %" PRId64
			   " pieces orthogonal by itself, so the update "
			   "depends on tp",
			   p->tensor_model_parallel_size);
		report_suggest(r, "muon_tp_mode = \"duplicated\"");
	}
	if (p->optimizer_cpu_offload && !run->use_precision_aware_optimizer)
		report_add(r, "place-offload-optimizer", ERROR,
			   PLACE_AT(optimizer_cpu_offload),
			   "optimizer_cpu_offload needs "
			   "use_precision_aware_optimizer");
}

void config_check_run(const struct config *c, struct report *r)
{
	if (c->shape.num_moe_experts) {
		check_balance(c, r);
		say_capacity(c, r);
		say_global(c, r);
	}
	check_mtp(c, r);
	check_documents(c, r);
	check_optimizer(c, r);
}
