/* SPDX-License-Identifier: Apache-2.0 */
/* A plain copy of a folder, done with the calls of ckpt-merge, and its time. */
#ifndef TEST_BENCH_COPY_H
#define TEST_BENCH_COPY_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/io.h"

enum { RUNS_MAX = 25, COPY_BYTES = 2 << 20, START_BYTES = 32 << 20 };

static char top[512]; /* the folder of this run */

static inline void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	io_remove(top);
	exit(1);
}

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void copy_file(const char *from, const char *to)
{
	static char buf[COPY_BYTES];
	int in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT, 0666);
	int64_t at = 0, started = 0;
	struct stat st;
	ssize_t n;

	if (in < 0 || out < 0 || fstat(in, &st))
		die(from);
	if (st.st_size && fallocate(out, 0, 0, st.st_size) && errno == ENOSPC)
		die(to);
	while ((n = pread(in, buf, sizeof(buf), at)) > 0) {
		if (pwrite(out, buf, (size_t)n, at) != n)
			die(to);
		at += n;
		if (at - started >= START_BYTES) {
			sync_file_range(out, started, at - started,
					SYNC_FILE_RANGE_WRITE);
			started = at;
		}
	}
	if (n < 0 || fsync(out))
		die(to);
	close(in);
	close(out);
}

/* A folder with its folders; returns the bytes of all files. */
static inline int64_t copy_folder(const char *from, const char *to)
{
	DIR *d = opendir(from);
	int64_t bytes = 0;

	if (!d || mkdir(to, 0777))
		die(from);
	for (struct dirent *at; (at = readdir(d));) {
		char a[1024], b[1024];
		struct stat st;

		if (*at->d_name == '.')
			continue;
		snprintf(a, sizeof(a), "%.700s/%.255s", from, at->d_name);
		snprintf(b, sizeof(b), "%.700s/%.255s", to, at->d_name);
		if (stat(a, &st))
			die(a);
		if (S_ISDIR(st.st_mode)) {
			bytes += copy_folder(a, b);
		} else {
			copy_file(a, b);
			bytes += st.st_size;
		}
	}
	closedir(d);
	return bytes;
}

static inline double time_copy(const char *from, const char *to, int64_t *bytes)
{
	double t = now();

	*bytes = copy_folder(from, to);
	t = now() - t;
	io_remove(to);
	return t;
}

static inline int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), by_value);
	return x[n / 2];
}

/* Seconds of a program that ends well; *RSS is at least its peak, KiB. */
static inline double time_program(const char *const argv[], long *rss)
{
	double t = now();
	struct rusage use;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		execv(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) != pid || status)
		die(argv[0]);
	if (use.ru_maxrss > *rss)
		*rss = use.ru_maxrss;
	return now() - t;
}

#endif
