/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/override.h"
#include "lib/train/hooks.h"
#include "lib/train/init.h"
#include "lib/train/microbatch.h"
#include "lib/train/profile.h"
#include "lib/train/rate.h"

/* What a group is for; only a pipeline's chunks make its end its beginning. */
static enum comm_use use_of(const struct trainer *t, int group)
{
	if (group != GROUP_PP)
		return COMM_COLLECTIVES;
	return t->plan.grid.vp > 1 ? COMM_RING : COMM_CHAIN;
}

static int open_groups(struct trainer *t, struct comm *comm, struct arena *a,
		       struct err *e)
{
	int *ranks = arena_alloc(a, (size_t)t->plan.grid.world, sizeof(*ranks));

	for (int g = 0; g < PROG_GROUPS; g++) {
		int me = 0, n;

		if (!plan_has_group(&t->plan, g))
			continue;
		n = plan_group(&t->plan, g, ranks, &me);
		if (comm_group_open(comm, prog_group_name(g), use_of(t, g),
				    ranks, n, me, &t->group[g], e))
			return -1;
	}
	return 0;
}

/* The tables of layers, where the config has plugins. */
static int open_plugins(struct trainer *t, struct arena *a, struct err *e)
{
	const struct config *c = t->plan.config;
	int64_t layers = t->plan.weights.layers;
	struct kern *table;

	if (!c->spec.plugins.count)
		return 0;
	if (plugins_open(&t->plugins, &c->spec, a, e))
		return -1;
	table = arena_alloc(a, (size_t)layers, sizeof(*table));
	for (int64_t n = 0; n < layers; n++)
		if (override_table(&table[n], t->exec.kern, &t->plugins,
				   &c->spec, &c->shape, n, e))
			return -1;
	t->exec.layer_kern = table;
	return 0;
}

/* Groups, memory and code of what is planned. */
static int open_planned(struct trainer *t, const struct machine *m,
			struct comm *comm, struct arena *a, struct err *e)
{
	if (open_groups(t, comm, a, e))
		return -1;
	if (exec_open(&t->exec, &t->plan.prog, m, t->plan.config, comm,
		      t->group, e))
		return -1;
	return open_plugins(t, a, e);
}

int trainer_open_gen(struct trainer *t, struct prog_gen *gen,
		     const struct gen_size *size, const struct config *c,
		     int world, int rank, const struct machine *m,
		     struct comm *comm, struct arena *a, struct err *e)
{
	memset(t, 0, sizeof(*t));
	if (plan_gen_build(&t->plan, gen, c, size, world, rank, a, e))
		return -1;
	if (!open_planned(t, m, comm, a, e))
		return 0;
	trainer_close(t);
	return -1;
}

static int pre_wrap(void *arg, void *params, size_t size, struct err *e)
{
	return hooks_pre_wrap(arg, params, size, e);
}

int trainer_open(struct trainer *t, const struct config *c, int world, int rank,
		 const struct machine *m, struct comm *comm, struct arena *a,
		 struct err *e)
{
	const struct init_hook hook = {t, pre_wrap};

	memset(t, 0, sizeof(*t));
	t->scaler = scaler_start(c);
	if (plan_build(&t->plan, c, world, rank, a, e))
		return -1;
	if (open_planned(t, m, comm, a, e) ||
	    init_exec(&t->exec, &t->plan.slice, &t->plan.weights, c, &hook,
		      e)) {
		trainer_close(t);
		return -1;
	}
	return 0;
}

void trainer_close(struct trainer *t)
{
	if (t->exec.prog)
		exec_close(&t->exec);
	for (int g = 0; g < PROG_GROUPS; g++)
		if (t->group[g])
			comm_group_close(t->group[g]);
	memset(t->group, 0, sizeof(t->group));
	plugins_close(&t->plugins);
}

/* Whether one of this rank's stages looks tokens up, scores them, or attends
 * to documents of theirs. */
static bool needs_tokens(const struct trainer *t)
{
	const struct stages *st = &t->plan.stages;
	int pp = t->plan.slice.at.pp;

	for (int i = pp; i < st->count; i += st->pp)
		if (st->stage[i].embedding || st->stage[i].loss)
			return true;
	return t->plan.prog.doc.family >= 0;
}

static double at_least_one(int64_t n)
{
	return n > 1 ? (double)n : 1;
}

/* Of the global batch. */
static double microbatches(const struct trainer *t)
{
	return (double)t->plan.prog.train.microbatches * t->plan.grid.dp;
}

static double loss_scale(const struct trainer *t)
{
	return t->scaler.scale > 0 ? t->scaler.scale : 1;
}

