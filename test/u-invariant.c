/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold of a training step without any golden, for models with
 * multi-token prediction, mixtures of experts and latent attention; of plain
 * GPTs u-model tests the same.  By the numbers of model-numerics 5.3:
 *
 *    1  affine in the depths' coefficient  here
 *    2  scale of the loss                  here, u-model, u-scaler
 *    3  micro-batching                     here, u-model
 *    4  layouts                            t5000
 *    5  resharding                         t2000, t5100, u-ckpt-reshard
 *    6  causality                          here, u-model, u-kern-attn
 *    7  rolling                            here
 *    8  finite differences                 here, u-model; ops: u-kern-*
 *    9  permutations: samples              here, u-model
 *       experts and their router           u-golden, moe_turned
 *       groups of heads, vocabulary        u-model
 *   10  sums that are 0: of logits         u-kern-ce
 *       of attention's scores              u-model
 *       of norms                           u-kern-norm
 *   11  uniform logits                     here, u-model, u-kern-ce
 *   12  tied embedding                     here, u-model; copies: u-sync
 *   13  rows never used                    here
 *   14  ZeRO-1 and buckets                 t5000
 *   15  orders of a schedule               u-sched
 *   16  rotary positions                   u-model, u-rope, u-kern-rope
 *   17  routers                            u-kern-route
 *   18  one batch learnt by heart          here; rates: u-rate, u-scaler
 */
#include "test/model-test.h"

/* Every gradient that the model without depths has is that of M, bit by bit;
 * those of M's depths are 0 if UNMOVED. */
static void check_decoder(struct model *m, struct model *plain, bool unmoved)
{
	for (int i = 0; i < m->t.plan.slice.pieces; i++) {
		const struct piece *p = &m->t.plan.slice.piece[i];
		const double *g = grads(m) + p->at, *want;
		bool ahead = !strncmp(name_of(m, p), "mtp/", 4);

		if (ahead && !unmoved)
			continue;
		want = ahead ? NULL : named(plain, name_of(m, p));
		for (int64_t k = 0; k < box_elements(&p->box); k++)
			if (g[k] != (want ? want[k] : 0))
				fail_msg("%s[%ld]: %.17g", name_of(m, p),
					 (long)k, g[k]);
	}
}

static void test_mtp_coefficient(void **state)
{
	static const char *const variants[] = {
		"mtp-llama", "mtp-llama-misc", "mtp-gpt2-tied",
		"mtp-llama-per-token", "hsm-llama"};
	struct model none, all, some, plain;

	(void)state;
	for (int v = 0; v < 5; v++) {
		double off = 0, most = 0;

		model_open(&none, variants[v],
			   SETS("run.mtp_loss_scaling_factor=0.0"));
		model_open(&all, variants[v],
			   SETS("run.mtp_loss_scaling_factor=1.0"));
		model_open(&some, variants[v],
			   SETS("run.mtp_loss_scaling_factor=0.3"));
		model_open(&plain, variants[v],
			   SETS("shape.mtp_num_layers=0", "run.mtp_hsm=false"));
		step(&none);
		step(&all);
		step(&some);
		step(&plain);
		for (int64_t i = 0; i < some.t.plan.slice.elements; i++) {
			double want =
				0.7 * grads(&none)[i] + 0.3 * grads(&all)[i];

			off = fmax(off, fabs(grads(&some)[i] - want));
			most = fmax(most, fabs(want));
		}
		assert_true(most > 0 && off < 1e-14 * most);
		check_decoder(&none, &plain, true);
		model_close(&none);
		model_close(&all);
		model_close(&some);
		model_close(&plain);
	}
}

