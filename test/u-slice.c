/* SPDX-License-Identifier: Apache-2.0 */
/* Slices: every weight exactly once, and local arrays that do not overlap. */
#include "test/plan-test.h"

#include "lib/plan/sum.h"

static int wide; /* how many layouts check_wide saw */

/* How often each element of each weight was seen. */
struct cover {
	unsigned char **seen; /* by weight */
	const struct weights *w;
};

static void cover_open(struct cover *c, const struct weights *w,
		       struct arena *a)
{
	c->w = w;
	c->seen = arena_alloc(a, (size_t)w->count, sizeof(*c->seen));
	for (int i = 0; i < w->count; i++)
		c->seen[i] =
			arena_alloc(a, (size_t)weight_elements(&w->list[i]), 1);
}

static void cover_add(struct cover *c, const struct piece *p)
{
	const struct weight *w = &c->w->list[p->weight];

	for (int64_t i = 0; i < p->box.cnt[0]; i++)
		for (int64_t j = 0; j < p->box.cnt[1]; j++) {
			int64_t row = p->box.off[0] + i;
			int64_t col = p->box.off[1] + j;

			assert_in_range(row, 0, w->dim[0] - 1);
			assert_in_range(col, 0, w->dim[1] - 1);
			c->seen[p->weight][row * w->dim[1] + col]++;
		}
}

static void cover_check(const struct cover *c, const char *what)
{
	for (int i = 0; i < c->w->count; i++)
		for (int64_t k = 0; k < weight_elements(&c->w->list[i]); k++)
			if (c->seen[i][k] != 1)
				fail_msg("%s: %s[%d] is there %d times", what,
					 c->w->list[i].name, (int)k,
					 c->seen[i][k]);
}

/* Pieces fill their array from its start, one below the other. */
static void check_pieces(const struct slice *s, const struct param *p)
{
	int64_t at = p->at;

	for (int k = 0; k < p->pieces; k++) {
		const struct piece *x = &s->piece[p->first_piece + k];

		assert_int_equal(x->at, at);
		assert_int_equal(x->box.cnt[1], p->cols);
		at += box_elements(&x->box);
	}
	if (p->part == PART_EMBED_TOK || p->part == PART_HEAD_W)
		assert_true(at <= p->at + p->rows * p->cols);
	else
		assert_int_equal(at, p->at + p->rows * p->cols);
}

/* Arrays of a class lie in its part without overlap, each in one bucket. */
static void check_arrays(const struct slice *s, enum weight_class cls)
{
	const struct buckets *all = &s->flat[cls].buckets;
	int64_t end = all->count ? all->list[0].first : 0;
	int nth = 0;

	for (int i = 0; i < s->params; i++)
		nth += s->param[i].cls == cls;
	for (int i = s->params - 1; i >= 0; i--) {
		const struct param *p = &s->param[i];
		const struct bucket *b;

		if (p->cls != cls)
			continue;
		b = &all->list[all->of[--nth]];
		assert_true(p->at >= end);
		end = p->at + p->rows * p->cols;
		assert_true(p->at >= b->first && end <= b->end);
		check_pieces(s, p);
	}
	assert_int_equal(nth, 0);
	assert_true(end <= s->elements);
}

/* The buckets tile the buffer, and the shards of all ranks the buckets. */
static void check_shards(const struct slice *s, struct arena *a)
{
	int64_t at = 0, lo, hi, own = 0, (*mine)[2];
	int n = slice_shards(s, &mine, a);

	for (int cls = 0; cls < CLASSES; cls++) {
		const struct flat *f = &s->flat[cls];

		for (int i = 0; i < f->buckets.count; i++)
			for (int d = 0; d < f->dp; d++) {
				bucket_shard(&f->buckets, i, d, f->dp, &lo,
					     &hi);
				assert_int_equal(lo, at);
				at = hi;
				if (d != f->d)
					continue;
				assert_true(n-- > 0);
				assert_int_equal((*mine)[0], lo);
				assert_int_equal((*mine)[1], hi);
				own += hi - lo;
				mine++;
			}
	}
	assert_int_equal(n, 0);
	assert_int_equal(at, s->elements);
	assert_int_equal(own, s->own);
}

/* Copies of k and v are the same rows on consecutive tp ranks. */
static void check_kv(const struct slice *s, const struct slice *before)
{
	if (s->at.tp == 0)
		return;
	for (int i = 0; i < s->params; i++) {
		const struct param *p = &s->param[i], *q = &before->param[i];
		const struct piece *x, *y;

		if (!p->sum_kv || s->at.tp % p->kv_copies == 0)
			continue;
		x = &s->piece[p->first_piece + 1];
		y = &before->piece[q->first_piece + 1];
		assert_memory_equal(&x->box, &y->box, sizeof(x->box));
		assert_int_equal(x->replica, y->replica + 1);
		assert_int_equal(p->kv_row, q->kv_row);
	}
}

