/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of reductions, in rank order. */
#include <string.h>

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

void comm_combine(enum comm_op op, enum comm_type type, void *out,
		  const void *const *src, int n, int64_t count)
{
	if (op == COMM_MAX && type == COMM_F32)
		max_f32_all(out, src, n, count);
	else if (op == COMM_MAX)
		max_f64_all(out, src, n, count);
	else if (type == COMM_F32)
		add_f32_all(out, src, n, count);
	else
		add_f64_all(out, src, n, count);
}
