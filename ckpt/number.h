/* SPDX-License-Identifier: Apache-2.0 */
/* Stored numbers as numbers, and from one type to another. */
#ifndef CKPT_NUMBER_H
#define CKPT_NUMBER_H

#include "ckpt/format.h"

/* Element I of DATA. */
double number_get(const void *data, enum ckpt_dtype t, int64_t i);

/* Whether every number of FROM is one of TO. */
bool number_widens(enum ckpt_dtype from, enum ckpt_dtype to);

/* The narrowest type that every number of both is one of. */
enum ckpt_dtype number_widest(enum ckpt_dtype a, enum ckpt_dtype b);

/* Whether number_convert does it: what widens, and f64 to f32. */
bool number_converts(enum ckpt_dtype from, enum ckpt_dtype to);

/* N elements at FROM to those at TO, as C converts them. */
void number_convert(void *to, enum ckpt_dtype to_type, const void *from,
		    enum ckpt_dtype from_type, int64_t n);

#endif
