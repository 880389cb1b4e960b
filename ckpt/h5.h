/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HDF5, as little of it as a checkpoint needs.  Payloads do not pass through
 * it: a dataset is created contiguous and never filled, and its place in the
 * file is all that others want.  Types on disk and in memory are the same, so
 * nothing is ever converted.
 *
 * Errors are CODE_STORAGE for a file being written, CODE_CKPT for one being
 * read.
 */
#ifndef CKPT_H5_H
#define CKPT_H5_H

#include "ckpt/format.h"
#include "lib/base/arena.h"

struct h5;

/* Create a file, which must not exist; open one that does. */
int h5_create(struct h5 **out, const char *path, struct err *e);
int h5_open(struct h5 **out, const char *path, struct err *e);

/* Finish a written file: after this it is complete, though not synced. */
int h5_finish(struct h5 *f, struct err *e);

/* Let go of it, finished or not.  Accepts NULL. */
void h5_close(struct h5 *f);

/* What a dataset looks like, and the first byte of its payload. */
struct h5_data {
	enum ckpt_dtype dtype;
	int ndim;
	int64_t dim[FORMAT_DIMS];
	int64_t at;
};

/* Create the dataset NAME with the groups above it; fills DATA->at. */
int h5_data_add(struct h5 *f, const char *name, struct h5_data *data,
		struct err *e);
int h5_data_find(struct h5 *f, const char *name, struct h5_data *data,
		 struct err *e);

/* The number of datasets below /data. */
int h5_data_count(struct h5 *f, int64_t *count, struct err *e);

/* The table of pieces: made with its final size, then written in parts. */
int h5_rows_add(struct h5 *f, int64_t rows, struct err *e);
int h5_rows_write(struct h5 *f, int64_t first, int64_t n,
		  const struct format_row *rows, struct err *e);
int h5_rows_count(struct h5 *f, int64_t *rows, struct err *e);
int h5_rows_read(struct h5 *f, int64_t first, int64_t n,
		 struct format_row *rows, struct err *e);

/* The table of file names, FORMAT_FILE bytes each. */
int h5_files_write(struct h5 *f, int n, const char *names, struct err *e);

/* An attribute of the group GROUP ("/shape"; made when it is not there). */
int h5_text_put(struct h5 *f, const char *group, const char *name,
		const char *text, struct err *e);
int h5_int_put(struct h5 *f, const char *group, const char *name, int64_t value,
	       struct err *e);
int h5_text_get(struct h5 *f, const char *group, const char *name,
		struct arena *a, const char **text, struct err *e);
int h5_int_get(struct h5 *f, const char *group, const char *name,
	       int64_t *value, struct err *e);

/* The names of all attributes of GROUP, sorted. */
int h5_attrs(struct h5 *f, const char *group, struct arena *a,
	     const char ***names, int *count, struct err *e);

#endif
