/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_at.c's attention on the GPU, in float.  A block has a tile of queries
 * of one group and a part of the keys that they see; what it finds goes to
 * the scratch, and a block for each query puts its parts together in their
 * order.  attn_plan.h has the sizes.
 */
#include "kernels/attn_plan.h"
#include "kernels/kern_cuda.h"

#define ROWS	KERN_AT_ROWS
#define KEYS	KERN_AT_KEYS
#define THREADS 128
#define LANES	8 /* threads of a key */

static_assert(ROWS == THREADS / 32, "a warp has a row of scores");
static_assert(KEYS % (THREADS / LANES) == 0, "whole rounds of keys");

struct at_arg {
	struct places at;
	int64_t window, tiles, parts;
	int H, G, per, D, Dv;
	float scale;
	enum kern_sink sink;
};

/* Row N, a head of it, and the keys LO .. HI that it sees: none in padding. */
struct query {
	int64_t n, lo, hi; /* n -1: there is none */
	int head;
};

/* Query I of all, in the order of samples, groups, tokens and heads. */
static __device__ struct query query_of(const struct at_arg &a, int64_t i)
{
	int64_t group = i / (a.tiles * ROWS), at = i % (a.tiles * ROWS);
	int64_t b = group / a.G, t = at / a.per, p;
	struct query q = {-1, 0, 0, 0};

	if (t >= a.at.T)
		return q;
	q.n = b * a.at.T + t;
	q.head = (int)(group % a.G * a.per + at % a.per);
	p = a.at.of(q.n);
	if (p >= a.at.room)
		return q;
	q.hi = p + 1;
	q.lo = a.window && p >= a.window ? p - a.window + 1 : 0;
	return q;
}

/* Where a part of query I, of those that go together, is kept. */
static __device__ __forceinline__ float *part_of(float *parts, int64_t i,
						 int64_t part,
						 const struct at_arg &a)
{
	return parts + (i * a.parts + part) * (a.Dv + 2);
}

/* A block for each token: its keys and values go into the cache. */
template <typename T>
static __global__ void store_kernel(T *keys, T *values, const T *qkv,
				    struct at_arg a)
{
	int64_t n = blockIdx.x, p = a.at.of(n), b = n / a.at.T;
	int wide = a.D + a.Dv, head = a.per * a.D + wide;
	const T *row = qkv + n * a.G * head;

	if (p >= a.at.room)
		return;
	for (int i = threadIdx.x; i < a.G * wide; i += blockDim.x) {
		int g = i / wide, c = i % wide;
		T x = row[g * head + a.per * a.D + c];
		int64_t to = (b * a.G + g) * a.at.room + p;

		if (c < a.D)
			keys[to * a.D + c] = x;
		else
			values[to * a.Dv + c - a.D] = x;
	}
}

/* What the threads of a block share; the queries (ROWS, D) lie behind it. */
struct area {
	struct query q[ROWS];
	float s[ROWS][KEYS];
};

/* x (ROWS, D) = the queries. */
template <typename T>
static __device__ void queries_load(float *x, const struct area &s,
				    const T *qkv, const struct at_arg &a)
{
	int head = (a.per + 1) * a.D + a.Dv;

	for (int i = threadIdx.x; i < ROWS * a.D; i += THREADS) {
		const struct query &q = s.q[i / a.D];
		int64_t at = (q.n * a.G + q.head / a.per) * head +
			     q.head % a.per * a.D + i % a.D;

		x[i] = q.n < 0 ? 0 : (float)qkv[at];
	}
}

/* s.s = the scores of keys FROM .. END of a part that begins at FIRST. */
template <typename T, int W>
static __device__ void scores(struct area &s, const float *x, const T *keys,
			      int64_t first, int64_t from, int64_t end,
			      const struct at_arg &a)
{
	int lane = threadIdx.x % LANES;

	for (int64_t k0 = from; k0 < end; k0 += THREADS / LANES) {
		int64_t k = k0 + threadIdx.x / LANES;
		float sum[ROWS] = {}, y[W], z[W];

		for (int c = lane * W; c < a.D && k < end; c += LANES * W) {
			load<W>(y, keys + k * a.D + c);
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				load<W>(z, x + r * a.D + c);
#pragma unroll
				for (int i = 0; i < W; i++)
					sum[r] = fmaf(z[i], y[i], sum[r]);
			}
		}
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
#pragma unroll
			for (int i = LANES / 2; i; i /= 2)
				sum[r] += __shfl_xor_sync(~0u, sum[r], i);
			if (lane == 0 && k < end)
				s.s[r][k - first] = sum[r] * a.scale;
		}
	}
}

