/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and lists as short texts, for what lib/plan prints and reports. */
#ifndef PLAN_SHOW_TEXT_H
#define PLAN_SHOW_TEXT_H

#include "lib/plan/show.h"

/* A text by value, good until the end of the expression it is used in. */
struct word {
	char s[48];
};

/* "1,234,567" */
struct word word_count(int64_t n);
/* "1.23M", 1024 based and at most 5 characters; "-" for 0. */
struct word word_bytes(int64_t n);
/* "1.23T", 1000 based; "-" for 0. */
struct word word_flops(double n);
/* "0-7", or "-" if there are none. */
struct word word_range(int64_t first, int64_t count);

/* What a stage holds beside its layers: "embedding", "norm, head, loss". */
const char *text_roles(const struct stage *st, struct arena *a);

/* "0-3", "0,4..28" or "0-1,4-5": runs of ranks, cut in the middle if long. */
const char *text_ranks(const int *ranks, int n, struct arena *a);

/* The ranks of pipeline rank PP. */
const char *text_pp_ranks(const struct show *s, int pp);

/* "tp 2 x dp 2 x pp 2": axes above 1; TIMES stands between them. */
const char *text_axes(const struct sum *s, const char *times, struct arena *a);

/* "8 = tp 2 x dp 2 x pp 2" */
const char *text_world(const struct sum *s, struct arena *a);

#endif
