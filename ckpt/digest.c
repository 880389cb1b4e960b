/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/digest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * splitmix64 of bits and index, widened to two sums by one more product: 64
 * bits tell elements apart, 128 bits keep sums from meeting by chance.
 */
static inline void mix(struct digest *d, uint64_t bits, uint64_t key)
{
	uint64_t x = bits ^ key;

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	x ^= x >> 31;
	d->sum[0] += x;
	x *= UINT64_C(0x9e3779b185ebca87);
	d->sum[1] += x ^ (x >> 29);
}

#define KEY UINT64_C(0x9e3779b97f4a7c15)

#define ADD(type)                                                            \
	for (int64_t i = 0; i < n; i++, key += KEY) {                        \
		type bits;                                                   \
		memcpy(&bits, (const char *)data + (size_t)i * sizeof(bits), \
		       sizeof(bits));                                        \
		mix(&sum, bits, key);                                        \
	}

void digest_add(struct digest *d, int64_t index, const void *data, int64_t n,
		size_t size)
{
	uint64_t key = ((uint64_t)index + 1) * KEY;
	struct digest sum = *d;

	assert(size == 2 || size == 4 || size == 8);
	if (size == 2)
		ADD(uint16_t)
	else if (size == 4)
		ADD(uint32_t)
	else
		ADD(uint64_t)
	*d = sum;
}

void digest_text(const struct digest *d, char hex[33])
{
	snprintf(hex, 33, "%016" PRIx64 "%016" PRIx64, d->sum[1], d->sum[0]);
}
