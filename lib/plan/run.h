/* SPDX-License-Identifier: Apache-2.0 */
/* How it is trained: batches, optimizer, schedules, data, checkpoints. */
#ifndef PLAN_RUN_H
#define PLAN_RUN_H

#include "lib/plan/field.h"

struct place;

enum run_lr { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_INVERSE_SQRT, LR_WSD };
enum run_wsd { WSD_LINEAR, WSD_COSINE, WSD_EXPONENTIAL, WSD_MINUS_SQRT };
enum run_incr { INCR_CONSTANT, INCR_LINEAR, INCR_COSINE };
enum run_optimizer { OPT_ADAM, OPT_SGD };

struct run {
	struct origin from[FIELDS_MAX];

	const char *dir;  /* metrics, checkpoints, logs of this run */
	const char *load; /* another run's folder or one step of it */
	bool finetune;	  /* weights alone, from step 0 */
	int64_t save_interval, save_retain; /* steps; how many to keep */
	int64_t log_interval;

	int64_t micro_batch_size, global_batch_size;
	int64_t train_iters, train_samples;
	int64_t eval_interval, eval_iters;
	int64_t seed;

	int optimizer; /* enum run_optimizer */
	double lr, min_lr;
	int lr_decay_style; /* enum run_lr */
	int64_t lr_decay_iters, lr_warmup_iters;
	double lr_warmup_fraction, lr_warmup_init;
	int lr_wsd_decay_style; /* enum run_wsd */
	int64_t lr_wsd_decay_iters;
	double weight_decay, start_weight_decay, end_weight_decay;
	int weight_decay_incr_style; /* enum run_incr */
	double adam_beta1, adam_beta2, adam_eps, clip_grad;
	double hidden_dropout, attention_dropout;
	bool calculate_per_token_loss;
	double init_method_std, embedding_init_method_std;
	double mtp_loss_scaling_factor;

	struct texts
		data_path; /* one path, or weight, path, weight, path ... */
	const char *data_format; /* "auto", "megatron", "llmc", "text" */
	const char *split;	 /* train,valid,test shares: "969,30,1" */

	int64_t exit_duration_in_mins;
	int64_t num_threads;	 /* of one rank; unset: its share of the cpus */
	double watchdog_seconds; /* a step longer than this is a hang */
	double boot_timeout_seconds;
};

extern const struct group run_group;

/* Fill what was not given; WORLD (ranks) 0 leaves what depends on it. */
void run_finalize(struct run *r, const struct place *place, int64_t world);

/*
 * Report everything wrong with RUN for PLACE and, unless it is 0,
 * WORLD ranks: batch sizes, the schedule's feasibility, rates, data.
 */
void run_check(const struct run *run, const struct place *place, int64_t world,
	       struct report *r);

/* Micro-batches of one step on each data-parallel rank. */
int64_t run_microbatches(const struct run *run, int64_t dp);

#endif
