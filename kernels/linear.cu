/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c on the GPU: cuBLASLt's products, and sums over rows. */
#include <stdlib.h>
#include <string.h>

#include "kernels/kern_cuda.h"

#define PLANS 128

/* An element's type, in cuBLAS's words. */
template <typename T> constexpr cudaDataType_t TYPE = CUDA_R_32F;
template <> constexpr cudaDataType_t TYPE<bf16> = CUDA_R_16BF;
template <> constexpr cudaDataType_t TYPE<fp16> = CUDA_R_16F;

/*
 * What a product is asked for, in cuBLAS's words: D (m, n) = op(A) op(B), by
 * columns.  KIND is also the index of its description below.
 */
enum gemm_kind { GEMM_FWD, GEMM_BIAS, GEMM_SUM, GEMM_BWD_X, GEMM_BWD_W };

struct gemm_key {
	int64_t m, n, k;
	int kind;
	cudaDataType_t type; /* of A and B */
	int align[3];	     /* bytes, of A, B and D */
};

struct gemm_plan {
	struct gemm_key key;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
	bool found; /* cuBLASLt has an algorithm */
};

/* The largest power of two up to 256 that divides P. */
static int alignment(const void *p)
{
	int align = 256;

	while ((uintptr_t)p % align)
		align /= 2;
	return align;
}

static void plan_free(struct gemm_plan *p)
{
	if (p->desc)
		cublasLtMatmulDescDestroy(p->desc);
	if (p->a)
		cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		cublasLtMatrixLayoutDestroy(p->b);
	if (p->d)
		cublasLtMatrixLayoutDestroy(p->d);
	memset(p, 0, sizeof(*p));
}

void queue_free_plans(struct queue *q)
{
	for (int i = 0; i < q->plans; i++)
		plan_free(&q->plan[i]);
	free(q->plan);
	q->plan = NULL;
	q->plans = 0;
}

static void desc_set(struct gemm_plan *p, cublasLtMatmulDescAttributes_t what,
		     int32_t value)
{
	cublasLtMatmulDescSetAttribute(p->desc, what, &value, sizeof(value));
}

/* Describe the operands: A is (m, k) or its transpose, and so on. */
static bool plan_describe(struct gemm_plan *p)
{
	const struct gemm_key *k = &p->key;
	bool ta = k->kind <= GEMM_SUM;
	bool tb = k->kind == GEMM_BWD_W;
	cudaDataType_t t = k->type;
	cudaDataType_t td = tb || k->kind == GEMM_SUM ? CUDA_R_32F : t;

	if (cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F,
				     CUDA_R_32F) ||
	    cublasLtMatrixLayoutCreate(&p->a, t, ta ? k->k : k->m,
				       ta ? k->m : k->k, ta ? k->k : k->m) ||
	    cublasLtMatrixLayoutCreate(&p->b, t, tb ? k->n : k->k,
				       tb ? k->k : k->n, tb ? k->n : k->k) ||
	    cublasLtMatrixLayoutCreate(&p->d, td, k->m, k->n, k->m))
		return false;
	desc_set(p, CUBLASLT_MATMUL_DESC_TRANSA,
		 ta ? CUBLAS_OP_T : CUBLAS_OP_N);
	desc_set(p, CUBLASLT_MATMUL_DESC_TRANSB,
		 tb ? CUBLAS_OP_T : CUBLAS_OP_N);
	if (k->kind == GEMM_BIAS)
		desc_set(p, CUBLASLT_MATMUL_DESC_EPILOGUE,
			 CUBLASLT_EPILOGUE_BIAS);
	return true;
}

