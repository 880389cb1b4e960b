/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn.c on the GPU, in float, for any D and Dv up to 256; attn_wgmma.cu and
 * attn_mma.cu are the fast ways for what is plain in 16 bits.  A warp has four rows; the 32
 * columns of a tile are its lanes for the products over D, and the D columns
 * of a row are its lanes for the products over the tile.  Nothing is added by
 * two blocks, so the backward computes the scores twice: by queries for dq,
 * by keys for dk, dv.
 */
#include "kernels/attn_cuda.h"
#include "kernels/attn_cudnn.h"

#define WARPS 8
#define ROWS  4	 /* of a warp */
#define TILE  32 /* rows of a block, columns of a tile */

/* Odd, so that a column's elements lie in 32 banks. */
static __host__ __device__ int tile_ld(int D)
{
	return D | 1;
}

/* The first key that query I of sample B sees. */
static __device__ __forceinline__ int first_key(const struct attn_arg &a, int b,
						int i)
{
	int from = a.window && i >= a.window ? i - a.window + 1 : 0;

	return a.doc && i < a.T ? max(from, a.doc[(int64_t)b * a.T + i]) : from;
}

/* Rows FIRST .. + TILE of D, zero past T. */
template <typename T>
static __device__ void tile_load(float *to, const T *from, int64_t ld,
				 int first, int D, const struct attn_arg &a)
{
	int lane = threadIdx.x % 32;

	for (int r = threadIdx.x / 32; r < TILE; r += WARPS)
		for (int c = lane; c < D; c += 32)
			to[r * tile_ld(D) + c] =
				first + r < a.T
					? (float)from[(first + r) * ld + c]
					: 0;
}

/* s[r] = row r of ROWS at X times this lane's row of the tile Y. */
static __device__ __forceinline__ void products(float (&s)[ROWS],
						const float *x, const float *y,
						int D)
{
	int ld = tile_ld(D);

	y += threadIdx.x % 32 * ld;
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		s[r] = 0;
	for (int d = 0; d < D; d++) {
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			s[r] += x[r * ld + d] * y[d];
	}
}

/* acc[r] (D by lanes) += the tile Y's rows, each lane's times its s[r]. */
template <int K>
static __device__ __forceinline__ void spread(float (&acc)[ROWS][K],
					      const float (&s)[ROWS],
					      const float *y, int D)
{
	int lane = threadIdx.x % 32, ld = tile_ld(D);

	for (int j = 0; j < TILE; j++) {
		float w[ROWS];

#pragma unroll
		for (int r = 0; r < ROWS; r++)
			w[r] = __shfl_sync(~0u, s[r], j);
#pragma unroll
		for (int k = 0; k < K; k++) {
			int c = 32 * k + lane;
			float x = c < D ? y[j * ld + c] : 0;

#pragma unroll
			for (int r = 0; r < ROWS; r++)
				acc[r][k] += w[r] * x;
		}
	}
}

/* Rows FIRST .. + ROWS of D at TO = SCALE[r] acc[r]. */
template <typename T, int K>
static __device__ __forceinline__ void rows_store(T *to, int64_t ld,
						  const float (&acc)[ROWS][K],
						  const float (&scale)[ROWS],
						  int first, int D,
						  const struct attn_arg &a)
{
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		if (first + r >= a.T)
			continue;
#pragma unroll
		for (int k = 0; k < K; k++) {
			int c = 32 * k + threadIdx.x % 32;

			if (c < D)
				to[(first + r) * ld + c] =
					(T)(acc[r][k] * scale[r]);
		}
	}
}

static __device__ __forceinline__ float factor(const struct dropper &drop,
					       int64_t elem)
{
	float f[1];

	if (!drop.limit)
		return 1;
	drop.factors<1>(f, elem);
	return f[0];
}

template <typename T>
static __device__ __forceinline__ float sink_of(const T *sink, int h,
						const struct attn_arg &a)
{
	return a.sink == KERN_SINK_NONE	  ? -INFINITY
	       : a.sink == KERN_SINK_ZERO ? 0
					  : (float)sink[h];
}

