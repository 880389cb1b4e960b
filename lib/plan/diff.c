/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/diff.h"

#include <stdarg.h>
#include <string.h>

enum { GROUPS = 4 };

static const struct group *const groups[GROUPS] = {&shape_group, &spec_group,
						   &place_group, &run_group};

static const void *base_of(const struct config *c, int group)
{
	const void *const base[GROUPS] = {&c->shape, &c->spec, &c->place,
					  &c->run};

	return base[group];
}

static void note(struct diff *d, struct arena *a, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void note(struct diff *d, struct arena *a, const char *fmt, ...)
{
	va_list ap;

	d->note = arena_grow(a, d->note, d->notes, &d->notes_cap,
			     sizeof(*d->note));
	va_start(ap, fmt);
	d->note[d->notes++] = arena_vprintf(a, fmt, ap);
	va_end(ap);
}

static void compare_group(struct diff *d, int g, struct arena *a)
{
	const void *base[2] = {base_of(d->v[0]->config, g),
			       base_of(d->v[1]->config, g)};

	for (int i = 0; i < groups[g]->count; i++) {
		const struct field *f = &groups[g]->fields[i];
		struct diff_row row = {
			.group = groups[g],
			.field = f,
			.value = {field_canonical(f, base[0], a),
				  field_canonical(f, base[1], a)},
			.from = {(const struct origin *)base[0] + i,
				 (const struct origin *)base[1] + i},
		};

		if (!strcmp(row.value[0], row.value[1]))
			continue;
		d->row = arena_grow(a, d->row, d->rows, &d->cap,
				    sizeof(*d->row));
		d->row[d->rows++] = row;
	}
}

static const struct diff_row *find(const struct diff *d, const char *name)
{
	for (size_t i = 0; i < d->rows; i++)
		if (!strcmp(d->row[i].field->name, name))
			return &d->row[i];
	return NULL;
}

/* Whether TEXT has the line "NAME=VALUE". */
static bool has_line(const char *text, const char *name, const char *value,
		     struct arena *a)
{
	const char *line = arena_printf(a, "\n%s=%s\n", name, value);

	return strstr(arena_printf(a, "\n%s", text), line);
}

/* The shapes by what their hashes are made of, one vocabulary in both. */
static void compare_shapes(struct diff *d, struct arena *a)
{
	struct shape *s[2];
	const char *text[2];
	int64_t vocab[2];

	for (int i = 0; i < 2; i++) {
		s[i] = arena_alloc(a, 1, sizeof(*s[i]));
		*s[i] = d->v[i]->config->shape;
		vocab[i] = s[i]->vocab_size;
	}
	d->assumed = !IS_SET(vocab[0]) ? 0 : !IS_SET(vocab[1]) ? 1 : -1;
	if (d->assumed >= 0)
		s[d->assumed]->vocab_size = vocab[!d->assumed];
	for (int i = 0; i < 2; i++)
		text[i] = shape_text(s[i], a);
	d->same_shape = !strcmp(text[0], text[1]);
	for (size_t i = 0; i < d->rows; i++) {
		struct diff_row *row = &d->row[i];
		const char *name = row->field->name;

		if (row->group != &shape_group ||
		    (d->assumed >= 0 && !strcmp(name, "vocab_size")))
			continue;
		row->hashed = has_line(text[0], name, row->value[0], a) ||
			      has_line(text[1], name, row->value[1], a);
	}
}

static bool has_masters(const struct config *c)
{
	return c->spec.params_dtype == DTYPE_BF16 ||
	       c->spec.params_dtype == DTYPE_FP16;
}

#define WEIGHTS_ALONE                                                       \
	"run.load with run.finetune = true takes the weights; moments and " \
	"step are lost"

static void weigh_precision(struct diff *d, struct arena *a)
{
	const struct diff_row *row = find(d, "params_dtype");
	bool masters[2];

	if (!row)
		return;
	for (int i = 0; i < 2; i++)
		masters[i] = has_masters(d->v[i]->config);
	if (masters[0] != masters[1]) {
		d->loads = false;
		note(d, a,
		     "spec.params_dtype: checkpoints in %s have %s master "
		     "weights, a job in %s wants %s: " WEIGHTS_ALONE,
		     row->value[0], masters[0] ? "float32" : "no",
		     row->value[1], masters[1] ? "some" : "none");
	} else if (masters[0]) {
		d->loads = false;
		note(d, a,
		     "spec.params_dtype: %s is not converted to %s: " WEIGHTS_ALONE
		     ", from the float32 master weights",
		     row->value[0], row->value[1]);
	} else {
		note(d, a,
		     "spec.params_dtype: weights and moments are converted "
		     "from %s to %s",
		     row->value[0], row->value[1]);
	}
}

static void weigh_optimizer(struct diff *d, struct arena *a)
{
	const struct diff_row *row = find(d, "optimizer");

	if (!row)
		return;
	d->loads = false;
	note(d, a,
	     "run.optimizer: the state of %s is none of %s: " WEIGHTS_ALONE,
	     row->value[0], row->value[1]);
}

static void weigh_place(struct diff *d, struct arena *a)
{
	for (size_t i = 0; i < d->rows; i++)
		if (d->row[i].group == &place_group) {
			note(d, a,
			     "place: any layout loads any other; weights and "
			     "optimizer state are resharded while they are "
			     "read, and nothing is lost");
			return;
		}
}

/* One note on those of NAMES, ended by NULL, that differ. */
static void weigh_names(struct diff *d, const char *const *names,
			const char *what, struct arena *a)
{
	const char *all = NULL;

	for (; *names; names++) {
		const struct diff_row *row = find(d, *names);

		if (row)
			all = arena_printf(a, "%s%s%s.%s", all ? all : "",
					   all ? ", " : "", row->group->name,
					   *names);
	}
	if (all)
		note(d, a, "%s: %s", all, what);
}

static void weigh_run(struct diff *d, struct arena *a)
{
	static const char *const samples[] = {"data_path", "data_format",
					      "split", "seq_length", NULL};
	static const char *const order[] = {"seed", NULL};
	static const char *const batch[] = {"global_batch_size",
					    "step_batch_size_schedule", NULL};
	static const char *const rate[] = {"lr",
					   "min_lr",
					   "lr_decay_style",
					   "lr_decay_iters",
					   "lr_warmup_iters",
					   "lr_warmup_fraction",
					   "lr_warmup_init",
					   "train_iters",
					   NULL};

	weigh_names(d, samples, "other samples come from there on", a);
	weigh_names(d, order, "samples and dropout go on in another order", a);
	weigh_names(d, batch,
		    "schedules go on at the step that was reached, with other "
		    "numbers of samples a step",
		    a);
	weigh_names(d, rate,
		    "the learning rate of every step is B's from there on", a);
}

/* What a job of B does with A's checkpoints. */
static void weigh(struct diff *d, struct arena *a)
{
	const struct verdict *b = d->v[1];

	d->loads = d->weights = d->same_shape;
	if (!d->same_shape) {
		note(d, a,
		     "shape: they are other models, train-worker refuses such "
		     "checkpoints");
		return;
	}
	weigh_precision(d, a);
	weigh_optimizer(d, a);
	if (b->config->run.finetune) {
		d->loads = false;
		note(d, a,
		     "run.finetune: B asks for the weights alone, from step "
		     "0 on");
	}
	weigh_place(d, a);
	if (d->loads)
		weigh_run(d, a);
	if (!b->valid)
		d->loads = d->weights = false;
}

void diff_build(struct diff *d, const struct verdict *a,
		const struct verdict *b, struct arena *arena)
{
	*d = (struct diff){.v = {a, b}};
	for (int g = 0; g < GROUPS; g++)
		compare_group(d, g, arena);
	compare_shapes(d, arena);
	weigh(d, arena);
}
