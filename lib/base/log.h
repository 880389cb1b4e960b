/* SPDX-License-Identifier: Apache-2.0 */
/* Talk goes to stderr, one write per line; stdout is for the product. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/*
 * Name the program and, for rank >= 0, the rank: lines then start with
 * "train-worker[5]: ".  LEVEL is the most talkative level that is printed.
 * This is the program's only global state.
 */
void log_open(const char *program, int rank, enum log_level level);

/* Print one line "PROGRAM[RANK]: LEVEL: text" with a single write(2). */
void log_line(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