template <typename T, int K>
static __global__ void __launch_bounds__(32 * WARPS)
	fwd_kernel(T *o, float *lse, const T *qkv, const T *sink,
		   struct attn_arg a)
{
	extern __shared__ float area[];
	float *query = area, *key = query + TILE * tile_ld(a.D);
	float *value = key + TILE * tile_ld(a.D);
	dropper drop(a.drop);
	int b = blockIdx.x / a.H, h = blockIdx.x % a.H, lane = threadIdx.x % 32;
	int i0 = blockIdx.y * TILE, row = threadIdx.x / 32 * ROWS;
	struct attn_place at = attn_place(a, b, h);
	float acc[ROWS][K] = {}, most[ROWS], sum[ROWS] = {}, s[ROWS];
	float gate = sink_of(sink, h, a);
	int from[ROWS];

#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		most[r] = -INFINITY;
		from[r] = first_key(a, b, i0 + row + r);
	}
	tile_load(query, qkv + at.q, a.ld, i0, a.D, a);
	for (int j0 = first_key(a, b, i0) / TILE * TILE; j0 <= i0; j0 += TILE) {
		__syncthreads();
		tile_load(key, qkv + at.k, a.ld, j0, a.D, a);
		tile_load(value, qkv + at.v, a.ld, j0, a.Dv, a);
		__syncthreads();
		products(s, query + row * tile_ld(a.D), key, a.D);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			int i = i0 + row + r, j = j0 + lane;
			bool seen = j <= i && j >= from[r];
			float x = seen ? s[r] * a.scale : -INFINITY;
			float m = fmaxf(most[r], warp_max(x));
			/* a row may see nothing of its first tile */
			float base = m == -INFINITY ? 0 : m;
			float p = expf(x - base), old = expf(most[r] - base);

			most[r] = m;
			sum[r] = sum[r] * old + warp_sum(p);
			s[r] = p * factor(drop, attn_elem(a, b, h, i) + j);
#pragma unroll
			for (int k = 0; k < K; k++)
				acc[r][k] *= old;
		}
		spread(acc, s, value, a.Dv);
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		float m = fmaxf(most[r], gate), keep = expf(most[r] - m);

		sum[r] = sum[r] * keep + expf(gate - m);
		if (lane == 0 && i0 + row + r < a.T)
			lse[at.lse + i0 + row + r] = m + logf(sum[r]);
		sum[r] = keep / sum[r];
	}
	rows_store(o + at.o, a.ldo, acc, sum, i0 + row, a.Dv, a);
}

/* delta (B, H, T) = the sums of dout o over a head, eight lanes for each. */
template <int W, typename T>
static __global__ void delta_kernel(float *delta, const T *dout, const T *o,
				    struct attn_arg a)
{
	int64_t item = (int64_t)blockIdx.x * 4 * WARPS + threadIdx.x / 8;
	int64_t n = item / a.H, h = item % a.H;
	bool there = n < (int64_t)a.B * a.T;
	float x[W], y[W], s = 0;

	dout += n * a.ldo + h * a.Dv;
	o += n * a.ldo + h * a.Dv;
	for (int c = threadIdx.x % 8 * W; there && c < a.Dv; c += 8 * W) {
		load<W>(x, dout + c);
		load<W>(y, o + c);
#pragma unroll
		for (int i = 0; i < W; i++)
			s += x[i] * y[i];
	}
#pragma unroll
	for (int i = 4; i; i /= 2)
		s += __shfl_xor_sync(~0u, s, i);
	if (there && threadIdx.x % 8 == 0)
		delta[(n / a.T * a.H + h) * a.T + n % a.T] = s;
}

/*
 * From s = q k and dp = dout v of query I and key J to s = P (f dp - delta)
 * and dp = f P.
 */
static __device__ __forceinline__ void gradient(float &s, float &dp, int b,
						int h, int i, int j,
						const float *lse,
						const float *delta,
						const struct dropper &drop,
						const struct attn_arg &a)
{
	float p, f;

	if (j > i || i >= a.T || j < first_key(a, b, i)) {
		s = dp = 0;
		return;
	}
	p = expf(s * a.scale - lse[i]);
	f = factor(drop, attn_elem(a, b, h, i) + j);
	s = p * (f * dp - delta[i]);
	dp = f * p;
}

