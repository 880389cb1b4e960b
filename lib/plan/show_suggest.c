/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/show_suggest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/gpu.h"
#include "lib/plan/show_text.h"

static const char *again_text(const struct placement *p, struct arena *a)
{
	if (p->again == AGAIN_NONE)
		return "none";
	if (p->again == AGAIN_MODULES)
		return "modules";
	return arena_printf(a, "%" PRId64 " layer%s", p->layers,
			    plural(p->layers));
}

static const char *seconds_text(double t, struct arena *a)
{
	if (t < 1)
		return arena_printf(a, "%.1f ms", 1e3 * t);
	return arena_printf(a, "%.2f s", t);
}

static void put_row(FILE *f, const char *name, const struct suggestion *r,
		    struct arena *a)
{
	const struct placement *p = &r->place;

	fprintf(f,
		"%5s %3d %3s %3d %3d %3d %3d %3d %5d %3" PRId64
		"  %-9s %4d %6s %8s %6s %4.1f%% %5.1f%% %4s\n",
		name, p->tp, p->sp ? "yes" : "-", p->pp, p->vp, p->cp, p->ep,
		p->etp, p->dp, p->micro, again_text(p, a), (int)p->sharding,
		word_bytes(r->memory).s, seconds_text(r->step, a),
		word_flops(r->tokens_per_second).s, 100 * r->flops_share,
		100 * r->bubble, r->planned ? "yes" : "no");
}

static void put_given(FILE *f, const struct suggest *s, struct arena *a)
{
	put_row(f, "given", &s->given, a);
	if (!s->given_fits)
		fputs("       (does not fit)\n", f);
}

/* A word as a shell reads it back. */
static const char *shell_word(const char *text, struct arena *a)
{
	if (!text[strcspn(text, "\"'()*|[] $&;<>\\")])
		return text;
	return arena_printf(a, "'%s'", text); /* no setting here has a ' */
}

static void put_sets(FILE *f, int number, const struct suggestion *r,
		     struct arena *a)
{
	int column = fprintf(f, "%d:", number);

	for (int i = 0; i < r->sets; i++) {
		const char *word = shell_word(r->set[i], a);
		int width = 7 + (int)strlen(word);

		if (column + width > 98)
			column = fprintf(f, " \\\n   ") - 3;
		column += fprintf(f, " --set %s", word);
	}
	if (!r->sets)
		fputs(" as it is", f);
	fputc('\n', f);
}

static const char *where_text(const struct suggest *s, struct arena *a)
{
	const struct cluster *on = &s->on;

	return arena_printf(
		a, "%" PRId64 " rank%s in nodes of %" PRId64 ", GPU %s with %s",
		on->world, plural(on->world), on->gpus_per_node, on->gpu->name,
		word_bytes(on->gpu_memory).s);
}

static void put_none(FILE *f, const struct suggest *s, struct arena *a)
{
	const struct placement *p = &s->least;
	int64_t room = (int64_t)(CLUSTER_SHARE * (double)s->on.gpu_memory);

	if (s->refused)
		fprintf(f, "none: what fits does not pass the checks: %s\n",
			s->refused);
	else if (!s->nearest)
		fputs("none: no tp, cp, pp and micro-batches divide the model, "
		      "the world and global_batch_size\n",
		      f);
	else
		fprintf(f,
			"none fits: the nearest, tp %d pp %d vp %d cp %d ep %d "
			"etp %d dp %d with micro-batches of %" PRId64
			" and recompute %s, needs %s of the %s that a plan "
			"may fill (92%%)\n",
			p->tp, p->pp, p->vp, p->cp, p->ep, p->etp, p->dp,
			p->micro, again_text(p, a), word_bytes(s->nearest).s,
			word_bytes(room).s);
}

/* Settings in lines of at most 100 columns. */
static void put_hints(FILE *f, const char *text)
{
	int column;

	if (!*text)
		return;
	column = fprintf(f, "the input's placement is a hint only:");
	while (*text) {
		int len = (int)strcspn(text, ",");

		len += text[len] == ',';
		if (column + 1 + len > 100)
			column = fprintf(f, "\n   ") - 1;
		column += fprintf(f, " %.*s", len, text);
		text += len + strspn(text + len, " ");
	}
	fputc('\n', f);
}

