/* SPDX-License-Identifier: Apache-2.0 */
/* Digests and differences: checkpoints by their logical content. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/number.h"
#include "ckpt/plan.h"
#include "ckpt/tools.h"

/* Elements AT .. AT + N of a row's payload, which lie in the window. */
static void digest_part(const struct ckpt *c, const struct row *row, int64_t at,
			int64_t n, struct digest *out)
{
	const struct ckpt_piece *p = &row->piece;
	size_t size = ckpt_dtype_size(p->dtype);
	int64_t cols = c->weights.list[p->weight].dim[1];
	const char *data = c->window;
	struct box box[PLAN_BOXES];
	int boxes = plan_boxes(&p->box, p->lo + at, p->lo + at + n, box);

	for (int i = 0; i < boxes; i++) {
		int64_t index = box[i].off[0] * cols + box[i].off[1];

		for (int64_t k = 0; k < box[i].cnt[0]; k++) {
			digest_add(out, index + k * cols, data, box[i].cnt[1],
				   size);
			data += (size_t)box[i].cnt[1] * size;
		}
	}
}

static int digest_row(struct ckpt *c, int64_t at, struct digest *out,
		      struct err *e)
{
	const struct row *row = &c->index.list[at];
	int64_t size = (int64_t)ckpt_dtype_size(row->piece.dtype);
	int64_t total = row->piece.hi - row->piece.lo, n;

	for (int64_t i = 0; i < total; i += n) {
		n = LOAD_WINDOW / size;
		if (n > total - i)
			n = total - i;
		if (load_payload(c, at, i * size, n * size, c->window, e))
			return -1;
		digest_part(c, row, i, n, out);
	}
	return 0;
}

int ckpt_digest(struct ckpt *c, int weight, enum ckpt_role role,
		struct digest *out, struct err *e)
{
	int64_t first, end;

	*out = (struct digest){{0, 0}};
	index_range(&c->index, weight, role, &first, &end);
	for (int64_t i = first; i < end; i++) {
		int64_t row = c->index.order[i];

		if (!c->index.list[row].piece.replica &&
		    digest_row(c, row, out, e))
			return -1;
	}
	return 0;
}

/* Two checkpoints at the same weight and role. */
struct pair {
	struct ckpt *a, *b;
	char *x, *y; /* the same elements of both */
	enum ckpt_dtype tx, ty;
	double tolerance;
	struct ckpt_difference d;
};

static void compare_one(struct pair *p, int64_t i)
{
	double x = number_get(p->x, p->tx, i), y = number_get(p->y, p->ty, i);
	double diff = fabs(x - y);

	/* Equal infinities do not differ, and neither do two NaN. */
	if (x == y || (isnan(x) && isnan(y)))
		diff = 0;
	if (isnan(diff) || diff > p->d.max)
		p->d.max = diff;
	p->d.elements += !(diff <= p->tolerance);
}

static void compare_bits(struct pair *p, int64_t n)
{
	size_t size = ckpt_dtype_size(p->tx);

	for (int64_t i = 0; i < n; i++) {
		size_t at = (size_t)i * size;
		int64_t before = p->d.elements;

		compare_one(p, i);
		p->d.elements = before + !!memcmp(p->x + at, p->y + at, size);
	}
}

static void compare_part(struct pair *p, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		p->d.scale = fmax(p->d.scale, fabs(number_get(p->x, p->tx, i)));
	if (p->tx == p->ty &&
	    !memcmp(p->x, p->y, (size_t)n * ckpt_dtype_size(p->tx)))
		return;
	if (p->tolerance < 0) {
		compare_bits(p, n);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		compare_one(p, i);
}

static int compare_weight(struct pair *p, int weight, struct err *e)
{
	int64_t total = weight_elements(&p->a->weights.list[weight]), n;

	p->d.of = total;
	for (int64_t lo = 0; lo < total; lo += n) {
		/* Room for the wider of both types. */
		n = LOAD_WINDOW / 8;
		if (n > total - lo)
			n = total - lo;
		if (load_weight(p->a, weight, p->d.role, lo, lo + n, p->x, e) ||
		    load_weight(p->b, weight, p->d.role, lo, lo + n, p->y, e))
			return -1;
		compare_part(p, n);
	}
	return 0;
}

/* Compare a weight's role as far as both have it. */
static int compare(struct pair *p, int weight, enum ckpt_role role,
		   struct err *e)
{
	bool in_a = p->a->index.has[role], in_b = p->b->index.has[role];

	p->d = (struct ckpt_difference){
		.weight = p->a->weights.list[weight].name, .role = role};
	if (!in_a || !in_b) {
		if (in_a || in_b)
			p->d.why = in_a ? "only in the first"
					: "only in the second";
		return 0;
	}
	p->tx = p->a->index.dtype[role];
	p->ty = p->b->index.dtype[role];
	if (p->tolerance < 0 && p->tx != p->ty) {
		p->d.why = "of different types";
		return 0;
	}
	return compare_weight(p, weight, e);
}

int ckpt_diff(struct ckpt *a, struct ckpt *b, double tolerance,
	      void (*say)(const struct ckpt_difference *d), int *count,
	      const struct ckpt_watch *watch, struct err *e)
{
	struct pair p = {.a = a, .b = b, .tolerance = tolerance};
	int weights = a->weights.count, rc = 0;

	*count = 0;
	p.x = malloc(LOAD_WINDOW);
	p.y = malloc(LOAD_WINDOW);
	if (!p.x || !p.y)
		rc = err_set(e, CODE_LAUNCH, "out of memory");
	for (int i = 0; i < weights * ROLES && !rc; i++) {
		rc = compare(&p, i / ROLES, (enum ckpt_role)(i % ROLES), e);
		if (!rc && (p.d.why || p.d.elements)) {
			++*count;
			say(&p.d);
		}
		if (!rc)
			rc = ckpt_tick(watch, i, weights * ROLES, e);
	}
	free(p.x);
	free(p.y);
	return rc;
}
