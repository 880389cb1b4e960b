/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/profile.h"

#include <stdlib.h>

struct kind {
	int code, count;
	double ms, flops, bytes;
};

static int by_time(const void *a, const void *b)
{
	const struct kind *x = a, *y = b;

	return (x->ms < y->ms) - (x->ms > y->ms);
}

/* A wait's time is its communication's. */
static int code_of(const struct op *op)
{
	return op->code == OP_WAIT ? OP_COMM : op->code;
}

static void add_op(struct kind *k, const struct prog *p, const struct op *op,
		   double ms)
{
	k->count += op->code != OP_WAIT;
	k->ms += ms;
	k->flops += op->flops;
	k->bytes += (double)(op->code == OP_COMM   ? op->bytes
			     : op->code == OP_WAIT ? 0
						   : prog_op_bytes(p, op));
}

void profile_print(FILE *f, const struct prog *p, const struct prog_list *l,
		   const double *ms)
{
	struct kind kind[OP_CODES] = {{0}};
	double total = 0;

	for (int i = 0; i < OP_CODES; i++)
		kind[i].code = i;
	for (int i = 0; i < l->count; i++) {
		add_op(&kind[code_of(&l->op[i])], p, &l->op[i], ms[i]);
		total += ms[i];
	}
	qsort(kind, OP_CODES, sizeof(*kind), by_time);
	fprintf(f, "%-24s %7s %10s %6s %8s %8s\n", "op", "count", "ms", "share",
		"TFLOP/s", "GB/s");
	for (int i = 0; i < OP_CODES; i++) {
		const struct kind *k = &kind[i];

		if (!k->count)
			continue;
		fprintf(f, "%-24s %7d %10.3f %5.1f%%", op_code_name(k->code),
			k->count, k->ms, 100 * k->ms / total);
		if (k->flops > 0)
			fprintf(f, " %8.1f", k->flops / k->ms / 1e9);
		else
			fprintf(f, " %8s", "-");
		fprintf(f, " %8.0f\n", k->bytes / k->ms / 1e6);
	}
	fprintf(f, "%-24s %7s %10.3f\n", "all", "", total);
}
