/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between pieces, checksums, digests, names on disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* after those: */
#include <cmocka.h>

#include "ckpt/crc.h"
#include "ckpt/digest.h"
#include "ckpt/format.h"
#include "ckpt/plan.h"

enum { ROWS = 5, COLS = 4, ALL = ROWS * COLS };

static unsigned state = 1;

static int below(int n)
{
	state = state * 1103515245u + 12345u;
	return (int)(state >> 16) % n;
}

/* Logical indices of elements LO .. HI of BOX, in order. */
static int elements(const struct box *box, int64_t lo, int64_t hi, int *out)
{
	int n = 0;

	for (int64_t i = lo; i < hi; i++)
		out[n++] = (int)((box->off[0] + i / box->cnt[1]) * COLS +
				 box->off[1] + i % box->cnt[1]);
	return n;
}

static struct box random_box(void)
{
	struct box b;

	b.off[0] = below(ROWS);
	b.off[1] = below(COLS);
	b.cnt[0] = 1 + below(ROWS - (int)b.off[0]);
	b.cnt[1] = 1 + below(COLS - (int)b.off[1]);
	return b;
}

static struct ckpt_piece random_piece(void)
{
	struct ckpt_piece p = {.box = random_box()};
	int n = (int)(p.box.cnt[0] * p.box.cnt[1]);

	p.lo = below(n);
	p.hi = p.lo + 1 + below(n - (int)p.lo);
	return p;
}

/* Every interval of every box, as at most three boxes in the same order. */
static void test_boxes(void **unused)
{
	const struct box whole = {{3, 7}, {ROWS, COLS}};
	int want[ALL], got[3 * ALL];

	(void)unused;
	for (int64_t lo = 0; lo <= ALL; lo++) {
		for (int64_t hi = lo; hi <= ALL; hi++) {
			struct box out[PLAN_BOXES];
			int n = plan_boxes(&whole, lo, hi, out), count = 0;
			int wanted = elements(&whole, lo, hi, want);

			assert_true(n <= PLAN_BOXES);
			for (int i = 0; i < n; i++)
				count += elements(&out[i], 0,
						  out[i].cnt[0] * out[i].cnt[1],
						  got + count);
			assert_int_equal(count, wanted);
			assert_memory_equal(got, want,
					    sizeof(*got) * (size_t)count);
		}
	}
}

/* Moving between random pieces moves what both have, and nothing else. */
static void test_moves(void **unused)
{
	(void)unused;
	for (int round = 0; round < 20000; round++) {
		struct ckpt_piece a = random_piece(), b = random_piece();
		struct move m[PLAN_MOVES];
		int from[ALL], to[ALL], got[ALL];
		int as = elements(&a.box, a.lo, a.hi, from);
		int bs = elements(&b.box, b.lo, b.hi, to);
		int n = plan_moves(&a, &b, m);
		int64_t last = -1;

		memset(got, -1, sizeof(got));
		for (int i = 0; i < n; i++)
			for (int64_t r = 0; r < m[i].rows; r++)
				for (int64_t k = 0; k < m[i].len; k++) {
					int64_t f = m[i].from + k +
						    r * m[i].from_step;
					int64_t t =
						m[i].to + k + r * m[i].to_step;

					assert_in_range(f, 0, as - 1);
					assert_in_range(t, 0, bs - 1);
					assert_true(f > last);
					last = f;
					assert_int_equal(got[t], -1);
					got[t] = from[f];
				}
		for (int t = 0; t < bs; t++) {
			bool both = false;

			for (int f = 0; f < as; f++)
				both |= from[f] == to[t];
			assert_int_equal(got[t], both ? to[t] : -1);
		}
	}
}

/* Whole rows on both sides are one run. */
static void test_runs_merge(void **unused)
{
	struct ckpt_piece a = {.box = {{0, 0}, {4, 8}}, .hi = 32};
	struct ckpt_piece b = {.box = {{2, 0}, {6, 8}}, .hi = 48};
	struct move m[PLAN_MOVES];

	(void)unused;
	assert_int_equal(plan_moves(&a, &b, m), 1);
	assert_int_equal(m[0].rows, 1);
	assert_int_equal(m[0].len, 16);
	assert_int_equal(m[0].from, 16);
	assert_int_equal(m[0].to, 0);
}

