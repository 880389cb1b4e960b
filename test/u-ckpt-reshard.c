/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any layout loads what any other has saved, and resharding is undone by
 * resharding back: named pairs, then random models and layouts (more of them
 * with TRISECT_LONG=1).
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
/* after those: */
#include <cmocka.h>

#include "ckpt/io.h"
#include "ckpt/tools.h"
#include "test/ckpt-sim.h"

static char dir[64];

static int setup(void **unused)
{
	(void)unused;
	/* Many small files, each synced: memory is quicker. */
	snprintf(dir, sizeof(dir), "%s/u-ckpt-re.XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **unused)
{
	(void)unused;
	io_remove(dir);
	return 0;
}

static const char *path_of(const char *name)
{
	static char path[4][128];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

static struct ckpt *open_ckpt(const char *path)
{
	struct err e = {0};
	struct ckpt *c;

	if (ckpt_open(&c, path, NULL, NULL, &e))
		fail_msg("%s", e.text);
	return c;
}

/* FROM in the layout of S, as a run's folder TO. */
static void reshard(const char *from, const struct sim *s, const char *to)
{
	struct ckpt *c = open_ckpt(from);
	struct err e = {0};

	if (ckpt_reshard(c, &s->config, &s->grid, to, false, NULL, &e))
		fail_msg("%s", e.text);
	ckpt_close(c);
}

/* The digests of all weights and roles of two checkpoints are equal. */
static void same_digests(const char *one, const char *other)
{
	struct ckpt *a = open_ckpt(one), *b = open_ckpt(other);
	struct digest x, y;
	struct err e;

	assert_int_equal(a->weights.count, b->weights.count);
	for (int i = 0; i < a->weights.count * ROLES; i++) {
		enum ckpt_role role = (enum ckpt_role)(i % ROLES);

		assert_int_equal(ckpt_has_role(a, role),
				 ckpt_has_role(b, role));
		if (!ckpt_has_role(a, role))
			continue;
		assert_int_equal(ckpt_digest(a, i / ROLES, role, &x, &e), 0);
		assert_int_equal(ckpt_digest(b, i / ROLES, role, &y, &e), 0);
		assert_memory_equal(&x, &y, sizeof(x));
	}
	ckpt_close(a);
	ckpt_close(b);
}

static void loads(const struct sim *s, const char *path)
{
	struct err e = {0};
	int64_t wrong = sim_load(s, path, &e);

	if (wrong)
		fail_msg("%" PRId64 " wrong elements; %s", wrong, e.text);
}

static void verifies(const char *run_dir)
{
	struct arena a = {0};
	struct err e = {0};
	const char *step;

	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(ckpt_find(run_dir, &step, &a, &e), 0);
	if (ckpt_verify(step, NULL, NULL, &e))
		fail_msg("%s", e.text);
	arena_close(&a);
}

/* Saved as A: loads as B, reshards to B, to A again, and both load. */
static void there_and_back(const struct sim *a, const struct sim *b)
{
	const char *from = path_of("a"), *to = path_of("b"),
		   *back = path_of("c");

	assert_int_equal(sim_save(a, from), 0);
	loads(a, from);
	loads(b, from);
	reshard(from, b, to);
	verifies(to);
	loads(b, to);
	same_digests(from, to);
	reshard(to, a, back);
	verifies(back);
	loads(a, back);
	same_digests(from, back);
	io_remove(from);
	io_remove(to);
	io_remove(back);
}

#define TP    " place.tensor_model_parallel_size="
#define PP    " place.pipeline_model_parallel_size="
#define VP    " place.virtual_pipeline_model_parallel_size="
#define FIRST " place.num_layers_in_first_pipeline_stage="
#define LAST  " place.num_layers_in_last_pipeline_stage="
#define ZERO  " place.use_distributed_optimizer=true"
#define SMALL " place.overlap_grad_reduce=true place.bucket_size=3000"

#define GPT                                                                    \
	"shape.num_layers=4 shape.hidden_size=32 shape.num_attention_heads=4 " \
	"shape.vocab_size=61 shape.seq_length=16 "                             \
	"shape.share_embeddings_and_output_weights=true "                      \
	"place.make_vocab_size_divisible_by=4"
#define LLAMA                                                                  \
	"shape.num_layers=6 shape.hidden_size=48 shape.num_attention_heads=6 " \
	"shape.num_query_groups=2 shape.ffn_hidden_size=96 "                   \
	"shape.gated_linear_unit=true shape.activation_func=silu "             \
	"shape.normalization=RMSNorm shape.add_bias_linear=false "             \
	"shape.position_embedding_type=rope shape.vocab_size=97 "              \
	"place.make_vocab_size_divisible_by=1"
/* Gated with biases on fc1, whose order in memory is gate, up. */
#define GEGLU                                                                  \
	"shape.num_layers=4 shape.hidden_size=32 shape.num_attention_heads=8 " \
	"shape.num_query_groups=2 shape.ffn_hidden_size=48 "                   \
	"shape.gated_linear_unit=true shape.vocab_size=50 "                    \
	"shape.seq_length=8 place.make_vocab_size_divisible_by=8"

/* About 150 MB with its moments. */
#define BIG                                                 \
	"shape.num_layers=4 shape.hidden_size=512 "         \
	"shape.num_attention_heads=8 shape.vocab_size=100 " \
	"shape.position_embedding_type=rope"

static const struct pair {
	const char *model, *from;
	int64_t from_world;
	const char *to;
	int64_t to_world;
} pairs[] = {
	{GPT, "", 1, TP "2", 2},
	{GPT, TP "2" PP "2", 4, TP "4", 4},
	{GPT, PP "4", 4, PP "2" VP "2", 2},
	{GPT, TP "4" ZERO, 8, PP "2" TP "2", 4},
	{GPT, ZERO, 3, ZERO, 5},
	{GPT, ZERO SMALL, 4, TP "2", 4},
	{LLAMA, TP "2", 2, TP "6", 6},
	{LLAMA, TP "6" ZERO, 6, PP "3" VP "2" ZERO, 6},
	{LLAMA, PP "2" VP "3", 2, PP "2" FIRST "1", 2},
	{LLAMA, PP "3" FIRST "1" LAST "3", 3, TP "2" PP "3" VP "2", 6},
	{LLAMA, TP "2" PP "3" ZERO SMALL, 6, "", 1},
	{LLAMA, "", 4, TP "2" ZERO, 4},
	{GEGLU, TP "2", 2, TP "4", 4},
	{GEGLU, TP "8", 8, TP "2" PP "2" ZERO, 8},
	{GEGLU, TP "4" PP "2" LAST "1", 8, "", 1},
	{GEGLU, TP "4" ZERO, 8, TP "8", 8},
};

static void test_pairs(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		const struct pair *p = &pairs[i];
		char from[1024], to[1024];
		struct sim a, b;

		snprintf(from, sizeof(from), "%s%s", p->model, p->from);
		snprintf(to, sizeof(to), "%s%s", p->model, p->to);
		sim_open(&a, from, p->from_world);
		sim_open(&b, to, p->to_world);
		print_message("# %s -> %s\n", p->from, p->to);
		there_and_back(&a, &b);
		sim_close(&a);
		sim_close(&b);
	}
}

/* Masters and moments in float32 beside bfloat16 weights, and float64. */
static void test_dtypes(void **unused)
{
	static const enum ckpt_dtype dtype[] = {CKPT_BF16, CKPT_F64};
	struct sim a, b;

	(void)unused;
	for (int i = 0; i < 2; i++) {
		sim_open(&a, LLAMA TP "2" ZERO, 4);
		sim_open(&b, LLAMA TP "6" PP "2", 12);
		a.dtype = b.dtype = dtype[i];
		there_and_back(&a, &b);
		sim_close(&a);
		sim_close(&b);
	}
}

static uint64_t state;

static int below(int n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int)((state >> 33) % (uint64_t)n);
}

static const char *yes(int one_in)
{
	return below(one_in) ? "false" : "true";
}

static void random_shape(char *out, size_t room)
{
	static const char *const positions[] = {"learned_absolute", "rope"};
	int groups = 1 << below(3), per = 1 + below(3), d = 4 + 4 * below(2);
	int heads = groups * per;

	snprintf(out, room,
		 "shape.num_layers=%d shape.hidden_size=%d "
		 "shape.num_attention_heads=%d shape.num_query_groups=%d "
		 "shape.kv_channels=%d shape.ffn_hidden_size=%d "
		 "shape.gated_linear_unit=%s shape.add_bias_linear=%s "
		 "shape.normalization=%s shape.position_embedding_type=%s "
		 "shape.share_embeddings_and_output_weights=%s "
		 "shape.seq_length=%d shape.vocab_size=%d",
		 1 + below(6), 8 * (1 + below(4)), heads, groups, d,
		 24 * (1 + below(2)), yes(2), yes(2),
		 below(2) ? "RMSNorm" : "LayerNorm", positions[below(2)],
		 yes(2), 8 + below(9), 20 + below(60));
}

static void random_place(char *out, size_t room, int64_t *world)
{
	int tp = 1 << below(4), pp = 1 + below(4), dp = 1 + below(4);
	size_t n = (size_t)snprintf(out, room,
				    TP "%d" PP
				       "%d place.use_distributed_optimizer=%s"
				       " place.make_vocab_size_divisible_by=%d",
				    tp, pp, yes(2), 1 + below(9));

	if (pp > 1 && !below(3))
		n += (size_t)snprintf(out + n, room - n, VP "%d", 1 + below(3));
	if (pp > 1 && !below(3))
		n += (size_t)snprintf(out + n, room - n, FIRST "%d",
				      1 + below(3));
	if (pp > 1 && !below(3))
		n += (size_t)snprintf(out + n, room - n, LAST "%d",
				      1 + below(3));
	if (!below(2))
		snprintf(out + n, room - n,
			 " place.overlap_grad_reduce=true place.bucket_size=%d",
			 1 + below(5000));
	*world = (int64_t)tp * pp * dp;
}

/* A valid layout of at most 8 ranks for the model. */
static void random_sim(struct sim *s, const char *shape)
{
	char place[512], sets[1024];
	int64_t world;

	for (;;) {
		random_place(place, sizeof(place), &world);
		snprintf(sets, sizeof(sets), "%s%s", shape, place);
		if (world <= 8 && !sim_try(s, sets, world))
			break;
		if (world <= 8)
			sim_close(s);
	}
	print_message("# %" PRId64 " ranks:%s\n", world, place);
}

static void test_random(void **unused)
{
	int rounds = getenv("TRISECT_LONG") ? 400 : 24;
	const char *seed = getenv("TRISECT_SEED");

	(void)unused;
	state = seed ? strtoull(seed, NULL, 10) : 1;
	for (int i = 0; i < rounds; i++) {
		char shape[1024];
		struct sim a, b;

		random_shape(shape, sizeof(shape));
		print_message("# round %d: %s\n", i, shape);
		random_sim(&a, shape);
		random_sim(&b, shape);
		there_and_back(&a, &b);
		sim_close(&a);
		sim_close(&b);
	}
}

/* float32 from float64 and back, exactly as C converts. */
static void test_conversion(void **unused)
{
	static const enum ckpt_dtype stored[] = {CKPT_F64, CKPT_F32};
	struct sim a, b;

	(void)unused;
	for (int i = 0; i < 2; i++) {
		sim_open(&a, LLAMA TP "2", 2);
		sim_open(&b, LLAMA PP "2" ZERO, 4);
		a.dtype = stored[i];
		b.dtype = stored[!i];
		assert_int_equal(sim_save(&a, path_of("a")), 0);
		/* The values have 24 bits: neither way loses any. */
		loads(&b, path_of("a"));
		io_remove(path_of("a"));
		sim_close(&a);
		sim_close(&b);
	}
}

/* Nothing is narrowed to bfloat16. */
static void test_no_conversion(void **unused)
{
	struct err e = {0};
	struct sim s;

	(void)unused;
	sim_open(&s, LLAMA, 1);
	s.dtype = CKPT_F32;
	assert_int_equal(sim_save(&s, path_of("a")), 0);
	s.dtype = CKPT_BF16;
	assert_int_equal(sim_load(&s, path_of("a"), &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "stored as f32, not bf16"));
	io_remove(path_of("a"));
	sim_close(&s);
}

/* Masters of bfloat16 weights are read alone, by any layout, in float. */
static void test_masters_alone(void **unused)
{
	static const enum ckpt_dtype dtype[] = {CKPT_F32, CKPT_F64};
	struct err e = {0};
	struct sim a, b;
	struct ckpt *c;

	(void)unused;
	sim_open(&a, LLAMA TP "2" ZERO, 4);
	sim_open(&b, LLAMA PP "3", 6);
	a.dtype = CKPT_BF16;
	assert_int_equal(sim_save(&a, path_of("a")), 0);
	c = open_ckpt(path_of("a"));
	assert_true(ckpt_has_role(c, ROLE_MASTER));
	for (int k = 0; k < 2 * b.grid.world; k++) {
		size_t size = ckpt_dtype_size(dtype[k % 2]);
		struct sim_rank rank;
		struct ckpt_item *items;
		int64_t wrong = 0;
		char *all;
		int n;

		sim_rank_open(&b, k / 2, &rank, &b.arena);
		all = sim_buffer(rank.slice.elements, dtype[k % 2]);
		n = ckpt_weight_items(&rank.slice, ROLE_MASTER, dtype[k % 2],
				      all, &b.arena, &items);
		if (ckpt_read(c, &b.weights, items, n, &e))
			fail_msg("%s", e.text);
		for (int i = 0; i < n; i++)
			sim_each(&b, &items[i], sim_see_check, &wrong);
		for (size_t i = 0; i < (size_t)rank.slice.elements * size; i++)
			wrong += (unsigned char)all[i] != SIM_PAD;
		assert_int_equal(wrong, 0);
		assert_true(n > 0);
		free(all);
		sim_rank_close(&rank);
	}
	ckpt_close(c);
	io_remove(path_of("a"));
	sim_close(&a);
	sim_close(&b);
}

/* The same again gives the same bytes. */
static void test_same_bytes(void **unused)
{
	struct sim a, b;
	char command[512];

	(void)unused;
	sim_open(&a, LLAMA TP "2" ZERO, 4);
	sim_open(&b, LLAMA PP "3", 6);
	assert_int_equal(sim_save(&a, path_of("a")), 0);
	reshard(path_of("a"), &b, path_of("b"));
	reshard(path_of("a"), &b, path_of("c"));
	snprintf(command, sizeof(command), "diff -r %s %s", path_of("b"),
		 path_of("c"));
	assert_int_equal(system(command), 0);
	io_remove(path_of("a"));
	io_remove(path_of("b"));
	io_remove(path_of("c"));
	sim_close(&a);
	sim_close(&b);
}

/* 64 MiB and 200 bytes a row, whatever the size. */
static void test_memory(void **unused)
{
	struct rusage use;
	struct sim a, b;
	struct ckpt *c;
	int64_t rows;
	int status;
	pid_t pid;

	(void)unused;
	sim_open(&a, BIG TP "4", 4);
	sim_open(&b, BIG TP "2" PP "2", 4);
	assert_int_equal(sim_save(&a, path_of("a")), 0);
	c = open_ckpt(path_of("a"));
	rows = c->index.count;
	ckpt_close(c);
	pid = fork();
	if (pid == 0) {
		reshard(path_of("a"), &b, path_of("b"));
		_exit(0);
	}
	assert_true(wait4(pid, &status, 0, &use) == pid && status == 0);
	print_message("# %ld KiB for %" PRId64 " rows\n", use.ru_maxrss, rows);
#ifndef __SANITIZE_ADDRESS__ /* which has memory of its own */
	assert_true(use.ru_maxrss < (64 << 10) + rows * 200 / 1024);
#endif
	same_digests(path_of("a"), path_of("b"));
	io_remove(path_of("a"));
	io_remove(path_of("b"));
	sim_close(&a);
	sim_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_dtypes),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_conversion),
		cmocka_unit_test(test_no_conversion),
		cmocka_unit_test(test_masters_alone),
		cmocka_unit_test(test_same_bytes),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
