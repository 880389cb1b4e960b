/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/override.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/shape.h"
#include "lib/plan/spec_rule.h"

static const char *const names[OVERRIDE_OPS] = {
	[OVERRIDE_NORM] = "norm",	[OVERRIDE_ATTENTION] = "attention",
	[OVERRIDE_LINEAR] = "linear",	[OVERRIDE_ACT] = "act",
	[OVERRIDE_EXPERTS] = "experts",
};

const char *override_ops_name(int ops)
{
	return names[ops];
}

/* Where an op is in a table.  What plans memory (attn_scratch) is none. */
static const struct member {
	enum override_ops ops;
	size_t at;
} members[] = {
#define MEMBER(kind, name)                                   \
	{                                                    \
		OVERRIDE_##kind, offsetof(struct kern, name) \
	}
	MEMBER(NORM, norm_fwd),
	MEMBER(NORM, norm_bwd),
	MEMBER(ATTENTION, rope),
	MEMBER(ATTENTION, latent_fwd),
	MEMBER(ATTENTION, latent_bwd),
	MEMBER(ATTENTION, attn_fwd),
	MEMBER(ATTENTION, attn_bwd),
	MEMBER(ATTENTION, rope_at),
	MEMBER(ATTENTION, latent_at),
	MEMBER(ATTENTION, attn_at),
	MEMBER(LINEAR, linear_fwd),
	MEMBER(LINEAR, linear_bwd_x),
	MEMBER(LINEAR, linear_bwd_w),
	MEMBER(LINEAR, bias_bwd),
	MEMBER(ACT, act_fwd),
	MEMBER(ACT, act_bwd),
	MEMBER(EXPERTS, experts_fwd),
	MEMBER(EXPERTS, experts_bwd_x),
	MEMBER(EXPERTS, experts_bwd_w),
	MEMBER(EXPERTS, expert_act_fwd),
	MEMBER(EXPERTS, expert_act_bwd),
#undef MEMBER
};

typedef void any_function(void);

static any_function *member_get(const struct kern *k, const struct member *m)
{
	any_function *f;

	memcpy(&f, (const char *)k + m->at, sizeof(f));
	return f;
}

static int take(struct kern *to, const struct kern *from, int ops)
{
	int taken = 0;

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		any_function *f = NULL;

		if ((int)members[i].ops == ops)
			f = member_get(from, &members[i]);
		if (!f)
			continue;
		memcpy((char *)to + members[i].at, &f, sizeof(f));
		taken++;
	}
	return taken;
}

/* An entry, taken apart. */
struct override {
	bool decoder, mtp, only_moe;
	int64_t first, last; /* of decoder layers */
	int ops;	     /* OVERRIDE_OPS: all */
	const char *name;
};

/* LAYERS, LEN bytes of TEXT. */
static int parse_layers(struct override *o, const char *text, size_t len)
{
	char *end;

	o->decoder = true;
	o->last = INT64_MAX;
	if (len == 1 && *text == '*') {
		o->mtp = true;
	} else if (len == 3 && !strncmp(text, "moe", len)) {
		o->mtp = o->only_moe = true;
	} else if (len == 3 && !strncmp(text, "mtp", len)) {
		o->mtp = true;
		o->decoder = false;
	} else if (len != 7 || strncmp(text, "decoder", len) != 0) {
		if (*text < '0' || *text > '9')
			return -1;
		o->first = o->last = strtoll(text, &end, 10);
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			o->last = strtoll(end + 1, &end, 10);
		return end == text + len ? 0 : -1;
	}
	return 0;
}

static int parse_ops(struct override *o, const char *text, size_t len)
{
	for (o->ops = 0; o->ops < OVERRIDE_OPS; o->ops++)
		if (strlen(names[o->ops]) == len &&
		    !strncmp(names[o->ops], text, len))
			return 0;
	return len == 1 && *text == '*' ? 0 : -1;
}

static int parse(struct override *o, const char *text, struct err *e)
{
	size_t layers = strcspn(text, ":");
	const char *ops = text + layers + (text[layers] == ':');
	size_t len = strcspn(ops, "=");

	*o = (struct override){.name = ops + len + (ops[len] == '=')};
	if (!*o->name || !layers || parse_layers(o, text, layers))
		return err_set(e, CODE_CONFIG,
			       "'%.100s' is not LAYERS:OPS=NAME with layers "
			       "like 2, 2-5, decoder, mtp, moe or *",
			       text);
	if (parse_ops(o, ops, len))
		return err_set(e, CODE_CONFIG,
			       "'%.100s': '%.*s' is none of norm, attention, "
			       "linear, act, experts and *",
			       text, (int)(len < 40 ? len : 40), ops);
	return 0;
}

