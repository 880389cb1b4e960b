/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation against brute force: each token is chosen again by whole
 * evaluations without a cache, one for each token that could come, and what
 * drafts must have been accepted by training's own acceptance.  Tiny models in
 * float64, trained for a few steps so that they have something to say.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/generate.h"

enum { SEQ_MAX = 320, PROMPTS_MAX = 8, DEPTHS_MAX = 3 };

struct model {
	struct config c;
	struct trainer t;
	struct arena a;
	int64_t T, V;
	/* what an evaluation sees: tokens, and one label */
	int32_t ids[SEQ_MAX];
	int64_t at;
	int32_t label;
	bool trains;
};

/* One of a few tunes, with wrong notes here and there. */
static int32_t note(int64_t song, int64_t i, int64_t V)
{
	uint32_t x = (uint32_t)(song * 7919 + i * 104729) * 2654435761U;

	if (x >> 27 == 0)
		return (int32_t)(x % V);
	return (int32_t)((song % 5 * 3 + i * (1 + song % 2)) % 11 % V);
}

static int give(void *arg, bool valid, int64_t index, int32_t *ids,
		int32_t *labels, struct err *e)
{
	const struct model *m = arg;

	(void)valid;
	(void)e;
	for (int64_t i = 0; i < m->T; i++) {
		ids[i] = m->trains ? note(index, i, m->V) : m->ids[i];
		labels[i] = m->trains	 ? note(index, i + 1, m->V)
			    : i == m->at ? m->label
					 : -1;
	}
	return 0;
}

static void train(struct model *m, int steps)
{
	struct trainer_data data = {m, give};
	struct trainer_result r;
	struct err e;

	m->trains = true;
	for (int i = 0; i < steps; i++)
		if (trainer_step(&m->t, &data, false, &r, &e))
			fail_msg("%s", e.text);
	m->trains = false;
	/* from here on steps change nothing */
	m->c.run.lr = m->c.run.min_lr = 0;
}

static void model_open(struct model *m, const char *variant, const char *sets,
		       int steps)
{
	struct report r = {.arena = &m->a};
	const char *list[32] = {
		"run.lr=0.01", "run.lr_decay_style=\"constant\"",
		"run.micro_batch_size=1", "run.global_batch_size=1",
		"run.init_method_std=0.1"};
	char path[128], *text, *one;
	struct err e;
	int n = 5;

	memset(m, 0, sizeof(*m));
	assert_int_equal(arena_open(&m->a, &e), 0);
	text = arena_strdup(&m->a, sets);
	while ((one = strsep(&text, " ")))
		if (*one)
			list[n++] = one;
	snprintf(path, sizeof(path), "test/data/golden/%s.cfg", variant);
	if (config_load(path, list, n, &m->a, &m->c, &r, &e))
		fail_msg("%s", e.text);
	config_finish(&m->c, 1, &r);
	assert_int_equal(report_count(&r, ERROR), 0);
	if (trainer_open(&m->t, &m->c, 1, 0, &machine_cpu, NULL, &m->a, &e))
		fail_msg("%s: %s", variant, e.text);
	m->T = m->c.shape.seq_length;
	m->V = m->c.shape.vocab_size;
	assert_true(m->T <= SEQ_MAX);
	train(m, steps);
}

static void model_close(struct model *m)
{
	trainer_close(&m->t);
	arena_close(&m->a);
}

/* The log of each token's probability behind N tokens; evaluations alone. */
static void brute_row(struct model *m, const int32_t *ids, int64_t n,
		      double *row)
{
	struct trainer_data data = {m, give};
	struct err e;

	memset(m->ids, 0, sizeof(m->ids));
	memcpy(m->ids, ids, (size_t)n * sizeof(*ids));
	m->at = n - 1;
	for (int64_t v = 0; v < m->V; v++) {
		m->label = (int32_t)v;
		if (trainer_eval(&m->t, &data, 1, &row[v], NULL, &e))
			fail_msg("%s", e.text);
		row[v] = -row[v];
	}
}

