/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/sys.h"
#include "lib/train/machine.h"

static const struct kern *cpu_kern(int dtype)
{
	static const struct kern *const tables[] = {
		[DTYPE_FP32] = &kern_cpu_f32,
		[DTYPE_FP64] = &kern_cpu_f64,
		[DTYPE_BF16] = &kern_cpu_bf16,
		[DTYPE_FP16] = &kern_cpu_fp16,
	};

	return tables[dtype];
}

static int cpu_count(void)
{
	return 1;
}

static double cpu_peak(size_t size)
{
	(void)size;
	return NAN;
}

static int cpu_open(struct exec *x, struct err *e)
{
	const struct prog *p = x->prog;

	for (int f = 0; f < FAMILIES; f++) {
		void *new;

		if (!p->bytes[f])
			continue;
		new = mmap(NULL, (size_t)p->bytes[f], PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (new == MAP_FAILED)
			return err_sys(e, CODE_LAUNCH,
				       "cannot allocate %" PRId64
				       " bytes for %s",
				       p->bytes[f], family_name(f));
		x->base[f] = new;
		x->allocated += p->bytes[f];
	}
	x->host = x->base[FAMILY_HOST];
	return 0;
}

static void cpu_close(struct exec *x)
{
	free(x->own);
	for (int f = 0; f < FAMILIES; f++)
		if (x->base[f])
			munmap(x->base[f], (size_t)x->prog->bytes[f]);
}

static int cpu_copy(struct exec *x, void *to, const void *from, size_t bytes,
		    struct err *e)
{
	(void)x;
	(void)e;
	memcpy(to, from, bytes);
	return 0;
}

static int cpu_nothing(struct exec *x, struct err *e)
{
	(void)x;
	(void)e;
	return 0;
}

/* own: the seconds of each mark. */
static int cpu_mark(struct exec *x, int i, struct err *e)
{
	if (i == 0) {
		free(x->own);
		x->own = calloc((size_t)x->prog->train.count + 1,
				sizeof(double));
	}
	if (!x->own)
		return err_set(e, CODE_LAUNCH, "out of memory");
	((double *)x->own)[i] = sys_seconds();
	return 0;
}

static int cpu_marks(struct exec *x, int ops, double *ms, struct err *e)
{
	const double *at = x->own;

	(void)e;
	for (int i = 0; i < ops; i++)
		ms[i] = 1e3 * (at[i + 1] - at[i]);
	return 0;
}

static int cpu_results(struct exec *x, struct kern_scalars *out,
		       double *seconds, struct err *e)
{
	(void)e;
	*seconds = sys_seconds() - x->prepared;
	*out = *exec_scalars(x);
	return 0;
}

const struct machine machine_cpu = {
	.device = DEVICE_CPU,
	.count = cpu_count,
	.peak = cpu_peak,
	.kern = cpu_kern,
	.open = cpu_open,
	.close = cpu_close,
	.copy = cpu_copy,
	.prepare = cpu_nothing,
	.begin = cpu_nothing,
	.end = cpu_nothing,
	.mark = cpu_mark,
	.marks = cpu_marks,
	.results = cpu_results,
};

#ifndef TRISECT_CUDA
const struct machine *machine_cuda(void)
{
	return NULL;
}
#endif

const struct machine *machine_choose(int device, int dtype, struct err *e)
{
	const struct machine *gpu = machine_cuda();

	if (device == DEVICE_CPU ||
	    (device == DEVICE_AUTO &&
	     (!gpu || !gpu->kern(dtype) || !gpu->count())))
		return &machine_cpu;
	if (gpu && gpu->count())
		return gpu;
	err_set(e, CODE_LAUNCH,
		gpu ? "a GPU is asked for (spec.device, or params_dtype of 16 "
		      "bits), but no GPU is visible here (see nvidia-smi, "
		      "CUDA_VISIBLE_DEVICES and sbatch --gres)"
		    : "a GPU is asked for (spec.device, or params_dtype of 16 "
		      "bits), but this train-worker was built without CUDA "
		      "(make CUDA=1)");
	return NULL;
}
