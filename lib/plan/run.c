/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/run.h"

#include "lib/plan/grid.h"
#include "lib/plan/place.h"

static const char *const optimizers[] = {"adam", "sgd", NULL};
static const char *const rates[] = {
	"constant", "linear", "cosine", "inverse-square-root", "WSD", NULL};
static const char *const wsds[] = {"linear", "cosine", "exponential",
				   "minus_sqrt", NULL};
static const char *const incrs[] = {"constant", "linear", "cosine", NULL};

#define STEPS_MAX 1e12
#define ROW(name, type, ...)                                                 \
	{                                                                    \
#name, FIELD_##type, offsetof(struct run, name), __VA_ARGS__ \
	}
/* clang-format off */
static const struct field fields[] = {
ROW(dir, TEXT, "run", 0, 0, NULL,
	"folder of this run's metrics and checkpoints"),
ROW(load, TEXT, NULL, 0, 0, NULL,
	"another run's folder, or one step of it, to start from"),
ROW(finetune, BOOL, "false", 0, 0, NULL,
	"take only the weights of load and start at step 0"),
ROW(save_interval, INT, NULL, 1, STEPS_MAX, NULL,
	"steps between checkpoints; unset: only at the end"),
ROW(save_retain, INT, NULL, 1, 1 << 30, NULL,
	"newest checkpoints to keep; unset: all"),
ROW(log_interval, INT, "100", 1, STEPS_MAX, NULL,
	"steps between progress lines"),
ROW(micro_batch_size, INT, NULL, 1, 1 << 24, NULL,
	"samples that a rank works on at once; required"),
ROW(global_batch_size, INT, NULL, 1, 1 << 30, NULL,
	"samples of an optimizer step; derived: micro_batch_size * dp"),
ROW(train_iters, INT, NULL, 1, STEPS_MAX, NULL,
	"optimizer steps of the run"),
ROW(train_samples, INT, NULL, 1, 1e15, NULL,
	"samples of the run; instead of train_iters"),
ROW(eval_interval, INT, NULL, 1, STEPS_MAX, NULL,
	"steps between evaluations; unset: none"),
ROW(eval_iters, INT, "100", 1, STEPS_MAX, NULL,
	"global batches of an evaluation"),
ROW(seed, INT, "1234", 0, 9007199254740992.0, NULL,
	"of weights, dropout and sample order"),
ROW(optimizer, ENUM, "adam", 0, 0, optimizers,
	"adam is AdamW: decoupled weight decay"),
ROW(lr, FLOAT, NULL, 0, 1e6, NULL,
	"peak learning rate"),
ROW(min_lr, FLOAT, "0.0", 0, 1e6, NULL,
	"learning rate at the end of the decay"),
ROW(lr_decay_style, ENUM, "linear", 0, 0, rates,
	"how the learning rate falls; WSD: warm-up, stable, decay"),
ROW(lr_decay_iters, INT, NULL, 1, STEPS_MAX, NULL,
	"step at which min_lr is reached; derived: train_iters"),
ROW(lr_warmup_iters, INT, "0", 0, STEPS_MAX, NULL,
	"steps of linear warm-up"),
ROW(lr_warmup_fraction, FLOAT, NULL, 0, 1, NULL,
	"warm-up as a fraction of lr_decay_iters; instead of "
	"lr_warmup_iters"),
ROW(lr_warmup_init, FLOAT, "0.0", 0, 1e6, NULL,
	"learning rate at the start of the warm-up"),
ROW(lr_wsd_decay_style, ENUM, "exponential", 0, 0, wsds,
	"how WSD decays"),
ROW(lr_wsd_decay_iters, INT, NULL, 1, STEPS_MAX, NULL,
	"steps of WSD's decay; required with WSD"),
ROW(weight_decay, FLOAT, "0.01", 0, 1e6, NULL,
	"decoupled weight decay of matrices"),
ROW(start_weight_decay, FLOAT, NULL, 0, 1e6, NULL,
	"weight decay at step 0; derived: weight_decay"),
ROW(end_weight_decay, FLOAT, NULL, 0, 1e6, NULL,
	"weight decay at the last step; derived: weight_decay"),
ROW(weight_decay_incr_style, ENUM, "constant", 0, 0, incrs,
	"how weight decay goes from its start to its end"),
ROW(adam_beta1, FLOAT, "0.9", 0, 0.9999999999, NULL,
	"decay of the first moment"),
ROW(adam_beta2, FLOAT, "0.999", 0, 0.9999999999, NULL,
	"decay of the second moment"),
ROW(adam_eps, FLOAT, "1e-08", 1e-300, 1, NULL,
	"added to the root of the second moment"),
ROW(clip_grad, FLOAT, "1.0", 0, 1e30, NULL,
	"largest global L2 norm of the gradient; 0: no clipping"),
ROW(hidden_dropout, FLOAT, "0.1", 0, 1, NULL,
	"probability, of the residual branches and the embedding"),
ROW(attention_dropout, FLOAT, "0.1", 0, 1, NULL,
	"probability, of the attention weights"),
ROW(calculate_per_token_loss, BOOL, "false", 0, 0, NULL,
	"normalise the loss by the tokens of the global batch, not by "
	"micro-batch"),
ROW(init_method_std, FLOAT, "0.02", 0, 1e6, NULL,
	"standard deviation of initial weights"),
ROW(embedding_init_method_std, FLOAT, NULL, 0, 1e6, NULL,
	"the same for embeddings; derived: init_method_std"),
ROW(mtp_loss_scaling_factor, FLOAT, "0.1", 0, 1e6, NULL,
	"weight of all MTP losses together"),
ROW(data_path, TEXTS, NULL, 0, 0, NULL,
	"a data set, or a blend: [\"weight\", \"path\", ...]"),
ROW(data_format, TEXT, "auto", 0, 0, NULL,
	"auto, megatron (.bin and .idx), llmc (.bin), text (bytes)"),
ROW(split, TEXT, "969,30,1", 0, 0, NULL,
	"shares of training, validation and test"),
ROW(exit_duration_in_mins, INT, NULL, 1, 1e9, NULL,
	"save and stop after this many minutes"),
ROW(num_threads, INT, NULL, 1, 4096, NULL,
	"threads of a rank; unset: its share of the cpus"),
ROW(watchdog_seconds, FLOAT, "600", 1e-3, 1e9, NULL,
	"a step that takes longer is a hang, seconds"),
ROW(boot_timeout_seconds, FLOAT, "120", 1e-3, 1e9, NULL,
	"how long ranks wait for each other at the start, seconds"),
};
/* clang-format on */

