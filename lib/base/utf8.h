/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are text. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* How many bytes the character at P, before END, has; 0: it is none. */
size_t utf8_length(const unsigned char *p, const unsigned char *end);

#endif
