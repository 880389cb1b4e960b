/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates against the plan, against counts, and against measured steps. */
#include "test/plan-test.h"

#include <math.h>
#include <stdlib.h>

#include "lib/plan/estimate_rule.h"
#include "lib/plan/flops.h"
#include "lib/plan/gpu.h"
#include "lib/plan/sum.h"

static double worst_act, worst_comm;

/* |a / b - 1| */
static double off(double a, double b)
{
	return b > 0 ? fabs(a / b - 1) : fabs(a);
}

/* Of a config that train-worker runs everything is known. */
static void visit_planned(const struct plan_case *x, const struct config *c,
			  struct arena *a)
{
	const struct cluster cl = {.world = x->world};
	struct estimate t;
	struct sum s;
	struct err e;

	if (sum_build(&s, c, x->world, a, &e) ||
	    estimate_build(&t, c, &cl, a, &e))
		fail_msg("%s", e.text);
	if (!s.planned)
		return;
	for (int pp = 0; pp < s.grid.pp; pp++) {
		const int64_t *got = t.rank[pp].bytes, *want = s.rank[pp].bytes;
		double flops[2] = {0}, d;

		for (int f = 0; f < FAMILIES; f++)
			if (f != FAMILY_ACT && f != FAMILY_COMM &&
			    got[f] != want[f])
				fail_msg("%s: rank %d has %s %ld, not %ld",
					 x->sets, pp, family_name(f),
					 (long)got[f], (long)want[f]);
		for (int i = pp; i < s.stages.count; i += s.grid.pp) {
			flops[0] += s.stage[i].forward;
			flops[1] += s.stage[i].backward;
		}
		for (int k = 0; k < 2; k++)
			if (off(t.rank[pp].flops[k], flops[k]) > 1e-12)
				fail_msg("%s: rank %d has %.0f FLOPs, not %.0f",
					 x->sets, pp, t.rank[pp].flops[k],
					 flops[k]);
		d = off((double)got[FAMILY_ACT], (double)want[FAMILY_ACT]);
		if (getenv("SHOW") && d > 0.05)
			printf("%s %s pp %d act %ld want %ld %.3f\n", x->file, x->sets, pp, (long)got[FAMILY_ACT], (long)want[FAMILY_ACT], (double)got[FAMILY_ACT]/(double)want[FAMILY_ACT]-1);
		worst_act = fmax(worst_act, d);
		d = off((double)got[FAMILY_COMM], (double)want[FAMILY_COMM]);
		if (getenv("SHOW") && d > 0.05)
			printf("%s pp %d comm %ld want %ld\n", x->sets, pp, (long)got[FAMILY_COMM], (long)want[FAMILY_COMM]);
		worst_comm = fmax(worst_comm, d);
	}
}

static void test_planned(void **state)
{
	(void)state;
	int n = plan_grid(8, "run.micro_batch_size=2 run.global_batch_size=48", visit_planned);
	printf("%d cases: %.3f %.3f\n", n, worst_act, worst_comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
