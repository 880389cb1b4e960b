/* SPDX-License-Identifier: Apache-2.0 */
/*
 * norm.c on the GPU.  A row lives in the registers of a warp or, if longer
 * than 1024, of a block: at most PER elements to each of at most THREADS
 * threads.  So C is at most 32 * 1024.
 */
#include "kernels/kern_cuda.h"

#define ROWS 4 /* of a block, where each has a warp */

struct norm_arg {
	int64_t N, C;
	bool mean; /* LayerNorm */
	float one, eps;
};

static struct norm_arg norm_arg(const struct kern_norm_dims *d)
{
	return {d->N, d->C, d->kind == KERN_LAYERNORM,
		d->zero_centered ? 1.0f : 0.0f, (float)d->eps};
}

/* W elements as they are in memory: half the registers for bf16. */
template <typename T, int W> struct alignas(W * sizeof(T)) raw {
	T v[W];
};

template <int W, typename T>
static __device__ __forceinline__ struct raw<T, W> raw_load(const T *p) {
	return *(const struct raw<T, W> *)p;
}

/* v = x + dropout(branch + bias), W elements of row ROW from column C on. */
template <typename T, int W>
static __device__ __forceinline__ void resid_pack(
	float (&v)[W], const T *x, const T *branch, const T *bias, int64_t C,
	int64_t row, int64_t c, const struct dropper &drop, int64_t row0)
{
	float b[W], f[W];

	load<W>(v, x + row * C + c);
	load<W>(b, branch + row * C + c);
	if (bias) {
		load<W>(f, bias + c);
#pragma unroll
		for (int j = 0; j < W; j++)
			b[j] += f[j];
	}
	if (drop.limit) {
		drop.factors<W>(f, (row0 + row) * C + c);
#pragma unroll
		for (int j = 0; j < W; j++)
			b[j] = f[j] != 0 ? b[j] * f[j] : 0;
	}
#pragma unroll
	for (int j = 0; j < W; j++)
		v[j] = (float)(T)(v[j] + b[j]);
}

template <typename T, int W>
static __global__ void resid_kernel(T *xout, const T *x, const T *branch,
				    const T *bias, int64_t N, int64_t C,
				    struct drop_arg d)
{
	dropper drop(d);
	int64_t c0 = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;

	for (int64_t n = blockIdx.y; n < N; n += gridDim.y)
		for (int64_t c = c0; c < C; c += gridDim.x * blockDim.x * W) {
			float v[W];

			resid_pack<T, W>(v, x, branch, bias, C, n, c, drop,
					 d.row0);
			store<W>(xout + n * C + c, v);
		}
}

/* Rows of a block are its threadIdx.y; a wide one has a single row. */
template <typename T, int W, int PER, int THREADS>
static __global__ void __launch_bounds__(THREADS)
	fwd_kernel(T *y, T *xout, float *stat, const T *x, const T *branch,
		   const T *bias, const T *w, const T *b, struct norm_arg a,
		   struct drop_arg d)
{
	constexpr int PACKS = PER / W;
	__shared__ float area[32];
	dropper drop(d);
	int64_t n = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
	float v[PACKS][W], mean = 0, square = 0, r;
	auto col = [](int i) {
		return ((int64_t)i * blockDim.x + threadIdx.x) * W;
	};

	if (n >= a.N)
		return; /* only where a row has a warp of its own */
#pragma unroll
	for (int i = 0; i < PACKS; i++) {
		if (col(i) >= a.C)
			continue;
		if (branch) {
			resid_pack<T, W>(v[i], x, branch, bias, a.C, n, col(i),
					 drop, d.row0);
			store<W>(xout + n * a.C + col(i), v[i]);
		} else {
			load<W>(v[i], x + n * a.C + col(i));
		}
#pragma unroll
		for (int j = 0; j < W; j++)
			mean += v[i][j];
	}
	mean = a.mean ? block_sum(mean, area) / (float)a.C : 0;
#pragma unroll
	for (int i = 0; i < PACKS; i++)
#pragma unroll
		for (int j = 0; j < W; j++)
			if (col(i) < a.C)
				square += (v[i][j] - mean) * (v[i][j] - mean);
	r = 1 / sqrtf(block_sum(square, area) / (float)a.C + a.eps);
	if (threadIdx.x == 0) {
		stat[2 * n] = mean;
		stat[2 * n + 1] = r;
	}
#pragma unroll
	for (int i = 0; i < PACKS; i++) {
		float gain[W], shift[W] = {};

		if (col(i) >= a.C)
			continue;
		load<W>(gain, w + col(i));
		if (b)
			load<W>(shift, b + col(i));
#pragma unroll
		for (int j = 0; j < W; j++)
			v[i][j] = (v[i][j] - mean) * r * (a.one + gain[j]) +
				  shift[j];
		store<W>(y + n * a.C + col(i), v[i]);
	}
}

