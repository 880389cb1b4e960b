/* SPDX-License-Identifier: Apache-2.0 */
/* Our shape as Hugging Face's config.json: the inverse of hf_family. */
#ifndef PLAN_HF_WRITE_H
#define PLAN_HF_WRITE_H

#include <jansson.h>

#include "lib/plan/shape.h"

/*
 * The settings of S, finalised, under the keys of the family TYPE, as a new
 * object.  What the family cannot say is left out: who reads it back and
 * compares, knows.
 */
json_t *hf_write(const char *type, const struct shape *s);

#endif
