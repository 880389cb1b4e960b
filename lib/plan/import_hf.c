/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import_hf.h"
int import_hf(struct import *im, const char *text, size_t len)
{
	(void)text;
	(void)len;
	return import_give_up(im, 0, "x");
}
