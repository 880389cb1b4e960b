/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/boot_pmix.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/train/within.h"

#define KEY	   "trisect.card"
#define CARD_MAX   1024
#define CLOSE_WAIT 5.0

/* Ours is this much later than the server's, which tells every rank alike. */
#define FENCE_MARGIN 2.0
#define GET_SECONDS  2

/* A process is one client; calls that outlive their deadline use this too. */
static struct {
	pmix_proc_t me, all;
	int timeout;
	pmix_status_t rc;
	int code;
	char text[1024];
} client;

static const char *env_or(const char *name, const char *none)
{
	const char *value = getenv(name);

	return value ? value : none;
}

static void call_init(void *arg)
{
	(void)arg;
	client.rc = PMIx_Init(&client.me, NULL, 0);
}

static int connect_server(double timeout, struct err *e)
{
	const char *nspace = env_or("PMIX_NAMESPACE", "unset");
	const char *rank = env_or("PMIX_RANK", "unset");
	const char *psec = env_or("PMIX_SECURITY_MODE", "unset");

	if (within(timeout, call_init, NULL))
		return err_set(e, CODE_COMM,
			       "PMIx_Init: no answer from the launcher's "
			       "server in %g s (PMIX_NAMESPACE %s, PMIX_RANK "
			       "%s): is its daemon on this node alive?",
			       timeout, nspace, rank);
	if (client.rc == PMIX_SUCCESS)
		return 0;
	return err_set(
		e, CODE_LAUNCH,
		"PMIx_Init: %s (%d): a stale or broken PMIx environment "
		"(PMIX_NAMESPACE %s, PMIX_RANK %s, PMIX_SECURITY_MODE %s: the "
		"psec plugin must be installed here too; client %s): start "
		"with srun --mpi=pmix, or unset PMIX_NAMESPACE to run alone",
		PMIx_Error_string(client.rc), client.rc, nspace, rank, psec,
		PMIx_Get_version());
}

/*
 * HOW is PMIX_OPTIONAL, what this process has been told already, or
 * PMIX_IMMEDIATE, what this node's server knows now.
 */
static pmix_status_t get_value(const pmix_proc_t *of, const char *key,
			       const char *how, pmix_value_t **value)
{
	pmix_info_t info[2];
	bool yes = true;
	int seconds = GET_SECONDS;
	pmix_status_t rc;

	PMIX_INFO_CONSTRUCT(&info[0]);
	PMIX_INFO_CONSTRUCT(&info[1]);
	PMIX_INFO_LOAD(&info[0], how, &yes, PMIX_BOOL);
	PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
	rc = PMIx_Get(of, key, info, 2, value);
	PMIX_INFO_DESTRUCT(&info[0]);
	PMIX_INFO_DESTRUCT(&info[1]);
	return rc;
}

static int get_int(const pmix_proc_t *of, const char *key, int none)
{
	pmix_value_t *value;
	pmix_status_t rc;
	int n;

	if (get_value(of, key, PMIX_OPTIONAL, &value) != PMIX_SUCCESS)
		return none;
	PMIX_VALUE_GET_NUMBER(rc, value, n, int);
	PMIX_VALUE_RELEASE(value);
	return rc == PMIX_SUCCESS ? n : none;
}

static void get_text(const pmix_proc_t *of, const char *key, char *out,
		     size_t size)
{
	pmix_value_t *value;

	out[0] = 0;
	if (get_value(of, key, PMIX_OPTIONAL, &value) != PMIX_SUCCESS)
		return;
	if (value->type == PMIX_STRING && value->data.string)
		snprintf(out, size, "%s", value->data.string);
	PMIX_VALUE_RELEASE(value);
}

int pmix_open(struct pmix_job *job, double timeout, struct err *e)
{
	if (connect_server(timeout, e))
		return -1;
	PMIX_LOAD_PROCID(&client.all, client.me.nspace, PMIX_RANK_WILDCARD);
	job->rank = (int)client.me.rank;
	job->world = get_int(&client.all, PMIX_JOB_SIZE, 0);
	job->local_rank = get_int(&client.me, PMIX_LOCAL_RANK, 0);
	job->local_size = get_int(&client.all, PMIX_LOCAL_SIZE, 1);
	snprintf(job->nspace, sizeof(job->nspace), "%s", client.me.nspace);
	get_text(&client.me, PMIX_HOSTNAME, job->host, sizeof(job->host));
	if (job->world > job->rank && job->rank >= 0)
		return 0;
	return err_set(e, CODE_LAUNCH,
		       "the launcher's PMIx says rank %d of %d (%s)", job->rank,
		       job->world, job->nspace);
}

