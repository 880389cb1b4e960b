/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/watchdog.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/sys.h"

#define TICK_MS 50

/*
 * The worker writes a phase, the watchdog reads it, neither waits: NUMBER is
 * odd while the other fields change, and a reader that sees it move looks
 * again a tick later.
 */
struct watchdog {
	struct watchdog_hooks hooks;
	pthread_t thread;
	int ended; /* eventfd */
	atomic_uint number;
	_Atomic(const char *) name;
	_Atomic double begun, limit;
};

struct phase {
	unsigned number;
	const char *name;
	double begun, limit;
};

static int read_phase(struct watchdog *w, struct phase *p)
{
	p->number = atomic_load(&w->number);
	p->name = atomic_load(&w->name);
	p->begun = atomic_load(&w->begun);
	p->limit = atomic_load(&w->limit);
	return p->number % 2 || p->number != atomic_load(&w->number);
}

static void tell(struct watchdog *w, void (*hook)(void *, const char *),
		 const struct phase *p, double elapsed)
{
	char where[512] = "", text[768];

	if (w->hooks.describe)
		w->hooks.describe(w->hooks.arg, where, sizeof(where));
	snprintf(text, sizeof(text), "%s: %.0f s of at most %.0f s%s%s",
		 p->name, elapsed, p->limit, where[0] ? ", at " : "", where);
	hook(w->hooks.arg, text);
}

static void *watch(void *arg)
{
	struct watchdog *w = arg;
	struct pollfd ended = {.fd = w->ended, .events = POLLIN};
	unsigned warned = 1, expired = 1; /* odd: no phase's number */
	struct phase p;

	while (poll(&ended, 1, TICK_MS) <= 0) {
		double elapsed;

		if (read_phase(w, &p) || p.limit <= 0)
			continue;
		elapsed = sys_seconds() - p.begun;
		if (elapsed >= p.limit && expired != p.number) {
			expired = warned = p.number;
			tell(w, w->hooks.expire, &p, elapsed);
		} else if (elapsed >= p.limit / 2 && warned != p.number) {
			warned = p.number;
			tell(w, w->hooks.warn, &p, elapsed);
		}
	}
	return NULL;
}

int watchdog_open(struct watchdog **out, const struct watchdog_hooks *hooks,
		  struct err *e)
{
	struct watchdog *w = calloc(1, sizeof(*w));
	sigset_t all, old;
	int rc;

	*out = NULL;
	if (!w)
		return err_set(e, CODE_FINDINGS, "watchdog: no memory");
	w->hooks = *hooks;
	w->ended = eventfd(0, EFD_CLOEXEC);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = w->ended < 0 || pthread_create(&w->thread, NULL, watch, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		if (w->ended >= 0)
			close(w->ended);
		free(w);
		return err_set(e, CODE_FINDINGS, "watchdog: no thread");
	}
	*out = w;
	return 0;
}

void watchdog_phase(struct watchdog *w, const char *name, double seconds)
{
	atomic_fetch_add(&w->number, 1);
	atomic_store(&w->name, name);
	atomic_store(&w->begun, sys_seconds());
	atomic_store(&w->limit, seconds);
	atomic_fetch_add(&w->number, 1);
}

void watchdog_close(struct watchdog *w)
{
	uint64_t one = 1;

	if (!w)
		return;
	if (write(w->ended, &one, sizeof(one)) == sizeof(one))
		pthread_join(w->thread, NULL);
	close(w->ended);
	free(w);
}
