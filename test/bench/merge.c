/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt-merge reshard against a plain copy done with the same calls:
 *   merge CKPT-MERGE [MIB [RUNS]]
 * Prints the medians of alternating runs, their ratio and the peak memory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "ckpt/io.h"
#include "test/ckpt-sim.h"

enum { RUNS_MAX = 25, COPY_BYTES = 2 << 20, START_BYTES = 32 << 20 };

static char top[512]; /* the folder of this run */

static void die(const char *what)
{
	fprintf(stderr, "merge: %s: %s\n", what, strerror(errno));
	io_remove(top);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A Llama whose parameters and moments take about MIB. */
static void make_source(const char *dir, int64_t mib)
{
	/* 12 bytes a parameter; a layer of width 1024 has about 12.6 M. */
	int64_t layers = mib * (1 << 20) / 12 / 12600000;
	char sets[512];
	struct sim s;

	if (layers < 2)
		layers = 2;
	snprintf(sets, sizeof(sets),
		 "shape.num_layers=%" PRId64 " shape.hidden_size=1024 "
		 "shape.num_attention_heads=16 shape.num_query_groups=16 "
		 "shape.ffn_hidden_size=2752 shape.gated_linear_unit=true "
		 "shape.normalization=RMSNorm shape.add_bias_linear=false "
		 "shape.position_embedding_type=rope shape.vocab_size=2000 "
		 "place.tensor_model_parallel_size=4",
		 layers / 2 * 2);
	sim_open(&s, sets, 4);
	if (sim_save(&s, dir))
		die("save");
	sim_close(&s);
}

static void copy_file(const char *from, const char *to)
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
static int64_t copy_folder(const char *from, const char *to)
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
		snprintf(a, sizeof(a), "%s/%s", from, at->d_name);
		snprintf(b, sizeof(b), "%s/%s", to, at->d_name);
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

static double time_copy(const char *from, const char *to, int64_t *bytes)
{
	double t = now();

	*bytes = copy_folder(from, to);
	t = now() - t;
	io_remove(to);
	return t;
}

static double time_reshard(const char *program, const char *from,
			   const char *to, long *rss)
{
	double t = now();
	struct rusage use;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		execl(program, program, "reshard", from, to, "--set",
		      "place.tensor_model_parallel_size=2", "--set",
		      "place.pipeline_model_parallel_size=2", (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) != pid || status)
		die(program);
	t = now() - t;
	if (use.ru_maxrss > *rss)
		*rss = use.ru_maxrss;
	io_remove(to);
	return t;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof(*x), by_value);
	return x[n / 2];
}

int main(int argc, char **argv)
{
	int64_t mib = argc > 2 ? atoll(argv[2]) : 2048, bytes = 0;
	int runs = argc > 3 ? (int)atoll(argv[3]) : 5;
	const char *tmp = getenv("TMPDIR");
	double copy[RUNS_MAX], merge[RUNS_MAX], ratio[RUNS_MAX];
	char from[600], step[700], to[600];
	long rss = 0;

	if (argc < 2 || mib < 1 || runs < 1 || runs > RUNS_MAX) {
		fprintf(stderr, "usage: merge CKPT-MERGE [MIB [RUNS]]\n");
		return 2;
	}
	snprintf(top, sizeof(top), "%.400s/merge.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(top))
		die(top);
	snprintf(from, sizeof(from), "%s/from", top);
	snprintf(step, sizeof(step), "%s/step_00000010", from);
	snprintf(to, sizeof(to), "%s/to", top);
	make_source(from, mib);
	for (int i = 0; i < runs; i++) {
		copy[i] = time_copy(step, to, &bytes);
		merge[i] = time_reshard(argv[1], from, to, &rss);
		ratio[i] = copy[i] / merge[i];
	}
	io_remove(top);
	printf("merge: %.2f GB TP4 -> TP2 x PP2: copy %.0f MB/s, reshard %.0f "
	       "MB/s, ratio %.2f (wanted 0.60), peak memory %.1f MiB\n",
	       (double)bytes / 1e9, (double)bytes / 1e6 / median(copy, runs),
	       (double)bytes / 1e6 / median(merge, runs), median(ratio, runs),
	       (double)rss / 1024);
	return 0;
}