/* Needs only this node's server, so it cannot block for a peer. */
static int put_card(const void *mine, size_t size, struct err *e)
{
	pmix_value_t value;
	pmix_status_t rc;

	if (size > CARD_MAX)
		return err_set(e, CODE_COMM,
			       "bootstrap record of %zu bytes, at most %d fit",
			       size, CARD_MAX);
	PMIX_VALUE_CONSTRUCT(&value);
	value.type = PMIX_BYTE_OBJECT;
	value.data.bo.bytes = malloc(size);
	value.data.bo.size = size;
	if (!value.data.bo.bytes)
		return err_set(e, CODE_COMM, "no memory for %zu bytes", size);
	memcpy(value.data.bo.bytes, mine, size);
	rc = PMIx_Put(PMIX_GLOBAL, KEY, &value);
	PMIX_VALUE_DESTRUCT(&value);
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Commit();
	if (rc == PMIX_SUCCESS)
		return 0;
	return err_set(e, CODE_COMM, "PMIx_Put: %s (%d)", PMIx_Error_string(rc),
		       rc);
}

static void call_fence(void *arg)
{
	pmix_info_t info[2];
	bool collect = true;

	(void)arg;
	PMIX_INFO_CONSTRUCT(&info[0]);
	PMIX_INFO_CONSTRUCT(&info[1]);
	PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &client.timeout, PMIX_INT);
	client.rc = PMIx_Fence(&client.all, 1, info, 2);
	PMIX_INFO_DESTRUCT(&info[0]);
	PMIX_INFO_DESTRUCT(&info[1]);
}

static int get_card(int rank, const struct pmix_job *job, const char *how,
		    size_t size, void *out, struct err *e)
{
	pmix_proc_t of;
	pmix_value_t *value;
	pmix_status_t rc;
	size_t got;

	PMIX_LOAD_PROCID(&of, client.me.nspace, (pmix_rank_t)rank);
	rc = get_value(&of, KEY, how, &value);
	if (rc != PMIX_SUCCESS)
		return err_set(e, CODE_COMM,
			       "PMIx_Get of %s of rank %d of %d: %s (%d)", KEY,
			       rank, job->world, PMIx_Error_string(rc), rc);
	got = value->type == PMIX_BYTE_OBJECT ? value->data.bo.size : 0;
	if (got == size)
		memcpy(out, value->data.bo.bytes, size);
	PMIX_VALUE_RELEASE(value);
	if (got == size)
		return 0;
	return err_set(e, CODE_LAUNCH,
		       "rank %d introduces itself with %zu bytes, this rank "
		       "(%d) with %zu: two different binaries: install one "
		       "version on all nodes",
		       rank, got, job->rank, size);
}

/* After a fence that failed: whose card has this node not seen? */
static int fence_failed(const struct pmix_job *job, size_t size, double timeout,
			struct err *e)
{
	char list[256] = "", card[CARD_MAX];
	size_t used = 0;
	int missing = 0;
	struct err ignored;

	for (int r = 0; r < job->world; r++) {
		if (r == job->rank ||
		    !get_card(r, job, PMIX_OPTIONAL, size, card, &ignored))
			continue;
		if (used + 16 < sizeof(list))
			used += (size_t)snprintf(list + used,
						 sizeof(list) - used, "%s%d",
						 missing ? ", " : "", r);
		missing++;
	}
	return err_set(e, CODE_COMM,
		       "bootstrap of %d ranks not complete in %g s (%s): rank "
		       "%d on %s has no word of ranks %s%s%s: look there "
		       "first, or raise run.boot_timeout_seconds",
		       job->world, timeout,
		       client.rc ? PMIx_Error_string(client.rc) : "no answer",
		       job->rank, job->host, list,
		       used + 16 < sizeof(list) ? "" : " ...",
		       job->world > job->local_size
			       ? " (of other nodes, not even of those present)"
			       : "");
}

int pmix_gather(const struct pmix_job *job, const void *mine, size_t size,
		void *all, double timeout, struct err *e)
{
	if (put_card(mine, size, e))
		return -1;
	client.timeout = timeout < 1 ? 1 : (int)timeout;
	client.rc = PMIX_SUCCESS;
	if (within(client.timeout + FENCE_MARGIN, call_fence, NULL) ||
	    client.rc != PMIX_SUCCESS)
		return fence_failed(job, size, timeout, e);
	for (int r = 0; r < job->world; r++)
		if (get_card(r, job, PMIX_IMMEDIATE, size,
			     (char *)all + (size_t)r * size, e))
			return -1;
	return 0;
}

static void call_abort(void *arg)
{
	(void)arg;
	PMIx_Abort(client.code, client.text, NULL, 0);
}

void pmix_abort(int code, const char *text)
{
	client.code = code;
	snprintf(client.text, sizeof(client.text), "%s", text);
	within(CLOSE_WAIT, call_abort, NULL);
}

static void call_finalize(void *arg)
{
	(void)arg;
	PMIx_Finalize(NULL, 0);
}

void pmix_close(void)
{
	within(CLOSE_WAIT, call_finalize, NULL);
}
