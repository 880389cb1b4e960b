/* SPDX-License-Identifier: Apache-2.0 */
/* optim.c on the GPU.  Gradients, m, v and the master copy are float. */
#include "kernels/kern_cuda.h"

/* A fixed number, so that no device's size shows. */
#define PARTS 1024

static __global__ void sumsq_kernel(double *part, const float *x, int64_t n,
				    bool wide)
{
	__shared__ double area[32];
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	int64_t packs = wide ? n / 4 : 0;
	double s = 0;

#pragma unroll 4
	for (int64_t i = first; i < packs; i += step) {
		float v[4];

		load<4>(v, x + 4 * i);
#pragma unroll
		for (int j = 0; j < 4; j++)
			s += (double)v[j] * (double)v[j];
	}
	for (int64_t i = 4 * packs + first; i < n; i += step)
		s += (double)x[i] * (double)x[i];
	s = block_sum(s, area);
	if (threadIdx.x == 0)
		part[blockIdx.x] = s;
}

static __global__ void sumsq_end_kernel(double *acc, const double *part)
{
	__shared__ double area[32];
	double s = block_sum(part[threadIdx.x], area);

	if (threadIdx.x == 0)
		*acc += s;
}

void cuda_sumsq(struct queue *q, double *acc, const void *x, int64_t n)
{
	double *part = (double *)q->work;

	LAUNCH(q, sumsq_kernel, PARTS, 256, 0, part, (const float *)x, n,
	       aligned({x}));
	LAUNCH(q, sumsq_end_kernel, 1, PARTS, 0, acc, part);
}

struct adam {
	float scale, lr, b1, a1, b2, a2, c1, c2, eps, wd;

	__device__ __forceinline__ adam(const struct kern_adam *h, bool decay)
	    : scale((float)h->grad_scale), lr((float)h->lr),
	      b1((float)h->beta1), a1((float)(1 - h->beta1)),
	      b2((float)h->beta2), a2((float)(1 - h->beta2)),
	      c1((float)(1 / h->correct1)), c2((float)(1 / h->correct2)),
	      eps((float)h->eps), wd(decay ? (float)h->weight_decay : 0)
	{
	}

	__device__ __forceinline__ void step(float &p, float &m, float &v,
					     float g) const
	{
		g *= scale;
		m = b1 * m + a1 * g;
		v = b2 * v + a2 * (g * g);
		p -= lr * (m * c1 / (sqrtf(v * c2) + eps) + wd * p);
	}
};

/* W elements from I on; p only receives, in T, what is kept in MASTER. */
template <typename T, int W>
static __device__ __forceinline__ void adam_pack(const struct adam &h, T *p,
						 float *master, float *m,
						 float *v, const float *g,
						 int64_t i)
{
	float pi[W], mi[W], vi[W], gi[W];

	load<W>(pi, master + i);
	load<W>(mi, m + i);
	load<W>(vi, v + i);
	load<W>(gi, g + i);
#pragma unroll
	for (int j = 0; j < W; j++)
		h.step(pi[j], mi[j], vi[j], gi[j]);
	store<W>(master + i, pi);
	store<W>(m + i, mi);
	store<W>(v + i, vi);
	if constexpr (sizeof(T) != sizeof(float))
		store<W>(p + i, pi);
}

template <typename T, int W>
static __global__ void adamw_kernel(T *p, float *master, float *m, float *v,
				    const float *g, int64_t n,
				    const struct kern_adam *scalars, bool decay)
{
	struct adam h(scalars, decay);
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (scalars->skip > 0)
		return;
	for (; i < ceil_div(n, W); i += step) {
		if (i * W + W <= n) {
			adam_pack<T, W>(h, p, master, m, v, g, i * W);
			continue;
		}
		for (int64_t j = i * W; j < n; j++)
			adam_pack<T, 1>(h, p, master, m, v, g, j);
	}
}

/* With fp32 elements p is its own master. */
template <typename T>
void cuda_adamw(struct queue *q, void *p, void *master, void *m, void *v,
		const void *g, int64_t n, const struct kern_adam *h, bool decay)
{
	bool ok;

	if (sizeof(T) == sizeof(float))
		master = p;
	ok = aligned({p, master, m, v, g});
	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (adamw_kernel<T, W>), blocks_for(n, 256 * W, 4096),
			  256, 0, (T *)p, (float *)master, (float *)m,
			  (float *)v, (const float *)g, n, h, decay));
}

template void cuda_adamw<float>(struct queue *, void *, void *, void *, void *,
				const void *, int64_t, const struct kern_adam *,
				bool);
template void cuda_adamw<bf16>(struct queue *, void *, void *, void *, void *,
			       const void *, int64_t, const struct kern_adam *,
			       bool);
template void cuda_adamw<fp16>(struct queue *, void *, void *, void *, void *,
			       const void *, int64_t, const struct kern_adam *,
			       bool);
