/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C, the checksum of all that a checkpoint holds. */
#ifndef CKPT_CRC_H
#define CKPT_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what CRC (0 for nothing) stands for with N bytes behind. */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

#endif
