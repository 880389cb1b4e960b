/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a slice, file by file. */
#ifndef CKPT_ITEMS_H
#define CKPT_ITEMS_H

#include "ckpt/ckpt.h"

/* One role's part of a rank's memory; BASE may be NULL: no data. */
struct items_role {
	bool has;
	enum ckpt_dtype dtype;
	char *base;
};

/* ckpt_items for any set of roles. */
int items_build(const struct slice *s, const struct items_role role[ROLES],
		bool own_shard, enum ckpt_use use, struct arena *a,
		struct ckpt_item **items, int count[CKPT_FILES]);

/* The name of one of the files of S's rank. */
void items_file(char out[FORMAT_FILE], const struct slice *s,
		enum ckpt_file file);

#endif
