/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/show_onion.h"

#include <inttypes.h>
#include <string.h>

#include "lib/plan/hook.h"
#include "lib/plan/show_text.h"

/* A line of a chunk; the first one of a kind has its LABEL. */
static void put_line(FILE *f, const char *label, const char *text)
{
	fprintf(f, "    %-17s %s\n", label, text);
}

/* Whether ST of a model has a weight, or its copy of it. */
static bool holds(const struct stage *st, const struct weight *w,
		  const struct shape *shape)
{
	int64_t layers = shape->num_layers;

	switch (w->part) {
	case PART_EMBED_TOK:
		if (st->output_head &&
		    shape->share_embeddings_and_output_weights)
			return true;
		return st->embedding || st->mtp_layers;
	case PART_EMBED_POS: return st->embedding || st->mtp_layers;
	case PART_HEAD_W: return st->output_head;
	default: break;
	}
	if (w->layer < 0)
		return st->final_norm;
	if (w->layer >= layers)
		return st->mtp_layers;
	return w->layer >= st->first_layer &&
	       w->layer < st->first_layer + st->num_layers;
}

static const char *text_hook(const struct show *s, const struct stage *st,
			     const struct weights *w, const char *text)
{
	int count = 0;
	struct hook h;
	struct err e;

	if (!w || hook_parse(&h, text, &e) || h.kind == HOOK_PLUGIN)
		return text;
	for (int i = 0; i < w->count; i++)
		count += holds(st, &w->list[i], &s->sum->config->shape) &&
			 hook_matches(&h, w->list[i].name);
	return arena_printf(s->a, "%s, %d weight%s of this chunk", text, count,
			    plural(count));
}

static void put_hooks(FILE *f, const struct show *s, const struct stage *st,
		      const struct weights *w, const char *label,
		      const struct texts *list)
{
	if (!list->count)
		put_line(f, label, "none");
	for (int i = 0; i < list->count; i++)
		put_line(f, i ? "" : label, text_hook(s, st, w, list->item[i]));
}

static const char *text_slices(const struct show *s, const struct stage *st)
{
	const struct config *c = s->sum->config;
	int64_t tp = c->place.tensor_model_parallel_size;
	const char *roles = text_roles(st, s->a);
	const char *cut = tp > 1 ? arena_printf(s->a,
						", a share of each of tp "
						"%" PRId64 " ranks",
						tp)
				 : "";

	return arena_printf(s->a, "layers %s%s%s%s",
			    word_range(st->first_layer, st->num_layers).s,
			    *roles ? ", " : "", roles, cut);
}

static const char *text_precision(const struct show *s)
{
	const struct spec *spec = &s->sum->config->spec;
	int row = field_find(&spec_group, "params_dtype");
	const char *name = spec_group.fields[row].names[spec->params_dtype];

	if (spec_param_bytes(spec) == spec_sum_bytes(spec))
		return arena_printf(s->a, "%s throughout", name);
	return arena_printf(s->a,
			    "%s parameters and activations, fp32 gradients, "
			    "masters and moments",
			    name);
}

static const char *text_data(const struct show *s)
{
	const struct grid *g = &s->sum->grid;
	bool shared = s->sum->config->place.data_parallel_sharding_strategy;

	if (g->dp * g->cp == 1)
		return "one replica";
	return arena_printf(s->a, "%d replicas, gradients summed in buckets%s",
			    g->dp * g->cp,
			    shared ? ", optimizer state in shares" : "");
}

void show_onion(FILE *f, const struct show *s)
{
	const struct config *c = s->sum->config;
	const struct stages *st = &s->sum->stages;
	struct weights all, *known = NULL;

	if (weights_known(&c->shape)) {
		weights_build(&all, &c->shape, s->a);
		known = &all;
	}
	fputs("\nwhat is around each chunk, from the inside out\n", f);
	for (int i = 0; i < st->count; i++) {
		const struct stage *x = &st->stage[i];

		fprintf(f, "  stage %d (pp %d, vp %d)\n", i, x->pp, x->vp);
		put_line(f, "slices", text_slices(s, x));
		put_hooks(f, s, x, known, "pre-wrap hooks",
			  &c->spec.pre_wrap_hooks);
		put_line(f, "mixed precision", text_precision(s));
		put_line(f, "data parallel", text_data(s));
		put_hooks(f, s, x, known, "post-wrap hooks",
			  &c->spec.post_wrap_hooks);
	}
}
