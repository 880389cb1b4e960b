/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/suggest_cut.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static double seconds(const struct total *x)
{
	return x->time[0] + x->time[1];
}

/* Seconds of layer N of the decoder. */
static double layer_seconds(const struct estimator *s, int64_t n)
{
	return seconds(&s->before[n + 1]) - seconds(&s->before[n]);
}

/* What the last stage has beside its layers. */
static double end_seconds(const struct estimator *s)
{
	const struct shape *shape = &s->dims.config->shape;
	double t = seconds(&s->head), mtp = (double)shape->mtp_num_layers;

	if (mtp > 0)
		t += mtp * (layer_seconds(s, shape->num_layers) + t);
	return t;
}

/*
 * Layers from the back into stages of at most LIMIT seconds: what is left is
 * the first stages', which keep most micro-batches.  False: too small.
 */
static bool fill_back(struct stages *out, const struct estimator *s,
		      double limit)
{
	int64_t left = s->dims.config->shape.num_layers;

	for (int i = out->count - 1; i >= 0; i--) {
		double t = i == out->count - 1 ? end_seconds(s) : 0;
		int64_t n = 0;

		t += i ? 0 : seconds(&s->embedding);
		while (n < left && t + layer_seconds(s, left - n - 1) <= limit)
			t += layer_seconds(s, left - ++n);
		out->stage[i].num_layers = n;
		left -= n;
	}
	return !left;
}

/*
 * About as many seconds to each stage, from the back; returns the most that
 * one has.
 */
static double fill_alike(struct stages *out, const struct estimator *s)
{
	int64_t left = s->dims.config->shape.num_layers;
	double rest, most = 0;

	for (int i = out->count - 1; i >= 0; i--) {
		double t = i == out->count - 1 ? end_seconds(s) : 0;
		double ends = t + seconds(&s->embedding);
		int64_t n = 0;

		rest = (seconds(&s->before[left]) + ends) / (i + 1);
		t += i ? 0 : seconds(&s->embedding);
		while (n < left &&
		       (!i || t + layer_seconds(s, left - n - 1) / 2 <= rest))
			t += layer_seconds(s, left - ++n);
		out->stage[i].num_layers = n;
		left -= n;
		most = fmax(most, t);
	}
	return most;
}

/* Whether every stage between the ends has layers. */
static bool inner_full(const struct stages *st)
{
	for (int i = 1; i < st->count - 1; i++)
		if (!st->stage[i].num_layers)
			return false;
	return true;
}

/* The least that the longest stage can take; the others alike if possible. */
static void fill_balanced(struct stages *out, const struct estimator *s)
{
	const struct shape *shape = &s->dims.config->shape;
	double whole = seconds(&s->before[shape->num_layers]) + end_seconds(s) +
		       seconds(&s->embedding);
	double lo = 0, hi = 1.001 * whole; /* where all of it surely fits */
	const double close = 1e-4 * hi;

	while (hi - lo > close) {
		double mid = (lo + hi) / 2;

		*(fill_back(out, s, mid) ? &hi : &lo) = mid;
	}
	if (fill_alike(out, s) <= hi)
		return;
	fill_back(out, s, hi);
	if (!inner_full(out))
		fill_alike(out, s);
}

bool cut_stages(struct stages *out, const struct estimator *s, int pp, int vp,
		bool balanced)
{
	const struct shape *shape = &s->dims.config->shape;
	int64_t layers = shape->num_layers, first = 0;
	bool divides, even = true;

	out->pp = pp;
	out->vp = vp;
	out->count = pp * vp;
	divides = layers % out->count == 0;
	if (!balanced && !divides)
		return false;
	if (balanced)
		fill_balanced(out, s);
	for (int i = 0; i < out->count; i++) {
		struct stage *st = &out->stage[i];
		int64_t n = balanced ? st->num_layers : layers / out->count;
		bool last = i == out->count - 1;

		*st = (struct stage){
			.pp = i % pp,
			.vp = i / pp,
			.first_layer = first,
			.num_layers = n,
			.embedding = !i || (last && shape->mtp_num_layers),
			.final_norm = last,
			.output_head = last,
			.loss = last,
			.mtp_layers = last ? shape->mtp_num_layers : 0,
		};
		first += n;
		even &= n == layers / out->count;
	}
	return !balanced || (inner_full(out) && !(divides && even));
}

/* "t*7", "t", "" */
static const char *layers_text(char letter, int64_t n, struct arena *a)
{
	if (n < 2)
		return n ? arena_printf(a, "%c", letter) : "";
	return arena_printf(a, "%c*%" PRId64, letter, n);
}

const char *cut_layout_text(const struct stages *st, struct arena *a)
{
	const char *text = "E";

	for (int i = 0, same; i < st->count; i += same) {
		const struct stage *x = &st->stage[i];
		const char *one = layers_text('t', x->num_layers, a);

		/* The first and the last stage stand alone. */
		same = 1;
		while (i && i + same < st->count - 1 &&
		       x[same].num_layers == x->num_layers)
			same++;
		if (i == st->count - 1)
			return arena_printf(a, "%s%s%sL", text, one,
					    layers_text('m', x->mtp_layers, a));
		text = same > 1 ? arena_printf(a, "%s(%s|)*%d", text, one, same)
				: arena_printf(a, "%s%s|", text, one);
	}
	return text;
}
