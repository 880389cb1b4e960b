/* SPDX-License-Identifier: Apache-2.0 */
/* The PMIx client, with a deadline on every call that talks to a server. */
#ifndef TRAIN_BOOT_PMIX_H
#define TRAIN_BOOT_PMIX_H

#include <stddef.h>

#include "lib/base/err.h"

struct pmix_job {
	int rank, world;
	int local_rank, local_size;
	char nspace[256], host[64]; /* host: "" if the launcher tells none */
};

/* PMIX_NAMESPACE is set: connect (CODE_LAUNCH, CODE_COMM when too slow). */
int pmix_open(struct pmix_job *job, double timeout, struct err *e);

/*
 * ALL (world * SIZE bytes) becomes every rank's MINE, by one Put, Commit,
 * collecting Fence and a Get of each.  CODE_COMM: who has not arrived in
 * time; CODE_LAUNCH: a rank whose record has another size.  SIZE is at most
 * 1 KiB; once per process.
 */
int pmix_gather(const struct pmix_job *job, const void *mine, size_t size,
		void *all, double timeout, struct err *e);

/* Ask the server to end the job with CODE; normally does not come back. */
void pmix_abort(int code, const char *text);

void pmix_close(void);

#endif
