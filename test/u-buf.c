/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers never overlap while they are needed.  The same program is planned
 * twice, with buffers used again and with every buffer in a place of its own,
 * and both run side by side on hashes instead of numbers: an op's results are
 * a hash of what it reads.  If a buffer were taken too early, some op would
 * read something else than its twin.
 */
#include "test/op-uses.h"

/* The linker takes this copy, whose buf_free can be switched off. */
#define buf_free buf_free_now
#include "lib/plan/prog_buf.c"
#undef buf_free

void buf_free(struct build *b, struct buf *buf);

static bool keep_all;

void buf_free(struct build *b, struct buf *buf)
{
	if (keep_all)
		*buf = NO_BUF;
	else
		buf_free_now(b, buf);
}

/* Memory in granules of BUF_ALIGN bytes, each with the hash of its content. */
struct shadow {
	const struct plan *plan;
	const struct prog_list *list;
	uint64_t *mem[FAMILIES];
	uint64_t *sent; /* by op: the hash of what a start sends */
	struct sizes sizes;
	int reducing; /* the start that uses the scratch, or -1 */
	const char *what;
};

#define POISON 0xdeadULL

static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/* The granules of a use; it lies within its family. */
static uint64_t *granules(const struct shadow *s, struct ref ref,
			  const struct use *u, int64_t *count)
{
	int64_t first = ref.at / BUF_ALIGN;

	if (ref.family < 0)
		fail_msg("%s: a buffer is missing", s->what);
	if (ref.at < 0 || ref.at % 2 ||
	    ref.at + u->bytes > s->plan->prog.bytes[ref.family])
		fail_msg("%s: %d + %d bytes leave %s", s->what, (int)ref.at,
			 (int)u->bytes, family_name(ref.family));
	*count = (ref.at + u->bytes + BUF_ALIGN - 1) / BUF_ALIGN - first;
	return s->mem[ref.family] + first;
}

static bool skipped(const struct op *op, const struct use *u, int i)
{
	return op->ref[i].family < 0 && u[i].how & MAYBE;
}

/* The hash of all that OP reads; nobody reads what nobody wrote. */
static uint64_t read_all(struct shadow *s, const struct op *op,
			 const struct use *u)
{
	uint64_t h = op->code;
	int64_t count;

	for (int i = 0; i < 9; i++) {
		const uint64_t *g;

		if (!(u[i].how & IN) || skipped(op, u, i))
			continue;
		g = granules(s, op->ref[i], &u[i], &count);
		for (int64_t k = 0; k < count; k++) {
			if (g[k] == 0 || g[k] == POISON)
				fail_msg("%s: op %d reads what is not there",
					 s->what, (int)(op - s->list->op));
			h = mix(h, g[k]);
		}
	}
	return h;
}

static void write_all(struct shadow *s, const struct op *op,
		      const struct use *u, uint64_t h)
{
	int64_t count;

	for (int i = 0; i < 9; i++) {
		uint64_t *g;

		if (!(u[i].how & (OUT | SCRATCH)) || skipped(op, u, i))
			continue;
		g = granules(s, op->ref[i], &u[i], &count);
		for (int64_t k = 0; k < count; k++)
			g[k] = h == POISON || u[i].how & SCRATCH
				       ? POISON
				       : mix(h, (uint64_t)(k + i)) | 1;
	}
}

static bool reduces(const struct op *op)
{
	return op->comm != PROG_SEND && op->comm != PROG_RECV &&
	       op->comm != PROG_ALL_GATHER;
}

/* Until its wait, what comes in is poison; the scratch has one user. */
static uint64_t run_start(struct shadow *s, int i, struct use *u)
{
	const struct op *op = &s->list->op[i];
	uint64_t h;

	uses_of_comm(s->plan, op, u);
	h = read_all(s, op, u);
	s->sent[i] = h;
	if (reduces(op)) {
		assert_int_equal(s->reducing, -1);
		s->reducing = i;
	} else {
		u[2].how = 0;
	}
	write_all(s, op, u, POISON);
	return h;
}

