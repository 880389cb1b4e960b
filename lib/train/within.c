/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/within.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct call {
	void (*fn)(void *arg);
	void *arg;
};

static void *run(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	return NULL;
}

static int start(pthread_t *thread, struct call *c)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, run, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}

int within(double seconds, void (*fn)(void *arg), void *arg)
{
	struct call *c = malloc(sizeof(*c));
	struct timespec end;
	pthread_t thread;
	long ns;

	if (!c)
		return -1;
	*c = (struct call){fn, arg};
	if (start(&thread, c)) {
		free(c);
		return -1;
	}
	/* pthread_timedjoin_np counts in wall-clock time */
	clock_gettime(CLOCK_REALTIME, &end);
	ns = end.tv_nsec + (long)((seconds - (double)(long)seconds) * 1e9);
	end.tv_sec += (time_t)seconds + ns / 1000000000;
	end.tv_nsec = ns % 1000000000;
	if (pthread_timedjoin_np(thread, NULL, &end))
		return -1; /* the thread keeps C */
	free(c);
	return 0;
}