/* A warp's row becomes e^(s - its maximum), 0 where its query sees nothing. */
static __device__ void softmax(struct area &s, float *to, int64_t first,
			       const struct at_arg &a)
{
	int r = threadIdx.x / 32, lane = threadIdx.x % 32;
	int64_t lo = s.q[r].lo - first, hi = s.q[r].hi - first;
	float most = -INFINITY, sum = 0;

	for (int j = lane; j < KEYS; j += 32)
		if (j >= lo && j < hi)
			most = fmaxf(most, s.s[r][j]);
	most = warp_max(most);
	for (int j = lane; j < KEYS; j += 32) {
		float p = j >= lo && j < hi ? expf(s.s[r][j] - most) : 0;

		s.s[r][j] = p;
		sum += p;
	}
	sum = warp_sum(sum);
	if (lane == 0) {
		to += (int64_t)r * a.parts * (a.Dv + 2) + a.Dv;
		to[0] = most;
		to[1] = sum;
	}
}

/*
 * TO's sums = the part's scores times its values, where V is key FIRST's.
 * SPAN threads lie beside each other over the columns; the keys are dealt out
 * to the groups of so many, whose sums are added in their order.
 */
template <typename T, int W>
static __device__ void sums(float *to, const struct area &s, float *red,
			    const T *v, int from, int end, int span,
			    const struct at_arg &a)
{
	int groups = THREADS / span, g = threadIdx.x / span;
	int ld = span * W; /* of a row of red (groups, ROWS, ld) */
	int mine = from / groups * groups + g;

	mine += mine < from ? groups : 0;

	for (int base = 0; base < a.Dv; base += ld) {
		int c = threadIdx.x % span * W;
		float sum[ROWS][W] = {}, y[W];

		for (int j = mine; j < end && base + c < a.Dv; j += groups) {
			load<W>(y, v + (int64_t)j * a.Dv + base + c);
#pragma unroll
			for (int r = 0; r < ROWS; r++)
#pragma unroll
				for (int i = 0; i < W; i++)
					sum[r][i] = fmaf(s.s[r][j], y[i],
							 sum[r][i]);
		}
		__syncthreads();
#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int i = 0; i < W; i++)
				red[(g * ROWS + r) * ld + c + i] = sum[r][i];
		__syncthreads();
		for (int i = threadIdx.x; i < ROWS * ld; i += THREADS) {
			int r = i / ld, at = base + i % ld;
			float all = 0;

			for (int k = 0; k < groups; k++)
				all += red[k * ROWS * ld + i];
			if (at < a.Dv)
				to[(int64_t)r * a.parts * (a.Dv + 2) + at] =
					all;
		}
	}
}

/* A tile of queries, from TILE on, and a part of their keys: the grid. */
template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
	part_kernel(float *parts, const T *qkv, const T *keys, const T *values,
		    int64_t tile, int span, struct at_arg a)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ float red[THREADS * ROWS * W];
	struct area &s = *(struct area *)shared;
	float *x = (float *)(shared + sizeof(s)), *to;
	int64_t first = (int64_t)blockIdx.y * KEYS, from = INT64_MAX, end = 0;
	int64_t group;

	tile += blockIdx.x;
	if (threadIdx.x < ROWS)
		s.q[threadIdx.x] = query_of(a, tile * ROWS + threadIdx.x);
	__syncthreads();
	for (int r = 0; r < ROWS; r++) {
		if (s.q[r].hi == 0)
			continue;
		from = min(from, s.q[r].lo);
		end = max(end, s.q[r].hi);
	}
	from = max(from, first);
	end = min(end, first + KEYS);
	if (from >= end)
		return;
	group = tile / a.tiles;
	keys += group * a.at.room * a.D;
	values += (group * a.at.room + first) * a.Dv;
	to = part_of(parts, (int64_t)blockIdx.x * ROWS, blockIdx.y, a);
	queries_load(x, s, qkv, a);
	__syncthreads();
	scores<T, W>(s, x, keys, first, from, end, a);
	__syncthreads();
	softmax(s, to, first, a);
	__syncthreads();
	sums<T, W>(to, s, red, values, (int)(from - first), (int)(end - first),
		   span, a);
}

