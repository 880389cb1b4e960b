/* SPDX-License-Identifier: Apache-2.0 */
/* Plain text: every byte is a token. */
#include "lib/train/data_file.h"

int data_text_open(struct data_file *f, struct err *e)
{
	if (data_map_open(&f->map, f->path, e))
		return -1;
	f->tokens = f->map.base;
	f->type = TOKEN_U8;
	f->count = f->units = (int64_t)f->map.bytes;
	return 0;
}
