/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/plan/import.h"
#include "lib/plan/plan.h"
#include "lib/plan/show_text.h"

static void count(struct verdict *v)
{
	const struct config *c = v->config;
	struct grid g;
	struct err e;

	v->counted = shape_is_complete(&c->shape);
	if (v->counted) {
		v->parameters = shape_parameters(&c->shape);
		v->parameters_active = shape_parameters_active(&c->shape);
		v->padded_vocab_size =
			place_padded_vocab(&c->place, c->shape.vocab_size);
		shape_hash(&c->shape, v->hash);
	}
	if (v->world && !grid_build(&g, &c->place, v->world, &e))
		v->dp = g.dp;
}

int verdict_import(struct verdict *v, enum config_format format,
		   const char *file, const char *const *sets, int set_count,
		   struct arena *a, struct err *e)
{
	*v = (struct verdict){
		.file = file,
		.format = format,
		.config = arena_alloc(a, 1, sizeof(*v->config)),
		.report = {.arena = a},
	};
	v->readable = !config_load_as(format, file, sets, set_count, a,
				      v->config, &v->report, e);
	return v->readable ? 0 : -1;
}

int verdict_read(struct verdict *v, const char *file, const char *const *sets,
		 int set_count, struct arena *a, struct err *e)
{
	return verdict_import(v, CONFIG_OWN, file, sets, set_count, a, e);
}

static const struct config *copy_of(const struct config *c, struct arena *a)
{
	struct config *copy = arena_alloc(a, 1, sizeof(*copy));

	*copy = *c;
	return copy;
}

void verdict_reach(struct verdict *v, const struct cluster *cl)
{
	struct cluster on = *cl;
	int64_t world;
	bool runs;

	cluster_finish(&on);
	if (!on.world && v->format != CONFIG_OWN)
		on.world = import_world(v->config, &v->report);
	v->world = world = on.world;
	v->loaded = copy_of(v->config, v->report.arena);
	config_finish(v->config, world, &v->report);
	v->valid = !report_count(&v->report, ERROR);
	runs = !config_unserved(v->config, &v->report);
	if (v->valid && world && shape_is_complete(&v->config->shape))
		runs = !plan_unserved(v->config, world, &v->report) && runs;
	v->gpu_memory = on.gpu_memory;
	v->memory = cluster_check(&on, v->loaded, v->config, &v->report,
				  &v->planned);
	v->valid = !report_count(&v->report, ERROR);
	v->served = v->valid && runs;
	count(v);
}

enum code verdict_code(const struct verdict *v)
{
	if (!v->readable)
		return CODE_USAGE;
	return v->valid ? CODE_DONE : CODE_FINDINGS;
}

static void put_finding(FILE *f, const struct verdict *v,
			const struct finding *found)
{
	fputs(found->file ? found->file : v->file, f);
	if (found->line)
		fprintf(f, ":%d", found->line);
	fputs(": ", f);
	if (*found->path)
		fprintf(f, "%s: ", found->path);
	fprintf(f, "%s: %s", severity_name(found->severity), found->message);
	for (int i = 0; i < found->suggests; i++)
		fprintf(f, "%s%s",
			!i			   ? "; try "
			: i == found->suggests - 1 ? " or "
						   : ", ",
			found->suggest[i]);
	fprintf(f, " [%s]\n", found->id);
	if (found->excerpt)
		fprintf(f, "    %s\n    %*s\n", found->excerpt, found->column,
			"^");
}