template <typename T, int K>
static __global__ void __launch_bounds__(32 * WARPS)
	bwd_queries_kernel(T *dqkv, const T *dout, const float *lse,
			   const float *delta, const T *qkv, struct attn_arg a)
{
	extern __shared__ float area[];
	int size = TILE * tile_ld(a.D), sizev = TILE * tile_ld(a.Dv);
	float *query = area, *grad = query + size, *key = grad + sizev;
	float *value = key + size;
	int lane = threadIdx.x % 32;
	dropper drop(a.drop);
	int b = blockIdx.x / a.H, h = blockIdx.x % a.H;
	int i0 = blockIdx.y * TILE, row = threadIdx.x / 32 * ROWS;
	struct attn_place at = attn_place(a, b, h);
	float acc[ROWS][K] = {}, s[ROWS], dp[ROWS];

	tile_load(query, qkv + at.q, a.ld, i0, a.D, a);
	tile_load(grad, dout + at.o, a.ldo, i0, a.Dv, a);
	for (int j0 = first_key(a, b, i0) / TILE * TILE; j0 <= i0; j0 += TILE) {
		__syncthreads();
		tile_load(key, qkv + at.k, a.ld, j0, a.D, a);
		tile_load(value, qkv + at.v, a.ld, j0, a.Dv, a);
		__syncthreads();
		products(s, query + row * tile_ld(a.D), key, a.D);
		products(dp, grad + row * tile_ld(a.Dv), value, a.Dv);
#pragma unroll
		for (int r = 0; r < ROWS; r++)
			gradient(s[r], dp[r], b, h, i0 + row + r, j0 + lane,
				 lse + at.lse, delta + at.lse, drop, a);
		spread(acc, s, key, a.D);
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		s[r] = a.scale;
	rows_store(dqkv + at.q, a.ld, acc, s, i0 + row, a.D, a);
}

template <typename T, int K>
static __global__ void __launch_bounds__(32 * WARPS)
	bwd_keys_kernel(T *dqkv, const T *dout, const float *lse,
			const float *delta, const T *qkv, struct attn_arg a)
{
	extern __shared__ float area[];
	int size = TILE * tile_ld(a.D), sizev = TILE * tile_ld(a.Dv);
	float *key = area, *value = key + size, *query = value + sizev;
	float *grad = query + size;
	int lane = threadIdx.x % 32;
	dropper drop(a.drop);
	int b = blockIdx.x / a.G, h0 = blockIdx.x % a.G * a.per;
	int j0 = blockIdx.y * TILE, row = threadIdx.x / 32 * ROWS;
	struct attn_place at = attn_place(a, b, h0);
	float dk[ROWS][K] = {}, dv[ROWS][K] = {}, s[ROWS], dp[ROWS];

	tile_load(key, qkv + at.k, a.ld, j0, a.D, a);
	tile_load(value, qkv + at.v, a.ld, j0, a.Dv, a);
	for (int h = h0; h < h0 + a.per; h++) {
		at = attn_place(a, b, h);
		for (int i0 = j0; i0 < a.T; i0 += TILE) {
			__syncthreads();
			tile_load(query, qkv + at.q, a.ld, i0, a.D, a);
			tile_load(grad, dout + at.o, a.ldo, i0, a.Dv, a);
			__syncthreads();
			products(s, key + row * tile_ld(a.D), query, a.D);
			products(dp, value + row * tile_ld(a.Dv), grad, a.Dv);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				gradient(s[r], dp[r], b, h, i0 + lane,
					 j0 + row + r, lse + at.lse,
					 delta + at.lse, drop, a);
			spread(dk, s, query, a.D);
			spread(dv, dp, grad, a.Dv);
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		s[r] = a.scale;
		dp[r] = 1;
	}
	rows_store(dqkv + at.k, a.ld, dk, s, j0 + row, a.D, a);
	rows_store(dqkv + at.v, a.ld, dv, dp, j0 + row, a.Dv, a);
}

/* dsink[h] -= the sum over rows of the sink's share times delta. */
template <typename T>
static __global__ void sink_kernel(float *dsink, const T *sink,
				   const float *lse, const float *delta,
				   struct attn_arg a)
{
	__shared__ double part[256];
	int h = blockIdx.x, t = threadIdx.x;
	double sum = 0;

	for (int64_t n = t; n < (int64_t)a.B * a.T; n += 256) {
		int64_t at = (n / a.T * a.H + h) * a.T + n % a.T;

		sum += exp((double)(float)sink[h] - (double)lse[at]) *
		       (double)delta[at];
	}
	part[t] = sum;
	for (int k = 128; k; k /= 2) {
		__syncthreads();
		if (t < k)
			part[t] += part[t + k];
	}
	if (t == 0)
		dsink[h] -= (float)part[0];
}

static struct attn_arg attn_arg(const struct kern_attn_dims *d,
				const int32_t *doc)
{
	struct attn_arg a = {};

	a.B = (int)d->B;
	a.T = (int)d->T;
	a.H = (int)d->H;
	a.G = (int)d->G;
	a.D = (int)d->D;
	a.Dv = (int)d->Dv;
	a.per = (int)(d->H / d->G);
	a.window = (int)d->window;
	a.sink = d->sink;
	a.doc = doc;
	a.ld = kern_attn_row(d);
	a.ldo = d->H * d->Dv;
	a.scale = (float)d->scale;
	a.heads = d->heads;
	a.head0 = d->head0;
	a.drop = drop_arg(&d->drop);
	return a;
}

/* Bytes of so many tiles; KERNEL is told that it may use so much. */
template <typename F>
static int shared_for(F *kernel, int keys, int values, const struct attn_arg &a)
{
	int row = keys * tile_ld(a.D) + values * tile_ld(a.Dv);
	int bytes = TILE * row * (int)sizeof(float);

	cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	return bytes;
}

/* Run STATEMENT with a constant K = the 32s of columns that D needs. */
#define WITH_COLUMNS(D, K, statement)        \
	do {                                 \
		if ((D) <= 64) {             \
			constexpr int K = 2; \
			statement;           \
		} else if ((D) <= 128) {     \
			constexpr int K = 4; \
			statement;           \
		} else {                     \
			constexpr int K = 8; \
			statement;           \
		}                            \
	} while (0)

template <typename T> constexpr bool IS_FP16 = std::is_same_v<T, fp16>;

template <typename T> static bool by_cudnn(const struct kern_attn_dims *d)
{
	return kern_attn_backend(d, kern_cudnn_there(), sizeof(T)) ==
	       KERN_ATTN_CUDNN;
}

template <typename T>
void cuda_attn<T>::fwd(struct queue *q, void *o, void *lse, const void *qkv,
		       const void *sink, const int32_t *doc, void *scratch,
		       const struct kern_attn_dims *dims)
{
	struct attn_arg a = attn_arg(dims, doc);
	dim3 grid(a.B * a.H, (unsigned)ceil_div(a.T, TILE));

	if (by_cudnn<T>(dims)) {
		kern_cudnn_fwd(q, o, lse, qkv, scratch, dims, IS_FP16<T>);
		return;
	}
	if constexpr (sizeof(T) == 2)
		if (kern_attn_plain(dims) &&
		    (attn_wgmma_fwd(q, (T *)o, (float *)lse, (const T *)qkv,
				    &a) ||
		     attn_mma_fwd(q, (T *)o, (float *)lse, (const T *)qkv, &a)))
			return;
	WITH_COLUMNS(max(a.D, a.Dv), K,
		     LAUNCH(q, (fwd_kernel<T, K>), grid, 32 * WARPS,
			    shared_for(fwd_kernel<T, K>, 2, 1, a), (T *)o,
			    (float *)lse, (const T *)qkv, (const T *)sink, a));
}

template <typename T>
void cuda_attn<T>::bwd(struct queue *q, void *dqkv, void *dsink,
		       const void *dout, const void *o, const void *lse,
		       const void *qkv, const void *sink, const int32_t *doc,
		       void *scratch, const struct kern_attn_dims *dims)
{
	struct attn_arg a = attn_arg(dims, doc);
	int64_t items = (int64_t)a.B * a.T * a.H;
	unsigned tiles = (unsigned)ceil_div(a.T, TILE);
	float *delta = (float *)scratch;

	if (by_cudnn<T>(dims)) {
		kern_cudnn_bwd(q, dqkv, dout, o, lse, qkv, scratch, dims,
			       IS_FP16<T>);
		return;
	}
	WITH_WIDTH(T, W, a.Dv % WIDE<T> == 0 && aligned({dout, o}),
		   LAUNCH(q, (delta_kernel<W, T>),
			  (unsigned)ceil_div(items, 4 * WARPS), 32 * WARPS, 0,
			  delta, (const T *)dout, (const T *)o, a));
	if (a.sink == KERN_SINK_LEARNED)
		LAUNCH(q, sink_kernel<T>, a.H, 256, 0, (float *)dsink,
		       (const T *)sink, (const float *)lse, delta, a);
	if constexpr (sizeof(T) == 2)
		if (kern_attn_plain(dims) &&
		    (attn_wgmma_bwd(q, (T *)dqkv, (const T *)dout,
				    (const float *)lse, delta, (const T *)qkv,
				    &a) ||
		     attn_mma_bwd(q, (T *)dqkv, (const T *)dout,
				  (const float *)lse, delta, (const T *)qkv,
				  &a)))
			return;
	WITH_COLUMNS(max(a.D, a.Dv), K,
		     LAUNCH(q, (bwd_queries_kernel<T, K>),
			    dim3(a.B * a.H, tiles), 32 * WARPS,
			    shared_for(bwd_queries_kernel<T, K>, 2, 2, a),
			    (T *)dqkv, (const T *)dout, (const float *)lse,
			    delta, (const T *)qkv, a);
		     LAUNCH(q, (bwd_keys_kernel<T, K>), dim3(a.B * a.G, tiles),
			    32 * WARPS,
			    shared_for(bwd_keys_kernel<T, K>, 2, 2, a),
			    (T *)dqkv, (const T *)dout, (const float *)lse,
			    delta, (const T *)qkv, a));
}

template <typename T>
size_t cuda_attn<T>::scratch(const struct kern_attn_dims *d)
{
	return kern_attn_scratch_cuda(d, kern_cudnn_there(), sizeof(T));
}

template struct cuda_attn<float>;
template struct cuda_attn<bf16>;
template struct cuda_attn<fp16>;
