/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of every rank at random moments of a save, and of a reshard: what
 * was complete before is found again, and the next owner cleans up.  20
 * moments each, 200 with TRISECT_LONG=1.
 */
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
/* after those: */
#include <cmocka.h>

#include "ckpt/io.h"
#include "ckpt/tools.h"
#include "lib/base/sys.h"
#include "test/ckpt-sim.h"

#define MODEL                                                                  \
	"shape.num_layers=4 shape.hidden_size=64 shape.num_attention_heads=4 " \
	"shape.vocab_size=500 shape.seq_length=64 "
#define LAYOUT                                \
	"place.tensor_model_parallel_size=2 " \
	"place.use_distributed_optimizer=true"

static char dir[64];
static struct sim sim;

static int setup(void **unused)
{
	(void)unused;
	/* On a disk: the moments of a sync count most. */
	snprintf(dir, sizeof(dir), "/tmp/u-ckpt-kill.XXXXXX");
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

static int moments(void)
{
	return getenv("TRISECT_LONG") ? 200 : 20;
}

/* Between 0 and LONGEST seconds: the random moment. */
static void wait_some(double longest)
{
	static uint64_t state = 12345;
	double t;

	state = state * 6364136223846793005u + 1442695040888963407u;
	t = (double)(state >> 40) / (1 << 24) * longest;
	usleep((useconds_t)(1e6 * t));
}

static int count(const char *prefix)
{
	DIR *d = opendir(dir);
	int n = 0;

	for (struct dirent *at; (at = readdir(d));)
		n += !strncmp(at->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

/* Start a save of STEP and kill all its ranks within LONGEST seconds. */
static void save_and_kill(int64_t step, double longest)
{
	struct sim_room *room = sim_room_open(sim.grid.world);
	pid_t pid[SIM_RANKS];

	sim.progress.step = step;
	sim_start(&sim, dir, room, NULL, pid);
	wait_some(longest);
	for (int i = 0; i < sim.grid.world; i++)
		kill(pid[i], SIGKILL);
	for (int i = 0; i < sim.grid.world; i++)
		waitpid(pid[i], NULL, 0);
	munmap(room, sizeof(*room));
}

static void test_save(void **unused)
{
	int before = 0, after = 0;
	double t = sys_seconds();
	struct err e = {0};

	(void)unused;
	sim.progress.step = 10;
	assert_int_equal(sim_save(&sim, dir), 0);
	t = sys_seconds() - t;
	for (int i = 0; i < moments(); i++) {
		int64_t step;

		/* Another job, which cleans up after the last one. */
		sim.progress.nonce++;
		save_and_kill(20, 1.2 * t);
		assert_int_equal(
			ckpt_newest(dir, &sim.config.shape, NULL, &step, &e),
			0);
		assert_true(step == 10 || step == 20);
		assert_true(count(".tmp") <= 1);
		before += step == 10;
		after += step == 20;
		if (sim_load(&sim, dir, &e))
			fail_msg("%s", e.text);
		if (step == 20) {
			char path[128];

			snprintf(path, sizeof(path), "%s/step_00000020", dir);
			io_remove(path);
		}
	}
	print_message("# killed %d times before the commit, %d after\n", before,
		      after);
	assert_true(before > 0);
	sim.progress.step = 20;
	assert_int_equal(sim_save(&sim, dir), 0);
	assert_int_equal(count(".tmp"), 0);
	assert_int_equal(sim_load(&sim, dir, &e), 0);
}

static void reshard(const char *from, const struct sim *to, const char *out)
{
	struct err e = {0};
	struct ckpt *c;

	if (ckpt_open(&c, from, NULL, NULL, &e) ||
	    ckpt_reshard(c, &to->config, &to->grid, out, false, NULL, &e))
		sim_die("reshard", e.text);
	ckpt_close(c);
}

static void test_reshard(void **unused)
{
	char from[128], out[128];
	struct err e = {0};
	struct sim to;
	double t;

	(void)unused;
	snprintf(from, sizeof(from), "%s/from", dir);
	snprintf(out, sizeof(out), "%s/out", dir);
	sim_open(&to, MODEL "place.pipeline_model_parallel_size=2", 2);
	assert_int_equal(sim_save(&sim, from), 0);
	t = sys_seconds();
	reshard(from, &to, out);
	t = sys_seconds() - t;
	for (int i = 0; i < moments(); i++) {
		int64_t step;
		pid_t pid;

		io_remove(out);
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			reshard(from, &to, out);
			_exit(0);
		}
		wait_some(1.2 * t);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		/* Nothing there, or all of it. */
		assert_int_equal(ckpt_newest(out, NULL, NULL, &step, &e), 0);
		if (step == 10)
			assert_int_equal(sim_load(&to, out, &e), 0);
		else
			assert_int_equal(step, -1);
	}
	assert_int_equal(sim_load(&sim, from, &e), 0);
	sim_close(&to);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_save),
		TEST(test_reshard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
