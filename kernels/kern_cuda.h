/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA ops share.  T is float, bf16 or fp16.  Whatever T is,
 * gradients of parameters, stat, lse, m, sums and rope's table are float, and
 * so is all arithmetic.  No atomics: the order of every sum follows from the
 * shape, so two runs give the same bits.
 */
#ifndef KERNELS_KERN_CUDA_H
#define KERNELS_KERN_CUDA_H

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <initializer_list>
#include <type_traits>

#include "kernels/device.h"
#include "kernels/kern.h"

typedef __nv_bfloat16 bf16;
typedef __half fp16;

struct gemm_plan;
struct cudnn_queue;

/* Bytes of a queue's workspace: what cuBLASLt's split-K kernels ask for. */
#define QUEUE_WORK ((size_t)32 << 20)

struct queue {
	cudaStream_t stream;
	cublasLtHandle_t blas;
	char *work; /* an op may use it all: ops of a queue follow each other */
	struct gemm_plan *plan; /* linear.cu's, made when first needed */
	int plans, next_plan;
	struct cudnn_queue *cudnn; /* attn_cudnn.cu's, likewise */
	const char *failed;	   /* the first op that could not be started, or
			       its file and line */
	char why[256];
};

/* Keep the first failure for device_queue_check. */
void queue_fail(struct queue *q, const char *op, const char *why);
void queue_free_plans(struct queue *q);

#define QUEUE_TEXT_(x) #x
#define QUEUE_TEXT(x)  QUEUE_TEXT_(x)
#define LAUNCH(q, kernel, grid, block, shared, ...)                        \
	do {                                                               \
		kernel<<<(grid), (block), (shared), (q)->stream>>>(        \
			__VA_ARGS__);                                      \
		cudaError_t bad_ = cudaGetLastError();                     \
		if (bad_ != cudaSuccess)                                   \
			queue_fail((q), __FILE__ ":" QUEUE_TEXT(__LINE__), \
				   cudaGetErrorString(bad_));              \
	} while (0)

/* Elements of T in an access of 16 bytes. */
template <typename T> constexpr int WIDE = 16 / sizeof(T);

static inline bool aligned(std::initializer_list<const void *> pointers)
{
	for (const void *p : pointers)
		if ((uintptr_t)p % 16)
			return false;
	return true;
}

/* Run STATEMENT with a constant W: as wide as T allows if OK, else 1. */
#define WITH_WIDTH(T, W, ok, statement)            \
	do {                                       \
		if (ok) {                          \
			constexpr int W = WIDE<T>; \
			statement;                 \
		} else {                           \
			constexpr int W = 1;       \
			statement;                 \
		}                                  \
	} while (0)

static inline __host__ __device__ int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Blocks for N items, at most MOST: kernels loop with a grid's stride. */
static inline unsigned blocks_for(int64_t n, int threads, int64_t most)
{
	int64_t blocks = ceil_div(n, threads);

	return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

template <int W, typename T>
static __device__ __forceinline__ void load(float (&v)[W], const T *p)
{
	if constexpr (W * sizeof(T) % 16 == 0) {
		alignas(16) T t[W];

#pragma unroll
		for (int i = 0; i < (int)(W * sizeof(T) / 16); i++)
			((uint4 *)t)[i] = ((const uint4 *)p)[i];
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] = (float)t[i];
	} else {
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] = (float)p[i];
	}
}

template <int W, typename T>
static __device__ __forceinline__ void store(T *p, const float (&v)[W])
{
	if constexpr (W * sizeof(T) % 16 == 0) {
		alignas(16) T t[W];

#pragma unroll
		for (int i = 0; i < W; i++)
			t[i] = (T)v[i];
#pragma unroll
		for (int i = 0; i < (int)(W * sizeof(T) / 16); i++)
			((uint4 *)p)[i] = ((uint4 *)t)[i];
	} else {
#pragma unroll
		for (int i = 0; i < W; i++)
			p[i] = (T)v[i];
	}
}

/* Every lane gets the same bits: a butterfly's additions commute. */
template <typename S> static __device__ __forceinline__ S warp_sum(S v)
{
#pragma unroll
	for (int i = 16; i; i /= 2)
		v += __shfl_xor_sync(~0u, v, i);
	return v;
}

static __device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
	for (int i = 16; i; i /= 2)
		v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
	return v;
}

/* The sum over a block of whole warps, along x; AREA holds 32. */
template <typename S> static __device__ S block_sum(S v, S *area)
{
	int lane = threadIdx.x % 32, warps = blockDim.x / 32;

	v = warp_sum(v);
	if (warps == 1)
		return v;
	if (lane == 0)
		area[threadIdx.x / 32] = v;
	__syncthreads();
	v = warp_sum(lane < warps ? area[lane] : (S)0);
	__syncthreads();
	return v;
}

