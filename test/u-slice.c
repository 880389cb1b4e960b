/* SPDX-License-Identifier: Apache-2.0 */
/* Slices: every weight exactly once, and local arrays that do not overlap. */
#include "test/plan-test.h"

/* How often each element of each weight was seen. */
struct cover {
	unsigned char **seen; /* by weight */
	const struct weights *w;
};

static void cover_open(struct cover *c, const struct weights *w,
		       struct arena *a)
{
	c->w = w;
	c->seen = arena_alloc(a, (size_t)w->count, sizeof(*c->seen));
	for (int i = 0; i < w->count; i++)
		c->seen[i] =
			arena_alloc(a, (size_t)weight_elements(&w->list[i]), 1);
}

static void cover_add(struct cover *c, const struct piece *p)
{
	const struct weight *w = &c->w->list[p->weight];

	for (int64_t i = 0; i < p->box.cnt[0]; i++)
		for (int64_t j = 0; j < p->box.cnt[1]; j++) {
			int64_t row = p->box.off[0] + i;
			int64_t col = p->box.off[1] + j;

			assert_in_range(row, 0, w->dim[0] - 1);
			assert_in_range(col, 0, w->dim[1] - 1);
			c->seen[p->weight][row * w->dim[1] + col]++;
		}
}

static void cover_check(const struct cover *c, const char *what)
{
	for (int i = 0; i < c->w->count; i++)
		for (int64_t k = 0; k < weight_elements(&c->w->list[i]); k++)
			if (c->seen[i][k] != 1)
				fail_msg("%s: %s[%d] is there %d times", what,
					 c->w->list[i].name, (int)k,
					 c->seen[i][k]);
}

/* Pieces fill their array from its start, one below the other. */
static void check_pieces(const struct slice *s, const struct param *p)
{
	int64_t at = p->at;

	for (int k = 0; k < p->pieces; k++) {
		const struct piece *x = &s->piece[p->first_piece + k];

		assert_int_equal(x->at, at);
		assert_int_equal(x->box.cnt[1], p->cols);
		at += box_elements(&x->box);
	}
	if (p->part == PART_EMBED_TOK || p->part == PART_HEAD_W)
		assert_true(at <= p->at + p->rows * p->cols);
	else
		assert_int_equal(at, p->at + p->rows * p->cols);
}

/* Arrays lie in the flat buffer without overlap, each in one bucket. */
static void check_arrays(const struct slice *s)
{
	int64_t end = 0;

	for (int i = s->params - 1; i >= 0; i--) {
		const struct param *p = &s->param[i];
		const struct bucket *b = &s->buckets.list[s->buckets.of[i]];

		assert_true(p->at >= end);
		end = p->at + p->rows * p->cols;
		assert_true(p->at >= b->first && end <= b->end);
		check_pieces(s, p);
	}
	assert_true(end <= s->elements);
}

/* The shards of all ranks that share the buffer tile it. */
static void check_shards(const struct slice *s, struct arena *a)
{
	int64_t at = 0, (**shard)[2];

	shard = arena_alloc(a, (size_t)s->dp, sizeof(*shard));
	for (int d = 0; d < s->dp; d++)
		assert_int_equal(slice_shards(s, d, &shard[d], a),
				 s->buckets.count);
	for (int i = 0; i < s->buckets.count; i++)
		for (int d = 0; d < s->dp; d++) {
			assert_int_equal(shard[d][i][0], at);
			at = shard[d][i][1];
		}
	assert_int_equal(at, s->elements);
}

/* Copies of k and v are the same rows on consecutive tp ranks. */
static void check_kv(const struct slice *s, const struct slice *before)
{
	if (s->kv_copies == 1 || s->at.tp % s->kv_copies == 0)
		return;
	for (int i = 0; i < s->params; i++) {
		const struct param *p = &s->param[i], *q = &before->param[i];
		const struct piece *x, *y;

		if (!p->sum_kv)
			continue;
		x = &s->piece[p->first_piece + 1];
		y = &before->piece[q->first_piece + 1];
		assert_memory_equal(&x->box, &y->box, sizeof(x->box));
		assert_int_equal(x->replica, y->replica + 1);
		assert_int_equal(p->kv_row, q->kv_row);
	}
}

static void check_layout(const struct plan_case *x, const struct config *c,
			 struct arena *a)
{
	struct slice s, before = {0};
	struct weights w;
	struct stages st;
	struct cover cover;
	struct grid g;
	struct err e;

	assert_int_equal(grid_build(&g, &c->place, x->world, &e), 0);
	assert_int_equal(stages_build(&st, &c->place, &c->shape, a, &e), 0);
	weights_build(&w, &c->shape, a);
	cover_open(&cover, &w, a);
	for (int r = 0; r < x->world; r++) {
		struct coord at = grid_coord(&g, r);

		slice_build(&s, &c->shape, &c->place, &g, &st, &w, at, a);
		check_arrays(&s);
		check_shards(&s, a);
		if (at.tp)
			check_kv(&s, &before);
		before = s;
		for (int i = 0; i < s.pieces && at.dp == 0; i++)
			if (s.piece[i].replica == 0)
				cover_add(&cover, &s.piece[i]);
	}
	cover_check(&cover, x->sets);
}

static void test_every_weight_once(void **state)
{
	(void)state;
	assert_true(plan_grid(24, check_layout) > 900);
}

/* Without a size, Megatron's: max(40e6, 1e6 * dp) parameters; no overlap: 1. */
static void test_bucket_sizes(void **state)
{
	static const struct {
		const char *sets;
		bool many;
	} cases[] = {
		{"shape.hidden_size=2048", false},
		{"shape.hidden_size=2048 place.overlap_grad_reduce=true", true},
		{"place.overlap_grad_reduce=true", false},
		{"place.overlap_grad_reduce=true place.bucket_size=500", true},
		{"place.bucket_size=500", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct config c;
		struct plan p;
		struct arena a;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		assert_true(plan_config(&c, LLAMA, cases[i].sets, 1, &a));
		if (plan_build(&p, &c, 1, 0, &a, &e))
			fail_msg("%s", e.text);
		assert_int_equal(p.slice.buckets.count > 1, cases[i].many);
		arena_close(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_weight_once),
		cmocka_unit_test(test_bucket_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
