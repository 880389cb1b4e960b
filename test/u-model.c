/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold of a whole training step of a plain GPT without any golden:
 * causality, finite differences, permutations, micro-batching, loss scale,
 * uniform logits, tied weights, rotary positions.  u-invariant has the list, and the rest.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/model-test.h"

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

/*
 * A row of attention's score gradients has the sum 0, so a key's bias, which
 * adds the same to all scores of a row, has no gradient.
 */
static void test_key_bias(void **state)
{
	struct model m;
	const double *g;
	double q = 0, k = 0;
	int D = 4, H = 4;

	(void)state;
	model_open(&m, "gpt2-tied", SETS("run.init_method_std=0.3"));
	step(&m);
	g = named(&m, "layers/0001/attn/qkv/b");
	assert_int_equal(m.c.shape.kv_channels, D);
	assert_int_equal(m.c.shape.num_query_groups, H);
	for (int h = 0; h < H; h++)
		for (int i = 0; i < D; i++) {
			q = fmax(q, fabs(g[h * 3 * D + i]));
			k = fmax(k, fabs(g[h * 3 * D + D + i]));
		}
	assert_true(q > 1e-4 && k < 1e-15);
	model_close(&m);
}

/* A head's rows of q or k for pairs (j, j + D/2) become (2j, 2j + 1). */
static void interleave(double *w, int64_t D, int64_t cols)
{
	double row[8][16];

	assert_true(D <= 8 && cols == 16);
	memcpy(row, w, (size_t)(D * cols) * sizeof(double));
	for (int64_t j = 0; j < D; j++)
		memcpy(w + (2 * (j % (D / 2)) + 2 * j / D) * cols, row[j],
		       sizeof(row[j]));
}

static void test_interleaved(void **state)
{
	struct model halves, pairs;

	(void)state;
	model_open(&halves, "llama", SETS("run.init_method_std=0.3"));
	model_open(&pairs, "llama",
		   SETS("run.init_method_std=0.3",
			"shape.rotary_interleaved=true"));
	assert_true(fabs(step(&halves) - step(&pairs)) > 1e-6);
	for (int layer = 0; layer < 2; layer++) {
		const struct param *qkv = param(&pairs, PART_QKV_W, layer);
		double *w = params(&pairs) + qkv->at;

		/* two groups of two queries, k and v, 4 wide */
		assert_int_equal(qkv->rows, 2 * 4 * 4);
		for (int block = 0; block < 8; block++)
			if (block % 4 < 3)
				interleave(w + block * 4 * qkv->cols, 4,
					   qkv->cols);
	}
	assert_true(fabs(step(&halves) - step(&pairs)) < 1e-13);
	model_close(&halves);
	model_close(&pairs);
}

static void test_yarn_of_one(void **state)
{
	struct model rope, yarn;

	(void)state;
	model_open(&rope, "llama", NULL);
	model_open(&yarn, "llama",
		   SETS("shape.position_embedding_type=\"yarn\"",
			"shape.yarn_rotary_scaling_factor=1.0",
			"shape.yarn_original_max_position_embeddings=32"));
	assert_true(fabs(step(&rope) - step(&yarn)) < 1e-14);
	assert_true(grads_apart(&rope, 1, &yarn) < 1e-13);
	model_close(&rope);
	model_close(&yarn);
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
		cmocka_unit_test(test_key_bias),
		cmocka_unit_test(test_interleaved),
		cmocka_unit_test(test_yarn_of_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
