/* SPDX-License-Identifier: Apache-2.0 */
/* Whose code computes what of which layer, and what a plugin's table gives. */
#include "lib/plan/override.h"

#include "lib/plan/shape.h"
#include "test/config-test.h"

static struct config *model(const char *overrides)
{
	struct report r;
	struct config *c = config_of(
		arena_printf(&arena,
			     "shape: { num_layers = 4; mtp_num_layers = 2; "
			     "num_moe_experts = 4; "
			     "moe_layer_freq = [0, 1, 0, 1]; };\n"
			     "spec: { plugins = [\"a=x\", \"b=y\"]; %s };",
			     overrides
				     ? arena_printf(&arena, "overrides = [%s];",
						    overrides)
				     : ""),
		NULL, &r);

	assert_non_null(c);
	assert_int_equal(r.count, 0);
	shape_finalize(&c->shape);
	return c;
}

/* Who has OPS of each layer: "a", "b", "l" or "-" for each. */
static const char *who(const struct config *c, int ops)
{
	const char *text = "";

	for (int64_t n = 0; n < shape_layers(&c->shape); n++) {
		const char *name = override_name(&c->spec, &c->shape, n, ops);

		text = arena_printf(&arena, "%s%.1s", text, name ? name : "-");
	}
	return text;
}

static void test_names(void **state)
{
	struct config *c = model("\"*:norm=a\", \"1-2:norm=b\", "
				 "\"2:*=local\", \"moe:experts=a\", "
				 "\"decoder:act=a\", \"mtp:act=b\"");

	(void)state;
	assert_string_equal(who(c, OVERRIDE_NORM), "ablaaa");
	assert_string_equal(who(c, OVERRIDE_EXPERTS), "-alaaa");
	assert_string_equal(who(c, OVERRIDE_ACT), "aaaabb");
	assert_string_equal(who(c, OVERRIDE_LINEAR), "--l---");
	assert_true(override_names(&c->spec, "a"));
	assert_false(override_names(&c->spec, "c"));
}

static void one(struct queue *q, void *y, const void *x, int64_t N, int64_t F,
		enum kern_act act, bool gated)
{
	(void)q, (void)y, (void)x, (void)N, (void)F, (void)act, (void)gated;
}

static void two(struct queue *q, void *y, const void *x, int64_t N, int64_t F,
		enum kern_act act, bool gated)
{
	one(q, y, x, N, F, act, gated);
}

static const struct kern *ops_of_a(const struct kern *local, int64_t layer)
{
	static const struct kern table = {.act_fwd = one};

	(void)local;
	return layer == 1 ? NULL : &table;
}

static const struct kern *ops_of_b(const struct kern *local, int64_t layer)
{
	static const struct kern table = {.act_fwd = two, .size = 99};

	(void)local;
	(void)layer;
	return &table;
}

static void test_table(void **state)
{
	const struct plugin a = {.ops = ops_of_a}, b = {.ops = ops_of_b};
	struct plugin_object list[] = {{"a", "x", NULL, &a},
				       {"b", "y", NULL, &b}};
	const struct plugins p = {list, 2};
	const struct kern local = {.name = "cpu", .size = 8};
	struct config *c = model("\"0-1:act=a\", \"3:norm=b\", \"mtp:*=b\"");
	struct kern k;
	struct err e;

	(void)state;
	assert_int_equal(
		override_table(&k, &local, &p, &c->spec, &c->shape, 0, &e), 0);
	assert_ptr_equal(k.act_fwd, one);
	assert_int_equal(k.size, 8);
	assert_int_equal(
		override_table(&k, &local, &p, &c->spec, &c->shape, 2, &e), 0);
	assert_null(k.act_fwd);
	assert_int_equal(
		override_table(&k, &local, &p, &c->spec, &c->shape, 4, &e), 0);
	assert_ptr_equal(k.act_fwd, two);
	/* none in this layer, and of another kind */
	assert_int_equal(
		override_table(&k, &local, &p, &c->spec, &c->shape, 1, &e), -1);
	assert_int_equal(e.code, CODE_CONFIG);
	assert_non_null(strstr(e.text, "'a'"));
	assert_int_equal(
		override_table(&k, &local, &p, &c->spec, &c->shape, 3, &e), -1);
	assert_non_null(strstr(e.text, "no norm for cpu"));
	c = model(NULL);
	assert_int_equal(
		override_table(&k, &local, &p, &c->spec, &c->shape, 1, &e), 0);
	assert_ptr_equal(k.act_fwd, two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_names),
		TEST(test_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
