/* SPDX-License-Identifier: Apache-2.0 */
/* The counter-based generator behind weights, dropout and data order. */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

static inline uint32_t philox_mulhi(uint32_t a, uint32_t b)
{
	return (uint32_t)((uint64_t)a * b >> 32);
}

/*
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011): the four words in CTR are replaced by 128 random bits that
 * depend on CTR and KEY alone.  Written so that a loop of calls vectorises.
 */
static inline void philox4x32(uint32_t ctr[4], const uint32_t key[2])
{
	uint32_t k0 = key[0], k1 = key[1];

#pragma GCC unroll 10
	for (int round = 0; round < 10; round++) {
		uint32_t a = ctr[0], b = ctr[2];

		ctr[0] = philox_mulhi(0xCD9E8D57, b) ^ ctr[1] ^ k0;
		ctr[1] = 0xCD9E8D57 * b;
		ctr[2] = philox_mulhi(0xD2511F53, a) ^ ctr[3] ^ k1;
		ctr[3] = 0xD2511F53 * a;
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
}

#endif
