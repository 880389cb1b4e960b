/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers each stage holds: worked examples, and a sweep of rules. */
#include "lib/plan/stage.h"

#include "test/config-test.h"

/* One placement: 0 is "not given", except for mtp. */
struct cut {
	int layers, pp, vp, first, last;
	bool embedding, loss;
	const char *layout;
	int mtp;
	const char *want; /* rendered stages, or ! and a part of the error */
};

static int64_t or_unset(int n)
{
	return n ? n : UNSET;
}

static int build(const struct cut *c, struct stages *out, struct err *e)
{
	struct shape *s = arena_alloc(&arena, 1, sizeof(*s));
	struct place *p = arena_alloc(&arena, 1, sizeof(*p));

	field_defaults(&shape_group, s, &arena);
	field_defaults(&place_group, p, &arena);
	s->num_layers = c->layers;
	s->mtp_num_layers = c->mtp;
	p->pipeline_model_parallel_size = c->pp;
	p->virtual_pipeline_model_parallel_size = or_unset(c->vp);
	p->num_layers_in_first_pipeline_stage = or_unset(c->first);
	p->num_layers_in_last_pipeline_stage = or_unset(c->last);
	p->account_for_embedding_in_pipeline_split = c->embedding;
	p->account_for_loss_in_pipeline_split = c->loss;
	p->pipeline_model_parallel_layout = c->layout;
	place_finalize(p, s);
	return stages_build(out, p, s, &arena, e);
}

/* "E0-3", "4-7,m1NL": the layers of a stage and its roles. */
static const char *one(const struct stage *s)
{
	const char *layers = "";

	if (s->num_layers == 1)
		layers = arena_printf(&arena, "%d", (int)s->first_layer);
	else if (s->num_layers)
		layers =
			arena_printf(&arena, "%d-%d", (int)s->first_layer,
				     (int)(s->first_layer + s->num_layers - 1));
	return arena_printf(
		&arena, "%s%s%s%s%s", s->embedding ? "E" : "", layers,
		s->mtp_layers ? arena_printf(&arena, "m%d", (int)s->mtp_layers)
			      : "",
		s->final_norm ? "N" : "", s->output_head ? "L" : "");
}

/* Ranks apart by " / ", the chunks of one by ",". */
static const char *rendered(const struct cut *c)
{
	struct stages st;
	struct err e;
	const char *out = "";

	if (build(c, &st, &e))
		return arena_strdup(&arena, e.text);
	for (int r = 0; r < st.pp; r++)
		for (int v = 0; v < st.vp; v++)
			out = arena_printf(&arena, "%s%s%s", out,
					   v   ? ","
					   : r ? " / "
					       : "",
					   one(&st.stage[v * st.pp + r]));
	return out;
}