static __device__ inline float block_max(float v, float *area)
{
	int lane = threadIdx.x % 32, warps = blockDim.x / 32;

	v = warp_max(v);
	if (warps == 1)
		return v;
	if (lane == 0)
		area[threadIdx.x / 32] = v;
	__syncthreads();
	v = warp_max(lane < warps ? area[lane] : -INFINITY);
	__syncthreads();
	return v;
}

/* The sum of V over the block's threads before this one; *ALL = of all. */
static __device__ inline int block_scan(int v, int *all, int *area)
{
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, s = v;
	int before = 0;

#pragma unroll
	for (int i = 1; i < 32; i *= 2) {
		int below = __shfl_up_sync(~0u, s, i);

		if (lane >= i)
			s += below;
	}
	if (lane == 31)
		area[warp] = s;
	__syncthreads();
	*all = 0;
	for (int w = 0; w < (int)blockDim.x / 32; w++) {
		before += w < warp ? area[w] : 0;
		*all += area[w];
	}
	__syncthreads();
	return before + s - v;
}

/* kern.h's dropout, as kernels take it; limit 0 and keep 1 if there is none. */
struct drop_arg {
	const uint64_t *key;
	uint32_t limit, site;
	float keep;
	int64_t row0;
};

static inline struct drop_arg drop_arg(const struct kern_drop *d)
{
	struct drop_arg a = {};

	a.keep = 1;
	if (!d)
		return a;
	a.row0 = d->row0;
	if (!(d->p > 0))
		return a;
	a.key = d->key;
	a.limit = (uint32_t)(d->p * 0x1p32);
	a.site = d->site;
	a.keep = (float)(1 / (1 - d->p));
	return a;
}

/* A kernel's copy, its key read once. */
struct dropper {
	uint32_t key0, key1, step, site, limit;
	float keep;

	__device__ __forceinline__ explicit dropper(const struct drop_arg &a)
	    : key0(0), key1(0), step(0), site(a.site), limit(a.limit),
	      keep(a.keep)
	{
		if (!a.key)
			return;
		key0 = (uint32_t)a.key[0];
		key1 = (uint32_t)(a.key[0] >> 32);
		step = (uint32_t)a.key[1];
	}

	/* Philox4x32-10, as in philox.h. */
	__device__ __forceinline__ uint4 words(uint64_t group) const
	{
		uint32_t c0 = (uint32_t)group, c1 = (uint32_t)(group >> 32);
		uint32_t c2 = site, c3 = step, k0 = key0, k1 = key1;

#pragma unroll
		for (int round = 0; round < 10; round++) {
			uint32_t a = c0, b = c2;

			c0 = __umulhi(0xCD9E8D57, b) ^ c1 ^ k0;
			c1 = 0xCD9E8D57 * b;
			c2 = __umulhi(0xD2511F53, a) ^ c3 ^ k1;
			c3 = 0xD2511F53 * a;
			k0 += 0x9E3779B9;
			k1 += 0xBB67AE85;
		}
		return make_uint4(c0, c1, c2, c3);
	}

	static __device__ __forceinline__ uint32_t word(uint4 w, int i)
	{
		return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
	}

	__device__ __forceinline__ float pick(uint4 w, int i) const
	{
		return word(w, i) >= limit ? keep : 0;
	}

	/* The factors of elements ELEM .. + W; ELEM % 4 = 0 unless W is 1. */
	template <int W>
	__device__ __forceinline__ void factors(float (&f)[W],
						int64_t elem) const
	{
		if constexpr (W == 1) {
			f[0] = pick(words((uint64_t)elem / 4), elem % 4);
		} else {
#pragma unroll
			for (int i = 0; i < W; i += 4) {
				uint4 w = words((uint64_t)(elem + i) / 4);

#pragma unroll
				for (int j = 0; j < 4; j++)
					f[i + j] = pick(w, j);
			}
		}
	}
};

/*
 * Where rows are: T of each sample, one behind the other, from the sample's
 * POS on, or from 0 without; what is at ROOM or behind it is padding.
 */
struct places {
	const int32_t *pos;
	int64_t T, room;

	__device__ __forceinline__ int64_t of(int64_t n) const
	{
		return (pos ? pos[n / T] : 0) + n % T;
	}
};

/*
 * out (C) += the columns' sums of part (parts, C), in a fixed order.  The
 * second pass of every sum over rows.
 */
void columns_add(struct queue *q, float *out, const float *part, int64_t parts,
		 int64_t C);

