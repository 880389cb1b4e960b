/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bootstrap through PMIx: who are the ranks of this job, and do they agree?
 * Put, Commit, one collecting Fence with a timeout, Get.  No ranks, ports or
 * ids on the command line or in shared files.
 */
#ifndef TRAIN_BOOT_H
#define TRAIN_BOOT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/train/comm.h"

/*
 * What every rank tells every other, in one exchange.  The caller fills
 * version, the hashes, the step, and on GPUs the device and rank 0's comm_id;
 * unused bytes are zero.
 */
struct boot_card {
	char version[32]; /* of this binary; first, so that any can read it */
	char host[64];	  /* the node's name in the launcher's view */
	char machine[64]; /* gethostname: nodes may share one */
	char kind[16];	  /* what it computes on: "the CPU", "a GPU" */
	char shape_hash[33];
	char config_hash[33]; /* of the finalised config */
	char device[16];      /* bus address of its GPU; "": none */
	int64_t resume_step;  /* -1: from the start */
	uint64_t cpus;	      /* hash of the cpus it may run on */
	uint64_t nonce;	      /* rank 0's is the job's */
	int32_t code;	      /* not 0: this rank could not start, */
	char why[252];	      /* because of this (cut) */
	unsigned char comm_id[COMM_ID_BYTES];
};

struct boot {
	int rank, world;
	int node_rank; /* among those of its node in the launcher's view */
	/* among the ranks on this machine; by the cards, once exchanged */
	int local_rank, local_size;
	bool launched;		/* false: alone, without a launcher */
	bool met;		/* boot_exchange has begun */
	bool common;		/* what failed, all ranks know alike */
	int speaker;		/* of them says it */
	double timeout;		/* of boot_open */
	struct boot_card *card; /* [world], after boot_exchange */
	uint64_t nonce;		/* the job's, after boot_exchange */
	char host[64], machine[64];
	char hint[256]; /* "", or why this rank is probably not meant to be
			   alone, with the command to use */
};

/*
 * Find rank and world.  Alone (no launcher): rank 0 of 1, and no call to
 * PMIx is ever made.  Under srun without PMIx, or with a stale environment:
 * refused (CODE_LAUNCH) with the srun line to use.  TIMEOUT in seconds
 * bounds every PMIx call, also PMIx_Init (CODE_COMM).  B is valid for
 * boot_abort also after a failure.
 */
int boot_open(struct boot *b, double timeout, struct err *e);

/*
 * Whether the cards of WORLD ranks fit together.  One with another binary,
 * shape, config or resume step than rank 0's, or two on one GPU: CODE_LAUNCH,
 * naming both ranks, hosts and values.
 */
int boot_compare(const struct boot_card *card, int world, struct err *e);

/*
 * Exchange MINE and compare: what does not fit together stops the job, the
 * same on every rank (b->common); so does a rank that called boot_abort
 * before, with its code; a rank that never arrives, CODE_COMM with who is
 * missing.  Once per process.
 */
int boot_exchange(struct boot *b, const struct boot_card *mine, double timeout,
		  struct err *e);

/*
 * Log TEXT and end every rank of the job with this exit code; does not
 * return.  Where all ranks fail alike one line is enough: rank 0 speaks
 * first, the others shortly after, and not at all where b->common (which the
 * caller may set too).  Before boot_exchange the others hear of it there.
 * Safe from any thread, with communication in flight.
 */
void boot_abort(struct boot *b, enum code code, const char *text)
	__attribute__((noreturn));

/*
 * Leave the job in good order, after comm_close; a rank that exits without
 * it takes the job down.
 */
void boot_close(struct boot *b);

#endif
