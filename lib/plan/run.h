/* SPDX-License-Identifier: Apache-2.0 */
/* How it is trained: batches, optimizer, schedules, data, checkpoints. */
#ifndef PLAN_RUN_H
#define PLAN_RUN_H

#include "lib/plan/field.h"

struct place;

enum run_lr { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_INVERSE_SQRT, LR_WSD };
enum run_wsd { WSD_LINEAR, WSD_COSINE, WSD_EXPONENTIAL, WSD_MINUS_SQRT };
enum run_incr { INCR_CONSTANT, INCR_LINEAR, INCR_COSINE };
enum run_muon { MUON_DUPLICATED, MUON_BLOCKWISE, MUON_DISTRIBUTED };
enum run_optimizer {
	OPT_ADAM,
	OPT_SGD,
	OPT_MUON,
	OPT_LION,
	OPT_SOAP,
	OPT_ADAPTIVE_MUON
};

struct run {
	struct origin from[FIELDS_MAX];

	const char *dir;  /* metrics, checkpoints, logs of this run */
	const char *load; /* another run's folder or one step of it */
	int64_t ckpt_step;
	bool exit_on_missing_checkpoint;
	bool finetune;			    /* weights alone, from step 0 */
	int64_t save_interval, save_retain; /* steps; how many to keep */
	int64_t sync_check_interval;	    /* steps */
	int64_t save_retain_interval;
	int64_t log_interval;

	int64_t micro_batch_size, global_batch_size;
	const char *step_batch_size_schedule; /* "0:32 1B:64" */
	bool decrease_batch_size_if_needed;
	int64_t train_iters, train_samples;
	int64_t eval_interval, eval_iters;
	int64_t eval_global_batch_size, eval_micro_batch_size;
	int64_t seed;

	int optimizer; /* enum run_optimizer */
	bool decoupled_weight_decay, apply_wd_to_qk_layernorm;
	double sgd_momentum;
	double muon_momentum;
	bool muon_nesterov, muon_split_qkv;
	int muon_scale_mode;
	double muon_extra_scale_factor;
	int64_t muon_num_ns_steps;
	int muon_tp_mode; /* enum run_muon */
	double lion_beta1, lion_beta2, soap_shampoo_beta;
	double adaptive_muon_beta2, adaptive_muon_eps;
	bool use_precision_aware_optimizer;
	int main_grads_dtype, main_params_dtype; /* 0: fp32 */
	int exp_avg_dtype, exp_avg_sq_dtype;
	double loss_scale; /* NAN: dynamic */
	double initial_loss_scale, min_loss_scale, loss_scale_window;
	int64_t hysteresis;
	double lr, min_lr;
	double decoupled_lr, decoupled_min_lr; /* NAN: lr and min_lr */
	int lr_decay_style;		       /* enum run_lr */
	int64_t lr_decay_iters, lr_warmup_iters;
	int64_t lr_decay_samples, lr_warmup_samples, lr_wsd_decay_samples;
	bool override_opt_param_scheduler, use_checkpoint_opt_param_scheduler;
	double lr_warmup_fraction, lr_warmup_init;
	int lr_wsd_decay_style; /* enum run_wsd */
	int64_t lr_wsd_decay_iters;
	double weight_decay, start_weight_decay, end_weight_decay;
	int weight_decay_incr_style; /* enum run_incr */
	double adam_beta1, adam_beta2, adam_eps, clip_grad;
	bool qk_clip;
	double qk_clip_alpha, qk_clip_threshold;
	double hidden_dropout, attention_dropout;
	bool calculate_per_token_loss;
	double init_method_std, embedding_init_method_std;
	double mhc_init_gating_factor;
	bool perform_initialization, data_parallel_random_init;
	double mtp_loss_scaling_factor;
	bool mtp_detach_heads, mtp_hsm;
	struct texts moe_router_load_balancing_type;
	struct floats moe_aux_loss_coeff; /* one for each type */
	double moe_z_loss_coeff;	  /* NAN: none */
	double moe_router_bias_update_rate;
	double moe_input_jitter_eps; /* NAN: none */
	bool moe_router_force_load_balancing;
	double dsa_indexer_loss_coeff; /* NAN: none */
	bool dsa_indexer_use_sparse_loss;

	struct texts
		data_path; /* one path, or weight, path, weight, path ... */
	const char *data_format; /* "auto", "megatron", "llmc", "text" */
	const char *split;	 /* train,valid,test shares: "969,30,1" */

	int64_t exit_duration_in_mins, exit_interval;
	bool exit_signal_handler;
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

/* From this many tokens on, a step has so many samples. */
struct batch_step {
	int64_t from, samples;
};

enum { BATCH_STEPS_MAX = 64 };

/*
 * The steps of a step_batch_size_schedule, "0:32 1B:64"; -1: it cannot be
 * read.  Suffixes K M B T.  Their order is run_check's to judge.
 */
int run_batch_steps(const char *text, struct batch_step step[BATCH_STEPS_MAX]);

/* Micro-batches of one step on each data-parallel rank. */
int64_t run_microbatches(const struct run *run, int64_t dp);

#endif
