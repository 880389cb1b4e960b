/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold of a whole training step without any golden: causality,
 * finite differences, permutations, micro-batching, loss scale, uniform
 * logits, tied weights.  Tiny models in float64, one rank.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/trainer.h"

enum { SEQ = 12, SAMPLES = 4 };

/* Tokens of the global batch, ids then the last label; and what is scored. */
struct batch {
	int32_t token[SAMPLES][SEQ + 1];
	bool scored[SAMPLES][SEQ];
	int vocab;
};

struct model {
	struct config c;
	struct trainer t;
	struct arena a;
	struct trainer_data data;
	struct batch batch;
};

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

static int sample(void *arg, bool valid, int64_t index, int32_t *ids,
		  int32_t *labels, struct err *e)
{
	const struct batch *b = arg;

	(void)valid;
	(void)e;
	for (int i = 0; i < SEQ; i++) {
		ids[i] = b->token[index][i];
		labels[i] = b->scored[index][i] ? b->token[index][i + 1] : -1;
	}
	return 0;
}

/* VARIANT's config with SETS (NULL-terminated), weights from its seed. */
static void model_open(struct model *m, const char *variant,
		       const char *const *sets)
{
	struct report r = {.arena = &m->a};
	uint32_t state = 7;
	char path[128];
	struct err e;
	int n = 0;

	while (sets && sets[n])
		n++;
	snprintf(path, sizeof(path), "test/data/golden/%s.cfg", variant);
	assert_int_equal(arena_open(&m->a, &e), 0);
	assert_int_equal(config_load(path, sets, n, &m->a, &m->c, &r, &e), 0);
	config_finish(&m->c, 1, &r);
	assert_int_equal(report_count(&r, ERROR), 0);
	if (trainer_open(&m->t, &m->c, 1, 0, &machine_cpu, NULL, &m->a, &e))
		fail_msg("%s", e.text);
	m->batch.vocab = (int)m->c.shape.vocab_size;
	for (int s = 0; s < SAMPLES; s++)
		for (int i = 0; i <= SEQ; i++) {
			m->batch.token[s][i] =
				(int32_t)(next_random(&state) %
					  (uint32_t)m->batch.vocab);
			if (i < SEQ)
				m->batch.scored[s][i] =
					next_random(&state) % 4 > 0;
		}
	m->data = (struct trainer_data){&m->batch, sample};
}

static void model_close(struct model *m)
{
	trainer_close(&m->t);
	arena_close(&m->a);
}

static double loss_of(struct model *m)
{
	double loss;
	struct err e;

	if (trainer_eval(&m->t, &m->data, 1, &loss, &e))
		fail_msg("%s", e.text);
	return loss;
}

/* One step from the first weights (lr is 0); the loss. */
static double step(struct model *m)
{
	struct trainer_result r;
	struct err e;

	m->t.consumed_samples = 0;
	if (trainer_step(&m->t, &m->data, false, &r, &e))
		fail_msg("%s", e.text);
	return r.loss;
}

static double *params(struct model *m)
{
	void *p = m->t.exec.base[FAMILY_PARAM];

	return p;
}

static double *grads(struct model *m)
{
	void *p = m->t.exec.base[FAMILY_GRAD];

	return p;
}

static const struct param *param(struct model *m, enum part part, int64_t layer)
{
	return slice_find(&m->t.plan.slice, part, layer, 0);
}

/* The largest difference of the two models' gradients, times SCALE of A's,
 * relative to the largest gradient. */
static double grads_apart(struct model *a, double scale, struct model *b)
{
	double most = 0, off = 0;

	for (int64_t i = 0; i < a->t.plan.slice.elements; i++) {
		most = fmax(most, fabs(grads(b)[i]));
		off = fmax(off, fabs(scale * grads(a)[i] - grads(b)[i]));
	}
	assert_true(most > 0);
	return off / most;
}

