/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices of 8 bits with a scale for each block, as DeepSeek-V3's files have
 * them: NAME of type F8_E4M3, and NAME_scale_inv with a number for each block
 * of rows and columns, which the block's elements are to be multiplied with.
 * The last blocks end with the matrix.
 */
#ifndef CKPT_HF_FP8_H
#define CKPT_HF_FP8_H

#include "ckpt/format.h"

#define HF_FP8	     "F8_E4M3"
#define HF_FP8_SCALE "_scale_inv"

struct hf_fp8 {
	int64_t cols, block[2]; /* of the matrix; rows and columns of a block */
	const float *scale;	/* row-major */
};

/* Blocks of COUNT rows or columns, SIZE each. */
int64_t hf_fp8_blocks(int64_t count, int64_t size);

/* E4M3: no infinities, one NaN of each sign. */
float hf_fp8_widen(uint8_t x);

/*
 * N elements from FIRST on, scaled in float and rounded to TYPE (bf16, fp32
 * or fp64).
 */
void hf_fp8_convert(void *to, enum ckpt_dtype type, const uint8_t *from,
		    int64_t first, int64_t n, const struct hf_fp8 *m);

#endif
