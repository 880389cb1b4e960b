/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "lib/plan/show_onion.h"
#include "lib/plan/show_plugins.h"
#include "lib/plan/show_text.h"

/* TEXT in lines of SHOW_WIDTH, broken at blanks. */
static void put_wrapped(FILE *f, const char *text)
{
	size_t room = SHOW_WIDTH - 2;
	const char *indent = "  ";

	while (*text) {
		size_t len = strlen(text), cut = len;

		if (len > room) {
			cut = room;
			while (cut && text[cut] != ' ')
				cut--;
			cut = cut ? cut : strcspn(text, " ");
		}
		fprintf(f, "%s%.*s\n", indent, (int)cut, text);
		text += cut + strspn(text + cut, " ");
		indent = "      ";
		room = SHOW_WIDTH - 6;
	}
}

static void say(FILE *f, const struct show *s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(FILE *f, const struct show *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put_wrapped(f, arena_vprintf(s->a, fmt, ap));
	va_end(ap);
}

static void explain_layers(FILE *f, const struct show *s)
{
	const struct config *c = s->sum->config;

	fputs("\nwhy each layer has its spec\n", f);
	for (int64_t n = 0; n < c->shape.num_layers; n++) {
		struct spec_row row = spec_layer(&c->spec, &c->shape, n);

		say(f, s, "%4" PRId64 "  %s: %s", n, row.name, row.reason);
	}
}

static void explain_group(FILE *f, const struct show *s,
			  const struct group *group, const void *base)
{
	const struct origin *from = base;

	for (int i = 0; i < group->count; i++)
		if (from[i].kind == ORIGIN_DERIVED)
			say(f, s, "%s.%s = %s: %s", group->name,
			    group->fields[i].name,
			    field_text(&group->fields[i], base, s->a),
			    from[i].why);
}

static void explain_config(FILE *f, const struct show *s)
{
	const struct config *c = s->sum->config;

	fputs("\nwhere derived settings come from\n", f);
	explain_group(f, s, &shape_group, &c->shape);
	explain_group(f, s, &spec_group, &c->spec);
	explain_group(f, s, &place_group, &c->place);
	explain_group(f, s, &run_group, &c->run);
}

static void explain_grid(FILE *f, const struct show *s)
{
	const struct grid *g = &s->sum->grid;

	say(f, s, "world = %d: %s", g->world, s->world_from);
	say(f, s, "dp = %d: world %d / (tp %d x cp %d x pp %d)", g->dp,
	    g->world, g->tp, g->cp, g->pp);
	say(f, s, "edp = %d: world %d / (etp %d x ep %d x pp %d)", g->edp,
	    g->world, g->etp, g->ep, g->pp);
	say(f, s, "coordinates: tp is the fastest, then cp, %s",
	    g->pp_before_dp ? "pp, dp (use_tp_pp_dp_mapping)" : "dp, pp");
}

static void explain_stages(FILE *f, const struct show *s)
{
	const struct place *p = &s->sum->config->place;
	const struct stages *st = &s->sum->stages;
	const char *rule = "an equal number of slots for each stage";

	if (p->pipeline_model_parallel_layout)
		rule = "pipeline_model_parallel_layout";
	else if (IS_SET(p->num_layers_in_first_pipeline_stage) ||
		 IS_SET(p->num_layers_in_last_pipeline_stage))
		rule = "num_layers_in_first/last_pipeline_stage, equal stages "
		       "between";
	else if (p->account_for_embedding_in_pipeline_split ||
		 p->account_for_loss_in_pipeline_split)
		rule = "equal slots, where "
		       "account_for_embedding/loss_in_pipeline_split take one "
		       "each";
	say(f, s, "stages = %d, stage vp x %d + pp: %s", st->count, st->pp,
	    rule);
}

/* By data_parallel_sharding_strategy. */
static const char *const shares[] = {
	"optimizer state: a whole copy on each rank of dp_cp",
	"optimizer state: each rank of dp_cp keeps its share "
	"(use_distributed_optimizer)",
	"optimizer state and gradients: each rank of dp_cp keeps its share",
	"optimizer state, gradients and parameters: each rank of dp_cp keeps "
	"its share",
};

static void explain_shares(FILE *f, const struct show *s)
{
	const struct config *c = s->sum->config;
	const struct grid *g = &s->sum->grid;
	const struct shape *shape = &c->shape;
	int64_t groups = shape->num_attention_heads;
	int64_t padded = place_padded_vocab(&c->place, shape->vocab_size);

	say(f, s,
	    "vocabulary rows = %" PRId64 ": %" PRId64 " and %" PRId64
	    " of padding%s; %" PRId64 " on each of %d tp ranks",
	    padded, shape->vocab_size, padded - shape->vocab_size,
	    c->place.should_pad_vocab
		    ? ", a multiple of make_vocab_size_divisible_by x tp"
		    : " (should_pad_vocab is false)",
	    padded / g->tp, g->tp);
	for (int64_t n = 0; n < shape->num_layers; n++)
		if (shape_layer_groups(shape, n) > 0 &&
		    shape_layer_groups(shape, n) < groups)
			groups = shape_layer_groups(shape, n);
	if (g->tp > groups)
		say(f, s,
		    "copies of k and v = %" PRId64 ": tp %d / %s %" PRId64,
		    g->tp / groups, g->tp,
		    shape->heterogeneous_num_query_groups.count
			    ? "least heterogeneous_num_query_groups"
			    : "num_query_groups",
		    groups);
	say(f, s,
	    "micro-batches = %d: global_batch_size %" PRId64
	    " / (micro_batch_size %" PRId64 " x dp %d)",
	    s->sum->microbatches, c->run.global_batch_size,
	    c->run.micro_batch_size, g->dp);
	say(f, s, "%s", shares[c->place.data_parallel_sharding_strategy]);
}

void show_explain(FILE *f, const struct show *s)
{
	explain_layers(f, s);
	show_plugins(f, s);
	show_onion(f, s);
	explain_config(f, s);
	fputs("\nwhere derived numbers come from\n", f);
	explain_grid(f, s);
	explain_stages(f, s);
	explain_shares(f, s);
	say(f, s, "%s",
	    s->sum->planned
		    ? "bytes, FLOPs, operations and communication: sums over "
		      "the programs that train-worker runs"
		    : "bytes of parameters, gradients and optimizer: from "
		      "what each rank would own");
}
