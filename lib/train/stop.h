/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why this rank should save and stop: a signal, the stop file, the time.
 * Signals may reach any subset of ranks; the loop reduces the answer so that
 * all stop at the same step.
 */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum stop_why { STOP_NO, STOP_SIGNAL, STOP_FILE, STOP_TIME };

struct stop {
	char file[4096]; /* DIR/stop, or "" */
	int64_t minutes; /* or UNSET */
	double begun;	 /* monotonic seconds */
	double looked;	 /* when the file was last looked for */
	enum stop_why why;
	int signal; /* of STOP_SIGNAL */
};

/*
 * Catch TERM, INT, USR1 and USR2.  The first sets a flag, a second one
 * changes nothing (a save goes on), a third ends the process at once, as does
 * a second INT.  DIR is run.dir or NULL (no stop file); MINUTES is
 * run.exit_duration_in_mins, counted from this call, or UNSET.
 */
int stop_open(struct stop *s, const char *dir, int64_t minutes, struct err *e);

/*
 * Cheap enough for every micro-batch: the file is looked for once a second.
 * The first reason stays.
 */
enum stop_why stop_requested(struct stop *s);

/* "signal 15 (Terminated)", "found DIR/stop", "60 minutes are over", "" */
const char *stop_text(const struct stop *s, char *buf, size_t size);

/* Give the signals back. */
void stop_close(struct stop *s);

#endif
