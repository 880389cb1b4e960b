/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face's config.json as our settings. */
#ifndef PLAN_IMPORT_HF_H
#define PLAN_IMPORT_HF_H

#include "lib/plan/import_set.h"

/* TEXT, out of im->file, into IM's settings.  -1: im->err says why. */
int import_hf(struct import *im, const char *text, size_t len);

#endif