/* Depths that are detached leave the decoder alone. */
static void test_detached(void **state)
{
	static const char *const variants[] = {"mtp-llama-detached",
					       "mtp-gpt2-detached"};
	struct model m, plain;

	(void)state;
	for (int v = 0; v < 2; v++) {
		model_open(&m, variants[v], NULL);
		model_open(&plain, variants[v],
			   SETS("shape.mtp_num_layers=0",
				"run.mtp_detach_heads=false"));
		step(&m);
		step(&plain);
		check_decoder(&m, &plain, false);
		model_close(&m);
		model_close(&plain);
	}
}

/* Gradient I, a float or a double. */
static double grad(struct model *m, int64_t i)
{
	const void *base = m->t.exec.base[FAMILY_GRAD];

	if (m->t.plan.prog.sum == sizeof(float))
		return ((const float *)base)[i];
	return ((const double *)base)[i];
}

/* A power of two in all coefficients: the gradients times it, bit by bit. */
static void check_scale(const char *variant, const char *dtype)
{
	struct model a, b;
	struct err e;

	model_open(&a, variant, SETS(dtype));
	model_open(&b, variant, SETS(dtype));
	step(&a);
	step(&b);
	for (int mb = 0; mb < b.t.plan.prog.train.microbatches; mb++)
		for (int k = 0; k <= b.t.plan.prog.depths; k++)
			*exec_objective(&b.t.exec, mb, k).coef *= 1024;
	exec_scalars(&b.t.exec)->moe_coef *= 1024;
	if (exec_run(&b.t.exec, &b.t.plan.prog.train, &e))
		fail_msg("%s", e.text);
	for (int64_t i = 0; i < a.t.plan.slice.elements; i++)
		if (1024 * grad(&a, i) != grad(&b, i))
			fail_msg("%s %s: %g became %g", variant, dtype,
				 grad(&a, i), grad(&b, i));
	model_close(&a);
	model_close(&b);
}

static void test_loss_scale(void **state)
{
	static const char *const variants[] = {"mtp-llama-tied", "moe-top2-mtp",
					       "moe-groups-mtp", "mla-moe-mtp",
					       "sink-learned",	 "l2-gpt2"};

	(void)state;
	for (int v = 0; v < 6; v++) {
		check_scale(variants[v], "spec.params_dtype=\"fp64\"");
		check_scale(variants[v], "spec.params_dtype=\"fp32\"");
	}
}

/*
 * M micro-batches of b, or one of M b, per token.  A depth's loss is a mean in
 * its micro-batch, and a router's loss of its tokens: so with equal counts,
 * and without that one.
 */
static void test_microbatching(void **state)
{
	static const char *const variants[] = {"mtp-llama-per-token",
					       "moe-per-token", "mla-moe"};
	struct model one, many;

	(void)state;
	for (int v = 0; v < 3; v++) {
		model_open(&one, variants[v],
			   SETS("run.micro_batch_size=4",
				"run.calculate_per_token_loss=true",
				"run.moe_aux_loss_coeff=0.0",
				"run.moe_z_loss_coeff=0.0"));
		model_open(&many, variants[v],
			   SETS("run.micro_batch_size=1",
				"run.calculate_per_token_loss=true",
				"run.moe_aux_loss_coeff=0.0",
				"run.moe_z_loss_coeff=0.0"));
		if (v == 0) {
			memset(one.batch.scored, true,
			       sizeof(one.batch.scored));
			memset(many.batch.scored, true,
			       sizeof(many.batch.scored));
		}
		assert_true(fabs(step(&one) - step(&many)) < 1e-13);
		assert_true(grads_apart(&one, 1, &many) < 1e-12);
		model_close(&one);
		model_close(&many);
	}
}

/* The largest difference of their losses. */
static double losses_apart(const struct trainer_result *a,
			   const struct trainer_result *b)
{
	double off = fabs(a->loss - b->loss);

	for (int k = 0; k < a->depths; k++)
		off = fmax(off, fabs(a->mtp[k].loss - b->mtp[k].loss));
	return off;
}

static struct trainer_result with_other_token(struct model *m, int j)
{
	int32_t *token = &m->batch.token[1][j];

	*token = (*token + 1) % m->batch.vocab;
	return step_of(m);
}

