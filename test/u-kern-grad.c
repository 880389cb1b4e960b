/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward ops against central differences, in double, where another unit
 * has none: what is linear, and so has its transpose as its backward.
 */
#include "test/kern-test.h"

static const struct kern *const k = &kern_cpu_f64;

static double *x, *y, *dy; /* what goes in, comes out, and weighs that */

/* --- dropout and the residual --------------------------------------------- */

enum { N = 6, C = 5 };

static const uint64_t key[2] = {77, 3};
static const struct kern_drop drop = {.p = 0.4, .key = key, .site = 2};
static double *branch, *bias;

static double resid_loss(void)
{
	k->resid(NULL, y, x, branch, bias, N, C, &drop);
	return dot(y, dy, N * C);
}

static void residual(void **state)
{
	double *dbranch = zeros(N * C), *db = zeros(C);

	(void)state;
	x = rnd_new(N * C, 1);
	branch = rnd_new(N * C, 1);
	bias = rnd_new(C, 1);
	dy = rnd_new(N * C, 1);
	y = zeros(N * C);
	k->drop(NULL, dbranch, dy, N, C, &drop);
	k->bias_bwd(NULL, db, dbranch, N, C);
	check_grad("x", x, dy, N * C, resid_loss);
	check_grad("branch", branch, dbranch, N * C, resid_loss);
	check_grad("bias", bias, db, C, resid_loss);
}

/* --- latent attention's heads ---------------------------------------------- */

enum { B = 2, T = 3, H = 2, D = 7, DV = 5, P = 4, PAIRS = 1 };
enum { QUERY = B * T * H * D, KV = B * T * H * (D - P + DV), POS = B * T * P };
enum { QKV = B * T * H * (2 * D + DV) };

static const struct kern_attn_dims heads = {
	.B = B, .T = T, .H = H, .G = H, .D = D, .Dv = DV, .heads = H};
static double *kv, *pos, *table;

static double latent_loss(void)
{
	k->latent_fwd(NULL, y, x, kv, pos, table, &heads, P, PAIRS);
	return dot(y, dy, QKV);
}

static void latent(void **state)
{
	double *dq = zeros(QUERY), *dkv = zeros(KV), *dpos = zeros(POS);

	(void)state;
	x = rnd_new(QUERY, 1);
	kv = rnd_new(KV, 1);
	pos = rnd_new(POS, 1);
	dy = rnd_new(QKV, 1);
	y = zeros(QKV);
	table = zeros(2 * T * PAIRS);
	for (int t = 0; t < T * PAIRS; t++) {
		table[2 * t] = 1.2 * cos(t);
		table[2 * t + 1] = 1.2 * sin(t);
	}
	k->latent_bwd(NULL, dq, dkv, dpos, dy, table, &heads, P, PAIRS);
	check_grad("query", x, dq, QUERY, latent_loss);
	check_grad("kv", kv, dkv, KV, latent_loss);
	check_grad("pos", pos, dpos, POS, latent_loss);
}

/* --- experts ---------------------------------------------------------------- */

enum { E = 3, R = 7, OUT = 4, IN = 5 };

/* The second has no row. */
static const int32_t end[E] = {3, 3, R};
static double *w;

static double experts_loss(void)
{
	k->experts_fwd(NULL, y, x, w, end, R, OUT, IN, E);
	return dot(y, dy, R * OUT);
}

static void experts(void **state)
{
	double *dx = zeros(R * IN), *dw = zeros(E * OUT * IN);

	(void)state;
	x = rnd_new(R * IN, 1);
	w = rnd_new(E * OUT * IN, 1);
	dy = rnd_new(R * OUT, 1);
	y = zeros(R * OUT);
	k->experts_bwd_x(NULL, dx, dy, w, end, R, OUT, IN, E);
	k->experts_bwd_w(NULL, dw, dy, x, end, R, OUT, IN, E);
	check_grad("x", x, dx, R * IN, experts_loss);
	check_grad("w", w, dw, E * OUT * IN, experts_loss);
}

/* Rows of four tokens' choices, two of which have none. */
enum { TOKENS = 4, CHOICES = 2, ROWS = 6 };

