/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of whole steps share: tiny models on one rank, with the
 * configs of test/data/golden but weights and tokens of their own. */
#ifndef TEST_MODEL_TEST_H
#define TEST_MODEL_TEST_H

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

static inline uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

static inline int sample(void *arg, bool valid, int64_t index, int32_t *ids,
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
static inline void model_open(struct model *m, const char *variant,
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

static inline void model_close(struct model *m)
{
	trainer_close(&m->t);
	arena_close(&m->a);
}

static inline double loss_of(struct model *m)
{
	double loss;
	struct err e;

	if (trainer_eval(&m->t, &m->data, 1, &loss, NULL, &e))
		fail_msg("%s", e.text);
	return loss;
}

/* One step on the first batch; with lr 0 the first step again. */
static inline struct trainer_result step_of(struct model *m)
{
	struct trainer_result r;
	struct err e;

	m->t.consumed_samples = 0;
	if (!(m->c.run.lr > 0))
		m->t.step = 0;
	if (trainer_step(&m->t, &m->data, false, &r, &e))
		fail_msg("%s", e.text);
	return r;
}

/* And its loss. */
static inline double step(struct model *m)
{
	return step_of(m).loss;
}

static inline double *params(struct model *m)
{
	void *p = m->t.exec.base[FAMILY_PARAM];

	return p;
}

static inline double *grads(struct model *m)
{
	void *p = m->t.exec.base[FAMILY_GRAD];

	return p;
}

static inline const struct param *param(struct model *m, enum part part,
					int64_t layer)
{
	return slice_find(&m->t.plan.slice, part, layer, 0);
}

/* The largest difference of the two models' gradients, times SCALE of A's,
 * relative to the largest gradient. */
static inline double grads_apart(struct model *a, double scale, struct model *b)
{
	double most = 0, off = 0;

	for (int64_t i = 0; i < a->t.plan.slice.elements; i++) {
		most = fmax(most, fabs(grads(b)[i]));
		off = fmax(off, fabs(scale * grads(a)[i] - grads(b)[i]));
	}
	assert_true(most > 0);
	return off / most;
}

#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline const char *name_of(struct model *m, const struct piece *p)
{
	return m->t.plan.weights.list[p->weight].name;
}

/* In the gradients of M, those of the weight NAME. */
static inline double *named(struct model *m, const char *name)
{
	for (int i = 0; i < m->t.plan.slice.pieces; i++) {
		const struct piece *p = &m->t.plan.slice.piece[i];

		if (!strcmp(name_of(m, p), name))
			return grads(m) + p->at;
	}
	fail_msg("no weight %s", name);
	return NULL;
}

#endif