/*
 * What changes token j changes no bit of the losses, at any depth, of tokens
 * before it.  Of experts the last bit may change: their number of tokens does,
 * by which a BLAS cuts its products.
 */
static void test_causality(void **state)
{
	static const char *const variants[] = {
		"mtp-llama", "mtp-gpt2-tied", "moe-top2-mtp", "moe-bias",
		"mla-mtp",   "mla-moe-mtp",   "sink-learned", "l2-llama",
		"hsm-llama", "hsm-two"};
	struct model m;

	(void)state;
	for (int v = 0; v < 10; v++) {
		model_open(&m, variants[v],
			   SETS("run.init_method_std=0.3",
				"run.moe_router_bias_update_rate=0.0"));
		for (int j = 2; j < SEQ; j++) {
			struct trainer_result before, after;

			for (int s = 0; s < SAMPLES; s++)
				for (int i = 0; i < SEQ; i++)
					m.batch.scored[s][i] = i + 1 < j;
			before = step_of(&m);
			after = with_other_token(&m, j);
			if (losses_apart(&before, &after) >
			    (m.c.shape.num_moe_experts ? 2e-15 : 0))
				fail_msg("%s: token %d is seen early",
					 variants[v], j);
			m.batch.scored[1][j] = true;
			before = step_of(&m);
			after = with_other_token(&m, j);
			assert_true(before.loss != after.loss);
		}
		model_close(&m);
	}
}

/* Depth k scores what the mask has from k on, and sees what is k further. */
static void test_rolling(void **state)
{
	struct model m;

	(void)state;
	model_open(&m, "mtp-llama", NULL);
	step(&m);
	for (int k = 0; k <= 2; k++) {
		const int32_t *labels = exec_labels(&m.t.exec, 0, k);
		const int32_t *ids = exec_ids(&m.t.exec, 0, k);
		int n = 0, want = 0;

		for (int i = 0; i < SEQ; i++) {
			n += labels[i] >= 0;
			want += i >= k && m.batch.scored[0][i];
			assert_int_equal(ids[i],
					 i + k < SEQ ? m.batch.token[0][i + k]
						     : 0);
		}
		assert_int_equal(n, want);
	}
	model_close(&m);
}

/* Documents of 2, 1, 3 and 6 tokens, whose eod is not scored: those of k
 * tokens or fewer score nothing at depth k, and no label is another's. */
static void test_rolling_documents(void **state)
{
	static const int begin[] = {0, 2, 3, 6, SEQ};
	static const int want[3][4] = {
		{1, 0, 2, 6}, {0, 0, 1, 5}, {0, 0, 0, 4}};
	struct model m;

	(void)state;
	model_open(&m, "docs-llama", NULL);
	for (int i = 0; i < SEQ; i++) {
		bool eod = i == 1 || i == 2 || i == 5;

		m.batch.token[0][i] = eod ? (int32_t)m.c.run.eod_id : i;
		m.batch.scored[0][i] = true;
	}
	step(&m);
	for (int k = 0; k <= 2; k++)
		for (int doc = 0; doc < 4; doc++) {
			const int32_t *labels = exec_labels(&m.t.exec, 0, k);
			int n = 0;

			for (int i = begin[doc]; i < begin[doc + 1]; i++)
				n += labels[i] >= 0;
			assert_int_equal(n, want[k][doc]);
		}
	model_close(&m);
}

/* The sum that a step's gradients are of. */
static double objective(struct model *m)
{
	struct trainer_result r = step_of(m);
	double sum = r.loss + r.moe.aux + r.moe.z;

	for (int k = 0; k < r.depths; k++)
		sum += m->c.run.mtp_loss_scaling_factor / r.depths *
		       r.mtp[k].loss;
	return sum;
}

