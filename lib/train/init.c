/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/init.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kernels/philox.h"
#include "lib/base/half.h"

/* Element INDEX of the standard normal stream of KEY. */
static double normal_at(uint64_t seed, uint64_t key, int64_t index)
{
	uint64_t pair = (uint64_t)index / 2;
	uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t c[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)key,
			 (uint32_t)(key >> 32)};
	uint64_t a, b;
	double radius, turn;

	philox4x32(c, k);
	a = (uint64_t)c[1] << 32 | c[0];
	b = (uint64_t)c[3] << 32 | c[2];
	/* Box-Muller: (a + 1) / 2^53 is in (0, 1]. */
	radius = sqrt(-2 * log(((double)(a >> 11) + 1) * 0x1p-53));
	turn = 2 * M_PI * ((double)(b >> 11) * 0x1p-53);
	return radius * (index % 2 ? sin(turn) : cos(turn));
}

static struct init_how how_to(const struct weight *w, const struct config *c)
{
	struct init_how how = {.normal = true, .value = c->run.init_method_std};

	switch (w->init) {
	case INIT_NORMAL: break;
	case INIT_NORMAL_EMBED:
		if (!isnan(c->run.embedding_init_method_std))
			how.value = c->run.embedding_init_method_std;
		break;
	case INIT_NORMAL_OUT:
		how.value /= sqrt(2 * (double)c->shape.num_layers);
		break;
	case INIT_ONE:
		how = (struct init_how){
			.value = !c->shape.layernorm_zero_centered_gamma};
		break;
	case INIT_ZERO: how = (struct init_how){0}; break;
	}
	return how;
}

static void put(void *params, size_t size, int64_t at, double value)
{
	if (size == sizeof(double))
		((double *)params)[at] = value;
	else
		((float *)params)[at] = (float)value;
}

void init_piece(const struct piece *p, const struct weight *w,
		const struct init_how *how, uint64_t seed, size_t size,
		void *params)
{
	uint64_t key = XXH3_64bits(w->name, strlen(w->name));

#pragma omp parallel for
	for (int64_t row = 0; row < p->box.cnt[0]; row++) {
		int64_t index =
			(p->box.off[0] + row) * w->dim[1] + p->box.off[1];
		int64_t at = p->at + row * p->box.cnt[1];

		for (int64_t col = 0; col < p->box.cnt[1]; col++)
			put(params, size, at + col,
			    how->normal ? how->value * normal_at(seed, key,
								 index + col)
					: how->value);
	}
}

void init_params(const struct slice *s, const struct weights *w,
		 const struct config *c, size_t size, void *params)
{
	for (int i = 0; i < s->pieces; i++) {
		const struct weight *x = &w->list[s->piece[i].weight];
		struct init_how how = how_to(x, c);

		init_piece(&s->piece[i], x, &how, (uint64_t)c->run.seed, size,
			   params);
	}
}

/* What of the flat buffer ALL this rank has optimizer state for, packed. */
static int put_masters(struct exec *x, const struct slice *s, const float *all,
		       struct err *e)
{
	const struct prog *p = x->prog;
	int64_t(*shard)[2], own = 0;
	struct arena a;
	float *to = NULL;
	char *map;
	int n = 0;

	if (arena_open(&a, e))
		return -1;
	map = exec_map(x, FAMILY_OPTIM, true, e);
	if (map) {
		to = (void *)(map + p->master);
		n = slice_shards(s, &shard, &a);
	}
	if (to && !slice_shards_optim(s))
		memcpy(to, all, (size_t)s->elements * sizeof(*to));
	for (int i = 0; to && slice_shards_optim(s) && i < n; i++) {
		int64_t count = shard[i][1] - shard[i][0];

		memcpy(to + own, all + shard[i][0],
		       (size_t)count * sizeof(*to));
		own += count;
	}
	arena_close(&a);
	return map ? exec_unmap(x, FAMILY_OPTIM, map, true, e) : -1;
}

int init_weights(struct exec *x, const struct slice *s, const float *all,
		 struct err *e)
{
	uint16_t *map = exec_map(x, FAMILY_PARAM, false, e);

	if (!map)
		return -1;
	for (int64_t i = 0; i < s->elements; i++)
		map[i] = x->dtype == DTYPE_BF16 ? bf16_round(all[i])
						: fp16_round(all[i]);
	if (exec_unmap(x, FAMILY_PARAM, map, true, e))
		return -1;
	/* a generation has no optimizer */
	return x->prog->bytes[FAMILY_OPTIM] ? put_masters(x, s, all, e) : 0;
}

int init_exec(struct exec *x, const struct slice *s, const struct weights *w,
	      const struct config *c, const struct init_hook *hook,
	      struct err *e)
{
	float *all;
	void *map;
	int bad;

	if (x->prog->master < 0) {
		map = exec_map(x, FAMILY_PARAM, true, e);
		if (!map)
			return -1;
		init_params(s, w, c, x->prog->elem, map);
		if (hook->call(hook->arg, map, x->prog->elem, e))
			return -1;
		return exec_unmap(x, FAMILY_PARAM, map, true, e);
	}
	all = calloc((size_t)s->elements, sizeof(*all));
	if (!all)
		return err_set(e, CODE_LAUNCH,
			       "cannot allocate %" PRId64
			       " weights on the host",
			       s->elements);
	init_params(s, w, c, sizeof(*all), all);
	bad = hook->call(hook->arg, all, sizeof(*all), e) ||
	      init_weights(x, s, all, e);
	free(all);
	return bad ? -1 : 0;
}