static void test_crc(void **unused)
{
	const char *text = "123456789";

	(void)unused;
	/* The check value of CRC-32/ISCSI. */
	assert_int_equal(crc32c(0, text, 9), 0xe3069283);
	assert_int_equal(crc32c(crc32c(0, text, 4), text + 4, 5), 0xe3069283);
	assert_int_equal(crc32c(0, text, 0), 0);
}

/* Any cut, any order: the same; any bit or swap: another. */
static void test_digest(void **unused)
{
	char a[64], b[64];

	(void)unused;
	for (size_t size = 2; size <= 8; size *= 2) {
		int n = (int)(sizeof(a) / size);
		struct digest whole = {{0}}, parts = {{0}}, other;

		for (size_t i = 0; i < sizeof(a); i++)
			a[i] = (char)(i * 37 + 11);
		digest_add(&whole, 1000, a, n, size);
		for (int i = n - 1; i >= 0; i--)
			digest_add(&parts, 1000 + i, a + (size_t)i * size, 1,
				   size);
		assert_memory_equal(&whole, &parts, sizeof(whole));
		for (size_t bit = 0; bit < 8 * sizeof(a); bit++) {
			memcpy(b, a, sizeof(a));
			b[bit / 8] = (char)(b[bit / 8] ^ 1 << bit % 8);
			other = (struct digest){{0}};
			digest_add(&other, 1000, b, n, size);
			assert_int_not_equal(other.sum[0], whole.sum[0]);
			assert_int_not_equal(other.sum[1], whole.sum[1]);
		}
		memcpy(b, a + size, size);
		memcpy(b + size, a, size);
		memcpy(b + 2 * size, a + 2 * size, sizeof(a) - 2 * size);
		other = (struct digest){{0}};
		digest_add(&other, 1000, b, n, size);
		assert_int_not_equal(other.sum[0], whole.sum[0]);
	}
}

/* Digests are on paper and in other people's files: they never change. */
static void test_digest_value(void **unused)
{
	static const float x[] = {0.0f, 1.0f, -2.5f};
	struct digest d = {{0}};
	char hex[33];

	(void)unused;
	digest_add(&d, 0, x, 3, sizeof(*x));
	digest_text(&d, hex);
	assert_string_equal(hex, "ece79019eb9da51a2f45868201d76dc8");
}

static void test_step_names(void **unused)
{
	static const char *const bad[] = {"step_",
					  "step_0000010",
					  "step_000000100",
					  "step_0000001a",
					  "step_-0000010",
					  "step_ 0000010",
					  "Step_00000010",
					  "step_00000010 ",
					  "step_00000010.bak",
					  ".tmp-step_00000010"};
	char name[FORMAT_STEP];
	int64_t step = -1;

	(void)unused;
	format_step(name, 120);
	assert_string_equal(name, "step_00000120");
	assert_int_equal(format_step_parse(name, &step), 0);
	assert_int_equal(step, 120);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(format_step_parse(bad[i], &step), -1);
}

static void test_file_names(void **unused)
{
	static const char *const bad[] = {
		"",
		".h5",
		"/etc/a.h5",
		"../a.h5",
		"model/../../a.h5",
		"model/a",
		"model/A.h5",
		"model/a b.h5",
		"model/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.h5"};
	char name[FORMAT_FILE];

	(void)unused;
	format_model(name, 1, 0);
	assert_string_equal(name, "model/pp01-tp00.h5");
	assert_true(format_file_ok(name));
	format_experts(name, 1, 3, 0);
	assert_string_equal(name, "experts/pp01-ep003-etp00.h5");
	assert_true(format_file_ok(name));
	format_optim(name, 1, 0, 3);
	assert_string_equal(name, "optim/pp01-tp00-d003.h5");
	assert_true(format_file_ok(name));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(format_file_ok(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boxes),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_runs_merge),
		cmocka_unit_test(test_crc),
		cmocka_unit_test(test_digest),
		cmocka_unit_test(test_digest_value),
		cmocka_unit_test(test_step_names),
		cmocka_unit_test(test_file_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
