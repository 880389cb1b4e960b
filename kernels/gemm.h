/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, by whatever library stands behind <cblas.h>. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

/* BLIS's header carries its whole inside along. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <cblas.h>
#pragma GCC diagnostic pop

#include "kernels/kern_cpu.h"

#if REAL_IS_FLOAT
#define GEMM cblas_sgemm
#else
#define GEMM cblas_dgemm
#endif

/*
 * Have the products that follow run on so many threads.  A BLAS other than
 * BLIS decides by itself.
 */
void kern_gemm_threads(int threads);

static inline void gemm(enum CBLAS_TRANSPOSE ta, enum CBLAS_TRANSPOSE tb,
			int64_t m, int64_t n, int64_t k, REAL alpha,
			const REAL *a, int64_t lda, const REAL *b, int64_t ldb,
			REAL beta, REAL *c, int64_t ldc)
{
	GEMM(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, alpha, a, (int)lda,
	     b, (int)ldb, beta, c, (int)ldc);
}

/* Rows of a, b and c are lda, ldb and ldc apart. */
/* c (m, n) = alpha a (m, k) b^T (n, k) */
static inline void mul_nt(REAL *c, int64_t ldc, const REAL *a, int64_t lda,
			  const REAL *b, int64_t ldb, int64_t m, int64_t n,
			  int64_t k, REAL alpha)
{
	gemm(CblasNoTrans, CblasTrans, m, n, k, alpha, a, lda, b, ldb, 0, c,
	     ldc);
}

/* c (m, n) = alpha a (m, k) b (k, n) */
static inline void mul_nn(REAL *c, int64_t ldc, const REAL *a, int64_t lda,
			  const REAL *b, int64_t ldb, int64_t m, int64_t n,
			  int64_t k, REAL alpha)
{
	gemm(CblasNoTrans, CblasNoTrans, m, n, k, alpha, a, lda, b, ldb, 0, c,
	     ldc);
}

/* c (m, n) = beta c + alpha a^T (k, m) b (k, n) */
static inline void mul_tn(REAL *c, int64_t ldc, const REAL *a, int64_t lda,
			  const REAL *b, int64_t ldb, int64_t m, int64_t n,
			  int64_t k, REAL alpha, REAL beta)
{
	gemm(CblasTrans, CblasNoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c,
	     ldc);
}

#endif