static void test_causality(void **state)
{
	static const char *const variants[] = {"llama", "gpt2-tied"};
	struct model m;
	double before;

	(void)state;
	for (int v = 0; v < 2; v++) {
		model_open(&m, variants[v], NULL);
		for (int j = 2; j <= SEQ; j++) {
			/* Score only what may not see token j. */
			for (int s = 0; s < SAMPLES; s++)
				for (int i = 0; i < SEQ; i++)
					m.batch.scored[s][i] = i + 1 < j;
			before = loss_of(&m);
			m.batch.token[1][j] =
				(m.batch.token[1][j] + 1) % m.batch.vocab;
			assert_true(loss_of(&m) == before);
			/* What may see it does. */
			if (j < SEQ) {
				m.batch.scored[1][j] = true;
				before = loss_of(&m);
				m.batch.token[1][j] =
					(m.batch.token[1][j] + 1) %
					m.batch.vocab;
				assert_true(loss_of(&m) != before);
			}
		}
		model_close(&m);
	}
}

static void check_entry(struct model *m, int64_t at, const char *name)
{
	const double eps = 1e-5;
	double keep = params(m)[at], up, down, slope, want = grads(m)[at];

	params(m)[at] = keep + eps;
	up = loss_of(m);
	params(m)[at] = keep - eps;
	down = loss_of(m);
	params(m)[at] = keep;
	slope = (up - down) / (2 * eps);
	if (fabs(slope - want) > 1e-6 * fmax(fabs(want), 1e-4))
		fail_msg("%s[%ld]: slope %.12g, gradient %.12g", name, (long)at,
			 slope, want);
}

static void test_finite_differences(void **state)
{
	static const char *const variants[] = {"llama", "llama-misc",
					       "gpt2-tied", "gpt2-untied"};
	uint32_t random = 3;
	struct model m;

	(void)state;
	for (int v = 0; v < 4; v++) {
		model_open(
			&m, variants[v],
			(const char *const[]){"run.init_method_std=0.3", NULL});
		step(&m);
		for (int i = 0; i < m.t.plan.slice.pieces; i++) {
			const struct piece *p = &m.t.plan.slice.piece[i];
			uint32_t n = (uint32_t)box_elements(&p->box);

			check_entry(&m, p->at + next_random(&random) % n,
				    m.t.plan.weights.list[p->weight].name);
		}
		model_close(&m);
	}
}

/* M micro-batches of b, or one of M b: the same per token, whatever counts. */
static void test_microbatching(void **state)
{
	struct model one, many;
	double loss;

	(void)state;
	model_open(&one, "llama-per-token",
		   (const char *const[]){"run.micro_batch_size=4", NULL});
	model_open(&many, "llama-per-token",
		   (const char *const[]){"run.micro_batch_size=1", NULL});
	loss = step(&one);
	assert_true(fabs(loss - step(&many)) < 1e-13);
	assert_true(grads_apart(&one, 1, &many) < 1e-12);
	model_close(&many);

	/* The default, a mean of means, agrees only for equal counts. */
	model_close(&one);
	model_open(&one, "llama",
		   (const char *const[]){"run.micro_batch_size=4", NULL});
	model_open(&many, "llama",
		   (const char *const[]){"run.micro_batch_size=1", NULL});
	assert_true(fabs(step(&one) - step(&many)) > 1e-6);
	memset(one.batch.scored, true, sizeof(one.batch.scored));
	memset(many.batch.scored, true, sizeof(many.batch.scored));
	assert_true(fabs(step(&one) - step(&many)) < 1e-13);
	assert_true(grads_apart(&one, 1, &many) < 1e-12);
	model_close(&one);
	model_close(&many);
}

/* A loss scale of a power of two scales every gradient exactly. */
static void test_loss_scale(void **state)
{
	struct model a, b;
	struct err e;

	(void)state;
	model_open(&a, "gpt2-tied", NULL);
	model_open(&b, "gpt2-tied", NULL);
	step(&a);
	step(&b);
	for (int mb = 0; mb < b.t.plan.prog.train.microbatches; mb++)
		*exec_objective(&b.t.exec, mb, 0).coef *= 1024;
	if (exec_run(&b.t.exec, &b.t.plan.prog.train, &e))
		fail_msg("%s", e.text);
	assert_true(grads_apart(&a, 1024, &b) == 0);
	model_close(&a);
	model_close(&b);
}

static void swap(double *a, double *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double t = a[i];

		a[i] = b[i];
		b[i] = t;
	}
}