/*
 * dx by rows, as in fwd_kernel; a block does rows with the grid's stride and
 * sums dw and db over them, then over its threadIdx.y in their order, to
 * row blockIdx.x of part (2, blocks, C).
 */
template <typename T, int W, int PER, int THREADS>
static __global__ void __launch_bounds__(THREADS)
	bwd_kernel(T *dx, float *part, const T *dy, const T *dres, const T *x,
		   const float *stat, const T *w, struct norm_arg a)
{
	constexpr int PACKS = PER / W;
	__shared__ float area[32];
	float sw[PACKS][W] = {}, sb[PACKS][W] = {};
	int64_t step = (int64_t)gridDim.x * blockDim.y;
	int64_t n = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
	auto col = [](int i) {
		return ((int64_t)i * blockDim.x + threadIdx.x) * W;
	};

	for (; n < a.N; n += step) {
		float mg = 0, mgx = 0, mean = stat[2 * n], r = stat[2 * n + 1];
		struct raw<T, W> gs[PACKS], xs[PACKS], rs[PACKS];

#pragma unroll
		for (int i = 0; i < PACKS; i++) {
			if (col(i) >= a.C)
				continue;
			gs[i] = raw_load<W>(dy + n * a.C + col(i));
			xs[i] = raw_load<W>(x + n * a.C + col(i));
			if (dres)
				rs[i] = raw_load<W>(dres + n * a.C + col(i));
		}
#pragma unroll
		for (int i = 0; i < PACKS; i++) {
			float gain[W], g, h;

			if (col(i) >= a.C)
				continue;
			load<W>(gain, w + col(i));
#pragma unroll
			for (int j = 0; j < W; j++) {
				h = ((float)xs[i].v[j] - mean) * r;
				g = (float)gs[i].v[j] * (a.one + gain[j]);
				sw[i][j] += (float)gs[i].v[j] * h;
				sb[i][j] += (float)gs[i].v[j];
				mg += g;
				mgx += g * h;
			}
		}
		mg = a.mean ? block_sum(mg, area) / (float)a.C : 0;
		mgx = block_sum(mgx, area) / (float)a.C;
#pragma unroll
		for (int i = 0; i < PACKS; i++) {
			float gain[W], d[W], g, h;

			if (col(i) >= a.C)
				continue;
			load<W>(gain, w + col(i));
#pragma unroll
			for (int j = 0; j < W; j++) {
				h = ((float)xs[i].v[j] - mean) * r;
				g = (float)gs[i].v[j] * (a.one + gain[j]);
				d[j] = (dres ? (float)rs[i].v[j] : 0) +
				       r * (g - mg - h * mgx);
			}
			store<W>(dx + n * a.C + col(i), d);
		}
	}
	float *pw = part + (int64_t)blockIdx.x * a.C;
	float *pb = pw + (int64_t)gridDim.x * a.C;

	for (int row = 0; row < blockDim.y; row++) {
		if (row == threadIdx.y)
#pragma unroll
			for (int i = 0; i < PACKS; i++)
				for (int j = 0; j < W && col(i) < a.C; j++) {
					int64_t c = col(i) + j;

					pw[c] = (row ? pw[c] : 0) + sw[i][j];
					pb[c] = (row ? pb[c] : 0) + sb[i][j];
				}
		__syncthreads();
	}
}