/*
 * Whether depth K + 1 of a state over N tokens, but the last, would have
 * drafted token N + K of IDS: by training, whose labels are those tokens.
 */
static void brute_drafts(struct model *m, const int32_t *ids, int64_t n,
			 bool *right)
{
	struct trainer_data data = {m, give};
	struct trainer_result r;
	struct err e;

	memset(m->ids, 0, sizeof(m->ids));
	memcpy(m->ids, ids, (size_t)(n - 1) * sizeof(*ids));
	for (int k = 0; k < m->t.plan.prog.depths; k++) {
		m->ids[n - 1 + k] = ids[n - 1 + k];
		m->at = n - 1 + k;
		m->label = ids[n + k];
		if (trainer_step(&m->t, &data, false, &r, &e))
			fail_msg("%s", e.text);
		right[k] = r.mtp[k].acceptance == 1;
	}
}

/* What a generation is given and what it gave. */
struct job {
	struct prompt prompt[PROMPTS_MAX];
	int count;
	struct gen_options opt;
	int64_t slots; /* at a time */
	struct gen_text out[PROMPTS_MAX];
	int32_t ids[PROMPTS_MAX][SEQ_MAX];
	int given;
	struct gen_sum sum;
};

static bool goes_on(void *arg)
{
	(void)arg;
	return false;
}

static int take(void *arg, const struct gen_text *x, struct err *e)
{
	struct job *j = arg;

	(void)e;
	assert_int_equal(x->prompt, ++j->given);
	j->out[x->prompt - 1] = *x;
	memcpy(j->ids[x->prompt - 1], x->ids,
	       (size_t)x->count * sizeof(*x->ids));
	return 0;
}

static void run_job(struct model *m, struct job *j)
{
	struct prompts prompts = {.list = j->prompt, .count = j->count};
	const struct gen_hooks hooks = {j, goes_on, take};
	struct config c = m->c;
	struct prog_gen g;
	struct gen_size size;
	struct trainer t;
	struct err e;

	for (int i = 0; i < j->count; i++)
		if (j->prompt[i].count > prompts.longest)
			prompts.longest = j->prompt[i].count;
	c.run.micro_batch_size = c.run.eval_micro_batch_size = j->slots;
	if (gen_plan(&size, &c, 1, &prompts, &j->opt, &e) ||
	    trainer_open_gen(&t, &g, &size, &c, 1, 0, &machine_cpu, NULL, &m->a,
			     &e))
		fail_msg("%s", e.text);
	assert_int_equal(t.plan.prog.bytes[FAMILY_PARAM],
			 m->t.plan.prog.bytes[FAMILY_PARAM]);
	memcpy(t.exec.base[FAMILY_PARAM], m->t.exec.base[FAMILY_PARAM],
	       (size_t)t.plan.prog.bytes[FAMILY_PARAM]);
	j->given = 0;
	if (gen_run(&t, &g, &prompts, &j->opt, &hooks, &j->sum, &m->a, &e))
		fail_msg("%s", e.text);
	assert_int_equal(j->given, j->count);
	assert_false(j->sum.stopped);
	trainer_close(&t);
}

/* Prompts of unequal lengths, from the tunes. */
static void make_prompts(struct model *m, struct job *j, int count,
			 const int *length)
{
	j->count = count;
	for (int i = 0; i < count; i++) {
		int32_t *ids =
			arena_alloc(&m->a, (size_t)length[i], sizeof(*ids));

		for (int k = 0; k < length[i]; k++)
			ids[k] = note(i + 1, k, m->V);
		j->prompt[i] = (struct prompt){ids, length[i]};
	}
}

/* Text I of J, prompt included, into ALL; returns its length. */
static int64_t whole(const struct job *j, int i, int32_t *all)
{
	const struct prompt *p = &j->prompt[i];

	memcpy(all, p->ids, (size_t)p->count * sizeof(*all));
	memcpy(all + p->count, j->ids[i],
	       (size_t)j->out[i].count * sizeof(*all));
	return p->count + j->out[i].count;
}