static const int32_t row[TOKENS * CHOICES] = {2, 0, -1, 4, 5, 1, 3, -1};

static double gather_loss(void)
{
	k->gather(NULL, y, x, row, TOKENS, CHOICES, C);
	return dot(y, dy, ROWS * C);
}

static double combine_loss(void)
{
	k->combine(NULL, y, x, row, TOKENS, CHOICES, C);
	return dot(y, dy, TOKENS * C);
}

/* Each is the other's backward. */
static void rows(void **state)
{
	double *dx = zeros(ROWS * C);

	(void)state;
	x = rnd_new(ROWS * C, 1);
	dy = rnd_new(ROWS * C, 1);
	y = zeros(ROWS * C);
	k->combine(NULL, dx, dy, row, TOKENS, CHOICES, C);
	check_grad("x of gather", x, dx, TOKENS * C, gather_loss);
	k->gather(NULL, dx, dy, row, TOKENS, CHOICES, C);
	check_grad("x of combine", x, dx, ROWS * C, combine_loss);
}

/* Their biases: two ranks of two tokens, and the second half of the experts,
 * one of whose choices found no room. */
enum { MAP = 2 * TOKENS * CHOICES + 2 + 2 * 4 };

static const struct kern_moe_dims half = {.M = 2,
					  .T = 2,
					  .E = 4,
					  .K = CHOICES,
					  .ranks = 2,
					  .first = 2,
					  .experts = 2};
static int32_t map[MAP] = {2, 3, 0,  2, 1,  3, 3, 2,  /* experts */
			   0, 2, -1, 1, -1, 3, 4, -1, /* rows */
			   2, 5};		      /* ends */
static double *prob;

static double bias_loss(void)
{
	memcpy(y, x, 5 * C * sizeof(*y));
	k->expert_bias_fwd(NULL, y, bias, prob, map, C, &half);
	return dot(y, dy, 5 * C);
}

static void biases(void **state)
{
	double *db = zeros(2 * C), *dp = zeros(TOKENS * CHOICES);

	(void)state;
	x = rnd_new(5 * C, 1);
	y = zeros(5 * C);
	dy = rnd_new(5 * C, 1);
	bias = rnd_new(2 * C, 1);
	prob = NULL;
	k->expert_bias_bwd(NULL, db, NULL, dy, NULL, NULL, map, C, &half);
	check_grad("bias", bias, db, 2 * C, bias_loss);
	prob = rnd_new(TOKENS * CHOICES, 1);
	memset(db, 0, 2 * C * sizeof(*db));
	k->expert_bias_bwd(NULL, db, dp, dy, bias, prob, map, C, &half);
	check_grad("bias with probabilities", bias, db, 2 * C, bias_loss);
	check_grad("prob", prob, dp, TOKENS * CHOICES, bias_loss);
}

/* --- rows side by side ------------------------------------------------------ */

enum { LEFT = 2, RIGHT = 3, WIDE = LEFT + RIGHT };

static double *right;

static double join_loss(void)
{
	k->join(NULL, y, x, right, NULL, N, bytes_of(k, LEFT),
		bytes_of(k, RIGHT), 0);
	return dot(y, dy, N * WIDE);
}

static void joined(void **state)
{
	double *dx = zeros(N * LEFT), *dright = zeros(N * RIGHT);

	(void)state;
	x = rnd_new(N * LEFT, 1);
	right = rnd_new(N * RIGHT, 1);
	dy = rnd_new(N * WIDE, 1);
	y = zeros(N * WIDE);
	k->cut(NULL, dx, dy, N, bytes_of(k, LEFT), bytes_of(k, WIDE));
	k->cut(NULL, dright, dy + LEFT, N, bytes_of(k, RIGHT),
	       bytes_of(k, WIDE));
	check_grad("left", x, dx, N * LEFT, join_loss);
	check_grad("right", right, dright, N * RIGHT, join_loss);
}

/* --- rows from tokens behind ------------------------------------------------ */

enum { ALL = 16, SOME = 6 };