/* The worked examples, numbered as in Megatron's study. */
static const struct cut worked[] = {
	/* X01 */
	{32, 4, .want = "E0-7 / 8-15 / 16-23 / 24-31NL"},
	/* X02 */
	{32, 4, 2,
	 .want = "E0-3,16-19 / 4-7,20-23 / 8-11,24-27 / 12-15,28-31NL"},
	/* X03 */
	{8, 2, 2, .want = "E0-1,4-5 / 2-3,6-7NL"},
	/* X04 */
	{30, 4, .first = 6, .last = 8, .want = "E0-5 / 6-13 / 14-21 / 22-29NL"},
	/* X05 */
	{61, 4, .last = 13, .want = "E0-15 / 16-31 / 32-47 / 48-60NL"},
	/* X06 */
	{24, 4, 2, .first = 4, .last = 4,
	 .want = "E0-1,12-13 / 2-5,14-17 / 6-9,18-21 / 10-11,22-23NL"},
	/* X07 */
	{20, 3, 2, .first = 4, .want = "E0-1,10-11 / 2-5,12-15 / 6-9,16-19NL"},
	/* X08 */
	{30, 4, .embedding = true, .loss = true,
	 .want = "E0-6 / 7-14 / 15-22 / 23-29NL"},
	{30, 4, 2, .embedding = true, .loss = true,
	 .want = "E0-2,15-18 / 3-6,19-22 / 7-10,23-26 / 11-14,27-29NL"},
	/* X09 */
	{7, 8, .embedding = true, .want = "E / 0 / 1 / 2 / 3 / 4 / 5 / 6NL"},
	{6, 8, .embedding = true, .loss = true,
	 .want = "E / 0 / 1 / 2 / 3 / 4 / 5 / NL"},
	/* X10 */
	{31, 4, 4, .embedding = true,
	 .want = "E0,7-8,15-16,23-24 / 1-2,9-10,17-18,25-26 / "
		 "3-4,11-12,19-20,27-28 / 5-6,13-14,21-22,29-30NL"},
	/* X11 */
	{47, 6, 2, .loss = true,
	 .want = "E0-3,24-27 / 4-7,28-31 / 8-11,32-35 / 12-15,36-39 / "
		 "16-19,40-43 / 20-23,44-46NL"},
	/* X12: the final norm with the last layer, embedding with the MTP */
	{61, 16, .layout = "Et*3|(tt|)*29,m|L", .mtp = 1,
	 .want = "E0-2,33-34 / 3-4,35-36 / 5-6,37-38 / 7-8,39-40 / "
		 "9-10,41-42 / 11-12,43-44 / 13-14,45-46 / 15-16,47-48 / "
		 "17-18,49-50 / 19-20,51-52 / 21-22,53-54 / 23-24,55-56 / "
		 "25-26,57-58 / 27-28,59-60N / 29-30,Em1 / 31-32,L"},
	/* X13 */
	{8, 4, .layout = "E|(tt|)*2,(t|)*4,mL", .mtp = 1,
	 .want = "E,5 / 0-1,6 / 2-3,7N / 4,Em1L"},
	{8, 2, .layout = "E|(tt|)*2,(t|)*4,mL", .mtp = 1,
	 .want = "E,2-3,5,7N / 0-1,4,6,Em1L"},
	/* X14 */
	{8, 2, .layout = "Ett|tt|ttt|tL", .want = "E0-1,4-6 / 2-3,7NL"},
	/* X15 */
	{5, 4, .layout = "E(t|)*2,t*2|tL", .want = "E0 / 1 / 2-3 / 4NL"},
	/* X16 */
	{3, 2, .layout = "Et|tL", .want = "!has 2 t, but num_layers is 3"},
	{2, 2, .layout = "Etm|tL", .mtp = 1, .want = "!after every t"},
	{0, 1, .layout = "Em|L", .mtp = 1, .want = "!need a pipeline_model"},
	{2, 2, .layout = "ttE|L", .want = "!must begin with its only E"},
	{4, 7, .layout = "E((t|)*2m|)*2L", .mtp = 2,
	 .want = "!mtp_num_layers 2 m together in one"},
	/* a blank and nesting are ours to allow */
	{2, 2, .layout = "Et |tL", .want = "E0 / 1NL"},
	{8, 7, .layout = "E((t|)*2t|)*2ttL",
	 .want = "E0 / 1 / 2 / 3 / 4 / 5 / 6-7NL"},
	/* X17 */
	{33, 4, 2, .want = "!not a multiple of pipeline_model_parallel_size 4"},
	{30, 4, 2, .want = "!30 layers make 30 slots"},
	{12, 4, .first = 2, .want = "!10 layers, not a multiple of the 3"},
	{6, 4, 3, .embedding = true, .loss = true,
	 .want = "!2 a rank, not a multiple of virtual_pipeline"},
	/* X18: a division by zero there */
	{8, 2, 2, .first = 4, .last = 4, .want = "E0-1,4-5 / 2-3,6-7NL"},
};

/* Layouts as Megatron's own parser places them. */
static const struct cut golden[] = {
	{8, 8, .layout = "E|t*3|(t|)*5mL", .mtp = 1,
	 .want = "E / 0-2 / 3 / 4 / 5 / 6 / 7N / Em1L"},
	{8, 8, .layout = "E|t*3|(t|)*4tm|L", .mtp = 1,
	 .want = "E / 0-2 / 3 / 4 / 5 / 6 / E7m1N / L"},
	{8, 8, .layout = "E|t*3|(t|)*3tt|m|L", .mtp = 1,
	 .want = "E / 0-2 / 3 / 4 / 5 / 6-7N / Em1 / L"},
	{4, 2, .layout = "Ett|ttmmL", .mtp = 2, .want = "E0-1 / E2-3m2NL"},
	{2, 2, .layout = "Emt|tL", .mtp = 1, .want = "!after every t"},
	{1, 2, .layout = "Em|tL", .mtp = 1, .want = "!after every t"},
};

/* What Megatron wrongly accepts, and other corners. */
static const struct cut corners[] = {
	{1, 1, .want = "E0NL"},
	{4, 1, .mtp = 2, .want = "E0-3m2NL"},
	{4, 2, .mtp = 2, .want = "E0-1 / E2-3m2NL"},
	/* O04 */
	{9, 2, .want = "!9 layers make 9 slots"},
	{9, 2, 4, .want = "!9 layers make 9 slots"},
	/* O05 */
	{4, 3, .first = 4, .last = 2, .want = "!leave -2 layers"},
	{2, 2, .first = 4, .want = "!leave -2 layers"},
	/* layers left but no stage, a stage left but no layers */
	{8, 2, .first = 3, .last = 3, .want = "!leave 2 layers for 0 middle"},
	{4, 3, .first = 2, .last = 2, .want = "!leave 0 layers for 1 middle"},
	{4, 1, .first = 2, .last = 2, .want = "!for -1 middle stages"},
	{4, 1, .first = 4, .want = "E0-3NL"},
	/* O23 */
	{2, 2, .layout = "|Et|tL|", .want = "!must begin with its only E"},
	{2, 4, .layout = "Et|tL||", .want = "!must begin with its only E"},
	{2, 2, .layout = "EtE|tL", .want = "!must begin with its only E"},
	{2, 2, .layout = "Et|t", .want = "!must begin with its only E"},
	/* O22: never on pipeline rank 0 */
	{2, 2, .layout = "Ettm|L", .mtp = 1, .want = "!that is not the first"},
	{4, 2, .layout = "Ett|tt|mm|L", .mtp = 2,
	 .want = "!that is not the first"},
	{2, 4, .layout = "Et|tm|m|L", .mtp = 2, .want = "!together in one"},
	{2, 2, .layout = "Et|tL", .mtp = 1, .want = "!mtp_num_layers 1 m"},
	{2, 2, .layout = "Et|tmL", .want = "!mtp_num_layers 0 m"},
	{2, 2, .layout = "E|tm|t|L", .mtp = 1, .want = "!after every t"},
	{2, 4, .layout = "Et|t|L", .want = "!3 stages, not a multiple of"},
	{4, 2, 4, .layout = "Et|t|t|tL", .want = "!= 2 a rank, but"},
	{4, 1, 2, .want = "!2 virtual stages a rank need"},
	{8, 2, .first = 4, .embedding = true, .want = "!two ways of one"},
	{8, 2, .first = 4, .layout = "Etttt|ttttL", .want = "!beside it"},
	{8, 2, .loss = true, .layout = "Etttt|ttttL", .want = "!beside it"},
	{8, 4, 2, .first = 3, .last = 1, .want = "!are not all multiples"},
	{8, 65536, 16384, .want = "!8 layers make 8 slots"},
};