const struct group run_group = {
	.name = "run",
	.fields = fields,
	.count = sizeof(fields) / sizeof(*fields),
	.size = sizeof(struct run),
};

static void derive_int(struct run *r, int64_t *at, int64_t value,
		       const char *why)
{
	*at = value;
	field_derived(&run_group, r, at, why);
}

static void derive_float(struct run *r, double *at, double value,
			 const char *why)
{
	*at = value;
	field_derived(&run_group, r, at, why);
}

/* Data parallel size, or 0 if the world is not known or does not fit. */
static int64_t dp_of(const struct place *place, int64_t world)
{
	struct grid g;
	struct err e;

	return world && !grid_build(&g, place, world, &e) ? g.dp : 0;
}

void run_finalize(struct run *r, const struct place *place, int64_t world)
{
	int64_t dp = dp_of(place, world);

	if (!IS_SET(r->global_batch_size) && IS_SET(r->micro_batch_size) && dp)
		derive_int(r, &r->global_batch_size, r->micro_batch_size * dp,
			   "micro_batch_size * data parallel size");
	if (!IS_SET(r->train_iters) && IS_SET(r->train_samples) &&
	    IS_SET(r->global_batch_size) &&
	    r->train_samples >= r->global_batch_size)
		derive_int(r, &r->train_iters,
			   r->train_samples / r->global_batch_size,
			   "train_samples / global_batch_size");
	if (!IS_SET(r->lr_decay_iters) && IS_SET(r->train_iters))
		derive_int(r, &r->lr_decay_iters, r->train_iters,
			   "train_iters");
	if (r->weight_decay_incr_style == INCR_CONSTANT) {
		if (isnan(r->start_weight_decay))
			derive_float(r, &r->start_weight_decay, r->weight_decay,
				     "weight_decay");
		if (isnan(r->end_weight_decay))
			derive_float(r, &r->end_weight_decay, r->weight_decay,
				     "weight_decay");
	}
	if (isnan(r->embedding_init_method_std))
		derive_float(r, &r->embedding_init_method_std,
			     r->init_method_std, "init_method_std");
}

int64_t run_microbatches(const struct run *run, int64_t dp)
{
	return run->global_batch_size / (run->micro_batch_size * dp);
}
