/* SPDX-License-Identifier: Apache-2.0 */
/* Field tables: defaults, texts, and what every group's table must keep to. */
#include "lib/plan/field.h"

#include "test/config-test.h"

struct thing {
	struct origin from[FIELDS_MAX];
	int64_t n, big;
	double x;
	bool b;
	int e;
	const char *t;
	struct ints list;
	struct texts texts;
	struct floats floats;
};

static const char *const names[] = {"one", "two", NULL};

#define ROW(...) FIELD(thing, __VA_ARGS__)

static const struct field fields[] = {
	ROW(n, INT, NULL, 0, 10, NULL, ""),
	ROW(big, INT, "3000000000", 0, 1e15, NULL, ""),
	ROW(x, FLOAT, "1e-05", 0, 1, NULL, ""),
	ROW(b, BOOL, "true", 0, 0, NULL, ""),
	ROW(e, ENUM, "two", 0, 0, names, ""),
	ROW(t, TEXT, NULL, 0, 0, NULL, ""),
	ROW(list, INTS, "1", 0, 10, NULL, ""),
	ROW(texts, TEXTS, NULL, 0, 0, NULL, ""),
	ROW(floats, FLOATS, "0.0", 0, 1, NULL, ""),
};

static const struct group thing_group = {"thing", fields,
					 sizeof(fields) / sizeof(*fields),
					 sizeof(struct thing)};

static struct thing *fresh(void)
{
	struct thing *t = arena_alloc(&arena, 1, sizeof(*t));

	field_defaults(&thing_group, t, &arena);
	return t;
}

static const char *text(const struct thing *t, const char *name)
{
	return field_text(&fields[field_find(&thing_group, name)], t, &arena);
}

static void test_defaults(void **state)
{
	struct thing *t = fresh();

	(void)state;
	assert_false(IS_SET(t->n));
	assert_int_equal(t->big, 3000000000);
	assert_true(t->x == 1e-5);
	assert_true(t->b);
	assert_int_equal(t->e, 1);
	assert_null(t->t);
	assert_int_equal(t->list.count, 1);
	assert_int_equal(t->list.item[0], 1);
	assert_false(t->list.is_list);
	assert_int_equal(t->texts.count, 0);
	assert_int_equal(t->floats.count, 1);
	assert_true(t->floats.item[0] == 0);
	assert_int_equal(t->from[0].kind, ORIGIN_DEFAULT);
	assert_int_equal(field_find(&thing_group, "no"), -1);
}

static void test_texts(void **state)
{
	static const int64_t item[] = {1, 0, -3000000000};
	static const char *const paths[] = {"0.5", "a b"};
	static const double weights[] = {0.01, 1};
	struct thing *t = fresh();

	(void)state;
	assert_string_equal(text(t, "n"), "unset");
	assert_string_equal(text(t, "big"), "3000000000L");
	assert_string_equal(field_canonical(&fields[1], t, &arena),
			    "3000000000");
	assert_string_equal(text(t, "x"), "1e-05");
	t->x = 0.1;
	assert_string_equal(text(t, "x"), "0.1");
	t->x = 0.1 + 0.2;
	assert_string_equal(text(t, "x"), "0.30000000000000004");
	t->x = 3;
	assert_string_equal(text(t, "x"), "3.0");
	t->x = NAN;
	assert_string_equal(text(t, "x"), "unset");
	assert_string_equal(text(t, "b"), "true");
	assert_string_equal(text(t, "e"), "\"two\"");
	t->t = "a\"b\\c\nd\x7f";
	assert_string_equal(text(t, "t"), "\"a\\\"b\\\\c\\x0ad\\x7f\"");
	assert_string_equal(text(t, "list"), "1");
	t->list = (struct ints){item, 3, true};
	assert_string_equal(text(t, "list"), "[1, 0, -3000000000L]");
	t->texts = (struct texts){paths + 1, 1};
	assert_string_equal(text(t, "texts"), "\"a b\"");
	t->texts = (struct texts){paths, 2};
	assert_string_equal(text(t, "texts"), "[\"0.5\", \"a b\"]");
	assert_string_equal(text(t, "floats"), "0.0");
	t->floats = (struct floats){weights, 2};
	assert_string_equal(text(t, "floats"), "[0.01, 1.0]");
}

/* A value is the default whatever said it, and however it was written. */
static void test_is_default(void **state)
{
	static const int64_t one = 1;
	static const double zero = 0;
	struct thing *t = fresh();

	(void)state;
	for (int i = 0; i < thing_group.count; i++)
		assert_true(field_is_default(&fields[i], t, &arena));
	t->list = (struct ints){&one, 1, false};
	t->floats = (struct floats){&zero, 1};
	assert_true(field_is_default(&fields[6], t, &arena));
	assert_true(field_is_default(&fields[8], t, &arena));
	t->list.is_list = true;
	t->n = 0;
	t->t = "";
	assert_false(field_is_default(&fields[0], t, &arena));
	assert_false(field_is_default(&fields[5], t, &arena));
	assert_false(field_is_default(&fields[6], t, &arena));
}

static void test_origins(void **state)
{
	struct thing *t = fresh();

	(void)state;
	t->n = 4;
	field_derived(&thing_group, t, &t->n, "2 * 2");
	assert_int_equal(t->from[0].kind, ORIGIN_DERIVED);
	assert_string_equal(t->from[0].why, "2 * 2");
	assert_ptr_equal(field_origin(&thing_group, t, &t->e), &t->from[4]);
	assert_ptr_equal(field_from(&thing_group, t, &t->x), &t->from[2]);
	assert_true(field_is_set(&fields[0], t));
	assert_false(field_is_set(&fields[5], t));
}

/* No setting has two homes, and every default is within its bounds. */
static void test_the_four_groups(void **state)
{
	const struct group *g[] = {&shape_group, &spec_group, &place_group,
				   &run_group};

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_true(g[i]->count <= FIELDS_MAX);
		for (int row = 0; row < g[i]->count; row++) {
			const struct field *f = &g[i]->fields[row];
			double n;

			assert_true(strlen(f->help) > 5);
			assert_int_equal(field_find(g[i], f->name), row);
			for (int k = 0; k < 4; k++)
				if (k != i)
					assert_int_equal(
						field_find(g[k], f->name), -1);
			if (!f->initial ||
			    (f->type != FIELD_INT && f->type != FIELD_FLOAT))
				continue;
			n = strtod(f->initial, NULL);
			assert_true(n >= f->min && n <= f->max);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_defaults),	    TEST(test_texts),
		TEST(test_is_default),	    TEST(test_origins),
		TEST(test_the_four_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
