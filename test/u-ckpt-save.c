/* SPDX-License-Identifier: Apache-2.0 */
/* Saving: whole or not at all, what is kept, what makes way, what remains. */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <utime.h>
/* after those: */
#include <cmocka.h>

#include "ckpt/io.h"
#include "ckpt/tools.h"
#include "test/ckpt-sim.h"

static char dir[64];
static struct sim sim;

#define MODEL                                                                  \
	"shape.num_layers=2 shape.hidden_size=16 shape.num_attention_heads=2 " \
	"shape.vocab_size=30 shape.seq_length=8 "                              \
	"shape.share_embeddings_and_output_weights=true "                      \
	"place.make_vocab_size_divisible_by=4 "
#define LAYOUT                                \
	"place.tensor_model_parallel_size=2 " \
	"place.pipeline_model_parallel_size=2"

static int setup(void **unused)
{
	(void)unused;
	snprintf(dir, sizeof(dir), "/tmp/u-ckpt-save.XXXXXX");
	sim_open(&sim, MODEL LAYOUT, 4);
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **unused)
{
	(void)unused;
	io_remove(dir);
	sim_close(&sim);
	return 0;
}

static const char *path_of(const char *name)
{
	static char path[4][200];
	static int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

static bool exists(const char *name)
{
	return !access(path_of(name), F_OK);
}

/* Entries of the folder whose names start with PREFIX. */
static int count(const char *prefix)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *at; (at = readdir(d));)
		n += !strncmp(at->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

static int save(int64_t step)
{
	sim.progress.step = step;
	return sim_save(&sim, dir);
}

static int64_t newest(void)
{
	int64_t step;
	struct err e;

	if (ckpt_newest(dir, &sim.config.shape, NULL, &step, &e))
		fail_msg("%s", e.text);
	return step;
}

static void test_files(void **unused)
{
	struct arena a = {0};
	char *latest;
	struct err e;

	(void)unused;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(newest(), -1);
	assert_int_equal(save(10), 0);
	assert_int_equal(newest(), 10);
	assert_true(exists("step_00000010/MANIFEST"));
	assert_true(exists("step_00000010/manifest.h5"));
	assert_true(exists("step_00000010/model/pp01-tp01.h5"));
	assert_true(exists("step_00000010/optim/pp00-tp01-d000.h5"));
	assert_int_equal(io_read_text(path_of("LATEST"), 99, &a, &latest, &e),
			 0);
	assert_string_equal(latest, "step_00000010\n");
	assert_int_equal(count(".tmp"), 0);
	assert_int_equal(sim_load(&sim, dir, &e), 0);
	arena_close(&a);
}

static void test_progress(void **unused)
{
	const struct ckpt_progress *p;
	struct ckpt *c;
	struct err e;

	(void)unused;
	sim.progress.consumed_samples = INT64_C(1) << 40;
	sim.progress.seed = 7;
	sim.progress.nonce = UINT64_MAX;
	assert_int_equal(save(10), 0);
	assert_int_equal(ckpt_open(&c, dir, &sim.config.shape, NULL, &e), 0);
	p = ckpt_progress(c);
	assert_int_equal(p->step, 10);
	assert_int_equal(p->consumed_samples, INT64_C(1) << 40);
	assert_int_equal(p->seed, 7);
	assert_true(p->nonce == UINT64_MAX);
	assert_true(ckpt_has_role(c, ROLE_M));
	assert_false(ckpt_has_role(c, ROLE_MASTER));
	ckpt_close(c);
}

/* What decides which samples come is there, however long a blend is. */
static void test_run_settings(void **unused)
{
	static const char *item[400];
	struct arena a = {0};
	const char *value;
	struct ckpt *c;
	struct err e;

	(void)unused;
	assert_int_equal(arena_open(&a, &e), 0);
	for (int i = 0; i < 400; i += 2) {
		item[i] = "1";
		item[i + 1] = arena_printf(&a, "%0300d", i);
	}
	for (int count = 0; count <= 400; count += 200) {
		sim.config.run.data_path = (struct texts){item, count};
		assert_int_equal(save(count), 0);
		assert_int_equal(ckpt_open(&c, dir, NULL, NULL, &e), 0);
		assert_string_equal(ckpt_run_text(c, "split"), "\"969,30,1\"");
		assert_null(ckpt_run_text(c, "lr"));
		value = ckpt_run_value(&sim.config.run, "data_path", &a);
		if (count)
			assert_string_equal(ckpt_run_text(c, "data_path"),
					    value);
		else
			assert_null(ckpt_run_text(c, "data_path"));
		assert_true(strlen(value) <= 2000);
		ckpt_close(c);
	}
	value = ckpt_run_value(&sim.config.run, "data_path", &a);
	item[399] = "2";
	assert_string_not_equal(
		ckpt_run_value(&sim.config.run, "data_path", &a), value);
	arena_close(&a);
}

static void test_kept(void **unused)
{
	struct stat before, after;

	(void)unused;
	assert_int_equal(save(10), 0);
	assert_int_equal(stat(path_of("step_00000010/MANIFEST"), &before), 0);
	assert_int_equal(save(10), 0);
	assert_int_equal(stat(path_of("step_00000010/MANIFEST"), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(count(".tmp"), 0);
}

/* The step of another model is not ours to keep or to replace. */
static void test_other_model(void **unused)
{
	struct sim other;
	char why[1024];

	(void)unused;
	assert_int_equal(save(10), 0);
	sim_open(&other, MODEL "shape.ffn_hidden_size=32 " LAYOUT, 4);
	assert_int_equal(sim_save_with(&other, dir, NULL, why), CODE_CKPT);
	assert_non_null(strstr(why, "another model"));
	assert_int_equal(newest(), 10);
	sim_close(&other);
}

static void test_bad_makes_way(void **unused)
{
	struct err e;

	(void)unused;
	assert_int_equal(save(10), 0);
	assert_int_equal(unlink(path_of("step_00000010/MANIFEST")), 0);
	assert_int_equal(save(10), 0);
	assert_int_equal(newest(), 10);
	assert_int_equal(count(".bad-step_00000010"), 1);
	assert_int_equal(sim_load(&sim, dir, &e), 0);
}

static void test_retain(void **unused)
{
	(void)unused;
	sim.keep = 2;
	assert_int_equal(save(10), 0);
	assert_int_equal(save(20), 0);
	/* Not sound: neither counted nor removed. */
	assert_int_equal(unlink(path_of("step_00000020/MANIFEST")), 0);
	assert_int_equal(save(30), 0);
	assert_true(exists("step_00000010"));
	assert_int_equal(save(40), 0);
	assert_false(exists("step_00000010"));
	assert_true(exists("step_00000020"));
	assert_true(exists("step_00000030"));
	/* What was just saved stays, even if it is not among the newest. */
	assert_int_equal(save(15), 0);
	assert_true(exists("step_00000015"));
	assert_true(exists("step_00000040"));
	assert_int_equal(count(".del"), 0);
}

static void make_old(const char *name)
{
	const struct utimbuf then = {time(NULL) - 7200, time(NULL) - 7200};

	assert_int_equal(mkdir(path_of(name), 0777), 0);
	assert_int_equal(utime(path_of(name), &then), 0);
}

static void test_stale(void **unused)
{
	(void)unused;
	assert_int_equal(mkdir(path_of(".tmp-step_00000010-0f"), 0777), 0);
	assert_int_equal(mkdir(path_of(".tmp-step_00000020-0f"), 0777), 0);
	make_old(".tmp-step_00000030-0f");
	make_old(".del-step_00000001.0");
	make_old("notes");
	assert_int_equal(save(10), 0);
	assert_false(exists(".tmp-step_00000010-0f")); /* the same step */
	assert_true(exists(".tmp-step_00000020-0f"));  /* may be alive */
	assert_false(exists(".tmp-step_00000030-0f")); /* untouched */
	assert_false(exists(".del-step_00000001.0"));
	assert_true(exists("notes"));
}

/* The copy of a norm on tensor rank 1 is not rank 0's any more. */
static void drift(struct sim_rank *k, int rank)
{
	const struct param *p = slice_find(&k->slice, PART_ATTN_NORM_W, 1, 0);

	if (rank == 3)
		k->mem.param[4 * p->at] ^= 1;
}

static void test_drift(void **unused)
{
	char why[1024];

	(void)unused;
	assert_int_equal(save(10), 0);
	sim.progress.step = 20;
	assert_int_equal(sim_save_with(&sim, dir, drift, why), CODE_CKPT);
	assert_non_null(strstr(why, "layers/0001/attn_norm/w"));
	assert_non_null(strstr(why, "model/pp01-tp01.h5"));
	assert_int_equal(newest(), 10);
	assert_int_equal(count(".tmp"), 0);
}

/* The embedding's copy on the last stage, far from its original. */
static void drift_tied(struct sim_rank *k, int rank)
{
	const struct param *p = slice_find(&k->slice, PART_HEAD_W, -1, 0);

	if (rank == 2)
		k->mem.param[4 * p->at] ^= 1;
}

static void test_drift_tied(void **unused)
{
	char why[1024];

	(void)unused;
	assert_int_equal(sim_save_with(&sim, dir, drift_tied, why), CODE_CKPT);
	assert_non_null(strstr(why, "embed/tok"));
	assert_int_equal(count("step_"), 0);
}

/* Rank 2 can write no more than 4 KiB to a file. */
static void no_space(struct sim_rank *k, int rank)
{
	const struct rlimit small = {4096, 4096};

	(void)k;
	if (rank != 2)
		return;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
}

static void test_no_space(void **unused)
{
	char why[1024];
	struct err e;

	(void)unused;
	assert_int_equal(save(10), 0);
	sim.progress.step = 20;
	/* All ranks end with the same code, and rank 0 says whose it is. */
	assert_int_equal(sim_save_with(&sim, dir, no_space, why), CODE_STORAGE);
	assert_non_null(strstr(why, "rank 2: "));
	assert_non_null(strstr(why, " bytes"));
	assert_int_equal(count(".tmp"), 0);
	assert_int_equal(newest(), 10);
	assert_int_equal(sim_load(&sim, dir, &e), 0);
}

static void test_no_folder(void **unused)
{
	char why[1024];

	(void)unused;
	assert_int_equal(io_write_text(path_of("file"), "", &(struct err){0}),
			 0);
	assert_int_equal(sim_save_with(&sim, path_of("file"), NULL, why),
			 CODE_STORAGE);
	assert_int_equal(sim_save(&sim, path_of("new/deep/folder")), 0);
}

static void no_moments(struct sim_rank *k, int rank)
{
	(void)rank;
	free(k->mem.m);
	free(k->mem.v);
	k->mem.m = k->mem.v = NULL;
}

static void test_weights_only(void **unused)
{
	struct ckpt *c;
	struct err e;

	(void)unused;
	assert_int_equal(sim_save_with(&sim, dir, no_moments, NULL), 0);
	assert_int_equal(ckpt_open(&c, dir, &sim.config.shape, NULL, &e), 0);
	assert_true(ckpt_has_role(c, ROLE_PARAM));
	assert_false(ckpt_has_role(c, ROLE_M));
	ckpt_close(c);
	/* A rank that wants moments is told that there are none. */
	assert_int_equal(sim_load(&sim, dir, &e), -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "it has no m; "));
}

static void test_step_range(void **unused)
{
	(void)unused;
	assert_int_equal(save(-1), CODE_CKPT);
	assert_int_equal(save(100000000), CODE_CKPT);
	assert_int_equal(save(99999999), 0);
	assert_int_equal(newest(), 99999999);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_files),	 TEST(test_progress),
		TEST(test_run_settings), TEST(test_kept),
		TEST(test_other_model),	 TEST(test_bad_makes_way),
		TEST(test_retain),	 TEST(test_stale),
		TEST(test_drift),	 TEST(test_drift_tied),
		TEST(test_no_space),	 TEST(test_no_folder),
		TEST(test_weights_only), TEST(test_step_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