/* What was sent did not change meanwhile, nor was what comes in touched. */
static uint64_t run_wait(struct shadow *s, int i, struct use *u)
{
	const struct op *op = &s->list->op[i];
	int64_t count;
	uint64_t *g;

	uses_of_comm(s->plan, op, u);
	if (op->comm == PROG_SEND)
		assert_true(read_all(s, op, u) == s->sent[i]);
	if (u[1].how & OUT) {
		g = granules(s, op->ref[1], &u[1], &count);
		for (int64_t k = 0; k < count; k++)
			assert_true(g[k] == POISON);
	}
	u[2].how = 0;
	write_all(s, op, u, s->sent[i]);
	if (s->reducing == i)
		s->reducing = -1;
	return s->sent[i];
}

/* prog_op_bytes counts what the ops' contracts say, but not scalars. */
static void check_bytes(const struct shadow *s, const struct op *op,
			const struct use *u)
{
	int64_t bytes = 0;

	if (op->code == OP_METRICS || op->code == OP_CLIP)
		return;
	for (int i = 0; i < 9; i++) {
		if (op->ref[i].family < 0 || u[i].how & SCRATCH)
			continue;
		bytes += u[i].bytes * ((u[i].how & IN) + (u[i].how & OUT) / 2);
	}
	if (op->code == OP_CUT) /* what lies between is not read */
		bytes = 2 * u[0].bytes;
	if (op->code == OP_ATTN_AT) /* what was there before is only read */
		bytes -= op->attn->B * op->attn->G *
			 (op->attn->D + op->attn->Dv) *
			 (op->n[0] - op->attn->T) * s->sizes.elem;
	/* With a master copy p is only written. */
	if ((op->code == OP_ADAMW || op->code == OP_BALANCE) &&
	    op->ref[1].family >= 0)
		bytes -= u[0].bytes;
	assert_int_equal(prog_op_bytes(&s->plan->prog, op), bytes);
}

/* Run op I; returns the hash of what it read. */
static uint64_t run_op(struct shadow *s, int i)
{
	const struct op *op = &s->list->op[i];
	struct use u[9] = {{0, 0}};
	uint64_t h;

	if (op->code == OP_COMM)
		return run_start(s, i, u);
	if (op->code == OP_WAIT)
		return run_wait(s, op->wait, u);
	uses_of_kern(op, &s->sizes, u);
	check_bytes(s, op, u);
	h = read_all(s, op, u);
	write_all(s, op, u, h);
	return h;
}

/* Everything has content but activations, where only rope's table has. */
static void shadow_open(struct shadow *s, const struct plan *p,
			const struct prog_list *l, const char *what,
			struct arena *a)
{
	const struct prog *x = &p->prog;

	*s = (struct shadow){
		.plan = p,
		.list = l,
		.what = what,
		.reducing = -1,
		.sizes = {(int64_t)x->elem, (int64_t)x->sum,
			  p->config->spec.device == DEVICE_CUDA},
	};
	s->sent = arena_alloc(a, (size_t)l->count, sizeof(*s->sent));
	for (int f = 0; f < FAMILIES; f++) {
		int64_t n = x->bytes[f] / BUF_ALIGN + 1;

		s->mem[f] = arena_alloc(a, (size_t)n, sizeof(uint64_t));
		for (int64_t k = 0; k < n; k++)
			if (f != FAMILY_ACT && f != FAMILY_COMM)
				s->mem[f][k] =
					mix((uint64_t)f, (uint64_t)k) | 1;
	}
	if (x->rope.family >= 0) {
		int64_t count;
		struct use u = {IN, x->rope_rows * x->rope_half * 2 *
					    (int64_t)x->sum};
		uint64_t *g = granules(s, x->rope, &u, &count);

		for (int64_t k = 0; k < count; k++)
			g[k] = mix(1, (uint64_t)k) | 1;
	}
}

static void run_both(struct shadow *s, struct shadow *t, const char *what)
{
	assert_int_equal(s->list->count, t->list->count);
	for (int i = 0; i < s->list->count; i++)
		if (run_op(s, i) != run_op(t, i))
			fail_msg("%s: op %d reads a buffer that was taken",
				 what, i);
}

