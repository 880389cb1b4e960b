/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin as small as one can be: SiLU and its gated form computed anew on
 * CPUs in fp32 and fp64, and hooks.  When it is unloaded it says on stderr how
 * often it was called.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plugin.h"

static double scale = 1; /* of the activation, by the hook "scale" */
static long forward, backward;
static const struct kern *built_in;

__attribute__((destructor)) static void tell(void)
{
	fprintf(stderr, "example: %ld forward, %ld backward\n", forward,
		backward);
}

static double get(const void *x, int64_t i)
{
	return built_in->size == sizeof(double) ? ((const double *)x)[i]
						: (double)((const float *)x)[i];
}

static void put(void *x, int64_t i, double value)
{
	if (built_in->size == sizeof(double))
		((double *)x)[i] = value;
	else
		((float *)x)[i] = (float)value;
}

static void act_fwd(struct queue *q, void *y, const void *x, int64_t N,
		    int64_t F, enum kern_act act, bool gated)
{
	forward++;
	if (act != KERN_SILU) {
		built_in->act_fwd(q, y, x, N, F, act, gated);
		return;
	}
	for (int64_t i = 0; i < N * F; i++) {
		int64_t at = gated ? i / F * 2 * F + i % F : i;
		double v = get(x, at), up = gated ? get(x, at + F) : 1;

		put(y, i, scale * up * v / (1 + exp(-v)));
	}
}

static void act_bwd(struct queue *q, void *dx, const void *dy, const void *x,
		    int64_t N, int64_t F, enum kern_act act, bool gated)
{
	backward++;
	if (act != KERN_SILU) {
		built_in->act_bwd(q, dx, dy, x, N, F, act, gated);
		return;
	}
	for (int64_t i = 0; i < N * F; i++) {
		int64_t at = gated ? i / F * 2 * F + i % F : i;
		double v = get(x, at), s = 1 / (1 + exp(-v));
		double d = scale * get(dy, i), up = gated ? get(x, at + F) : 1;

		put(dx, at, d * up * s * (1 + v * (1 - s)));
		if (gated)
			put(dx, at + F, d * v * s);
	}
}

static const struct kern *ops(const struct kern *local, int64_t layer)
{
	static const struct kern table = {
		.act_fwd = act_fwd,
		.act_bwd = act_bwd,
	};

	(void)layer;
	built_in = local;
	return !strcmp(local->name, "cpu_f32") ||
			       !strcmp(local->name, "cpu_f64")
		       ? &table
		       : NULL;
}

static const struct plugin_model *set_scale(const struct plugin_model *m,
					    const char *args)
{
	scale = atof(args);
	return scale > 0 ? m : NULL;
}

/* Vectors, which are whole on some rank or other, all become the argument. */
static const struct plugin_model *fill(const struct plugin_model *m,
				       const char *args)
{
	for (int i = 0; i < m->weights; i++) {
		const struct plugin_weight *w = &m->weight[i];

		for (int64_t k = 0; w->dim[1] == 1 && k < w->cnt[0]; k++)
			if (w->size == sizeof(double))
				((double *)w->data)[k] = atof(args);
			else
				((float *)w->data)[k] = (float)atof(args);
	}
	return m;
}

static const struct plugin_model *show(const struct plugin_model *m,
				       const char *args)
{
	fprintf(stderr, "example: %s: %d pieces, %d chunks, %zu bytes\n", args,
		m->weights, m->chunks, m->weight[0].size);
	return m;
}

static const struct plugin_model *fail(const struct plugin_model *m,
				       const char *args)
{
	(void)m;
	(void)args;
	return NULL;
}

static const struct plugin_model *leave(const struct plugin_model *m,
					const char *args)
{
	(void)m;
	exit(atoi(args));
}

const struct plugin *trisect_plugin(void);

const struct plugin *trisect_plugin(void)
{
	static const struct plugin_hook hooks[] = {
		{"scale", set_scale}, {"fill", fill},	{"show", show},
		{"fail", fail},	      {"leave", leave}, {NULL, NULL},
	};
	static const struct plugin plugin = {
		.abi = PLUGIN_ABI,
		.kern_bytes = sizeof(struct kern),
		.about = "SiLU, one element after the other",
		.ops = ops,
		.hooks = hooks,
	};

	return &plugin;
}