/* The ops of kern.h, a struct for each file. */
template <typename T> struct cuda_embed {
	static void fwd(struct queue *q, void *y, const int32_t *ids,
			const void *w, int64_t N, int64_t C, int64_t first,
			int64_t rows);
	static void bwd(struct queue *q, void *dw, const void *dy,
			const int32_t *ids, int64_t N, int64_t C, int64_t first,
			int64_t rows);
	static void pos_fwd(struct queue *q, void *y, const void *w, int64_t N,
			    int64_t C, int64_t T_, int64_t row0, int64_t shift);
	static void pos_bwd(struct queue *q, void *dw, const void *dy,
			    int64_t N, int64_t C, int64_t T_, int64_t row0,
			    int64_t shift);
	static void pos_at(struct queue *q, void *y, const void *w,
			   const int32_t *pos, int64_t B, int64_t T_, int64_t C,
			   int64_t room, int64_t shift);
};

template <typename T> struct cuda_drop {
	static void drop(struct queue *q, void *y, const void *x, int64_t N,
			 int64_t C, const struct kern_drop *d);
	static void jitter(struct queue *q, void *y, const void *x, int64_t N,
			   int64_t C, const struct kern_drop *d);
};

template <typename T> struct cuda_norm {
	static void resid(struct queue *q, void *xout, const void *x,
			  const void *branch, const void *bias, int64_t N,
			  int64_t C, const struct kern_drop *d);
	static void fwd(struct queue *q, void *y, void *xout, void *stat,
			const void *x, const void *branch, const void *bias,
			const void *w, const void *b,
			const struct kern_norm_dims *dims,
			const struct kern_drop *d);
	static void bwd(struct queue *q, void *dx, void *dw, void *db,
			const void *dy, const void *dres, const void *x,
			const void *stat, const void *w,
			const struct kern_norm_dims *dims);
};

template <typename T> struct cuda_linear {
	static void fwd(struct queue *q, void *y, const void *x, const void *w,
			const void *bias, int64_t N, int64_t out, int64_t in);
	static void sum(struct queue *q, void *y, const void *x, const void *w,
			const void *bias, int64_t N, int64_t out, int64_t in);
	static void bwd_x(struct queue *q, void *dx, const void *dy,
			  const void *w, int64_t N, int64_t out, int64_t in);
	static void bwd_w(struct queue *q, void *dw, const void *dy,
			  const void *x, int64_t N, int64_t out, int64_t in);
	static void bias_bwd(struct queue *q, void *db, const void *dy,
			     int64_t N, int64_t C);
};

template <typename T> struct cuda_rope {
	static void rope(struct queue *q, void *qkv, const void *table,
			 const struct kern_attn_dims *dims, int64_t R,
			 bool interleaved, int sign);
	static void at(struct queue *q, void *qkv, const void *table,
		       const int32_t *pos, const struct kern_attn_dims *dims,
		       int64_t R, bool interleaved, int64_t room);
};

template <typename T> struct cuda_latent {
	static void fwd(struct queue *q, void *qkv, const void *query,
			const void *kv, const void *pos, const void *table,
			const struct kern_attn_dims *dims, int64_t P,
			int64_t R);
	static void bwd(struct queue *q, void *dquery, void *dkv, void *dpos,
			const void *dqkv, const void *table,
			const struct kern_attn_dims *dims, int64_t P,
			int64_t R);
	static void at(struct queue *q, void *qkv, const void *query,
		       const void *kv, const void *shared, const void *table,
		       const int32_t *pos, const struct kern_attn_dims *dims,
		       int64_t P, int64_t R, int64_t room);
};

template <typename T> struct cuda_attn {
	static void fwd(struct queue *q, void *o, void *lse, const void *qkv,
			const void *sink, const int32_t *doc, void *scratch,
			const struct kern_attn_dims *dims);
	static void bwd(struct queue *q, void *dqkv, void *dsink,
			const void *dout, const void *o, const void *lse,
			const void *qkv, const void *sink, const int32_t *doc,
			void *scratch, const struct kern_attn_dims *dims);
	static size_t scratch(const struct kern_attn_dims *dims);
};

/* The scratch is kern_attn_at_scratch_cuda's, of attn_plan.h. */
template <typename T> struct cuda_attn_at {
	static void at(struct queue *q, void *o, void *keys, void *values,
		       const void *qkv, const void *sink, const int32_t *pos,
		       void *scratch, const struct kern_attn_dims *dims,
		       int64_t room);
};

template <typename T> struct cuda_act {
	static void fwd(struct queue *q, void *y, const void *x, int64_t N,
			int64_t F, enum kern_act act, bool gated);
	static void bwd(struct queue *q, void *dx, const void *dy,
			const void *x, int64_t N, int64_t F, enum kern_act act,
			bool gated);
};

