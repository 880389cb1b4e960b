/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/hf_fp8.h"

#include <math.h>

#include "lib/base/half.h"

int64_t hf_fp8_blocks(int64_t count, int64_t size)
{
	return (count + size - 1) / size;
}

float hf_fp8_widen(uint8_t x)
{
	int exponent = x >> 3 & 15, mantissa = x & 7;
	float value;

	if ((x & 0x7f) == 0x7f)
		value = NAN;
	else if (exponent)
		value = ldexpf((float)(8 + mantissa), exponent - 10);
	else
		value = ldexpf((float)mantissa, -9);
	return x & 0x80 ? -value : value;
}

static void put(void *to, enum ckpt_dtype type, int64_t i, float x)
{
	if (type == CKPT_BF16)
		((uint16_t *)to)[i] = bf16_round(x);
	else if (type == CKPT_F32)
		((float *)to)[i] = x;
	else
		((double *)to)[i] = x;
}

void hf_fp8_convert(void *to, enum ckpt_dtype type, const uint8_t *from,
		    int64_t first, int64_t n, const struct hf_fp8 *m)
{
	int64_t wide = hf_fp8_blocks(m->cols, m->block[1]);
	float table[256];

	for (int i = 0; i < 256; i++)
		table[i] = hf_fp8_widen((uint8_t)i);
	for (int64_t i = 0; i < n; i++) {
		int64_t row = (first + i) / m->cols,
			col = (first + i) % m->cols;
		int64_t block = row / m->block[0] * wide + col / m->block[1];

		put(to, type, i, table[from[i]] * m->scale[block]);
	}
}