/* Take the first algorithm offered of those without atomics. */
static void plan_choose(struct gemm_plan *p, cublasLtHandle_t blas)
{
	static const cublasLtMatmulPreferenceAttributes_t what[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
	};
	uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	size_t room = QUEUE_WORK;
	cublasLtMatmulPreference_t pref;
	cublasLtMatmulHeuristicResult_t result;
	int count = 0;

	if (cublasLtMatmulPreferenceCreate(&pref))
		return;
	cublasLtMatmulPreferenceSetAttribute(
		pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
		sizeof(room));
	cublasLtMatmulPreferenceSetAttribute(
		pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
		sizeof(schemes));
	for (int i = 0; i < 4; i++) {
		uint32_t align = (uint32_t)p->key.align[i < 3 ? i : 2];

		cublasLtMatmulPreferenceSetAttribute(pref, what[i], &align,
						     sizeof(align));
	}
	p->found = !cublasLtMatmulAlgoGetHeuristic(blas, p->desc, p->a, p->b,
						   p->d, p->d, pref, 1, &result,
						   &count) &&
		   count && result.state == CUBLAS_STATUS_SUCCESS;
	if (p->found)
		p->algo = result.algo;
	cublasLtMatmulPreferenceDestroy(pref);
}

/* The plan for KEY, made the first time; the oldest makes room for it. */
static struct gemm_plan *plan_for(struct queue *q, const struct gemm_key *key)
{
	struct gemm_plan *p;

	for (int i = 0; i < q->plans; i++)
		if (!memcmp(&q->plan[i].key, key, sizeof(*key)))
			return &q->plan[i];
	if (!q->plan)
		q->plan = (struct gemm_plan *)calloc(PLANS, sizeof(*q->plan));
	if (!q->plan)
		return NULL;
	p = &q->plan[q->next_plan];
	q->next_plan = (q->next_plan + 1) % PLANS;
	if (q->plans < PLANS)
		q->plans++;
	plan_free(p);
	p->key = *key;
	if (plan_describe(p))
		plan_choose(p, q->blas);
	return p;
}

/* d = op(a) op(b), or += ; false if there is no algorithm. */
template <typename T>
static bool gemm(struct queue *q, enum gemm_kind kind, void *d, const void *a,
		 const void *b, const void *bias, int64_t m, int64_t n,
		 int64_t k)
{
	float alpha = 1, beta = kind == GEMM_BWD_W;
	struct gemm_key key;
	struct gemm_plan *p;
	cublasStatus_t bad;

	memset(&key, 0, sizeof(key)); /* keys are compared bytewise */
	key.m = m;
	key.n = n;
	key.k = k;
	key.kind = kind;
	key.type = TYPE<T>;
	key.align[0] = alignment(a);
	key.align[1] = alignment(b);
	key.align[2] = alignment(d);
	p = plan_for(q, &key);
	if (!p || !p->found)
		return false;
	if (kind == GEMM_BIAS)
		cublasLtMatmulDescSetAttribute(
			p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
			sizeof(bias));
	bad = cublasLtMatmul(q->blas, p->desc, &alpha, a, p->a, b, p->b, &beta,
			     d, p->d, d, p->d, &p->algo, q->work, QUEUE_WORK,
			     q->stream);
	if (bad != CUBLAS_STATUS_SUCCESS)
		queue_fail(q, "a matrix product", cublasLtGetStatusString(bad));
	return true;
}

static void no_algorithm(struct queue *q)
{
	queue_fail(q, "a matrix product",
		   "cublasLt has no algorithm for this shape");
}

template <typename Y, typename T>
static __global__ void bias_kernel(Y *y, const T *bias, int64_t n, int64_t C)
{
	int64_t step = (int64_t)gridDim.x * blockDim.x;
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; i < n; i += step)
		y[i] = (Y)((float)y[i] + (float)bias[i % C]);
}

