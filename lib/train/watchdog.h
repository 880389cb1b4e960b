/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that ends a hang: the work is in phases, each with a limit.  It
 * takes no locks and calls neither MPI nor the accelerator.
 */
#ifndef TRAIN_WATCHDOG_H
#define TRAIN_WATCHDOG_H

#include <stddef.h>

#include "lib/base/err.h"

struct watchdog;

/* Called from the watchdog's thread. */
struct watchdog_hooks {
	/* Where this rank is, into BUF: reads volatile values, no locks. */
	void (*describe)(void *arg, char *buf, size_t size);
	/* At half of the limit: a line to log. */
	void (*warn)(void *arg, const char *text);
	/* At the limit; normally does not return (boot_abort, CODE_HANG). */
	void (*expire)(void *arg, const char *text);
	void *arg;
};

/* Starts in no phase. */
int watchdog_open(struct watchdog **out, const struct watchdog_hooks *hooks,
		  struct err *e);

/*
 * A new phase (or the same one again: the next step) begins now and may take
 * SECONDS; 0: no limit.  NAME is kept, not copied.  Called by one thread;
 * costs a clock reading.
 */
void watchdog_phase(struct watchdog *w, const char *name, double seconds);

void watchdog_close(struct watchdog *w);

#endif
