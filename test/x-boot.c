/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a bootstrap: x-boot WHAT, where WHAT is what the last rank has
 * other than the rest, or does (see fill); run by t3020 and t3030.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/train/boot.h"

static struct boot boot;
static struct err err;

static void end(int rc)
{
	if (rc)
		boot_abort(&boot, err.code, err.text);
}

static void fill(struct boot_card *card, const char *what)
{
	const char *one = "0123456789abcdef0123456789abcdef";

	if (!strcmp(what, "alike"))
		boot_abort(&boot, CODE_CONFIG, "no such config");
	*card = (struct boot_card){.version = "0.1.0", .resume_step = 120};
	snprintf(card->shape_hash, sizeof(card->shape_hash), "%s", one);
	snprintf(card->config_hash, sizeof(card->config_hash), "%s", one);
	/* each its own, but the last the first one's */
	if (!strcmp(what, "device"))
		snprintf(card->device, sizeof(card->device), "0000:%02x:00.0",
			 boot.rank % (boot.world - 1));
	if (boot.rank != boot.world - 1)
		return;
	if (!strcmp(what, "version"))
		snprintf(card->version, sizeof(card->version), "0.0.9");
	if (!strcmp(what, "shape"))
		card->shape_hash[0] = 'x';
	if (!strcmp(what, "config"))
		card->config_hash[0] = 'x';
	if (!strcmp(what, "step"))
		card->resume_step = -1;
	if (!strcmp(what, "late"))
		sleep(60);
	if (!strcmp(what, "dies"))
		raise(SIGKILL);
	if (!strcmp(what, "aborts"))
		boot_abort(&boot, CODE_STORAGE, "disk full");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct boot_card card;

	log_open("x-boot", -1, LOG_INFO);
	end(boot_open(&boot, 3, &err));
	log_open("x-boot", boot.rank, LOG_INFO);
	fill(&card, what);
	end(boot_exchange(&boot, &card, 2, &err));
	printf("rank %d of %d, node %d, local %d of %d, nonce %d, last %s\n",
	       boot.rank, boot.world, boot.node_rank, boot.local_rank,
	       boot.local_size, boot.nonce == boot.card[0].nonce,
	       boot.card[boot.world - 1].version);
	boot_close(&boot);
	return 0;
}