static void put_sum(FILE *f, const struct verdict *v)
{
	size_t errors = report_count(&v->report, ERROR);

	fprintf(f, "%s: ", v->file);
	if (!v->readable) {
		fputs("unreadable\n", f);
		return;
	}
	if (errors)
		fprintf(f, "invalid, %zu error%s", errors,
			plural((long long)errors));
	else
		fputs(v->served ? "valid" : "valid, not served", f);
	if (v->counted)
		fprintf(f, ", %" PRId64 " parameters", v->parameters);
	if (v->counted && v->parameters_active < v->parameters)
		fprintf(f, " (%" PRId64 " active)", v->parameters_active);
	if (v->counted)
		fprintf(f, ", vocabulary %" PRId64 " in %" PRId64 " row%s",
			v->config->shape.vocab_size, v->padded_vocab_size,
			plural(v->padded_vocab_size));
	if (v->world)
		fprintf(f, ", world %" PRId64, v->world);
	if (v->dp)
		fprintf(f, ", dp %" PRId64, v->dp);
	if (v->memory)
		fprintf(f, ", %s of a GPU's %s (%s)", word_bytes(v->memory).s,
			word_bytes(v->gpu_memory).s,
			v->planned ? "planned" : "estimated");
	if (v->counted)
		fprintf(f, ", shape %s", v->hash);
	fputc('\n', f);
}

const char *verdict_text(const struct verdict *v, struct arena *a)
{
	char *text = NULL;
	const char *copy;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		arena_exhausted();
	for (size_t i = 0; i < v->report.count; i++)
		put_finding(f, v, &v->report.list[i]);
	put_sum(f, v);
	if (fclose(f))
		arena_exhausted();
	copy = arena_strdup(a, text);
	free(text);
	return copy;
}

static json_t *json_count(bool known, int64_t n)
{
	return known ? json_integer(n) : json_null();
}

/* A finding of another file says so, for its line is not the input's. */
static json_t *json_message(const struct verdict *v, const struct finding *f,
			    struct arena *a)
{
	if (!f->file || !strcmp(f->file, v->file))
		return json_any(f->message);
	if (!f->line)
		return json_any(arena_printf(a, "%s: %s", f->file, f->message));
	return json_any(
		arena_printf(a, "%s:%d: %s", f->file, f->line, f->message));
}

static json_t *json_finding(const struct verdict *v, const struct finding *f,
			    struct arena *a)
{
	json_t *suggest = json_array(), *out = json_object();

	for (int i = 0; i < f->suggests; i++)
		json_array_append_new(suggest, json_any(f->suggest[i]));
	json_object_set_new(out, "id", json_string(f->id));
	json_object_set_new(out, "severity",
			    json_string(severity_name(f->severity)));
	json_object_set_new(out, "path", json_any(f->path));
	json_object_set_new(out, "line", json_count(f->line, f->line));
	json_object_set_new(out, "message", json_message(v, f, a));
	json_object_set_new(out, "suggest", suggest);
	return out;
}

const char *verdict_json(const struct verdict *v, struct arena *a)
{
	json_t *findings = json_array(), *out = json_object();

	for (size_t i = 0; i < v->report.count; i++)
		json_array_append_new(findings,
				      json_finding(v, &v->report.list[i], a));
	json_object_set_new(out, "file", json_any(v->file));
	json_object_set_new(out, "valid", json_boolean(v->valid));
	json_object_set_new(out, "served", json_boolean(v->served));
	json_object_set_new(out, "findings", findings);
	json_object_set_new(out, "shape_hash",
			    v->counted ? json_string(v->hash) : json_null());
	json_object_set_new(out, "parameters",
			    json_count(v->counted, v->parameters));
	json_object_set_new(out, "parameters_active",
			    json_count(v->counted, v->parameters_active));
	json_object_set_new(out, "padded_vocab_size",
			    json_count(v->counted, v->padded_vocab_size));
	json_object_set_new(out, "world", json_count(v->world, v->world));
	json_object_set_new(out, "data_parallel_size",
			    json_count(v->dp, v->dp));
	if (v->gpu_memory) {
		json_object_set_new(out, "memory_bytes",
				    json_count(v->memory, v->memory));
		json_object_set_new(out, "memory_planned",
				    v->memory ? json_boolean(v->planned)
					      : json_null());
	}
	return json_line(out, a);
}