static void check_tokens(struct model *m, const struct job *j, const char *what)
{
	double *row = arena_alloc(&m->a, (size_t)m->V, sizeof(*row));
	void *work = arena_alloc(&m->a, sample_work(m->V), 1);
	int32_t all[SEQ_MAX];

	for (int i = 0; i < j->count; i++) {
		int64_t n = whole(j, i, all);

		assert_int_equal(j->out[i].count, j->opt.more);
		for (int64_t at = j->prompt[i].count; at < n; at++) {
			int64_t want;

			brute_row(m, all, at, row);
			want = sample_next(&j->opt.sampler, row, m->V, i, at,
					   work);
			if (all[at] != want)
				fail_msg("%s: prompt %d token %d: %d, not %d",
					 what, i, (int)at, all[at], (int)want);
		}
	}
}

/* How many drafts must have been judged and accepted. */
static void check_drafts(struct model *m, const struct job *j, const char *what)
{
	int depths = m->t.plan.prog.depths;
	int32_t all[SEQ_MAX + DEPTHS_MAX] = {0};

	for (int i = 0; i < j->count; i++) {
		int64_t n = whole(j, i, all), len = j->prompt[i].count + 1;
		int64_t drafts = 0, accepted = 0;

		while (len < n) {
			int64_t judged = n - len - 1, right = 0;
			bool ok[DEPTHS_MAX];

			judged = judged < depths ? judged : depths;
			brute_drafts(m, all, len, ok);
			while (right < judged && ok[right])
				right++;
			drafts += judged;
			accepted += right;
			len += right + 1;
		}
		if (j->out[i].drafts != drafts ||
		    j->out[i].accepted != accepted)
			fail_msg("%s: prompt %d: %d of %d drafts, not %d of %d",
				 what, i, (int)j->out[i].accepted,
				 (int)j->out[i].drafts, (int)accepted,
				 (int)drafts);
	}
}

static const struct sampler greedy = {.top_p = 1};
static const struct sampler drawn = {
	.temperature = 0.8, .top_k = 9, .top_p = 0.9, .seed = 11};

static const struct {
	const char *variant, *sets;
} models[] = {
	{"gpt2-tied", ""},
	{"gpt2-untied", "shape.position_embedding_type=\"none\""},
	{"llama", ""},
	{"llama-masked", "shape.window_size=[2,0]"},
	{"llama-misc", ""},
	{"llama-qk-norm", ""},
	{"sink-one", ""},
	{"sink-learned", "shape.window_size=[3,0]"},
	{"l2-llama", ""},
	{"moe-top2", ""},
	{"moe-groups", ""},
	{"moe-softplus", ""},
	{"moe-bias", ""},
	{"moe-shared-gate", ""},
	{"moe-sinkhorn", ""},
	{"mla-rope", ""},
	{"mla-yarn", "shape.window_size=[3,0]"},
	{"mla-whole-query", ""},
	{"mla-mtp", ""},
	{"mtp-gpt2-tied", ""},
	{"mtp-llama-repeated", ""},
	{"mtp-llama-misc", "shape.window_size=[3,0]"},
	{"mtp-llama", "shape.mtp_num_layers=1"},
	{"mtp-llama", "shape.mtp_num_layers=3"},
	{"moe-groups-mtp", ""},
	{"own-gpt2", ""},
	{"own-mtp", "shape.window_size=[3,0]"},
	{"own-linear-mtp", ""},
	{"own-none-mtp", ""},
};
enum { MODELS = sizeof(models) / sizeof(*models) };

