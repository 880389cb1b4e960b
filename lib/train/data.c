/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/data.h"

#include <math.h>
#include <stdlib.h>

#include "lib/plan/run.h"
#include "lib/plan/shape.h"
#include "lib/train/data_file.h"
#include "lib/train/data_order.h"

struct dataset {
	struct data_file file;
	int64_t first;	 /* token of the split */
	int64_t windows; /* in it */
};

struct data {
	struct data_blend blend;
	struct dataset *set; /* [blend.count] */
	int opened;
	int64_t length, vocab; /* T, V */
	uint64_t seed;
	enum data_split split;
};

static const char *const split_names[] = {"train", "valid", "test"};

/* "969,30,1": shares as numbers, those not said are 0. */
static int parse_split(const char *text, double share[DATA_SPLITS],
		       struct err *e)
{
	const char *s = text;
	double sum = 0;
	int n = 0;
	char *end;

	for (; n < DATA_SPLITS; s = end + 1) {
		share[n] = strtod(s, &end);
		if (end == s || !(share[n] >= 0) || isinf(share[n]))
			break;
		sum += share[n++];
		if (*end == 0 && sum > 0) {
			while (n < DATA_SPLITS)
				share[n++] = 0;
			return 0;
		}
		if (*end != ',')
			break;
	}
	return err_set(e, CODE_USAGE,
		       "data: run.split = \"%s\": one to three shares such as "
		       "\"969,30,1\" (train,valid,test)",
		       text);
}

/* The token at which share 0 .. upto - 1 of the units ends, as Megatron. */
static int64_t cut(const struct data_file *f, const double share[DATA_SPLITS],
		   int upto)
{
	double sum = 0, before = 0;
	int64_t unit;

	for (int i = 0; i < DATA_SPLITS; i++) {
		sum += share[i];
		before += i < upto ? share[i] : 0;
	}
	unit = (int64_t)rint(before / sum * (double)f->units);
	return f->begin ? f->begin(f, unit) : unit;
}

static int set_range(const struct data *d, struct dataset *set,
		     const char *split, struct err *e)
{
	double share[DATA_SPLITS];
	int64_t tokens;

	if (parse_split(split, share, e))
		return -1;
	set->first = cut(&set->file, share, (int)d->split);
	tokens = cut(&set->file, share, (int)d->split + 1) - set->first;
	set->windows = (tokens - 1) / d->length;
	if (tokens > d->length)
		return 0;
	return err_set(e, CODE_USAGE,
		       "data: %s: its %s part has %lld of %lld tokens (run."
		       "split = \"%s\"), too short for one sample of %lld "
		       "tokens and a label (shape.seq_length)",
		       set->file.path, split_names[d->split], (long long)tokens,
		       (long long)set->file.count, split, (long long)d->length);
}

static int open_set(struct data *d, const struct run *run, const char *path,
		    struct err *e)
{
	struct dataset *set = &d->set[d->opened];

	if (data_file_open(&set->file, path, run->data_format, e))
		return -1;
	d->opened++;
	return set_range(d, set, run->split ? run->split : "969,30,1", e);
}

static int parse_weight(const char *text, double *weight, struct err *e)
{
	char *end;

	*weight = strtod(text, &end);
	if (end != text && !*end)
		return 0;
	return err_set(e, CODE_USAGE,
		       "data: run.data_path: \"%s\" is not a weight: a blend "
		       "is weight, path, weight, path",
		       text);
}

/* One path, or pairs of weight and path. */
static int open_sets(struct data *d, const struct run *run, struct err *e)
{
	const char *const *item = run->data_path.item;
	int n = run->data_path.count, sets = n == 1 ? 1 : n / 2;
	double *weight;
	int rc;

	if (n < 1 || (n > 1 && n % 2))
		return err_set(e, CODE_USAGE,
			       "data: run.data_path has %d entries: one path, "
			       "or weight, path, weight, path",
			       n);
	d->set = calloc((size_t)sets, sizeof(*d->set));
	weight = calloc((size_t)sets, sizeof(*weight));
	rc = d->set && weight ? 0 : err_set(e, CODE_FINDINGS, "no memory");
	for (int i = 0; i < sets && !rc; i++) {
		weight[i] = 1;
		if (n > 1)
			rc = parse_weight(item[2 * i], &weight[i], e);
		if (!rc)
			rc = open_set(d, run, item[n > 1 ? 2 * i + 1 : 0], e);
	}
	if (!rc)
		rc = data_blend_open(&d->blend, weight, sets, e);
	free(weight);
	return rc;
}

int data_open(struct data **out, const struct run *run,
	      const struct shape *shape, enum data_split split, uint64_t seed,
	      struct err *e)
{
	struct data *d = calloc(1, sizeof(*d));

	*out = NULL;
	if (!d)
		return err_set(e, CODE_FINDINGS, "data: no memory");
	d->length = shape->seq_length;
	d->vocab = shape->vocab_size;
	d->seed = seed;
	d->split = split;
	if (open_sets(d, run, e)) {
		data_close(d);
		return -1;
	}
	*out = d;
	return 0;
}

int data_sample(const struct data *d, int64_t index, int32_t *tokens,
		struct err *e)
{
	int64_t k, begin;
	int which = data_blend_at(&d->blend, index, &k);
	const struct dataset *set = &d->set[which];
	uint32_t stream = (uint32_t)(which * DATA_SPLITS + (int)d->split);

	begin = set->first +
		d->length * data_permute(k % set->windows, set->windows,
					 d->seed, (uint64_t)(k / set->windows),
					 stream);
	for (int64_t t = 0; t <= d->length; t++) {
		int64_t id = data_token(&set->file, begin + t);

		if (id < 0 || id >= d->vocab)
			return err_set(e, CODE_USAGE,
				       "data: %s: token %lld is %lld, outside "
				       "of the vocabulary of %lld (shape."
				       "vocab_size)",
				       set->file.path, (long long)(begin + t),
				       (long long)id, (long long)d->vocab);
		tokens[t] = (int32_t)id;
	}
	return 0;
}

int64_t data_windows(const struct data *d)
{
	int64_t sum = 0;

	for (int i = 0; i < d->blend.count; i++)
		sum += d->set[i].windows;
	return sum;
}

void data_close(struct data *d)
{
	if (!d)
		return;
	for (int i = 0; i < d->opened; i++)
		data_file_close(&d->set[i].file);
	data_blend_close(&d->blend);
	free(d->set);
	free(d);
}
