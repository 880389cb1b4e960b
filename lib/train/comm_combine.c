/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of reductions, in rank order. */
#include <string.h>

#include "lib/base/half.h"
#include "lib/train/comm_impl.h"

/* Small enough to stay in the first-level cache with a source. */
#define TILE 1024

/* The constant trip count lets the compiler use vectors at -O2. */
#define DEFINE(NAME, T, EXPR)                                                \
	static void NAME(T *restrict acc, const T *restrict x, int64_t n)    \
	{                                                                    \
		if (n == TILE)                                               \
			for (int i = 0; i < TILE; i++)                       \
				acc[i] = EXPR;                               \
		else                                                         \
			for (int64_t i = 0; i < n; i++)                      \
				acc[i] = EXPR;                               \
	}                                                                    \
                                                                             \
	static void NAME##_all(T *out, const void *const *src, int n,        \
			       int64_t count)                                \
	{                                                                    \
		T acc[TILE];                                                 \
                                                                             \
		for (int64_t at = 0; at < count; at += TILE) {               \
			int64_t len = count - at < TILE ? count - at : TILE; \
			size_t bytes = (size_t)len * sizeof(T);              \
                                                                             \
			memcpy(acc, (const T *)src[0] + at, bytes);          \
			for (int r = 1; r < n; r++)                          \
				NAME(acc, (const T *)src[r] + at, len);      \
			memcpy(out + at, acc, bytes);                        \
		}                                                            \
	}

/* an accumulated NaN stays: no x is greater; a new one is taken */
#define GREATER (x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i])

DEFINE(add_f32, float, acc[i] + x[i])
DEFINE(add_f64, double, acc[i] + x[i])
DEFINE(max_f32, float, GREATER)
DEFINE(max_f64, double, GREATER)

/* Of 16 bits: added up as floats, and rounded once. */
#define DEFINE_HALF(T, PART)                                                 \
	static void PART##_##T(uint16_t *out, const void *const *src, int n, \
			       int64_t count)                                \
	{                                                                    \
		float acc[TILE], x[TILE];                                    \
                                                                             \
		for (int64_t at = 0; at < count; at += TILE) {               \
			int64_t len = count - at < TILE ? count - at : TILE; \
                                                                             \
			for (int r = 0; r < n; r++) {                        \
				const uint16_t *from = src[r];               \
				float *to = r ? x : acc;                     \
                                                                             \
				for (int64_t i = 0; i < len; i++)            \
					to[i] = T##_widen(from[at + i]);     \
				if (r)                                       \
					PART##_f32(acc, x, len);             \
			}                                                    \
			for (int64_t i = 0; i < len; i++)                    \
				out[at + i] = T##_round(acc[i]);             \
		}                                                            \
	}

DEFINE_HALF(bf16, add)
DEFINE_HALF(bf16, max)
DEFINE_HALF(fp16, add)
DEFINE_HALF(fp16, max)

void comm_combine(enum comm_op op, enum comm_type type, void *out,
		  const void *const *src, int n, int64_t count)
{
	bool max = op == COMM_MAX;

	switch (type) {
	case COMM_F32:
		(max ? max_f32_all : add_f32_all)(out, src, n, count);
		break;
	case COMM_F64:
		(max ? max_f64_all : add_f64_all)(out, src, n, count);
		break;
	case COMM_BF16: (max ? max_bf16 : add_bf16)(out, src, n, count); break;
	case COMM_FP16: (max ? max_fp16 : add_fp16)(out, src, n, count); break;
	}
}
