/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/head.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/version.h"

static void add_line(struct head_lines *lines, const char *name,
		     const char *text)
{
	lines->list[lines->count++] = (struct head_line){name, text};
}

static void open_lines(struct head_lines *lines, int room, struct arena *a)
{
	lines->count = 0;
	lines->list = arena_alloc(a, (size_t)room + 1, sizeof(*lines->list));
}

/* The fields of S that differ from their default. */
static void shape_lines(struct head_lines *lines, const struct shape *s,
			struct arena *a)
{
	const struct group *g = &shape_group;
	struct shape *plain = arena_alloc(a, 1, sizeof(*plain));

	field_defaults(g, plain, a);
	open_lines(lines, g->count, a);
	for (int i = 0; i < g->count; i++) {
		const char *text = field_text(&g->fields[i], s, a);

		if (strcmp(text, field_text(&g->fields[i], plain, a)))
			add_line(lines, g->fields[i].name, text);
	}
}

static void place_lines(struct head_lines *lines, const struct place *p,
			struct arena *a)
{
	const struct group *g = &place_group;

	open_lines(lines, g->count, a);
	for (int i = 0; i < g->count; i++)
		if (p->from[i].kind == ORIGIN_GIVEN)
			add_line(lines, g->fields[i].name,
				 field_text(&g->fields[i], p, a));
}

const char *const ckpt_run_names[] = {"data_path", "split", NULL};

/* An attribute is no place for a long blend: that is told by its hash. */
enum { RUN_TEXT_MAX = 2000 };

const char *ckpt_run_value(const struct run *run, const char *name,
			   struct arena *a)
{
	const struct field *f = &run_group.fields[field_find(&run_group, name)];
	const char *text = field_text(f, run, a);
	size_t len = strlen(text);

	if (len <= RUN_TEXT_MAX)
		return text;
	return arena_printf(a, "%.40s... (%zu bytes, XXH3 %016" PRIx64 ")",
			    text, len, (uint64_t)XXH3_64bits(text, len));
}

static void run_lines(struct head_lines *lines, const struct run *run,
		      struct arena *a)
{
	open_lines(lines, run_group.count, a);
	for (int i = 0; ckpt_run_names[i]; i++) {
		const char *name = ckpt_run_names[i];
		const struct field *f =
			&run_group.fields[field_find(&run_group, name)];

		if (field_is_set(f, run))
			add_line(lines, name, ckpt_run_value(run, name, a));
	}
}

static void provenance_lines(struct head_lines *lines, bool job,
			     struct arena *a)
{
	const char *id = getenv("SLURM_JOB_ID");
	char host[256] = "";

	open_lines(lines, 3, a);
	add_line(lines, "version", TRISECT_VERSION);
	if (!job)
		return;
	gethostname(host, sizeof(host) - 1);
	add_line(lines, "host", arena_strdup(a, host));
	if (id)
		add_line(lines, "job", arena_strdup(a, id));
}

void head_build(struct head *h, const struct config *c, int64_t world,
		const struct ckpt_progress *progress, bool job, struct arena *a)
{
	*h = (struct head){.world = world, .progress = *progress};
	shape_lines(&h->shape, &c->shape, a);
	place_lines(&h->place, &c->place, a);
	run_lines(&h->run, &c->run, a);
	provenance_lines(&h->provenance, job, a);
	shape_hash(&c->shape, h->shape_hash);
}

static int write_lines(struct h5 *f, const char *group,
		       const struct head_lines *lines, struct err *e)
{
	for (int i = 0; i < lines->count; i++)
		if (h5_text_put(f, group, lines->list[i].name,
				lines->list[i].text, e))
			return -1;
	return 0;
}

/* Only where the loss is scaled. */
static int write_scale(struct h5 *f, const struct ckpt_progress *p,
		       struct err *e)
{
	char text[32];

	if (!(p->loss_scale > 0))
		return 0;
	snprintf(text, sizeof(text), "%.17g", p->loss_scale);
	if (h5_text_put(f, "/run", "loss_scale", text, e) ||
	    h5_int_put(f, "/run", "scale_growth", p->scale_growth, e) ||
	    h5_int_put(f, "/run", "scale_hysteresis", p->scale_hysteresis, e) ||
	    h5_int_put(f, "/run", "skipped_steps", p->skipped_steps, e))
		return -1;
	return 0;
}

int head_write(const struct head *h, struct h5 *f, const char *file,
	       struct err *e)
{
	const struct ckpt_progress *p = &h->progress;

	if (write_lines(f, "/shape", &h->shape, e) ||
	    h5_text_put(f, "/shape", "shape_hash", h->shape_hash, e) ||
	    write_lines(f, "/place", &h->place, e) ||
	    h5_int_put(f, "/place", "world", h->world, e) ||
	    h5_int_put(f, "/run", "step", p->step, e) ||
	    h5_int_put(f, "/run", "consumed_samples", p->consumed_samples, e) ||
	    h5_int_put(f, "/run", "seed", p->seed, e) ||
	    h5_int_put(f, "/run", "nonce", (int64_t)p->nonce, e) ||
	    write_scale(f, p, e) || write_lines(f, "/run", &h->run, e) ||
	    write_lines(f, "/provenance", &h->provenance, e) ||
	    h5_text_put(f, "/provenance", "file", file, e) ||
	    h5_int_put(f, "/provenance", "format", FORMAT_VERSION, e))
		return -1;
	return 0;
}