/* Where the library cannot add the bias itself. */
template <typename T>
void cuda_linear<T>::fwd(struct queue *q, void *y, const void *x, const void *w,
			 const void *bias, int64_t N, int64_t out, int64_t in)
{
	if (bias && aligned({bias}) &&
	    gemm<T>(q, GEMM_BIAS, y, w, x, bias, out, N, in))
		return;
	if (!gemm<T>(q, GEMM_FWD, y, w, x, NULL, out, N, in))
		no_algorithm(q);
	if (bias)
		LAUNCH(q, (bias_kernel<T, T>), blocks_for(N * out, 256, 4096),
		       256, 0, (T *)y, (const T *)bias, N * out, out);
}

template <typename T>
void cuda_linear<T>::sum(struct queue *q, void *y, const void *x, const void *w,
			 const void *bias, int64_t N, int64_t out, int64_t in)
{
	if (!gemm<T>(q, GEMM_SUM, y, w, x, NULL, out, N, in))
		no_algorithm(q);
	if (bias)
		LAUNCH(q, (bias_kernel<float, T>),
		       blocks_for(N * out, 256, 4096), 256, 0, (float *)y,
		       (const T *)bias, N * out, out);
}

template <typename T>
void cuda_linear<T>::bwd_x(struct queue *q, void *dx, const void *dy,
			   const void *w, int64_t N, int64_t out, int64_t in)
{
	if (!gemm<T>(q, GEMM_BWD_X, dx, w, dy, NULL, in, N, out))
		no_algorithm(q);
}

template <typename T>
void cuda_linear<T>::bwd_w(struct queue *q, void *dw, const void *dy,
			   const void *x, int64_t N, int64_t out, int64_t in)
{
	if (!gemm<T>(q, GEMM_BWD_W, dw, x, dy, NULL, in, out, N))
		no_algorithm(q);
}

/* part (gridDim.y, C): 32 W columns a block, eight threads share its rows. */
template <typename T, int W>
static __global__ void rows_kernel(float *part, const T *dy, int64_t N,
				   int64_t C, int64_t rows)
{
	__shared__ float area[8][32 * W];
	int64_t c = ((int64_t)blockIdx.x * 32 + threadIdx.x) * W;
	int64_t end = (int64_t)(blockIdx.y + 1) * rows;
	float sum[W] = {};

	if (end > N)
		end = N;
	if (c < C) {
#pragma unroll 4
		for (int64_t n = (int64_t)blockIdx.y * rows + threadIdx.y;
		     n < end; n += 8) {
			float v[W];

			load<W>(v, dy + n * C + c);
#pragma unroll
			for (int j = 0; j < W; j++)
				sum[j] += v[j];
		}
	}
#pragma unroll
	for (int j = 0; j < W; j++)
		area[threadIdx.y][threadIdx.x * W + j] = sum[j];
	__syncthreads();
	if (threadIdx.y || c >= C)
		return;
	for (int i = 1; i < 8; i++)
#pragma unroll
		for (int j = 0; j < W; j++)
			sum[j] += area[i][threadIdx.x * W + j];
	store<W>(part + blockIdx.y * C + c, sum);
}

template <typename T>
void cuda_linear<T>::bias_bwd(struct queue *q, void *db, const void *dy,
			      int64_t N, int64_t C)
{
	bool ok = aligned({dy}) && C % WIDE<T> == 0;
	int64_t across = ceil_div(C, 32 * (ok ? WIDE<T> : 1));
	int64_t parts = ceil_div(1056, across);
	int64_t room = (int64_t)(QUEUE_WORK / sizeof(float)) / C, rows;

	if (parts > room)
		parts = room;
	rows = ceil_div(ceil_div(N, parts), 8) * 8;
	parts = ceil_div(N, rows);
	WITH_WIDTH(T, W, ok,
		   LAUNCH(q, (rows_kernel<T, W>),
			  dim3((unsigned)across, (unsigned)parts), dim3(32, 8),
			  0, (float *)q->work, (const T *)dy, N, C, rows));
	columns_add(q, (float *)db, (const float *)q->work, parts, C);
}

template struct cuda_linear<float>;
template struct cuda_linear<bf16>;
template struct cuda_linear<fp16>;
