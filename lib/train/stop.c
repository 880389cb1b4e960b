/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/stop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/sys.h"
#include "lib/plan/field.h"

#define LOOK_EVERY 1.0 /* seconds between looks for the stop file */
#define PATIENCE   3   /* signals that end the process */

static const int signals[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

/* A handler has no other way to be told. */
static volatile sig_atomic_t first, count, interrupts;
static struct sigaction before[SIGNALS];

static void on_signal(int sig)
{
	if (!first)
		first = sig;
	count = count + 1;
	if (sig == SIGINT)
		interrupts = interrupts + 1;
	if (count >= PATIENCE || interrupts >= 2) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
}

int stop_open(struct stop *s, const char *dir, int64_t minutes, struct err *e)
{
	struct sigaction act = {.sa_handler = on_signal,
				.sa_flags = SA_RESTART};

	*s = (struct stop){.minutes = minutes, .begun = sys_seconds()};
	s->looked = s->begun - LOOK_EVERY;
	if (dir && snprintf(s->file, sizeof(s->file), "%s/stop", dir) >=
			   (int)sizeof(s->file))
		return err_set(e, CODE_USAGE,
			       "run.dir has %zu bytes, at most %zu fit",
			       strlen(dir), sizeof(s->file) - 6);
	first = count = interrupts = 0;
	sigemptyset(&act.sa_mask);
	for (size_t i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &act, &before[i]);
	return 0;
}

static enum stop_why look(struct stop *s)
{
	double now;

	if (first) {
		s->signal = first;
		return STOP_SIGNAL;
	}
	now = sys_seconds();
	if (IS_SET(s->minutes) && now - s->begun >= 60.0 * (double)s->minutes)
		return STOP_TIME;
	if (now - s->looked < LOOK_EVERY)
		return STOP_NO;
	s->looked = now;
	return s->file[0] && !access(s->file, F_OK) ? STOP_FILE : STOP_NO;
}

enum stop_why stop_requested(struct stop *s)
{
	if (s->why == STOP_NO)
		s->why = look(s);
	return s->why;
}

const char *stop_text(const struct stop *s, char *buf, size_t size)
{
	buf[0] = 0;
	if (s->why == STOP_SIGNAL)
		snprintf(buf, size, "signal %d (%s)", s->signal,
			 strsignal(s->signal));
	else if (s->why == STOP_FILE)
		snprintf(buf, size, "found %s", s->file);
	else if (s->why == STOP_TIME)
		snprintf(buf, size, "%lld minutes are over",
			 (long long)s->minutes);
	return buf;
}

void stop_close(struct stop *s)
{
	(void)s;
	for (size_t i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &before[i], NULL);
}
