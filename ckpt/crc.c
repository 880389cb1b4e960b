/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/crc.h"

#include <isa-l/crc.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
	enum { PART = 1 << 30 };
	unsigned char *p = (unsigned char *)(uintptr_t)data;

	crc = ~crc;
	for (; n > PART; n -= PART, p += PART)
		crc = crc32_iscsi(p, PART, crc);
	return ~crc32_iscsi(p, (int)n, crc);
}