/* Whole experts, in order, on the ranks of ep. */
static void check_experts(const struct slice *s, const struct weights *w,
			  const struct grid *g)
{
	for (int i = 0; i < s->pieces; i++) {
		const struct piece *x = &s->piece[i];
		const struct weight *of = &w->list[x->weight];
		int64_t rows = of->dim[0] / of->experts;
		int64_t expert = x->box.off[0] / rows;

		if (of->cls != CLASS_EXPERT)
			continue;
		assert_int_equal(expert / (of->experts / g->ep), s->at.ep);
		assert_true(x->box.off[0] + x->box.cnt[0] <=
			    (expert + 1) * rows);
	}
}

/* The first of the ranks that share what it owns of PIECE's class. */
static bool speaks(const struct slice *s, const struct weights *w,
		   const struct piece *x)
{
	return x->replica == 0 && s->flat[w->list[x->weight].cls].d == 0;
}

static void check_layout(const struct plan_case *x, const struct config *c,
			 struct arena *a)
{
	struct slice s, before = {0};
	struct weights w;
	struct stages st;
	struct cover cover;
	struct grid g;
	struct err e;

	assert_int_equal(grid_build(&g, &c->place, x->world, &e), 0);
	assert_int_equal(stages_build(&st, &c->place, &c->shape, a, &e), 0);
	weights_build(&w, &c->shape, a);
	cover_open(&cover, &w, a);
	for (int r = 0; r < x->world; r++) {
		struct coord at = grid_coord(&g, r);

		slice_build(&s, &c->shape, &c->place, &g, &st, &w, at, a);
		for (int cls = 0; cls < CLASSES; cls++)
			check_arrays(&s, (enum weight_class)cls);
		check_shards(&s, a);
		check_experts(&s, &w, &g);
		if (at.tp)
			check_kv(&s, &before);
		before = s;
		for (int i = 0; i < s.pieces; i++)
			if (speaks(&s, &w, &s.piece[i]))
				cover_add(&cover, &s.piece[i]);
	}
	cover_check(&cover, x->sets);
}

static void test_every_weight_once(void **state)
{
	(void)state;
	assert_true(plan_grid(24, "", check_layout) > 900);
	assert_true(plan_grid(8, OWN, check_layout) > 100);
}

/* Experts, multi-token prediction and norms of q and k. */
static const char *const wide_shapes[] = {
	"shape.num_moe_experts=8",
	"shape.num_moe_experts=4 shape.moe_layer_freq=2 "
	"shape.moe_ffn_hidden_size=16",
	"shape.num_moe_experts=4 shape.moe_shared_expert_intermediate_size=8 "
	"shape.mtp_num_layers=2",
	"shape.mtp_num_layers=1 shape.qk_layernorm=true",
	"shape.mtp_num_layers=3 shape.mtp_use_repeated_layer=true",
	OWN " shape.mtp_num_layers=1 shape.add_bias_linear=true",
	"shape.mtp_num_layers=1 "
	"shape.share_embeddings_and_output_weights=true",
};

static const struct {
	const char *sets;
	int world;
} wide_places[] = {
	{"", 1},
	{"place.expert_model_parallel_size=2", 2},
	{"place.expert_model_parallel_size=2 place.sequence_parallel=true "
	 "place.tensor_model_parallel_size=2",
	 4},
	{"place.expert_model_parallel_size=4 place.sequence_parallel=true "
	 "place.tensor_model_parallel_size=2 "
	 "place.expert_tensor_parallel_size=1 "
	 "place.use_distributed_optimizer=true",
	 8},
	{"place.context_parallel_size=2 place.expert_model_parallel_size=2 "
	 "place.pipeline_model_parallel_size=2",
	 8},
	{"place.pipeline_model_parallel_size=2 "
	 "place.virtual_pipeline_model_parallel_size=2 "
	 "place.data_parallel_sharding_strategy=\"optim_grads_params\" "
	 "place.overlap_grad_reduce=true run.global_batch_size=16",
	 8},
	{"place.pipeline_model_parallel_size=3 "
	 "place.pipeline_model_parallel_layout=\"Ettt|ttt|ttL\"",
	 3},
	{"place.pipeline_model_parallel_size=3 "
	 "place.pipeline_model_parallel_layout=\"Etttt|tttt|mL\"",
	 3},
	{"place.pipeline_model_parallel_size=3 "
	 "place.pipeline_model_parallel_layout=\"Etttt|ttttm|L\"",
	 3},
};