/* All attributes of GROUP but OTHER, which is no setting. */
static int read_lines(struct h5 *f, const char *group, const char *other,
		      struct head_lines *lines, struct arena *a, struct err *e)
{
	const char **names, *text;
	int n;

	if (h5_attrs(f, group, a, &names, &n, e))
		return -1;
	open_lines(lines, n, a);
	for (int i = 0; i < n; i++) {
		if (!strcmp(names[i], other))
			continue;
		if (h5_text_get(f, group, names[i], a, &text, e))
			return -1;
		add_line(lines, names[i], text);
	}
	return 0;
}

/* The recorded settings of run that are there. */
static int read_run(struct h5 *f, struct head_lines *lines, struct arena *a,
		    struct err *e)
{
	const char **names, *text;
	int n;

	if (h5_attrs(f, "/run", a, &names, &n, e))
		return -1;
	open_lines(lines, n, a);
	for (int i = 0; i < n; i++)
		for (int k = 0; ckpt_run_names[k]; k++) {
			if (strcmp(names[i], ckpt_run_names[k]))
				continue;
			if (h5_text_get(f, "/run", names[i], a, &text, e))
				return -1;
			add_line(lines, names[i], text);
		}
	return 0;
}

static int read_scale(struct h5 *f, struct ckpt_progress *p, struct arena *a,
		      struct err *e)
{
	const char **names, *text;
	bool there = false;
	int n;

	if (h5_attrs(f, "/run", a, &names, &n, e))
		return -1;
	for (int i = 0; i < n; i++)
		there = there || !strcmp(names[i], "loss_scale");
	if (!there)
		return 0;
	if (h5_text_get(f, "/run", "loss_scale", a, &text, e) ||
	    h5_int_get(f, "/run", "scale_growth", &p->scale_growth, e) ||
	    h5_int_get(f, "/run", "scale_hysteresis", &p->scale_hysteresis,
		       e) ||
	    h5_int_get(f, "/run", "skipped_steps", &p->skipped_steps, e))
		return -1;
	p->loss_scale = strtod(text, NULL);
	if (p->loss_scale > 0 && isfinite(p->loss_scale))
		return 0;
	return err_set(e, CODE_CKPT, "/run: loss_scale '%.40s'", text);
}

int head_read(struct head *h, struct h5 *f, struct arena *a, struct err *e)
{
	struct ckpt_progress *p = &h->progress;
	const char *hash;
	int64_t nonce;

	memset(h, 0, sizeof(*h));
	if (read_lines(f, "/shape", "shape_hash", &h->shape, a, e) ||
	    h5_text_get(f, "/shape", "shape_hash", a, &hash, e) ||
	    read_lines(f, "/place", "world", &h->place, a, e) ||
	    h5_int_get(f, "/place", "world", &h->world, e) ||
	    h5_int_get(f, "/run", "step", &p->step, e) ||
	    h5_int_get(f, "/run", "consumed_samples", &p->consumed_samples,
		       e) ||
	    h5_int_get(f, "/run", "seed", &p->seed, e) ||
	    h5_int_get(f, "/run", "nonce", &nonce, e) ||
	    read_scale(f, p, a, e) || read_run(f, &h->run, a, e))
		return -1;
	p->nonce = (uint64_t)nonce;
	strncpy(h->shape_hash, hash, sizeof(h->shape_hash) - 1);
	return 0;
}

/* The first finding that makes the shape unusable, if there is one. */
static int first_error(const struct report *r, struct err *e)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->list[i].severity == ERROR)
			return err_set(e, CODE_CKPT, "its shape: %s: %s",
				       r->list[i].path, r->list[i].message);
	return 0;
}

int head_shape(const struct head *h, struct shape *s, struct arena *a,
	       struct err *e)
{
	struct config *c = arena_alloc(a, 1, sizeof(*c));
	struct report r = {.arena = a};
	const char **sets =
		arena_alloc(a, (size_t)h->shape.count + 1, sizeof(*sets));
	char hash[33];

	for (int i = 0; i < h->shape.count; i++)
		sets[i] = arena_printf(a, "shape.%s=%s", h->shape.list[i].name,
				       h->shape.list[i].text);
	if (config_load("/dev/null", sets, h->shape.count, a, c, &r, e))
		return -1;
	shape_finalize(&c->shape);
	shape_check(&c->shape, &r);
	if (first_error(&r, e))
		return -1;
	*s = c->shape;
	shape_hash(s, hash);
	if (strcmp(hash, h->shape_hash))
		return err_set(e, CODE_CKPT,
			       "its shape has the hash %s, it says %s", hash,
			       h->shape_hash);
	return 0;
}

/* Whether the line of field NAME is in TEXT ("name=value\n"...). */
static bool tells(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (; *text; text += strcspn(text, "\n"), text += *text != 0)
		if (!strncmp(text, name, len) && text[len] == '=')
			return true;
	return false;
}

const char *head_difference(const struct shape *x, const struct shape *y,
			    struct arena *a)
{
	const struct group *g = &shape_group;
	const char *xs = shape_text(x, a), *ys = shape_text(y, a), *out = "";

	for (int i = 0; i < g->count; i++) {
		const struct field *f = &g->fields[i];
		const char *was = field_text(f, x, a),
			   *is = field_text(f, y, a);

		if (!strcmp(was, is) ||
		    !(tells(xs, f->name) || tells(ys, f->name)))
			continue;
		out = arena_printf(a, "%s%s%s %s / %s", out, *out ? ", " : "",
				   f->name, was, is);
	}
	return out;
}