static bool fits_layer(const struct override *o, const struct shape *shape,
		       int64_t layer)
{
	int64_t n = shape->num_layers;
	/* a layer of multi-token prediction is like the last decoder layer */
	int64_t like = layer < n ? layer : n - 1;

	if (o->only_moe && !shape_is_moe(shape, like))
		return false;
	if (layer >= n)
		return o->mtp;
	return o->decoder && layer >= o->first && layer <= o->last;
}

static bool fits_some(const struct override *o, const struct shape *shape)
{
	for (int64_t n = 0; n < shape_layers(shape); n++)
		if (fits_layer(o, shape, n))
			return true;
	return false;
}

#define FINDING(...) \
	report_add(r, "spec-override", ERROR, SPEC_AT(overrides), __VA_ARGS__)

void override_check(const struct spec *s, const struct shape *shape,
		    struct report *r)
{
	int64_t n = shape->num_layers;
	struct override o;
	struct err e;

	for (int i = 0; i < s->overrides.count; i++) {
		const char *text = s->overrides.item[i];

		if (parse(&o, text, &e))
			FINDING("%s", e.text);
		else if (o.decoder && o.first > o.last)
			FINDING("'%.100s': the last layer, %" PRId64
				", is before the first, %" PRId64,
				text, o.last, o.first);
		else if (o.decoder && o.last != INT64_MAX && o.last >= n)
			FINDING("'%.100s': layers %" PRId64 " to %" PRId64
				" are not among the model's 0 to %" PRId64,
				text, o.first, o.last, n - 1);
		else if (!report_count(r, ERROR) && !fits_some(&o, shape))
			FINDING("'%.100s': the model has no such layers", text);
		else if (strcmp(o.name, "local") != 0 &&
			 plugin_find(s, o.name, strlen(o.name)) < 0)
			FINDING("'%.100s': '%.40s' is neither \"local\" nor "
				"one of spec.plugins",
				text, o.name);
	}
}

/* The last entry that fits OPS of LAYER, in *O. */
static bool decides(struct override *o, const struct spec *s,
		    const struct shape *shape, int64_t layer, int ops)
{
	struct err e;

	for (int i = s->overrides.count - 1; i >= 0; i--)
		if (!parse(o, s->overrides.item[i], &e) &&
		    (o->ops == ops || o->ops == OVERRIDE_OPS) &&
		    fits_layer(o, shape, layer))
			return true;
	return false;
}

const char *override_name(const struct spec *s, const struct shape *shape,
			  int64_t layer, int ops)
{
	struct override o;

	return decides(&o, s, shape, layer, ops) ? o.name : NULL;
}

bool override_names(const struct spec *s, const char *plugin)
{
	struct override o;
	struct err e;

	for (int i = 0; i < s->overrides.count; i++)
		if (!parse(&o, s->overrides.item[i], &e) &&
		    !strcmp(o.name, plugin))
			return true;
	return false;
}

/*
 * Put X's ops of LAYER into OUT.  An entry for all ops takes what there is; one
 * that names some wants them.
 */
static int take_all(struct kern *out, const struct kern *local,
		    const struct plugin_object *x, const struct spec *s,
		    const struct shape *shape, int64_t layer, struct err *e)
{
	const struct kern *has = x->is->ops ? x->is->ops(local, layer) : NULL;
	bool all = !override_names(s, x->name);
	struct override o;

	for (int ops = 0; ops < OVERRIDE_OPS; ops++) {
		bool said = decides(&o, s, shape, layer, ops);
		bool mine = said ? !strcmp(o.name, x->name) : all;

		if (!mine || (has && take(out, has, ops)))
			continue;
		if (said && o.ops == ops)
			return err_set(e, CODE_CONFIG,
				       "plugin '%s' ('%.300s') has no %s for "
				       "%s, which spec.overrides wants of it "
				       "in layer %" PRId64,
				       x->name, x->path, names[ops],
				       local->name, layer);
	}
	return 0;
}

int override_table(struct kern *out, const struct kern *local,
		   const struct plugins *p, const struct spec *s,
		   const struct shape *shape, int64_t layer, struct err *e)
{
	*out = *local;
	for (int i = 0; i < p->count; i++)
		if (take_all(out, local, &p->list[i], s, shape, layer, e))
			return -1;
	return 0;
}