template <typename T> struct cuda_route {
	static void fwd(struct queue *q, void *prob, int32_t *map,
			const void *logits, const void *bias,
			const struct kern_moe_dims *d);
	static void bwd(struct queue *q, void *dlogits, void *count,
			const void *dprob, const void *logits,
			const int32_t *map, const double *tally,
			const double *coef, const struct kern_moe_dims *d);
	static void balance(struct queue *q, void *bias, void *master,
			    const void *count, int64_t n,
			    const struct kern_moe_dims *d);
};

/*
 * Sinkhorn's log w of each rank's micro-batch, (ranks, E) in the queue's
 * workspace, from logits (N, E).
 */
const double *cuda_sinkhorn(struct queue *q, const float *logits,
			    const struct kern_moe_dims *d);
void cuda_route_loss(struct queue *q, double *stat, const void *logits,
		     const int32_t *map, const double *tally,
		     const struct kern_moe_dims *d);
void cuda_tally(struct queue *q, double *tally, const int32_t *map,
		const struct kern_moe_dims *d);
/* route_fwd's second half: M's row and end, from its experts and PROB. */
void cuda_route_rows(struct queue *q, const struct kern_map *m,
		     const float *prob, const struct kern_moe_dims *d);

template <typename T> struct cuda_moe {
	static void gather(struct queue *q, void *y, const void *x,
			   const int32_t *row, int64_t N, int64_t K, int64_t C);
	static void combine(struct queue *q, void *y, const void *x,
			    const int32_t *row, int64_t N, int64_t K,
			    int64_t C);
	static void fwd(struct queue *q, void *y, const void *x, const void *w,
			const int32_t *end, int64_t R, int64_t out, int64_t in,
			int64_t experts);
	static void bwd_x(struct queue *q, void *dx, const void *dy,
			  const void *w, const int32_t *end, int64_t R,
			  int64_t out, int64_t in, int64_t experts);
	static void bwd_w(struct queue *q, void *dw, const void *dy,
			  const void *x, const int32_t *end, int64_t R,
			  int64_t out, int64_t in, int64_t experts);
};

template <typename T> struct cuda_expert_act {
	static void fwd(struct queue *q, void *y, const void *x,
			const void *prob, const int32_t *row, int64_t N,
			int64_t F, enum kern_act act, bool gated);
	static void bwd(struct queue *q, void *dx, void *dprob, const void *dy,
			const void *x, const void *prob, const int32_t *row,
			int64_t N, int64_t F, enum kern_act act, bool gated);
};

template <typename T> struct cuda_expert_bias {
	static void fwd(struct queue *q, void *y, const void *bias,
			const void *prob, const int32_t *map, int64_t C,
			const struct kern_moe_dims *d);
	static void bwd(struct queue *q, void *dbias, void *dprob,
			const void *dy, const void *bias, const void *prob,
			const int32_t *map, int64_t C,
			const struct kern_moe_dims *d);
};

template <typename T> struct cuda_ce {
	static void max(struct queue *q, void *m, const void *logits, int64_t N,
			int64_t V, int64_t valid);
	static void sums(struct queue *q, void *sums, const void *logits,
			 const void *m, const int32_t *labels, int64_t N,
			 int64_t V, int64_t valid, int64_t first);
	static void grad(struct queue *q, double *loss, double *right,
			 void *logits, const void *m, const void *sums,
			 const int32_t *labels, const double *coef, int64_t N,
			 int64_t V, int64_t valid, int64_t first);
};

/* Gradients are float in every table. */
void cuda_sumsq(struct queue *q, double *acc, const void *x, int64_t n);
void cuda_metrics(struct queue *q, struct kern_scalars *s, const double *loss,
		  const double *coef, const double *share, const double *right,
		  int64_t M, int64_t depths, bool counts);
void cuda_clip(struct queue *q, struct kern_scalars *s);
template <typename T>
void cuda_adamw(struct queue *q, void *p, void *master, void *m, void *v,
		const void *g, int64_t n, const struct kern_adam *h,
		bool decay);
void cuda_zero(struct queue *q, void *y, int64_t bytes);
void cuda_copy(struct queue *q, void *y, const void *x, int64_t bytes);
void cuda_join(struct queue *q, void *y, const void *a, const void *b,
	       const void *c, int64_t N, int64_t A, int64_t B, int64_t C);
void cuda_cut(struct queue *q, void *y, const void *x, int64_t N, int64_t bytes,
	      int64_t step);
void cuda_mix_fwd(struct queue *q, void *y, const void *x, const int32_t *doc,
		  int64_t N, int64_t bytes, int64_t T, int64_t shift,
		  int64_t of, const struct kern_drop *d);
void cuda_mix_bwd(struct queue *q, void *dx, const void *dy, const int32_t *doc,
		  int64_t N, int64_t bytes, int64_t T, int64_t shift,
		  int64_t of, const struct kern_drop *d);

#endif