/* The gradient of parameter AT is WANT. */
static void check_entry(struct model *m, int64_t at, double want,
			const char *variant, const char *name)
{
	const double eps = 1e-5;
	double up, down, slope, keep = params(m)[at];

	params(m)[at] = keep + eps;
	up = objective(m);
	params(m)[at] = keep - eps;
	down = objective(m);
	params(m)[at] = keep;
	slope = (up - down) / (2 * eps);
	if (fabs(slope - want) > 1e-6 * fmax(fabs(want), 1e-3))
		fail_msg("%s: %s[%ld]: slope %.12g, gradient %.12g", variant,
			 name, (long)at, slope, want);
}

static void test_finite_differences(void **state)
{
	static const char *const variants[] = {
		"mtp-llama-misc",   "mtp-gpt2-tied",   "moe-top2-mtp",
		"moe-pre-softmax",  "moe-bias-mtp",    "moe-bias-softplus",
		"moe-add-bias-mtp", "moe-shared-gate", "moe-sinkhorn",
		"moe-global-mtp",   "mla-yarn",	       "mla-layernorm",
		"mla-moe-mtp",	    "sink-learned",    "docs-sink",
		"l2-gpt2",	    "llama-qk-norm",   "hsm-llama",
		"hsm-docs",	    "moe-jitter-mtp"};
	uint32_t random = 3;
	struct model m;
	size_t bytes;
	double *g;

	(void)state;
	for (size_t v = 0; v < sizeof(variants) / sizeof(*variants); v++) {
		model_open(&m, variants[v],
			   SETS("run.init_method_std=0.3",
				"run.moe_router_bias_update_rate=0.0"));
		objective(&m);
		bytes = (size_t)m.t.plan.slice.elements * sizeof(*g);
		g = malloc(bytes);
		memcpy(g, grads(&m), bytes);
		for (int i = 0; i < m.t.plan.slice.pieces; i++) {
			const struct piece *p = &m.t.plan.slice.piece[i];
			uint32_t n = (uint32_t)box_elements(&p->box);
			uint32_t k = next_random(&random) % n;

			/* this one only steers */
			if (m.t.plan.weights.list[p->weight].part !=
			    PART_EXPERT_BIAS)
				check_entry(&m, p->at + k, g[p->at + k],
					    variants[v], name_of(&m, p));
		}
		free(g);
		model_close(&m);
	}
}

/* Samples 0 and 1, which are of the same micro-batch, change places. */
static void test_samples_permuted(void **state)
{
	static const char *const variants[] = {
		"mtp-llama",  "moe-top2-mtp", "moe-groups-mtp",
		"moe-global", "mla-moe-mtp",  "moe-sinkhorn"};
	struct model a, b;

	(void)state;
	for (int v = 0; v < 6; v++) {
		model_open(&a, variants[v], NULL);
		model_open(&b, variants[v], NULL);
		memcpy(b.batch.token[0], a.batch.token[1],
		       sizeof(a.batch.token[0]));
		memcpy(b.batch.token[1], a.batch.token[0],
		       sizeof(a.batch.token[0]));
		memcpy(b.batch.scored[0], a.batch.scored[1],
		       sizeof(a.batch.scored[0]));
		memcpy(b.batch.scored[1], a.batch.scored[0],
		       sizeof(a.batch.scored[0]));
		assert_true(fabs(objective(&a) - objective(&b)) < 1e-13);
		assert_true(grads_apart(&a, 1, &b) < 1e-12);
		model_close(&a);
		model_close(&b);
	}
}

/* ln V at every depth if the head is 0, and near it at the start. */
static void test_uniform_logits(void **state)
{
	struct trainer_result r;
	const struct param *head;
	struct model m;
	double want;

	(void)state;
	model_open(&m, "mtp-llama-masked", NULL);
	want = log(m.batch.vocab);
	head = param(&m, PART_HEAD_W, -1);
	for (int zero = 0; zero < 2; zero++) {
		double off = zero ? 1e-13 : 0.05;

		if (zero)
			memset(params(&m) + head->at, 0,
			       (size_t)(head->rows * head->cols) *
				       sizeof(double));
		r = step_of(&m);
		assert_true(fabs(r.loss - want) < off);
		assert_int_equal(r.depths, 2);
		for (int k = 0; k < 2; k++)
			assert_true(fabs(r.mtp[k].loss - want) < off);
	}
	model_close(&m);
}

