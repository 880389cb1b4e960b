/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/microbatch.h"

/* One sample of a micro-batch, T tokens from row FIRST on. */
struct sample {
	const struct exec *x;
	int mb;
	int64_t first, T;
};

static int32_t *ids_of(const struct sample *s, int depth)
{
	return exec_ids(s->x, s->mb, depth) + s->first;
}

static int32_t *labels_of(const struct sample *s, int depth)
{
	return exec_labels(s->x, s->mb, depth) + s->first;
}

static int32_t *places_of(const struct sample *s, int depth)
{
	int32_t *place = exec_place(s->x, s->mb, depth);

	return place ? place + s->first : NULL;
}

static int32_t *doc_of(const struct sample *s)
{
	int32_t *doc = exec_doc(s->x, s->mb);

	return doc ? doc + s->first : NULL;
}

/*
 * Documents as Megatron's get_ltor_masks_and_position_ids has them: one ends
 * with its eod, whose label is the first token of the next.
 */
static void set_documents(const struct sample *s, const struct run *run)
{
	int32_t *ids = ids_of(s, 0), *labels = labels_of(s, 0);
	int32_t *place = places_of(s, 0), *doc = doc_of(s);
	int64_t begin = 0;

	for (int64_t i = 0; i < s->T; i++) {
		if (doc)
			doc[i] = (int32_t)begin;
		if (place)
			place[i] = (int32_t)(i - begin);
		if (!IS_SET(run->eod_id) || ids[i] != run->eod_id)
			continue;
		begin = i + 1;
		if (run->eod_mask_loss)
			labels[i] = -1;
	}
}

/*
 * Depth DEPTH from the depth before: everything one place to the left, token
 * 0, position 0 and no label at the end of the sample, and of each document
 * if attention stops there, too (model-numerics 1.1, 1.3).
 */
static void roll(const struct sample *s, int depth)
{
	const int32_t *ids = ids_of(s, depth - 1), *doc = doc_of(s);
	const int32_t *labels = labels_of(s, depth - 1);
	const int32_t *place = places_of(s, depth - 1);

	for (int64_t i = 0; i < s->T; i++) {
		bool end = i == s->T - 1 || (doc && doc[i + 1] == i + 1);

		ids_of(s, depth)[i] = end ? 0 : ids[i + 1];
		labels_of(s, depth)[i] = end ? -1 : labels[i + 1];
		if (place)
			places_of(s, depth)[i] = end ? 0 : place[i + 1];
	}
}

static int64_t count_scored(const struct sample *s, int depth)
{
	const int32_t *labels = labels_of(s, depth);
	int64_t n = 0;

	for (int64_t i = 0; i < s->T; i++)
		n += labels[i] >= 0;
	return n;
}

int microbatch_load(struct trainer *t, const struct trainer_data *data,
		    bool valid, int64_t first, int mb, int64_t *scored,
		    struct err *e)
{
	const struct config *c = t->plan.config;
	int64_t T = c->shape.seq_length, B = c->run.micro_batch_size;
	int64_t sample =
		first +
		((int64_t)mb * t->plan.grid.dp + t->plan.slice.at.dp) * B;

	for (int64_t b = 0; b < B; b++) {
		struct sample s = {&t->exec, mb, b * T, T};

		if (data->sample(data->arg, valid, sample + b, ids_of(&s, 0),
				 labels_of(&s, 0), e))
			return -1;
		set_documents(&s, &c->run);
		scored[0] += count_scored(&s, 0);
		for (int k = 1; k <= t->plan.prog.depths; k++) {
			roll(&s, k);
			scored[k] += count_scored(&s, k);
		}
	}
	return 0;
}