/* The slices hold what shape_parameters counts, each of it once. */
static void check_wide(const char *file, const char *sets, int world)
{
	struct plan_case x = {.file = file, .sets = sets, .world = world};
	struct config c;
	struct arena a;
	struct err e;

	assert_int_equal(arena_open(&a, &e), 0);
	if (plan_config(&c, file, sets, world, &a)) {
		int64_t stages = 0;
		struct sum sum;

		check_layout(&x, &c, &a);
		assert_int_equal(sum_build(&sum, &c, world, &a, &e), 0);
		assert_true(sum.counted && sum_knows(&sum, FAMILY_OPTIM));
		for (int i = 0; i < sum.stages.count; i++)
			stages += sum.stage[i].parameters;
		assert_int_equal(stages, shape_parameters(&c.shape));
		wide++;
	}
	arena_close(&a);
}

static void test_experts_and_mtp_once(void **state)
{
	size_t shapes = sizeof(wide_shapes) / sizeof(*wide_shapes);
	size_t places = sizeof(wide_places) / sizeof(*wide_places);
	char sets[1024];

	(void)state;
	for (size_t k = 0; k < 2 * shapes * places; k++) {
		size_t place = k / 2 % places;

		snprintf(sets, sizeof(sets), "%s %s",
			 wide_shapes[k / 2 / places], wide_places[place].sets);
		check_wide(k % 2 ? GPT2 : LLAMA, sets,
			   wide_places[place].world);
	}
	assert_true(wide > 50);
}

/* How the gradients of copies come together, and who keeps what. */
static void test_facts(void **state)
{
	static const char sets[] =
		"shape.num_moe_experts=4 shape.qk_layernorm=true "
		"shape.mtp_num_layers=1 place.tensor_model_parallel_size=2 "
		"place.sequence_parallel=true place.expert_model_parallel_size=2 "
		"place.pipeline_model_parallel_size=2 "
		"place.data_parallel_sharding_strategy=\"optim_grads\"";
	const struct param *router, *fc1, *norm, *tok;
	struct config c;
	struct plan p;
	struct arena a;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_true(plan_config(&c, LLAMA, sets, 8, &a));
	assert_int_equal(plan_slice(&p, &c, 8, 7, &a, &e), 0);
	router = slice_find(&p.slice, PART_ROUTER_W, 7, 0);
	fc1 = slice_find(&p.slice, PART_EXPERT_FC1_W, 8, 0);
	norm = slice_find(&p.slice, PART_Q_NORM_W, 8, 0);
	tok = slice_find(&p.slice, PART_EMBED_TOK, -1, 0);
	assert_true(router->sum_tp && router->cls == CLASS_DENSE);
	assert_true(!fc1->sum_tp && fc1->cls == CLASS_EXPERT);
	assert_true(norm->sum_tp && norm->rows == c.shape.kv_channels);
	assert_true(tok->sum_embedding &&
		    p.slice.piece[tok->first_piece].replica == 1);
	assert_int_equal(p.prog.bytes[FAMILY_PARAM], 4 * p.slice.elements);
	assert_int_equal(p.prog.bytes[FAMILY_GRAD], 4 * p.slice.own);
	assert_int_equal(p.prog.bytes[FAMILY_OPTIM], 8 * p.slice.own);
	arena_close(&a);
}

/* Without a size, Megatron's: max(40e6, 1e6 * dp) parameters; no overlap: 1. */
static void test_bucket_sizes(void **state)
{
	static const struct {
		const char *sets;
		bool many;
	} cases[] = {
		{"shape.hidden_size=2048", false},
		{"shape.hidden_size=2048 place.overlap_grad_reduce=true", true},
		{"place.overlap_grad_reduce=true", false},
		{"place.overlap_grad_reduce=true place.bucket_size=500", true},
		{"place.bucket_size=500", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct config c;
		struct plan p;
		struct arena a;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		assert_true(plan_config(&c, LLAMA, cases[i].sets, 1, &a));
		if (plan_build(&p, &c, 1, 0, &a, &e))
			fail_msg("%s", e.text);
		assert_int_equal(p.slice.flat[CLASS_DENSE].buckets.count > 1,
				 cases[i].many);
		arena_close(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_weight_once),
		cmocka_unit_test(test_experts_and_mtp_once),
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_bucket_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
