/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of 16 bits: bf16, the upper half of a float, and IEEE's fp16.
 * Rounding is to nearest even; what is too large becomes infinite.
 */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float bf16_widen(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint16_t bf16_round(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	if ((bits & 0x7fffffff) > 0x7f800000) /* NaN stays one */
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float fp16_widen(uint16_t h)
{
	_Float16 x;

	memcpy(&x, &h, sizeof(x));
	return (float)x;
}

static inline uint16_t fp16_round(float x)
{
	_Float16 h = (_Float16)x;
	uint16_t bits;

	memcpy(&bits, &h, sizeof(bits));
	return bits;
}

#endif
