/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x-golden VARIANT [SET]...: one rank of a step of test/data/golden's VARIANT,
 * in double, under the layout that the SETs give it; run by t5010.  It fails
 * if the loss, a depth's loss or a gradient of this rank is not the golden's,
 * and says how far the worst is off.
 */
#include "test/comm-test.h"
#include "test/golden.h"

static void check(struct trainer *t, const struct golden *g,
		  const struct trainer_result *r)
{
	double worst = worst_gradient(t, g, r->grad_scale);
	double off = fabs(r->loss - g->objective);

	for (int k = 0; k < g->depths; k++)
		off = fmax(off, fabs(r->mtp[k].loss - g->depth[k].loss));
	printf("rank %d: losses off by %.2e, worst gradient %.2e of %d\n",
	       boot.rank, off, worst, t->plan.slice.pieces);
	if (!(off < 1e-13) || !(worst < 1e-12) || r->depths != g->depths)
		end(err_set(&err, CODE_NUMERIC, "that is not the golden's"));
}

int main(int argc, char **argv)
{
	struct trainer_data data = {.sample = golden_sample};
	struct trainer_result result;
	struct report r = {0};
	struct golden g;
	struct trainer t;
	struct config c;
	struct arena a;
	char path[PATH];

	if (argc < 2)
		return CODE_USAGE;
	world_open("x-golden", 30);
	end(arena_open(&a, &err));
	r.arena = &a;
	golden_read(&g, argv[1]);
	data.arg = &g;
	snprintf(path, sizeof(path), "test/data/golden/%s.cfg", argv[1]);
	end(config_load(path, (const char *const *)argv + 2, argc - 2, &a, &c,
			&r, &err));
	config_finish(&c, boot.world, &r);
	end(trainer_open(&t, &c, boot.world, boot.rank, &machine_cpu, comm, &a,
			 &err));
	set_weights(&t, &g, c.shape.layernorm_zero_centered_gamma);
	end(trainer_step(&t, &data, false, &result, &err));
	check(&t, &g, &result);
	trainer_close(&t);
	free(g.grad);
	world_close();
	arena_close(&a);
	return 0;
}
