/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements dropout keeps, for the ops that apply it. */
#ifndef KERNELS_DROP_H
#define KERNELS_DROP_H

#include <string.h>

#include "kernels/kern_cpu.h"
#include "kernels/philox.h"

/* Factors are made for at most so many elements at a time. */
#define DROP_BLOCK 1024

static inline bool drop_on(const struct kern_drop *d)
{
	return d && d->p > 0;
}

/* The word of element ELEM, by itself. */
static inline uint32_t drop_word(const struct kern_drop *d, int64_t elem)
{
	uint64_t group = (uint64_t)elem / 4;
	uint32_t key[2] = {(uint32_t)d->key[0], (uint32_t)(d->key[0] >> 32)};
	uint32_t c[4] = {(uint32_t)group, (uint32_t)(group >> 32), d->site,
			 (uint32_t)d->key[1]};

	philox4x32(c, key);
	return c[elem % 4];
}

/*
 * word[j][i] is that of element 4 (GROUP + i) + j.  They are made side by side,
 * to be dealt out.
 */
static inline void drop_words64(uint32_t word[4][16], const struct kern_drop *d,
				uint64_t group)
{
	uint32_t step = (uint32_t)d->key[1], site = d->site;
	uint32_t key[2] = {(uint32_t)d->key[0], (uint32_t)(d->key[0] >> 32)};

	for (int i = 0; i < 16; i++) {
		uint32_t c[4] = {(uint32_t)(group + i),
				 (uint32_t)((group + i) >> 32), site, step};

		philox4x32(c, key);
		for (int j = 0; j < 4; j++)
			word[j][i] = c[j];
	}
}

/* f[i] = 1 / (1 - p) where element 4 GROUP + i is kept, else 0; i < 64. */
static inline void drop_factors64(REAL *f, const struct kern_drop *d,
				  uint64_t group)
{
	uint32_t word[4][16], limit = (uint32_t)(d->p * 0x1p32);
	REAL keep = (REAL)(1 / (1 - d->p));

	drop_words64(word, d, group);
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 4; j++)
			f[4 * i + j] = word[j][i] >= limit ? keep : 0;
}

/* f[i] = the factor of element ELEM + i, i < n. */
static inline void drop_factors(REAL *f, const struct kern_drop *d,
				int64_t elem, int64_t n)
{
	int64_t skip = elem % 4, done = 0;
	uint64_t group = (uint64_t)elem / 4;

	while (done < n) {
		REAL part[64];
		int64_t m = 64 - skip < n - done ? 64 - skip : n - done;

		if (m == 64) {
			drop_factors64(f + done, d, group);
		} else {
			drop_factors64(part, d, group);
			memcpy(f + done, part + skip, m * sizeof(*f));
		}
		done += m;
		group += 16;
		skip = 0;
	}
}

#endif
