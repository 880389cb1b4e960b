/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt-merge reshard against a plain copy done with the same calls:
 *   merge CKPT-MERGE [MIB [RUNS]]
 * Prints the medians of alternating runs, their ratio and the peak memory.
 */
#include "test/bench/copy.h"
#include "test/ckpt-sim.h"

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

static double time_reshard(const char *program, const char *from,
			   const char *to, long *rss)
{
	const char *const argv[] = {
		program, "reshard",
		from,	 to,
		"--set", "place.tensor_model_parallel_size=2",
		"--set", "place.pipeline_model_parallel_size=2",
		NULL};
	double t = time_program(argv, rss);

	io_remove(to);
	return t;
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