/* Run STATEMENT with constants PER and THREADS that suit rows of C. */
#define WITH_ROW(C, PER, THREADS, statement)                    \
	do {                                                    \
		if ((C) <= 32 * 24) {                           \
			constexpr int PER = 24, THREADS = 128;  \
			statement;                              \
		} else if ((C) <= 32 * 32) {                    \
			constexpr int PER = 32, THREADS = 128;  \
			statement;                              \
		} else if ((C) <= 512 * 16) {                   \
			constexpr int PER = 16, THREADS = 512;  \
			statement;                              \
		} else {                                        \
			constexpr int PER = 32, THREADS = 1024; \
			statement;                              \
		}                                               \
	} while (0)

/* Threads for a row of C: whole warps, each thread with at most PER. */
static dim3 block_for(int64_t C, int per)
{
	unsigned threads = (unsigned)(ceil_div(ceil_div(C, per), 32) * 32);

	return dim3(threads, threads == 32 ? ROWS : 1);
}

/* Blocks of the backward: a matter of the shape, and what part has room for. */
static int64_t bwd_blocks(int64_t N, int64_t C, dim3 block)
{
	int64_t room = (int64_t)(QUEUE_WORK / (2 * sizeof(float))) / C;
	int64_t blocks = ceil_div(N, block.y), most = 792;

	if (most > room)
		most = room;
	return blocks < most ? blocks : most;
}

template <typename T, int W, int PER, int THREADS>
static void bwd_launch(struct queue *q, T *dx, float *dw, float *db,
		       const T *dy, const T *dres, const T *x,
		       const float *stat, const T *w, struct norm_arg a)
{
	dim3 block = block_for(a.C, PER);
	int64_t blocks = bwd_blocks(a.N, a.C, block);
	float *part = (float *)q->work;

	LAUNCH(q, (bwd_kernel<T, W, PER, THREADS>), (unsigned)blocks, block, 0,
	       dx, part, dy, dres, x, stat, w, a);
	columns_add(q, dw, part, blocks, a.C);
	if (db)
		columns_add(q, db, part + blocks * a.C, blocks, a.C);
}

template <typename T>
void cuda_norm<T>::resid(struct queue *q, void *xout, const void *x,
			 const void *branch, const void *bias, int64_t N,
			 int64_t C, const struct kern_drop *d)
{
	bool ok = aligned({xout, x, branch, bias}) && C % WIDE<T> == 0;

	if (!branch)
		return;
	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (resid_kernel<T, W>),
			  dim3((unsigned)ceil_div(C, 128 * W),
			       (unsigned)(N < 8192 ? N : 8192)),
			  128, 0, (T *)xout, (const T *)x, (const T *)branch,
			  (const T *)bias, N, C, drop_arg(d)));
}

template <typename T>
void cuda_norm<T>::fwd(struct queue *q, void *y, void *xout, void *stat,
		       const void *x, const void *branch, const void *bias,
		       const void *w, const void *b,
		       const struct kern_norm_dims *dims,
		       const struct kern_drop *d)
{
	bool ok = aligned({y, xout, x, branch, bias, w, b}) &&
		  dims->C % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   WITH_ROW(dims->C, PER, THREADS,
			    dim3 block = block_for(dims->C, PER);
			    LAUNCH(q, (fwd_kernel<T, W, PER, THREADS>),
				   (unsigned)ceil_div(dims->N, block.y), block,
				   0, (T *)y, (T *)xout, (float *)stat,
				   (const T *)x, (const T *)branch,
				   (const T *)bias, (const T *)w, (const T *)b,
				   norm_arg(dims), drop_arg(d))));
}

template <typename T>
void cuda_norm<T>::bwd(struct queue *q, void *dx, void *dw, void *db,
		       const void *dy, const void *dres, const void *x,
		       const void *stat, const void *w,
		       const struct kern_norm_dims *dims)
{
	bool ok = aligned({dx, dy, dres, x, w}) && dims->C % WIDE<T> == 0;

	WITH_WIDTH(T, W, ok,
		   WITH_ROW(dims->C, PER, THREADS,
			    (bwd_launch<T, W, PER, THREADS>(
				    q, (T *)dx, (float *)dw, (float *)db,
				    (const T *)dy, (const T *)dres,
				    (const T *)x, (const float *)stat,
				    (const T *)w, norm_arg(dims)))));
}

template struct cuda_norm<float>;
template struct cuda_norm<bf16>;
template struct cuda_norm<fp16>;
