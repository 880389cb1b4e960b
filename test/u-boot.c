/* SPDX-License-Identifier: Apache-2.0 */
/* The launch decision, alone, and which cards fit together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/train/boot.h"

static struct boot boot;
static struct err err;

static const char *const names[] = {
	"PMIX_NAMESPACE",	"PMIX_RANK",
	"SLURM_STEP_NUM_TASKS", "PMI_SIZE",
	"OMPI_COMM_WORLD_SIZE", "SLURM_JOB_ID",
	"SLURM_NTASKS",		"SLURM_HET_SIZE",
};

static int clean(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	return 0;
}

static void alone_is_rank_0_of_1(void **state)
{
	struct boot_card card = {.version = "1", .resume_step = 7};

	(void)state;
	assert_int_equal(boot_open(&boot, 1, &err), 0);
	assert_int_equal(boot.rank, 0);
	assert_int_equal(boot.world, 1);
	assert_false(boot.launched);
	assert_string_equal(boot.hint, "");
	assert_int_equal(boot_exchange(&boot, &card, 1, &err), 0);
	assert_int_equal(boot.node_rank, 0);
	assert_int_equal(boot.local_size, 1);
	assert_int_equal(boot.card[0].resume_step, 7);
	assert_string_equal(boot.card[0].host, boot.host);
	assert_true(boot.nonce == boot.card[0].nonce);
	boot_close(&boot);
}

static void one_task_under_srun_is_alone(void **state)
{
	(void)state;
	setenv("SLURM_JOB_ID", "12", 1);
	setenv("SLURM_NTASKS", "4", 1);
	setenv("SLURM_STEP_NUM_TASKS", "1", 1);
	assert_int_equal(boot_open(&boot, 1, &err), 0);
	assert_string_equal(boot.hint, "");
}

static void many_tasks_without_pmix_are_refused(void **state)
{
	static const char *const sizes[] = {"SLURM_STEP_NUM_TASKS", "PMI_SIZE",
					    "OMPI_COMM_WORLD_SIZE"};

	(void)state;
	for (int i = 0; i < 3; i++) {
		clean(NULL);
		setenv(sizes[i], "4", 1);
		assert_int_equal(boot_open(&boot, 1, &err), -1);
		assert_int_equal(err.code, CODE_LAUNCH);
		assert_non_null(strstr(err.text, "one of 4 tasks"));
		assert_non_null(strstr(err.text, sizes[i]));
		assert_non_null(strstr(err.text, "srun --mpi=pmix"));
	}
}

static void a_batch_shell_gets_a_hint(void **state)
{
	(void)state;
	setenv("SLURM_JOB_ID", "12", 1);
	setenv("SLURM_NTASKS", "4", 1);
	assert_int_equal(boot_open(&boot, 1, &err), 0);
	assert_int_equal(boot.world, 1);
	assert_non_null(strstr(boot.hint, "job 12 of 4 tasks"));
	assert_non_null(strstr(boot.hint, "srun --mpi=pmix"));
}

/* Cards of four ranks on two machines, each with a GPU of its own. */
static void deal(struct boot_card card[4])
{
	for (int r = 0; r < 4; r++) {
		card[r] = (struct boot_card){.version = "1", .resume_step = 3};
		snprintf(card[r].host, sizeof(card[r].host), "n%d", r / 2);
		snprintf(card[r].machine, sizeof(card[r].machine), "m%d",
			 r / 2);
		snprintf(card[r].device, sizeof(card[r].device),
			 "0000:%02x:00.0", 0x3a + r % 2);
	}
}

static void every_rank_has_a_gpu_of_its_own(void **state)
{
	struct boot_card card[4];

	(void)state;
	deal(card);
	assert_int_equal(boot_compare(card, 4, &err), 0);
	memcpy(card[3].device, card[2].device, sizeof(card[3].device));
	assert_int_equal(boot_compare(card, 4, &err), -1);
	assert_int_equal(err.code, CODE_LAUNCH);
	assert_non_null(strstr(err.text,
			       "rank 2 on n1 and rank 3 on n1 use the same "
			       "GPU, 0000:3a:00.0 of m1: "));
	assert_non_null(strstr(err.text, "--gpus-per-task=1"));
	/* of a launcher's nodes two may be one machine */
	deal(card);
	memcpy(card[2].machine, card[0].machine, sizeof(card[2].machine));
	assert_int_equal(boot_compare(card, 4, &err), -1);
	assert_non_null(strstr(err.text, "rank 0 on n0 and rank 2 on n1 use"));
}

static void ranks_on_cpus_share_nothing(void **state)
{
	struct boot_card card[4];

	(void)state;
	deal(card);
	for (int r = 0; r < 4; r++)
		memset(card[r].device, 0, sizeof(card[r].device));
	assert_int_equal(boot_compare(card, 4, &err), 0);
	card[2].resume_step = -1;
	assert_int_equal(boot_compare(card, 4, &err), -1);
	assert_non_null(strstr(err.text, "step to resume from differs: rank 0 "
					 "on n0 has 3, rank 2 on n1 has -1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(alone_is_rank_0_of_1, clean),
		cmocka_unit_test_setup(one_task_under_srun_is_alone, clean),
		cmocka_unit_test_setup(many_tasks_without_pmix_are_refused,
				       clean),
		cmocka_unit_test_setup(a_batch_shell_gets_a_hint, clean),
		cmocka_unit_test(every_rank_has_a_gpu_of_its_own),
		cmocka_unit_test(ranks_on_cpus_share_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