/*
 * The coefficients of a micro-batch's losses make the objective an explicit
 * weighted sum (model-numerics 1.4): the mean of the micro-batches' means, or
 * plain sums that the end of the step divides by all scored tokens; depths
 * count mtp_loss_scaling_factor together.  All have the loss's scale.
 */
static void set_objective(struct trainer *t, int mb, const int64_t *scored)
{
	const struct run *run = &t->plan.config->run;
	double all = microbatches(t);
	struct exec_objective o = exec_objective(&t->exec, mb, 0);
	bool per_token = run->calculate_per_token_loss;
	double scale = loss_scale(t);
	int depths = t->plan.prog.depths;

	*o.loss = 0;
	*o.coef = scale * (per_token ? 1 : 1 / (all * at_least_one(scored[0])));
	for (int k = 1; k <= depths; k++) {
		double each = run->mtp_loss_scaling_factor / depths /
			      at_least_one(scored[k]);

		o = exec_objective(&t->exec, mb, k);
		*o.loss = *o.right = 0;
		*o.share = 1 / (all * at_least_one(scored[k]));
		*o.coef = scale *
			  (per_token ? each * (double)scored[0] : each / all);
	}
}

static int load_batch(struct trainer *t, const struct trainer_data *data,
		      bool valid, int64_t first, struct err *e)
{
	struct kern_scalars *s = exec_scalars(&t->exec);
	bool needed = needs_tokens(t);

	s->tokens = 0;
	memset(s->mtp_tokens, 0, sizeof(s->mtp_tokens));
	s->per_token = t->plan.config->run.calculate_per_token_loss;
	memset(s->metrics + METRIC_SUMSQ, 0, GRADS * sizeof(double));
	memset(s->metrics + METRIC_MOE, 0, MOE_METRICS * sizeof(double));
	s->moe_coef =
		loss_scale(t) * (s->per_token > 0 ? (double)t->plan.prog.tokens
						  : 1 / microbatches(t));
	s->loss_scale = t->scaler.scale;
	for (int mb = 0; mb < t->plan.prog.train.microbatches; mb++) {
		int64_t scored[1 + KERN_DEPTHS] = {0};

		if (needed &&
		    microbatch_load(t, data, valid, first, mb, scored, e))
			return -1;
		s->tokens += (double)scored[0];
		for (int k = 0; k < t->plan.prog.depths; k++)
			s->mtp_tokens[k] += (double)scored[1 + k];
		set_objective(t, mb, scored);
	}
	return 0;
}

static double reported_loss(const struct kern_scalars *s)
{
	double tokens = s->metrics[METRIC_TOKENS];
	double loss = s->metrics[METRIC_LOSS];

	if (s->loss_scale > 0)
		loss /= s->loss_scale;
	return s->per_token > 0 ? loss / at_least_one((int64_t)tokens) : loss;
}

static void set_rates(struct trainer *t)
{
	const struct run *run = &t->plan.config->run;
	struct kern_scalars *s = exec_scalars(&t->exec);
	int64_t skipped = t->scaler.skipped;
	struct rate rate = rate_at(
		run, t->consumed_samples - skipped * run->global_batch_size);
	double steps = (double)(t->step + 1 - skipped);

	s->key[0] = (uint64_t)run->seed;
	s->key[1] = (uint64_t)t->step;
	s->clip = run->clip_grad;
	s->adam[0] = (struct kern_adam){
		.lr = rate.lr,
		.weight_decay = rate.weight_decay,
		.beta1 = run->adam_beta1,
		.beta2 = run->adam_beta2,
		.eps = run->adam_eps,
		.correct1 = 1 - pow(run->adam_beta1, steps),
		.correct2 = 1 - pow(run->adam_beta2, steps),
		.grad_scale = 1,
	};
}

static void report_moe(const struct trainer *t, const struct kern_scalars *s,
		       struct trainer_result *out)
{
	const double *m = s->metrics + METRIC_MOE;

	out->moe = (struct trainer_moe){
		.there = m[MOE_COUNT] > 0,
		.aux = m[MOE_AUX] / microbatches(t),
		.z = m[MOE_Z] / microbatches(t),
		.load = m[MOE_LOAD] / fmax(m[MOE_COUNT], 1),
	};
}

static void report_depths(const struct trainer *t, const struct kern_scalars *s,
			  struct trainer_result *out)
{
	const double *m = s->metrics + METRIC_MTP;

	out->depths = t->plan.prog.depths;
	for (int k = 0; k < out->depths; k++, m += MTP_METRICS) {
		double tokens = fmax(m[MTP_TOKENS], 1);

		out->mtp[k] = (struct trainer_depth){
			.loss = m[MTP_MEAN],
			.token_loss = m[MTP_LOSS] / tokens,
			.acceptance = m[MTP_RIGHT] / tokens,
		};
	}
}

