/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/boot.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/train/boot_pmix.h"

#define SRUN "srun --mpi=pmix train-worker ..."

/*
 * Seconds a rank leaves to rank 0 to end the job: when that surely has the
 * same to say, and when it may (mpirun kills one second after TERM).
 */
#define COMMON_WAIT 3.0
#define FIRST_WAIT  1.5

static int env_int(const char *name)
{
	const char *value = getenv(name);

	return value ? (int)strtol(value, NULL, 10) : 0;
}

static const char *env_text(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

/* Without PMIx but as one of many: N copies would train side by side. */
static int refuse_copies(struct err *e)
{
	static const char *const sizes[] = {"SLURM_STEP_NUM_TASKS", "PMI_SIZE",
					    "OMPI_COMM_WORLD_SIZE"};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int n = env_int(sizes[i]);

		if (n > 1)
			return err_set(e, CODE_LAUNCH,
				       "started as one of %d tasks (%s) but "
				       "without PMIx, so each would train "
				       "alone and overwrite the others: start "
				       "with " SRUN,
				       n, sizes[i]);
	}
	return 0;
}

static int open_alone(struct boot *b, struct err *e)
{
	int tasks = env_int("SLURM_NTASKS");

	if (refuse_copies(e))
		return -1;
	if (*env_text("SLURM_JOB_ID") && tasks > 1 &&
	    !*env_text("SLURM_STEP_NUM_TASKS"))
		snprintf(b->hint, sizeof(b->hint),
			 "inside Slurm job %.20s of %d tasks but not started "
			 "by srun, so this is one rank: for all of them use "
			 "" SRUN,
			 env_text("SLURM_JOB_ID"), tasks);
	return 0;
}

/* The launcher's two views of the step must agree. */
static int check_slurm(const struct pmix_job *job, struct err *e)
{
	int tasks = env_int("SLURM_STEP_NUM_TASKS");

	if (strncmp(job->nspace, "slurm.", 6))
		return 0;
	if (env_int("SLURM_HET_SIZE") > 1)
		return err_set(e, CODE_LAUNCH,
			       "a heterogeneous job of %d components: its "
			       "steps have no single rank order: use one "
			       "component",
			       env_int("SLURM_HET_SIZE"));
	if (tasks && tasks != job->world)
		return err_set(e, CODE_LAUNCH,
			       "PMIx counts %d ranks (%s), srun %d "
			       "(SLURM_STEP_NUM_TASKS): an environment left "
			       "over from another step: start with " SRUN,
			       job->world, job->nspace, tasks);
	return 0;
}

int boot_open(struct boot *b, double timeout, struct err *e)
{
	struct pmix_job job;

	*b = (struct boot){.world = 1, .local_size = 1, .timeout = timeout};
	gethostname(b->machine, sizeof(b->machine) - 1);
	memcpy(b->host, b->machine, sizeof(b->host));
	if (!getenv("PMIX_NAMESPACE"))
		return open_alone(b, e);
	if (pmix_open(&job, timeout, e))
		return -1;
	b->launched = true;
	b->rank = job.rank;
	b->world = job.world;
	b->node_rank = b->local_rank = job.local_rank;
	b->local_size = job.local_size;
	if (job.host[0])
		memcpy(b->host, job.host, sizeof(b->host));
	return check_slurm(&job, e);
}

/* What must be equal on all ranks, and what to do if it is not. */
static const struct {
	const char *name, *remedy;
	size_t at;
} texts[] = {
	{"binary version", "install one version on all nodes",
	 offsetof(struct boot_card, version)},
	{"machine", "spec.device = \"cuda\" or \"cpu\" decides it for all",
	 offsetof(struct boot_card, kind)},
	{"shape", "let every rank read the same config",
	 offsetof(struct boot_card, shape_hash)},
	{"config", "let every rank read the same config",
	 offsetof(struct boot_card, config_hash)},
};

static int differ(const struct boot_card *card, int r, const char *what,
		  const char *a, const char *b, const char *remedy,
		  struct err *e)
{
	return err_set(e, CODE_LAUNCH,
		       "%s differs: rank 0 on %s has %s, rank %d on %s has "
		       "%s: %s",
		       what, card[0].host, a, r, card[r].host, b, remedy);
}

static int compare(const struct boot_card *card, int r, struct err *e)
{
	char a[24], b[24];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const char *x = (const char *)&card[0] + texts[i].at;
		const char *y = (const char *)&card[r] + texts[i].at;

		if (strcmp(x, y))
			return differ(card, r, texts[i].name, x, y,
				      texts[i].remedy, e);
	}
	if (card[0].resume_step == card[r].resume_step)
		return 0;
	snprintf(a, sizeof(a), "%lld", (long long)card[0].resume_step);
	snprintf(b, sizeof(b), "%lld", (long long)card[r].resume_step);
	return differ(card, r, "step to resume from", a, b,
		      "run.dir must be one file system that all nodes see "
		      "alike",
		      e);
}