static const char *dtype_name(const struct suggest *s)
{
	int row = field_find(&spec_group, "params_dtype");

	return spec_group.fields[row].names[s->loaded->spec.params_dtype];
}

void show_suggest(FILE *f, const struct suggest *s, const char *file,
		  struct arena *a)
{
	int64_t batch = s->loaded->run.global_batch_size;

	fprintf(f, "%s on %s: %s placements looked at\n", file,
		where_text(s, a), word_count(s->looked_at).s);
	fprintf(f, "a step is %s sample%s of %s tokens (seq_length), in %s\n",
		word_count(batch).s, plural(batch),
		word_count(s->loaded->shape.seq_length).s, dtype_name(s));
	put_hints(f, s->hints);
	if (!s->on.gpu->measured)
		fprintf(f,
			"times on %s were not measured: its data sheet, with "
			"what an H200 reaches of its own\n",
			s->on.gpu->name);
	if (!s->rows) {
		put_none(f, s, a);
		return;
	}
	fputs("\n    #  tp  sp  pp  vp  cp  ep etp    dp mbs  recompute "
	      "zero memory     step  tok/s   MFU bubble runs\n",
	      f);
	for (int i = 0; i < s->rows; i++) {
		if (i == s->best)
			fputs("  the best that train-worker runs:\n", f);
		put_row(f, arena_printf(a, "%d", i + 1), &s->row[i], a);
	}
	if (s->has_given)
		put_given(f, s, a);
	fputc('\n', f);
	for (int i = 0; i < s->rows; i++)
		put_sets(f, i + 1, &s->row[i], a);
}

static json_t *json_row(const struct suggestion *r, struct arena *a)
{
	const struct placement *p = &r->place;
	json_t *set = json_array();

	for (int i = 0; i < r->sets; i++)
		json_array_append_new(set, json_string(r->set[i]));
	return json_pack(
		"{s:i,s:b,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:s,s:i,s:I,s:b,s:f,s:f,"
		"s:f,s:f,s:b,s:o}",
		"tp", p->tp, "sequence_parallel", p->sp, "pp", p->pp, "vp",
		p->vp, "cp", p->cp, "ep", p->ep, "etp", p->etp, "dp", p->dp,
		"micro_batch_size", (json_int_t)p->micro, "recompute",
		again_text(p, a), "zero", (int)p->sharding, "memory_bytes",
		(json_int_t)r->memory, "memory_planned", r->planned,
		"step_seconds", r->step, "tokens_per_second",
		r->tokens_per_second, "mfu", r->flops_share, "bubble",
		r->bubble, "served", r->planned, "set", set);
}

void show_suggest_json(FILE *f, const struct suggest *s, const char *file,
		       struct arena *a)
{
	json_t *rows = json_array(), *out;
	char *text;

	for (int i = 0; i < s->rows; i++)
		json_array_append_new(rows, json_row(&s->row[i], a));
	out = json_pack(
		"{s:s,s:I,s:I,s:s,s:I,s:I,s:s,s:o,s:o,s:o}", "file", file,
		"world", (json_int_t)s->on.world, "gpus_per_node",
		(json_int_t)s->on.gpus_per_node, "gpu", s->on.gpu->name,
		"gpu_memory_bytes", (json_int_t)s->on.gpu_memory, "looked_at",
		(json_int_t)s->looked_at, "hints", s->hints, "placements", rows,
		"given", s->has_given ? json_row(&s->given, a) : json_null(),
		"nearest_bytes",
		s->rows || !s->nearest ? json_null()
				       : json_integer((json_int_t)s->nearest));
	text = out ? json_dumps(out, JSON_COMPACT) : NULL;
	json_decref(out);
	if (!text)
		arena_exhausted();
	fprintf(f, "%s\n", text);
	free(text);
}
