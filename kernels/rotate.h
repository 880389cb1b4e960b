/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotations of a head's pairs by the angles of cs (R, 2), {cos, sin}; SIGN -1:
 * back.  Private to the CPU's ops.
 */
#ifndef KERNELS_ROTATE_H
#define KERNELS_ROTATE_H

#include "kernels/kern_cpu.h"

/* Pairs (j, j + R). */
static inline void rotate_halves(REAL *x, const REAL *cs, int64_t R, REAL sign)
{
#pragma omp simd
	for (int64_t j = 0; j < R; j++) {
		REAL c = cs[2 * j], s = sign * cs[2 * j + 1];
		REAL a = x[j], b = x[j + R];

		x[j] = a * c - b * s;
		x[j + R] = b * c + a * s;
	}
}

/* Pairs (2j, 2j + 1). */
static inline void rotate_pairs(REAL *x, const REAL *cs, int64_t R, REAL sign)
{
#pragma omp simd
	for (int64_t j = 0; j < R; j++) {
		REAL c = cs[2 * j], s = sign * cs[2 * j + 1];
		REAL a = x[2 * j], b = x[2 * j + 1];

		x[2 * j] = a * c - b * s;
		x[2 * j + 1] = b * c + a * s;
	}
}

#endif