/* The rank before R that has R's GPU, or -1. */
static int shares_device(const struct boot_card *card, int r)
{
	for (int i = 0; i < r; i++)
		if (*card[r].device &&
		    !strcmp(card[i].device, card[r].device) &&
		    !strcmp(card[i].machine, card[r].machine))
			return i;
	return -1;
}

int boot_compare(const struct boot_card *card, int world, struct err *e)
{
	for (int r = 1; r < world; r++) {
		int i = shares_device(card, r);

		if (compare(card, r, e))
			return -1;
		if (i >= 0)
			return err_set(
				e, CODE_LAUNCH,
				"rank %d on %s and rank %d on %s use the same "
				"GPU, %s of %s: a rank needs one of its own: "
				"start with --gpus-per-task=1, or with as many "
				"in --gres=gpu:N as in --ntasks-per-node=N",
				i, card[i].host, r, card[r].host,
				card[r].device, card[r].machine);
	}
	return 0;
}

static void count_local(struct boot *b)
{
	b->local_rank = b->local_size = 0;
	for (int r = 0; r < b->world; r++) {
		if (strcmp(b->card[r].machine, b->machine))
			continue;
		b->local_rank += r < b->rank;
		b->local_size++;
	}
}

static int exchange(struct boot *b, struct boot_card *mine, double timeout,
		    struct err *e)
{
	struct pmix_job job = {.rank = b->rank,
			       .world = b->world,
			       .local_size = b->local_size};

	b->met = true;
	memcpy(mine->host, b->host, sizeof(mine->host));
	memcpy(mine->machine, b->machine, sizeof(mine->machine));
	b->card = calloc((size_t)b->world, sizeof(*b->card));
	if (!b->card)
		return err_set(e, CODE_COMM, "no memory for %d cards",
			       b->world);
	if (!b->launched) {
		b->card[0] = *mine;
		return 0;
	}
	memcpy(job.host, b->host, sizeof(job.host));
	return pmix_gather(&job, mine, sizeof(*mine), b->card, timeout, e);
}

/* The first rank that could not start speaks for the job; -1: none. */
static int first_failed(struct boot *b)
{
	for (int r = 0; r < b->world; r++)
		if (b->card[r].code) {
			b->common = true;
			b->speaker = r;
			return r;
		}
	return -1;
}

int boot_exchange(struct boot *b, const struct boot_card *mine, double timeout,
		  struct err *e)
{
	struct boot_card card = *mine;
	int failed;

	if (getrandom(&card.nonce, sizeof(card.nonce), 0) < 0)
		return err_sys(e, CODE_LAUNCH, "getrandom");
	if (exchange(b, &card, timeout, e))
		return -1;
	count_local(b);
	b->nonce = b->card[0].nonce;
	failed = first_failed(b);
	if (failed >= 0)
		return err_set(e, (enum code)b->card[failed].code,
			       "rank %d on %s could not start: %s", failed,
			       b->card[failed].host, b->card[failed].why);
	b->common = boot_compare(b->card, b->world, e) != 0;
	return b->common ? -1 : 0;
}

static void sleep_for(double seconds)
{
	struct timespec t = {(time_t)seconds,
			     (long)((seconds - floor(seconds)) * 1e9)};

	/* the launcher's TERM may come meanwhile */
	while (nanosleep(&t, &t))
		;
}

/*
 * The others are on their way to boot_exchange, or wait in it: meet them
 * there.  (mpirun may crash or hang when a job ends amid a fence.)
 */
static void tell_others(struct boot *b, enum code code, const char *text)
{
	struct boot_card card = {.code = (int32_t)code};
	struct err ignored;

	snprintf(card.why, sizeof(card.why), "%s", text);
	if (!exchange(b, &card, b->timeout, &ignored))
		first_failed(b);
}

void boot_abort(struct boot *b, enum code code, const char *text)
{
	static atomic_flag ending = ATOMIC_FLAG_INIT;

	/* one thread ends the process; any other waits for that */
	while (atomic_flag_test_and_set(&ending))
		sleep_for(1);
	if (b->launched && !b->met)
		tell_others(b, code, text);
	if (b->launched && b->rank != b->speaker)
		sleep_for(b->common ? COMMON_WAIT : FIRST_WAIT);
	if (!b->common || b->rank == b->speaker)
		log_error("%s", text);
	if (b->launched)
		pmix_abort(code, text);
	_exit(code);
}

void boot_close(struct boot *b)
{
	if (b->launched)
		pmix_close();
	b->launched = false;
	free(b->card);
	b->card = NULL;
}