static void compare(const struct plan *again, const struct plan *apart,
		    bool train, const char *what, struct arena *a)
{
	const struct prog_list *x =
		train ? &again->prog.train : &again->prog.eval;
	const struct prog_list *y =
		train ? &apart->prog.train : &apart->prog.eval;
	struct shadow s, t;

	shadow_open(&s, again, x, what, a);
	shadow_open(&t, apart, y, what, a);
	run_both(&s, &t, what);
}

static void check_layout(const struct plan_case *x, const struct config *c,
			 struct arena *a)
{
	struct plan again, apart;
	struct err e;

	for (int r = 0; r < x->world; r++) {
		keep_all = false;
		if (plan_build(&again, c, x->world, r, a, &e))
			fail_msg("%s: %s", x->sets, e.text);
		keep_all = true;
		if (plan_build(&apart, c, x->world, r, a, &e))
			fail_msg("%s: %s", x->sets, e.text);
		assert_true(apart.prog.bytes[FAMILY_ACT] >
			    again.prog.bytes[FAMILY_ACT]);
		compare(&again, &apart, true, x->sets, a);
		compare(&again, &apart, false, x->sets, a);
	}
}

/* The cache of a layer is as if all before had run. */
static void fill_cache(struct shadow *s)
{
	for (int i = 0; i < s->list->count; i++) {
		const struct op *op = &s->list->op[i];
		struct use u[9] = {{0, 0}};
		int64_t count;

		if (op->code != OP_ATTN_AT)
			continue;
		uses_of_at(op, &s->sizes, u);
		for (int k = 1; k < 3; k++) {
			uint64_t *g = granules(s, op->ref[k], &u[k], &count);

			for (int64_t j = 0; j < count; j++)
				g[j] = mix((uint64_t)(i + k), (uint64_t)j) | 1;
		}
	}
}

static const struct prog_list *list_of(const struct prog_gen *g, int pass,
				       int k)
{
	return &g->pass[pass].list[k];
}

/* Passes in any order, each with its depths. */
static void compare_passes(const struct plan *p[2], const struct prog_gen g[2],
			   const char *what, struct arena *a)
{
	static const int order[] = {PASS_PROMPT, PASS_NEXT, PASS_NEXT,
				    PASS_PROMPT};
	struct shadow s[2];

	for (int i = 0; i < 2; i++) {
		shadow_open(&s[i], p[i], list_of(&g[i], 0, 0), what, a);
		for (int k = 0; k <= g[i].depths; k++) {
			s[i].list = list_of(&g[i], 0, k);
			fill_cache(&s[i]);
		}
	}
	for (int n = 0; n < 4; n++)
		for (int k = 0; k <= g->depths; k++) {
			for (int i = 0; i < 2; i++) {
				s[i].list = list_of(&g[i], order[n], k);
				s[i].sent = arena_alloc(
					a, (size_t)s[i].list->count + 1,
					sizeof(*s[i].sent));
			}
			run_both(&s[0], &s[1], what);
		}
}

static void check_generation(const struct plan_case *x, const struct config *c,
			     struct arena *a)
{
	const struct gen_size size = {.slots = 3,
				      .room = 50,
				      .prompt = 20,
				      .drafts = c->shape.mtp_num_layers > 0};
	struct plan again, apart;
	const struct plan *both[2] = {&again, &apart};
	struct prog_gen g[2];
	struct err e;

	for (int r = 0; r < x->world; r++) {
		keep_all = false;
		if (plan_gen_build(&again, &g[0], c, &size, x->world, r, a, &e))
			fail_msg("%s: %s", x->sets, e.text);
		keep_all = true;
		if (plan_gen_build(&apart, &g[1], c, &size, x->world, r, a, &e))
			fail_msg("%s: %s", x->sets, e.text);
		assert_true(apart.prog.bytes[FAMILY_ACT] >
			    again.prog.bytes[FAMILY_ACT]);
		compare_passes(both, g, x->sets, a);
	}
}