/* All rows, or SOME from row FROM on as another rank has them. */
static int64_t from;
static const int32_t *doc;

static double mix_loss(void)
{
	struct kern_drop d = drop;

	d.row0 = ALL + from;
	memcpy(y, x, ALL * C * sizeof(*y));
	for (int64_t s = 1; s < 4; s++)
		k->mix_fwd(NULL, y + from * C, x + (s * ALL + from) * C,
			   doc ? doc + from : NULL, SOME, bytes_of(k, C),
			   ALL / 2, s, 4, &d);
	return dot(y + from * C, dy + from * C, SOME * C);
}

/* x is four arrays of two samples each; who took what of them. */
static void check_mixed(void)
{
	struct kern_drop d = drop;
	double *dx = zeros(4 * ALL * C), *mine = zeros(ALL * C);

	memcpy(mine + from * C, dy + from * C, SOME * C * sizeof(*mine));
	d.row0 = ALL;
	for (int64_t s = 0; s < 4; s++)
		k->mix_bwd(NULL, dx + s * ALL * C, mine, doc, ALL,
			   bytes_of(k, C), ALL / 2, s, 4, &d);
	check_grad("mixed", x, dx, 4 * ALL * C, mix_loss);
}

static void mixed(void **state)
{
	static const int32_t begin[ALL] = {0, 0, 0, 3, 3, 3, 3, 7,
					   0, 0, 0, 0, 0, 5, 5, 5};

	(void)state;
	x = rnd_new(4 * ALL * C, 1);
	dy = rnd_new(ALL * C, 1);
	y = zeros(ALL * C);
	for (int i = 0; i < 2; i++) {
		doc = i ? begin : NULL;
		for (from = 0; from <= ALL - SOME; from += 5)
			check_mixed();
	}
}

/* --- every backward op has such a test -------------------------------------- */

static const struct {
	const char *op, *unit;
} tested[] = {
	{"embed_bwd", "embed"},	    {"pos_bwd", "embed"},
	{"norm_bwd", "norm"},	    {"linear_bwd_x", "linear"},
	{"linear_bwd_w", "linear"}, {"bias_bwd", "linear"},
	{"latent_bwd", "grad"},	    {"attn_bwd", "attn"},
	{"act_bwd", "act"},	    {"route_bwd", "moe"},
	{"experts_bwd_x", "grad"},  {"experts_bwd_w", "grad"},
	{"expert_act_bwd", "moe"},  {"expert_bias_bwd", "grad"},
	{"mix_bwd", "grad"},
};
enum { TESTED = sizeof(tested) / sizeof(*tested) };

static char *text_of(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = keep(1 << 20);

	assert_non_null(f);
	text[fread(text, 1, (1 << 20) - 1, f)] = 0;
	fclose(f);
	return text;
}

/* The table has all of kern.h's, and the units call them. */
static void all_of_them(void **state)
{
	const char *at = text_of("kernels/kern.h");
	int ops = 0;

	(void)state;
	while ((at = strstr(at, "void (*"))) {
		size_t n = strcspn(at += 7, ")");
		int i = 0;

		if (!memmem(at, n, "_bwd", 4))
			continue;
		ops++;
		while (i < TESTED && (strlen(tested[i].op) != n ||
				      memcmp(tested[i].op, at, n)))
			i++;
		if (i == TESTED)
			fail_msg("no differences of %.*s", (int)n, at);
	}
	assert_int_equal(ops, TESTED);
	for (int i = 0; i < TESTED; i++) {
		char path[64], call[32], *text;

		snprintf(path, sizeof(path), "test/u-kern-%s.c",
			 tested[i].unit);
		snprintf(call, sizeof(call), "%s(NULL", tested[i].op);
		text = text_of(path);
		assert_non_null(strstr(text, "check_grad("));
		if (!strstr(text, call))
			fail_msg("%s does not call %s", path, tested[i].op);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(residual), UNIT(latent), UNIT(experts), UNIT(biases),
		UNIT(rows),	UNIT(joined), UNIT(mixed),   UNIT(all_of_them),
	};

	return cmocka_run_group_tests(tests, two_threads, NULL);
}