/* A block for each query of those from FIRST on: o, from its parts. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
	join_kernel(T *o, float *parts, const T *sink, int64_t first,
		    struct at_arg a)
{
	__shared__ float room[32];
	struct query q = query_of(a, first + blockIdx.x);
	const float *p = part_of(parts, blockIdx.x, 0, a);
	int ld = a.Dv + 2, part = (int)(q.lo / KEYS);
	int end = (int)((q.hi + KEYS - 1) / KEYS);
	float extra = a.sink == KERN_SINK_NONE	 ? -INFINITY
		      : a.sink == KERN_SINK_ZERO ? 0
		      : q.n < 0			 ? 0
						 : (float)sink[q.head];
	float most = extra, sum = 0;

	if (q.n < 0)
		return;
	o += (q.n * a.H + q.head) * a.Dv;
	for (int i = part + threadIdx.x; i < end; i += THREADS)
		most = fmaxf(most, p[(int64_t)i * ld + a.Dv]);
	most = block_max(most, room);
	for (int i = part + threadIdx.x; i < end; i += THREADS)
		sum += expf(p[(int64_t)i * ld + a.Dv] - most) *
		       p[(int64_t)i * ld + a.Dv + 1];
	sum = block_sum(sum, room);
	if (extra > -INFINITY)
		sum += expf(extra - most);
	for (int c = threadIdx.x; c < a.Dv; c += THREADS) {
		float all = 0;

		for (int i = part; i < end; i++)
			all = fmaf(expf(p[(int64_t)i * ld + a.Dv] - most),
				   p[(int64_t)i * ld + c], all);
		o[c] = (T)(q.hi > 0 ? all / sum : 0);
	}
}

static struct at_arg at_arg(const struct kern_attn_dims *d, const int32_t *pos,
			    int64_t room)
{
	struct at_arg a = {};

	a.at = {pos, d->T, room};
	a.window = d->window;
	a.tiles = kern_at_tiles(d);
	a.parts = kern_at_parts(room);
	a.H = (int)d->H;
	a.G = (int)d->G;
	a.per = (int)(d->H / d->G);
	a.D = (int)d->D;
	a.Dv = (int)d->Dv;
	a.scale = (float)d->scale;
	a.sink = d->sink;
	return a;
}

/* Tiles FIRST .. + COUNT, with loads of W elements. */
template <typename T, int W>
static void parts_launch(struct queue *q, float *parts, const void *qkv,
			 const void *keys, const void *values, int64_t first,
			 int64_t count, const struct at_arg &a)
{
	int bytes = (int)(sizeof(struct area) + ROWS * a.D * sizeof(float));
	int span = 1;

	while (span < THREADS && span * W < a.Dv)
		span *= 2;
	cudaFuncSetAttribute(part_kernel<T, W>,
			     cudaFuncAttributeMaxDynamicSharedMemorySize,
			     bytes);
	LAUNCH(q, (part_kernel<T, W>), dim3((unsigned)count, (unsigned)a.parts),
	       THREADS, bytes, parts, (const T *)qkv, (const T *)keys,
	       (const T *)values, first, span, a);
}

template <typename T>
void cuda_attn_at<T>::at(struct queue *q, void *o, void *keys, void *values,
			 const void *qkv, const void *sink, const int32_t *pos,
			 void *scratch, const struct kern_attn_dims *d,
			 int64_t room)
{
	struct at_arg a = at_arg(d, pos, room);
	int64_t tiles = d->B * d->G * a.tiles, most = kern_at_together(d, room);
	bool ok = aligned({keys, values}) && d->D % WIDE<T> == 0 &&
		  d->Dv % WIDE<T> == 0;
	float *parts = (float *)scratch;

	LAUNCH(q, store_kernel<T>, (unsigned)(d->B * d->T), 256, 0, (T *)keys,
	       (T *)values, (const T *)qkv, a);
	for (int64_t i = 0; i < tiles; i += most) {
		int64_t n = tiles - i < most ? tiles - i : most;

		WITH_WIDTH(T, W, ok,
			   (parts_launch<T, W>(q, parts, qkv, keys, values, i,
					       n, a)));
		LAUNCH(q, join_kernel<T>, (unsigned)(n * ROWS), THREADS, 0,
		       (T *)o, parts, (const T *)sink, i * ROWS, a);
	}
}

template struct cuda_attn_at<float>;
template struct cuda_attn_at<bf16>;
template struct cuda_attn_at<fp16>;
