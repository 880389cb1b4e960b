/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/plan.h"

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The end of a row, whole rows, the start of a row. */
int plan_boxes(const struct box *box, int64_t lo, int64_t hi,
	       struct box out[PLAN_BOXES])
{
	int64_t cols = box->cnt[1];
	int n = 0;

	while (lo < hi) {
		int64_t row = lo / cols, col = lo % cols;
		int64_t rows = 1, len = min64(cols - col, hi - lo);

		if (len == cols)
			rows = (hi - lo) / cols;
		out[n++] = (struct box){{box->off[0] + row, box->off[1] + col},
					{rows, len}};
		lo += rows * len;
	}
	return n;
}

bool plan_common(const struct box *a, const struct box *b, struct box *out)
{
	for (int i = 0; i < 2; i++) {
		int64_t lo = max64(a->off[i], b->off[i]);
		int64_t hi =
			min64(a->off[i] + a->cnt[i], b->off[i] + b->cnt[i]);

		if (lo >= hi)
			return false;
		out->off[i] = lo;
		out->cnt[i] = hi - lo;
	}
	return true;
}

/* Where the first element of BOX lies in P's array. */
static int64_t place_in(const struct ckpt_piece *p, const struct box *box)
{
	return (box->off[0] - p->box.off[0]) * p->box.cnt[1] +
	       (box->off[1] - p->box.off[1]) - p->lo;
}

static struct move move_of(const struct ckpt_piece *from,
			   const struct ckpt_piece *to, const struct box *box)
{
	struct move m = {
		.from = place_in(from, box),
		.to = place_in(to, box),
		.len = box->cnt[1],
		.rows = box->cnt[0],
		.from_step = from->box.cnt[1],
		.to_step = to->box.cnt[1],
	};

	/* Rows that touch on both sides are one run. */
	if (m.rows == 1 || (m.len == m.from_step && m.len == m.to_step)) {
		m.len *= m.rows;
		m.rows = 1;
		m.from_step = m.to_step = m.len;
	}
	return m;
}

int plan_moves(const struct ckpt_piece *from, const struct ckpt_piece *to,
	       struct move out[PLAN_MOVES])
{
	struct box a[PLAN_BOXES], b[PLAN_BOXES], both;
	int n = 0, as, bs;

	if (!plan_common(&from->box, &to->box, &both))
		return 0;
	as = plan_boxes(&from->box, from->lo, from->hi, a);
	bs = plan_boxes(&to->box, to->lo, to->hi, b);
	for (int i = 0; i < as; i++)
		for (int k = 0; k < bs; k++)
			if (plan_common(&a[i], &b[k], &both))
				out[n++] = move_of(from, to, &both);
	return n;
}