static void check_all(const struct cut *cut, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *got = rendered(&cut[i]), *want = cut[i].want;
		bool right = *want == '!' ? strstr(got, want + 1) != NULL
					  : !strcmp(got, want);

		if (!right)
			fail_msg("case %zu: %s, wanted %s", i, got, want);
	}
}

static void test_worked_examples(void **state)
{
	(void)state;
	check_all(worked, sizeof(worked) / sizeof(*worked));
	check_all(golden, sizeof(golden) / sizeof(*golden));
}

static void test_corners(void **state)
{
	(void)state;
	check_all(corners, sizeof(corners) / sizeof(*corners));
}

/* Megatron's closed formula of a stage's first layer, as an oracle. */
static int formula(const struct cut *c, int r, int v)
{
	int t = c->layers + c->embedding + c->loss, vp = c->vp ? c->vp : 1;
	int ends = (c->first > 0) + (c->last > 0), mid = c->pp - ends;
	int rest = c->layers - c->first - c->last;

	if (c->pp == 1)
		return 0;
	if (ends) {
		int f = c->first / vp, m = rest / vp, per = mid ? m / mid : 0;

		return v * (f + m + c->last / vp) +
		       (r ? f + (r - (c->first > 0)) * per : 0);
	}
	return v * (t / vp) + r * (t / c->pp / vp) - (c->embedding && (r || v));
}

/* Whether it can be cut, from the rules alone. */
static bool feasible(const struct cut *c)
{
	int t = c->layers + c->embedding + c->loss, vp = c->vp ? c->vp : 1;
	int ends = (c->first > 0) + (c->last > 0), mid = c->pp - ends;
	int rest = c->layers - c->first - c->last;

	if (vp > 1 && c->pp == 1)
		return false;
	if (ends && (c->embedding || c->loss))
		return false;
	if (!ends)
		return t % c->pp == 0 && t / c->pp % vp == 0;
	if (mid < 0 || rest < 0 || (mid == 0) != (rest == 0))
		return false;
	return (!mid || (rest % mid == 0 && rest / mid % vp == 0)) &&
	       c->first % vp == 0 && c->last % vp == 0;
}

static void check_cut(const struct cut *c)
{
	struct stages st;
	struct err e;
	int sum = 0;
	bool built = !build(c, &st, &e);

	if (built != feasible(c))
		fail_msg("L%d PP%d VP%d F%d Z%d e%d l%d: built %d", c->layers,
			 c->pp, c->vp, c->first, c->last, c->embedding, c->loss,
			 built);
	for (int i = 0; built && i < st.count; i++) {
		assert_int_equal(st.stage[i].first_layer, sum);
		assert_true(st.stage[i].num_layers >= 0);
		assert_int_equal(st.stage[i].first_layer,
				 formula(c, st.stage[i].pp, st.stage[i].vp));
		sum += (int)st.stage[i].num_layers;
	}
	if (built)
		assert_int_equal(sum, c->layers);
}

/* Every small placement: as the closed formulas, or refused. */
static void test_sweep(void **state)
{
	struct err e;

	(void)state;
	for (int n = 0; n < 10 * 4 * 4 * 8 * 6 * 4; n++) {
		struct cut c = {
			.layers = n % 10 + 1,
			.pp = n / 10 % 4 + 1,
			.vp = n / 40 % 4,
			.first = n / 160 % 8,
			.last = n / 1280 % 6,
			.embedding = n / 7680 % 2,
			.loss = n / 15360 % 2,
		};

		check_cut(&c);
		arena_close(&arena);
		assert_int_equal(arena_open(&arena, &e), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_worked_examples),
		TEST(test_corners),
		TEST(test_sweep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