static void test_batch_permutation(void **state)
{
	struct model a, b;
	double loss;

	(void)state;
	model_open(&a, "llama", NULL);
	model_open(&b, "llama", NULL);
	/* Samples 0 and 1 are of the same micro-batch. */
	for (int i = 0; i <= SEQ; i++) {
		b.batch.token[0][i] = a.batch.token[1][i];
		b.batch.token[1][i] = a.batch.token[0][i];
	}
	for (int i = 0; i < SEQ; i++) {
		b.batch.scored[0][i] = a.batch.scored[1][i];
		b.batch.scored[1][i] = a.batch.scored[0][i];
	}
	loss = step(&a);
	assert_true(fabs(loss - step(&b)) < 1e-13);
	assert_true(grads_apart(&a, 1, &b) < 1e-12);
	model_close(&a);
	model_close(&b);
}

/* Groups of heads, rows of qkv and columns of proj together, may change
 * places; so may ids, with the rows of embedding and head. */
static void test_weight_permutations(void **state)
{
	struct model m;
	double before;
	int one, other;

	(void)state;
	model_open(&m, "llama", NULL);
	one = m.batch.token[0][1];
	other = (one + 1) % m.batch.vocab;
	before = loss_of(&m);
	for (int layer = 0; layer < 2; layer++) {
		const struct param *qkv = param(&m, PART_QKV_W, layer);
		const struct param *proj = param(&m, PART_PROJ_W, layer);
		double *w = params(&m) + qkv->at, *o = params(&m) + proj->at;
		int64_t half = qkv->rows / 2 * qkv->cols;

		swap(w, w + half, half);
		for (int64_t r = 0; r < proj->rows; r++)
			swap(o + r * proj->cols,
			     o + r * proj->cols + proj->cols / 2,
			     proj->cols / 2);
	}
	assert_true(fabs(loss_of(&m) - before) < 1e-13);
	for (int k = 0; k < 2; k++) {
		const struct param *p =
			param(&m, k ? PART_HEAD_W : PART_EMBED_TOK, -1);
		double *w = params(&m) + p->at;

		swap(w + one * p->cols, w + other * p->cols, p->cols);
	}
	assert_true(fabs(loss_of(&m) - before) > 1e-9);
	for (int s = 0; s < SAMPLES; s++)
		for (int i = 0; i <= SEQ; i++) {
			int32_t *t = &m.batch.token[s][i];

			*t = *t == one ? other : *t == other ? one : *t;
		}
	assert_true(fabs(loss_of(&m) - before) < 1e-13);
	model_close(&m);
}

/* ln V of the true vocabulary, padding or not; near it at the start. */
static void test_uniform_logits(void **state)
{
	static const char *const variants[] = {"llama", "llama-masked"};
	struct model m;

	(void)state;
	for (int v = 0; v < 2; v++) {
		const struct param *head;

		model_open(&m, variants[v], NULL);
		head = param(&m, PART_HEAD_W, -1);
		assert_true(fabs(loss_of(&m) - log(m.batch.vocab)) < 0.05);
		memset(params(&m) + head->at, 0,
		       (size_t)(head->rows * head->cols) * sizeof(double));
		assert_true(fabs(loss_of(&m) - log(m.batch.vocab)) < 1e-13);
		model_close(&m);
	}
}

/* A tied gradient is the lookup's plus the head's of an untied twin. */
static void test_tied(void **state)
{
	struct model tied, twin;
	const struct param *tok, *twin_tok, *head;

	(void)state;
	model_open(&tied, "llama-tied", NULL);
	model_open(&twin, "llama", NULL);
	tok = param(&tied, PART_EMBED_TOK, -1);
	twin_tok = param(&twin, PART_EMBED_TOK, -1);
	head = param(&twin, PART_HEAD_W, -1);
	memcpy(params(&twin) + head->at, params(&twin) + twin_tok->at,
	       (size_t)(head->rows * head->cols) * sizeof(double));
	assert_true(fabs(step(&tied) - step(&twin)) < 1e-13);
	for (int64_t i = 0; i < tok->rows * tok->cols; i++)
		assert_true(fabs(grads(&tied)[tok->at + i] -
				 grads(&twin)[twin_tok->at + i] -
				 grads(&twin)[head->at + i]) < 1e-13);
	model_close(&tied);
	model_close(&twin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causality),
		cmocka_unit_test(test_finite_differences),
		cmocka_unit_test(test_microbatching),
		cmocka_unit_test(test_loss_scale),
		cmocka_unit_test(test_batch_permutation),
		cmocka_unit_test(test_weight_permutations),
		cmocka_unit_test(test_uniform_logits),
		cmocka_unit_test(test_tied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
