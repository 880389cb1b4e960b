/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans cuDNN's attention for a described GPU, with no GPU here: the engines
 * that it chooses compile, and their workspace is what attn_plan.h says.
 * cuDNN wants a driver's library to be there; the toolkit's stub is enough.
 *
 *	g-plan DEVICE.json [STUBS/libcuda.so]
 */
#include <dlfcn.h>
#include <stdio.h>

#include "kernels/attn_cudnn_graph.h"

static int tests, failures;

static desc_t device_read(const struct cudnn *lib, const char *path)
{
	char text[4096];
	FILE *f = fopen(path, "rb");
	int64_t n = f ? (int64_t)fread(text, 1, sizeof(text), f) : 0;
	desc_t d = NULL;

	if (f)
		fclose(f);
	if (n &&
	    !lib->cudnnBackendCreateDescriptor(
		    CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d) &&
	    !lib->cudnnBackendSetAttribute(
		    d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
		    CUDNN_TYPE_CHAR, n, text) &&
	    !lib->cudnnBackendFinalize(d))
		return d;
	printf("Bail out! %s describes no device\n", path);
	return NULL;
}

/* WANT: the workspace's exact size, or -1 if only its bound is known. */
static void test_plan(const struct cudnn *lib, desc_t device,
		      const struct kern_attn_dims *d, bool fp16, bool bwd,
		      int64_t batch, int64_t engine, int64_t want)
{
	struct attn_graph g = attn_graph(d, fp16, bwd, batch);
	struct attn_engine e = attn_graph_plan(lib, NULL, device, &g);
	int64_t most = kern_cudnn_workspace(d);
	bool good = e.status == CUDNN_STATUS_SUCCESS ||
		    e.status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;

	if (e.plan)
		lib->cudnnBackendDestroyDescriptor(e.plan);
	good = good && e.engine == engine && e.workspace >= 0 &&
	       (want < 0 ? e.workspace <= most : e.workspace == want);
	tests++;
	failures += !good;
	printf("%sok %d - %s %s (%ld, %ld, %ld, %ld, %ld) in %ld: engine %ld, "
	       "workspace %ld of %ld, %s: %s\n",
	       good ? "" : "not ", tests, fp16 ? "fp16" : "bf16",
	       bwd ? "bwd" : "fwd", (long)d->B, (long)d->H, (long)d->G,
	       (long)d->T, (long)d->D, (long)batch, (long)e.engine,
	       (long)e.workspace, (long)most, e.step,
	       lib->cudnnGetErrorString(e.status));
	fflush(stdout);
}

static void test_dims(const struct cudnn *lib, desc_t device, bool fp16,
		      const int64_t *s)
{
	struct kern_attn_dims d = {};
	struct kern_cudnn_view v;
	int64_t bwd = lib->cudnnGetVersion() < 91900 ? 2 : 6;

	d.B = s[0];
	d.H = s[1];
	d.G = s[2];
	d.T = s[3];
	d.D = d.Dv = s[4];
	v = kern_cudnn_view(&d);
	test_plan(lib, device, &d, fp16, false, v.batch, d.T > 1 ? 2 : 1, -1);
	test_plan(lib, device, &d, fp16, true, v.chunk, bwd,
		  d.T % 128 ? -1 : kern_cudnn_workspace(&d));
	if (v.batch % v.chunk)
		test_plan(lib, device, &d, fp16, true, v.batch % v.chunk, bwd,
			  -1);
}

int main(int argc, char **argv)
{
	static const int64_t shapes[][5] = {
		{64, 12, 12, 1024, 64}, {16, 25, 25, 1024, 64},
		{2, 32, 8, 8192, 128},	{16, 8, 2, 1024, 128},
		{3, 6, 2, 1000, 64},	{5, 12, 12, 4096, 64},
		{1, 1, 1, 1, 8},	{2, 6, 2, 65, 80},
		{1, 2, 1, 130, 256},
	};
	const struct cudnn *lib;
	desc_t device;

	if (argc > 2)
		dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
	lib = cudnn_library();
	if (argc < 2 || *lib->missing) {
		printf("1..0 # SKIP %s\n",
		       argc < 2 ? "no device given" : lib->missing);
		return 0;
	}
	device = device_read(lib, argv[1]);
	if (!device)
		return 1;
	printf("# cuDNN %zu\n", lib->cudnnGetVersion());
	for (const int64_t *s : shapes)
		for (bool fp16 : {false, true})
			test_dims(lib, device, fp16, s);
	printf("1..%d\n", tests);
	lib->cudnnBackendDestroyDescriptor(device);
	return failures != 0;
}