static void check_model(int k, const struct sampler *s)
{
	static const int length[] = {3, 1, 5, 2, 4};
	bool drafts = strstr(models[k].variant, "mtp");
	struct job j = {.opt = {.more = 7, .sampler = *s, .end = -1},
			.slots = 1};
	struct job again;
	struct model m;
	char what[256];

	snprintf(what, sizeof(what), "%s %s", models[k].variant,
		 models[k].sets);
	model_open(&m, models[k].variant, models[k].sets, 90);
	make_prompts(&m, &j, 5, length);
	run_job(&m, &j);
	check_tokens(&m, &j, what);
	for (int slots = 1; slots < 4; slots++) {
		again = j;
		again.slots = slots;
		again.opt.speculative = drafts;
		run_job(&m, &again);
		assert_memory_equal(again.ids, j.ids, sizeof(j.ids));
		if (drafts && slots != 2)
			check_drafts(&m, &again, what);
	}
	model_close(&m);
}

static void most_likely(void **state)
{
	(void)state;
	for (int k = 0; k < MODELS; k++)
		check_model(k, &greedy);
}

static void draws(void **state)
{
	(void)state;
	for (int k = 0; k < MODELS; k += 2)
		check_model(k, &drawn);
}

/* Prompts of more than one pass, among short ones. */
static void long_prompts(void **state)
{
	static const int length[] = {290, 2, 257, 256};

	(void)state;
	for (int drafts = 0; drafts < 2; drafts++) {
		struct job j = {
			.opt = {.more = 3, .sampler = greedy, .end = -1},
			.slots = 2};
		struct model m;

		model_open(&m, drafts ? "mtp-llama" : "llama-masked",
			   "shape.seq_length=300 shape.window_size=[40,0]", 40);
		make_prompts(&m, &j, 4, length);
		j.opt.speculative = drafts;
		run_job(&m, &j);
		check_tokens(&m, &j, "long");
		if (drafts)
			check_drafts(&m, &j, "long");
		model_close(&m);
	}
}

/*
 * Long texts, many of whose drafts are wrong: what a depth has cached from a
 * wrong one must not last.
 */
static void many_drafts(void **state)
{
	static const int length[] = {3, 9, 30};

	(void)state;
	for (int depths = 2; depths <= 3; depths++) {
		struct job j = {
			.opt = {.more = 120,
				.sampler = {.temperature = 1.2, .top_p = 1},
				.end = -1,
				.speculative = true},
			.slots = 2};
		struct model m;
		char sets[80];

		snprintf(sets, sizeof(sets),
			 "shape.seq_length=150 shape.mtp_num_layers=%d",
			 depths);
		model_open(&m, "mtp-llama", sets, 60);
		make_prompts(&m, &j, 3, length);
		run_job(&m, &j);
		check_drafts(&m, &j, "many");
		assert_true(j.sum.accepted > j.sum.drafts / 8);
		assert_true(j.sum.accepted < j.sum.drafts * 7 / 8);
		model_close(&m);
	}
}

/* A text ends behind the first of a token. */
static void ends(void **state)
{
	static const int length[] = {3, 4};
	struct job j = {.opt = {.more = 8, .sampler = greedy, .end = -1},
			.slots = 2};
	struct model m;

	(void)state;
	model_open(&m, "mtp-llama", "", 90);
	make_prompts(&m, &j, 2, length);
	run_job(&m, &j);
	for (int drafts = 0; drafts < 2; drafts++)
		for (int i = 0; i < 2; i++) {
			struct job k = j;
			int64_t n = 0;

			k.opt.end = j.ids[i][2];
			k.opt.speculative = drafts;
			run_job(&m, &k);
			while (j.ids[i][n] != k.opt.end)
				n++;
			assert_int_equal(k.out[i].count, n + 1);
			assert_true(k.out[i].ended);
			assert_memory_equal(k.ids[i], j.ids[i],
					    (size_t)(n + 1) * 4);
		}
	model_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(most_likely), cmocka_unit_test(draws),
		cmocka_unit_test(long_prompts), cmocka_unit_test(many_drafts),
		cmocka_unit_test(ends)};

	kern_cpu_init(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