static void test_buffers_of_generation(void **state)
{
	(void)state;
	assert_true(plan_grid(4, "", check_generation) > 150);
	assert_true(plan_grid(4, "shape.mtp_num_layers=2", check_generation) >
		    60);
	assert_true(plan_grid(4, DEPTHS_ALONE, check_generation) > 0);
	assert_true(plan_grid(4, EXPERTS_SHARED " shape.mtp_num_layers=2",
			      check_generation) > 30);
	assert_true(plan_grid(4, EXPERTS_APART, check_generation) > 10);
	assert_true(plan_grid(4, OWN " shape.mtp_num_layers=2",
			      check_generation) > 60);
}

static void test_buffers_are_there_when_needed(void **state)
{
	(void)state;
	assert_true(plan_grid(4, "", check_layout) > 150);
}

/* Depths beside the head, on a stage before it, and in one layer. */
static void test_buffers_of_depths(void **state)
{
	(void)state;
	assert_true(plan_grid(4, "shape.mtp_num_layers=2", check_layout) > 60);
	assert_true(plan_grid(4,
			      "shape.mtp_num_layers=3 "
			      "shape.mtp_use_repeated_layer=true "
			      "spec.device=\"cuda\" "
			      "spec.params_dtype=\"bf16\"",
			      check_layout) > 60);
	assert_true(plan_grid(4, DEPTHS_ALONE, check_layout) > 0);
	assert_true(plan_grid(4, "shape.mtp_num_layers=3 run.mtp_hsm=true",
			      check_layout) > 60);
	assert_true(plan_grid(4, DEPTHS_ALONE " run.mtp_hsm=true",
			      check_layout) > 0);
}

/* Experts alone and beside a shared one, in every second layer, in depths. */
static void test_buffers_of_experts(void **state)
{
	(void)state;
	assert_true(plan_grid(4, EXPERTS, check_layout) > 60);
	assert_true(plan_grid(4, EXPERTS_APART, check_layout) > 10);
	assert_true(plan_grid(4, EXPERTS " run.moe_input_jitter_eps=0.1",
			      check_layout) > 60);
	assert_true(plan_grid(4, EXPERTS_SHARED " shape.mtp_num_layers=2",
			      check_layout) > 30);
}

static void test_buffers_of_latents(void **state)
{
	(void)state;
	assert_true(plan_grid(4, LATENT " shape.mtp_num_layers=2",
			      check_layout) > 60);
	assert_true(plan_grid(4, LATENT_WHOLE, check_layout) > 60);
	assert_true(plan_grid(4,
			      LATENT " shape.softmax_type=\"learnable\" "
				     "run.reset_attention_mask=true "
				     "run.eod_id=1",
			      check_layout) > 60);
}

/* Layers with sizes of their own, and none in places. */
static void test_buffers_of_own_layers(void **state)
{
	(void)state;
	assert_true(plan_grid(4, OWN, check_layout) > 150);
	assert_true(plan_grid(4,
			      OWN " shape.mtp_num_layers=2 "
				  "spec.device=\"cuda\" "
				  "spec.params_dtype=\"bf16\"",
			      check_layout) > 60);
}

/* Elements of 16 bits beside sums of 32. */
static void test_buffers_of_a_gpu(void **state)
{
	(void)state;
	assert_true(plan_grid(4,
			      "spec.device=\"cuda\" "
			      "spec.params_dtype=\"bf16\"",
			      check_layout) > 150);
	assert_true(plan_grid(4,
			      EXPERTS_APART " spec.device=\"cuda\" "
					    "spec.params_dtype=\"bf16\"",
			      check_layout) > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buffers_are_there_when_needed),
		cmocka_unit_test(test_buffers_of_depths),
		cmocka_unit_test(test_buffers_of_experts),
		cmocka_unit_test(test_buffers_of_latents),
		cmocka_unit_test(test_buffers_of_own_layers),
		cmocka_unit_test(test_buffers_of_a_gpu),
		cmocka_unit_test(test_buffers_of_generation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
