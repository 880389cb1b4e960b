/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt-merge import-hf and export-hf against a plain copy done with the same
 * calls:
 *   hf CKPT-MERGE [MIB [RUNS]]
 * Prints the medians of alternating runs, their ratios and the peak memory.
 */
#include "ckpt/hf.h"
#include "ckpt/safetensors.h"
#include "test/bench/copy.h"

/* A Llama of LAYERS layers, 45 M parameters each. */
static void write_config(const char *path, int64_t layers)
{
	FILE *f = fopen(path, "w");

	if (!f)
		die(path);
	fprintf(f,
		"{\"model_type\": \"llama\", \"hidden_size\": 2048,\n"
		"\"num_hidden_layers\": %" PRId64 ", \"vocab_size\": 32000,\n"
		"\"num_attention_heads\": 16, \"num_key_value_heads\": 4,\n"
		"\"intermediate_size\": 5632,\n"
		"\"max_position_embeddings\": 4096,\n"
		"\"torch_dtype\": \"bfloat16\"}\n",
		layers);
	if (fclose(f))
		die(path);
}

static int64_t put_header(FILE *f, const struct hf_map *m)
{
	char *text = NULL;
	size_t size, len;
	int64_t at = 0;
	FILE *t = open_memstream(&text, &size);

	for (int i = 0; t && i < m->tensors; i++) {
		const struct hf_tensor *x = &m->tensor[i];
		int64_t end = at + 2 * x->outs * x->ins;

		fprintf(t, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%" PRId64,
			i ? ',' : '{', x->name, x->dim[0]);
		if (x->ndim > 1)
			fprintf(t, ",%" PRId64, x->dim[1]);
		fprintf(t, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at,
			end);
		at = end;
	}
	if (!t || fputc('}', t) == EOF || fclose(t))
		die("header");
	len = strlen(text);
	for (int i = 0; i < 8; i++)
		fputc((int)(len >> 8 * i & 255), f);
	fputs(text, f);
	free(text);
	return at;
}

static void write_tensors(const char *path, const struct hf_map *m)
{
	static uint64_t block[COPY_BYTES / 8];
	FILE *f = fopen(path, "wb");
	uint64_t x = 1;

	if (!f)
		die(path);
	for (int64_t left = put_header(f, m); left > 0;) {
		size_t n = left < COPY_BYTES ? (size_t)left : COPY_BYTES;

		for (size_t i = 0; i < COPY_BYTES / 8; i++)
			block[i] = x = x * UINT64_C(6364136223846793005) + 1;
		if (fwrite(block, 1, n, f) != n)
			die(path);
		left -= (int64_t)n;
	}
	if (fflush(f) || fsync(fileno(f)) || fclose(f))
		die(path);
}

static void make_source(const char *dir, int64_t mib)
{
	int64_t layers = mib / 86 > 3 ? mib / 86 - 3 : 1;
	const struct hf_names *names;
	struct arena a = {0};
	struct report r = {.arena = &a};
	struct weights w;
	struct hf_map m;
	struct config c;
	struct err e;
	char path[700];

	snprintf(path, sizeof(path), "%s/config.json", dir);
	if (mkdir(dir, 0777) || arena_open(&a, &e))
		die(dir);
	write_config(path, layers);
	if (hf_config_read(path, &c, &names, &a, &r, &e))
		die(e.text);
	weights_build(&w, &c.shape, &a);
	if (hf_map_build(&m, names, &c.shape, &w, &a, &e))
		die(e.text);
	snprintf(path, sizeof(path), "%s/" SAFE_FILE, dir);
	write_tensors(path, &m);
	arena_close(&a);
}

static void print(const char *what, double bytes, double *copy, double *ours,
		  double *ratio, int n)
{
	printf("hf: %.2f GB %s: copy %.0f MB/s, %s %.0f MB/s, ratio %.2f "
	       "(wanted 0.70)\n",
	       bytes / 1e9, what, bytes / 1e6 / median(copy, n), what,
	       bytes / 1e6 / median(ours, n), median(ratio, n));
}

int main(int argc, char **argv)
{
	int64_t mib = argc > 2 ? atoll(argv[2]) : 2048, bytes = 0;
	int runs = argc > 3 ? (int)atoll(argv[3]) : 5;
	const char *tmp = getenv("TMPDIR");
	double copy[RUNS_MAX], in[RUNS_MAX], out[RUNS_MAX];
	double in_ratio[RUNS_MAX], out_ratio[RUNS_MAX];
	char from[600], run[600], to[600];
	long rss = 0;

	if (argc < 2 || mib < 1 || runs < 1 || runs > RUNS_MAX) {
		fprintf(stderr, "usage: hf CKPT-MERGE [MIB [RUNS]]\n");
		return 2;
	}
	snprintf(top, sizeof(top), "%.400s/hf.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(top))
		die(top);
	snprintf(from, sizeof(from), "%s/from", top);
	snprintf(run, sizeof(run), "%s/run", top);
	snprintf(to, sizeof(to), "%s/to", top);
	make_source(from, mib);
	for (int i = 0; i < runs; i++) {
		const char *const import[] = {argv[1], "import-hf", from, run,
					      NULL};
		const char *const export[] = {argv[1], "export-hf", run, to,
					      NULL};

		copy[i] = time_copy(from, to, &bytes);
		in[i] = time_program(import, &rss);
		out[i] = time_program(export, &rss);
		in_ratio[i] = copy[i] / in[i];
		out_ratio[i] = copy[i] / out[i];
		io_remove(run);
		io_remove(to);
	}
	io_remove(top);
	print("import-hf", (double)bytes, copy, in, in_ratio, runs);
	print("export-hf", (double)bytes, copy, out, out_ratio, runs);
	printf("hf: peak memory %.1f MiB\n", (double)rss / 1024);
	return 0;
}
