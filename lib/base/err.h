/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as values: one caller-owned struct, always the last parameter. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/*
 * The exit codes of all four programs, the same on every rank.  An error
 * carries the code that the program ends with if nobody handles it.
 */
enum code {
	CODE_DONE = 0,
	CODE_FINDINGS = 1, /* findings, a difference, a runtime failure */
	CODE_USAGE = 2,	   /* usage, or input that cannot be read */
	CODE_CONFIG = 3,   /* invalid config at launch */
	CODE_CKPT = 4,	   /* checkpoint missing, corrupt or refused */
	CODE_LAUNCH = 5,   /* launch or environment, out of memory */
	CODE_COMM = 6,	   /* bootstrap or communication */
	CODE_HANG = 7,	   /* the watchdog ended a hang */
	CODE_NUMERIC = 8,  /* not a number, infinity */
	CODE_STORAGE = 9,  /* disk full, write failed */
	CODE_STOPPED = 75, /* stopped early, state saved */
};

struct err {
	enum code code;
	char text[1024];
};

/*
 * Write the cause into E and return -1, so that `return err_set(...)` is one
 * line.  A text that does not fit is cut at its end.
 */
int err_set(struct err *e, enum code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Put more context in front of E's text ("load step 120: " + cause) and
 * return -1.  If both do not fit, the new context is cut, never the cause.
 */
int err_wrap(struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Like err_set, with ": " and the text of errno behind. */
int err_sys(struct err *e, enum code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What makes a word many, for "%d file%s": "s" unless N is 1. */
const char *plural(long long n);

#endif