/* With depths, too, a tied gradient is the lookups' plus the heads'. */
static void test_tied(void **state)
{
	struct model tied, twin;
	const struct param *tok, *head;

	(void)state;
	model_open(&tied, "mtp-llama-tied", NULL);
	model_open(&twin, "mtp-llama", NULL);
	tok = param(&twin, PART_EMBED_TOK, -1);
	head = param(&twin, PART_HEAD_W, -1);
	memcpy(params(&twin) + head->at, params(&twin) + tok->at,
	       (size_t)(head->rows * head->cols) * sizeof(double));
	assert_true(fabs(step(&tied) - step(&twin)) < 1e-13);
	for (int64_t i = 0; i < tok->rows * tok->cols; i++)
		assert_true(fabs(named(&tied, "embed/tok")[i] -
				 grads(&twin)[tok->at + i] -
				 grads(&twin)[head->at + i]) < 1e-13);
	model_close(&tied);
	model_close(&twin);
}

static bool row_moved(const double *g, int64_t row, int64_t cols)
{
	for (int64_t c = 0; c < cols; c++)
		if (g[row * cols + c] != 0)
			return true;
	return false;
}

/* The lookup of a token that is nowhere has no gradient, unlike its logit;
 * the vocabulary's padding has none at all. */
static void test_unused_rows(void **state)
{
	static const char *const variants[] = {
		"llama-masked", "mtp-llama-masked", "llama-tied"};
	struct model m;

	(void)state;
	for (int v = 0; v < 3; v++) {
		bool tied;

		model_open(&m, variants[v], NULL);
		tied = m.c.shape.share_embeddings_and_output_weights;
		for (int s = 0; s < SAMPLES; s++)
			for (int i = 0; i <= SEQ; i++)
				m.batch.token[s][i] %= 30;
		step(&m);
		for (int64_t row = 30; row < 40; row++) {
			bool there = row < m.batch.vocab;

			assert_int_equal(row_moved(named(&m, "embed/tok"), row,
						   m.c.shape.hidden_size),
					 tied && there);
			if (!tied)
				assert_int_equal(
					row_moved(named(&m, "head/out"), row,
						  m.c.shape.hidden_size),
					there);
		}
		model_close(&m);
	}
}

/* One batch again and again: the loss only falls, far below ln V. */
static void test_by_heart(void **state)
{
	static const char *const variants[] = {"mtp-llama", "moe-top2",
					       "mla-moe-mtp"};
	struct model m;

	(void)state;
	for (int v = 0; v < 3; v++) {
		double last, first;

		model_open(&m, variants[v], SETS("run.lr=0.004"));
		first = last = objective(&m);
		for (int i = 1; i < 150; i++) {
			double now = objective(&m);

			if (i > 5 && now > last)
				fail_msg("%s: step %d: %g after %g",
					 variants[v], i + 1, now, last);
			last = now;
		}
		assert_true(last < 0.3 * first);
		model_close(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mtp_coefficient),
		cmocka_unit_test(test_detached),
		cmocka_unit_test(test_loss_scale),
		cmocka_unit_test(test_microbatching),
		cmocka_unit_test(test_causality),
		cmocka_unit_test(test_rolling),
		cmocka_unit_test(test_rolling_documents),
		cmocka_unit_test(test_finite_differences),
		cmocka_unit_test(test_samples_permuted),
		cmocka_unit_test(test_uniform_logits),
		cmocka_unit_test(test_tied),
		cmocka_unit_test(test_unused_rows),
		cmocka_unit_test(test_by_heart),
	};

	kern_cpu_init(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
