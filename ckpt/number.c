/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/number.h"

#include <string.h>

#include "lib/base/half.h"

double number_get(const void *data, enum ckpt_dtype t, int64_t i)
{
	const char *at = (const char *)data + i * (int64_t)ckpt_dtype_size(t);
	uint16_t half;
	float f;
	double d;

	switch (t) {
	case CKPT_F64: memcpy(&d, at, 8); return d;
	case CKPT_F32: memcpy(&f, at, 4); return f;
	default: break;
	}
	memcpy(&half, at, 2);
	return t == CKPT_BF16 ? bf16_widen(half) : fp16_widen(half);
}

bool number_widens(enum ckpt_dtype from, enum ckpt_dtype to)
{
	return from == to || to == CKPT_F64 ||
	       (to == CKPT_F32 && from != CKPT_F64);
}

enum ckpt_dtype number_widest(enum ckpt_dtype a, enum ckpt_dtype b)
{
	if (number_widens(a, b))
		return b;
	return number_widens(b, a) ? a : CKPT_F32;
}

bool number_converts(enum ckpt_dtype from, enum ckpt_dtype to)
{
	return number_widens(from, to) || (from == CKPT_F64 && to == CKPT_F32);
}

void number_convert(void *to, enum ckpt_dtype to_type, const void *from,
		    enum ckpt_dtype from_type, int64_t n)
{
	if (from_type == to_type) {
		memcpy(to, from, (size_t)n * ckpt_dtype_size(to_type));
		return;
	}
	for (int64_t i = 0; i < n; i++) {
		double wide = number_get(from, from_type, i);
		float narrow = (float)wide;

		if (to_type == CKPT_F64)
			memcpy((char *)to + i * 8, &wide, 8);
		else
			memcpy((char *)to + i * 4, &narrow, 4);
	}
}
