/* SPDX-License-Identifier: Apache-2.0 */
/* The index: which bytes of which file are which part of which weight. */
#ifndef CKPT_INDEX_H
#define CKPT_INDEX_H

#include "ckpt/ckpt.h"
#include "ckpt/h5.h"
#include "ckpt/manifest.h"

struct row {
	struct ckpt_piece piece;
	int file; /* in the manifest */
	uint32_t crc;
	int64_t at; /* first byte in the file; a replica has none */
};

struct index {
	const struct weights *weights;
	const struct manifest *manifest; /* file names, for errors */
	struct row *list;		 /* file by file */
	int64_t count, cap;
	int64_t *file_first; /* first row of each file, and the end */
	int *by_name;	     /* weights in the order of their names */
	int *order;	     /* rows by weight, role, place, replica */
	int64_t *group;	     /* first entry in ORDER of weight * ROLES + role */
	bool has[ROLES];
	enum ckpt_dtype dtype[ROLES];
};

/* Room for the rows that M promises, from A. */
void index_open(struct index *x, const struct weights *w,
		const struct manifest *m, struct arena *a);

/*
 * Add the rows of F: of the one file FILE, or (FILE < 0) of all files.  Every
 * number is checked against the weight, the file's size and the manifest.
 */
int index_read(struct index *x, struct h5 *f, int file, struct err *e);

/* All rows to F, as the merged table. */
int index_write(const struct index *x, struct h5 *f, struct err *e);

/* A row as it lies on disk, FILE 0. */
void index_encode(struct format_row *out, const struct row *row,
		  const struct weight *w);

/* Fill ORDER and GROUP. */
void index_sort(struct index *x, struct arena *a);

/* The rows of a weight and role: entries FIRST .. END of ORDER. */
void index_range(const struct index *x, int weight, enum ckpt_role role,
		 int64_t *first, int64_t *end);

/* Whether both are the same interval of the same box. */
bool index_same_place(const struct ckpt_piece *a, const struct ckpt_piece *b);

/*
 * Of a sorted index: the files hold every element of every weight exactly
 * once for each role they have, all of a role in one dtype, and replicas
 * equal what was saved.  Fills HAS and DTYPE.  Fails with CODE_CKPT.
 */
int index_check(struct index *x, struct err *e);

/* The payloads of a file, in the order of their bytes; returns how many. */
struct extent {
	int64_t first, end;
};
int64_t index_extents(const struct index *x, int file, struct extent *out);

#endif