/* What its loss and norm say of a step. */
static int judge(struct trainer *t, struct trainer_result *r, struct err *e)
{
	bool bad = !isfinite(r->loss) || !isfinite(r->grad_norm);

	if (r->loss_scale > 0) {
		scaler_update(&t->scaler, t->plan.config, r->skipped);
		bad = t->scaler.row >= TRAINER_SKIPS;
	}
	if (!bad)
		return 0;
	if (r->loss_scale > 0)
		return err_set(e, CODE_NUMERIC,
			       "step %" PRId64 ": no finite gradients for %d "
			       "steps in a row, loss %g, loss scale %g; lower "
			       "run.lr or run.loss_scale, or resume from a "
			       "checkpoint before",
			       r->step, TRAINER_SKIPS, r->loss, r->loss_scale);
	return err_set(e, CODE_NUMERIC,
		       "step %" PRId64 ": loss %g, gradient norm %g; "
		       "lower run.lr or resume from a checkpoint before",
		       r->step, r->loss, r->grad_norm);
}

/* What the oldest step that was not reported yet has given. */
static int report(struct trainer *t, struct trainer_result *out, struct err *e)
{
	struct kern_scalars s;
	double seconds;

	if (exec_results(&t->exec, &s, &seconds, e))
		return err_wrap(e, "step %" PRId64 ": ", t->step);
	*out = (struct trainer_result){
		.step = (int64_t)s.key[1] + 1,
		.loss = reported_loss(&s),
		.grad_norm = isnan(s.grad_norm[0]) ? NAN : s.grad_norm[0],
		.mtp_grad_norm = t->plan.config->run.mtp_detach_heads
					 ? s.grad_norm[GRADS_MTP]
					 : NAN,
		.grad_scale = s.adam[0].grad_scale,
		.lr = s.adam[0].lr,
		.loss_scale = s.loss_scale,
		.skipped = s.adam[0].skip > 0,
		.tokens = s.metrics[METRIC_TOKENS],
		.seconds = seconds,
		.stop = s.metrics[METRIC_STOP] > 0,
	};
	report_depths(t, &s, out);
	report_moe(t, &s, out);
	return judge(t, out, e);
}

/* A step that says where its time goes. */
static int run_profile(struct trainer *t, struct err *e)
{
	const struct prog *p = &t->plan.prog;
	double *ms = calloc((size_t)p->train.count, sizeof(*ms));
	int bad;

	if (!ms)
		return err_set(e, CODE_LAUNCH, "out of memory");
	bad = exec_time(&t->exec, &p->train, ms, e);
	if (!bad) {
		printf("rank %d, step %" PRId64 "\n", t->plan.rank,
		       t->step + 1);
		profile_print(stdout, p, &p->train, ms);
		fflush(stdout); /* the job may be killed before it ends */
	}
	free(ms);
	return bad;
}

int trainer_step(struct trainer *t, const struct trainer_data *data, bool stop,
		 struct trainer_result *out, struct err *e)
{
	*out = (struct trainer_result){0};
	if (exec_prepare(&t->exec, e) ||
	    load_batch(t, data, false, t->consumed_samples, e))
		return -1;
	set_rates(t);
	exec_scalars(&t->exec)->stop = stop;
	if (t->step + 1 == t->profile
		    ? run_profile(t, e)
		    : exec_run(&t->exec, &t->plan.prog.train, e))
		return err_wrap(e, "step %" PRId64 ": ", t->step + 1);
	t->step++;
	t->consumed_samples += t->plan.config->run.global_batch_size;
	/* the next step's scale follows from this one */
	if (t->exec.runs <= exec_lag(&t->exec) && !(t->scaler.scale > 0))
		return 0;
	return report(t, out, e);
}

int trainer_settle(struct trainer *t, struct trainer_result *out, struct err *e)
{
	*out = (struct trainer_result){0};
	while (t->exec.runs > 0)
		if (report(t, out, e))
			return -1;
	return 0;
}

int trainer_eval(struct trainer *t, const struct trainer_data *data,
		 int64_t iters, double *loss, double *tokens, struct err *e)
{
	const struct run *run = &t->plan.config->run;
	struct kern_scalars s;
	double sum = 0, scored = 0;

	for (int64_t i = 0; i < iters; i++) {
		if (exec_prepare(&t->exec, e) ||
		    load_batch(t, data, true, i * run->global_batch_size, e))
			return -1;
		if (exec_run(&t->exec, &t->plan.prog.eval, e) ||
		    exec_results(&t->exec, &s, NULL, e))
			return err_wrap(e, "evaluation %" PRId64 ": ", i + 1);
		sum += reported_loss(&s);
		scored += s.metrics[METRIC_TOKENS];
	}
	*loss = sum / (double)(iters ? iters : 1);
	if (tokens)
		*tokens = scored;
	return 0;
}
