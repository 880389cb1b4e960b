/* SPDX-License-Identifier: Apache-2.0 */
/* Newer releases keep the names of 1.10 under this one. */
#define H5_USE_110_API

#include "ckpt/h5.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small datasets are packed, larger ones start on a page. */
enum { ALIGN_FROM = 65536, ALIGN_TO = 4096 };
enum { TEXT_MAX = 1 << 16, ATTRS_MAX = 1024 };

struct h5 {
	hid_t file;
	hid_t object; /* creation properties: no times */
	hid_t row;    /* the type of struct format_row */
	bool writing;
	char path[];
};

/* The innermost reason on HDF5's stack. */
static herr_t first_reason(unsigned n, const H5E_error2_t *err, void *arg)
{
	if (n == 0)
		snprintf(arg, 160, "%s", err->desc ? err->desc : "");
	return 0;
}

static int failed(const struct h5 *f, const char *what, const char *name,
		  struct err *e)
{
	char why[160] = "";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_reason, why);
	H5Eclear2(H5E_DEFAULT);
	if (strstr(why, "errno = 28") || strstr(why, "errno = 122"))
		snprintf(why, sizeof(why), "%s", strerror(ENOSPC));
	else if (strstr(why, "errno = 27"))
		snprintf(why, sizeof(why), "%s", strerror(EFBIG));
	return err_set(e, f->writing ? CODE_STORAGE : CODE_CKPT,
		       "%s: hdf5 cannot %s %s: %s", f->path, what, name, why);
}

static int bad(const struct h5 *f, const char *name, const char *what,
	       struct err *e)
{
	return err_set(e, CODE_CKPT, "%s: %s: %s", f->path, name, what);
}

static hid_t float_type(size_t bits, size_t exponent)
{
	hid_t t = H5Tcopy(H5T_IEEE_F32LE);

	/* The fields first: they must fit the precision of the moment. */
	H5Tset_fields(t, bits - 1, bits - 1 - exponent, exponent, 0,
		      bits - 1 - exponent);
	H5Tset_precision(t, bits);
	H5Tset_size(t, bits / 8);
	H5Tset_ebias(t, ((size_t)1 << (exponent - 1)) - 1);
	return t;
}

static hid_t dtype_open(enum ckpt_dtype t)
{
	switch (t) {
	case CKPT_F64: return H5Tcopy(H5T_IEEE_F64LE);
	case CKPT_BF16: return float_type(16, 8);
	case CKPT_F16: return float_type(16, 5);
	case CKPT_F32: break;
	}
	return H5Tcopy(H5T_IEEE_F32LE);
}

static hid_t text_type(size_t size)
{
	hid_t t = H5Tcopy(H5T_C_S1);

	H5Tset_size(t, size);
	H5Tset_strpad(t, H5T_STR_NULLPAD);
	return t;
}

static hid_t enum_type(const char *(*name)(int))
{
	hid_t t = H5Tenum_create(H5T_STD_U8LE);

	for (int i = 0; name(i); i++) {
		uint8_t value = (uint8_t)i;

		H5Tenum_insert(t, name(i), &value);
	}
	return t;
}

static void insert(hid_t row, const char *name, size_t at, hid_t type)
{
	H5Tinsert(row, name, at, type);
	H5Tclose(type);
}

#define FIELD(name, type) \
	insert(row, #name, offsetof(struct format_row, name), type)

static hid_t row_type(void)
{
	const hsize_t dims = FORMAT_DIMS;
	hid_t row = H5Tcreate(H5T_COMPOUND, sizeof(struct format_row));

	FIELD(name, text_type(FORMAT_NAME));
	FIELD(shape, H5Tarray_create2(H5T_STD_I64LE, 1, &dims));
	FIELD(off, H5Tarray_create2(H5T_STD_I64LE, 1, &dims));
	FIELD(cnt, H5Tarray_create2(H5T_STD_I64LE, 1, &dims));
	FIELD(lo, H5Tcopy(H5T_STD_I64LE));
	FIELD(hi, H5Tcopy(H5T_STD_I64LE));
	FIELD(at, H5Tcopy(H5T_STD_I64LE));
	FIELD(bytes, H5Tcopy(H5T_STD_I64LE));
	FIELD(crc, H5Tcopy(H5T_STD_U32LE));
	FIELD(file, H5Tcopy(H5T_STD_U32LE));
	FIELD(replica, H5Tcopy(H5T_STD_U32LE));
	FIELD(role, enum_type(format_role));
	FIELD(dtype, enum_type(format_dtype));
	FIELD(ndim, H5Tcopy(H5T_STD_U8LE));
	FIELD(pad, H5Tcopy(H5T_STD_U8LE));
	return row;
}

static struct h5 *h5_new(const char *path, bool writing, struct err *e)
{
	size_t len = strlen(path) + 1;
	struct h5 *f = calloc(1, sizeof(*f) + len);

	if (!f) {
		err_set(e, CODE_LAUNCH, "out of memory");
		return NULL;
	}
	H5dont_atexit(); /* it would crash on a file whose close failed */
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	memcpy(f->path, path, len);
	f->writing = writing;
	f->file = -1;
	f->object = H5Pcreate(H5P_GROUP_CREATE);
	H5Pset_obj_track_times(f->object, false);
	f->row = row_type();
	return f;
}

/* Checksummed headers, no file locks: nobody else sees a file being made. */
static hid_t access_open(void)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110);
	H5Pset_alignment(fapl, ALIGN_FROM, ALIGN_TO);
	H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
	H5Pset_file_locking(fapl, false, true);
	return fapl;
}

int h5_create(struct h5 **out, const char *path, struct err *e)
{
	struct h5 *f = h5_new(path, true, e);
	hid_t fapl, fcpl;

	if (!f)
		return -1;
	fapl = access_open();
	fcpl = H5Pcreate(H5P_FILE_CREATE);
	H5Pset_obj_track_times(fcpl, false);
	f->file = H5Fcreate(path, H5F_ACC_EXCL, fcpl, fapl);
	H5Pclose(fcpl);
	H5Pclose(fapl);
	if (f->file < 0) {
		failed(f, "create", "the file", e);
		h5_close(f);
		return -1;
	}
	*out = f;
	return 0;
}

int h5_open(struct h5 **out, const char *path, struct err *e)
{
	struct h5 *f = h5_new(path, false, e);
	hid_t fapl;

	if (!f)
		return -1;
	fapl = access_open();
	f->file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
	H5Pclose(fapl);
	if (f->file < 0) {
		failed(f, "open", "the file", e);
		h5_close(f);
		return -1;
	}
	*out = f;
	return 0;
}

int h5_finish(struct h5 *f, struct err *e)
{
	hid_t file = f->file;

	f->file = -1;
	if (H5Fclose(file) < 0)
		return failed(f, "close", "the file", e);
	return 0;
}

void h5_close(struct h5 *f)
{
	if (!f)
		return;
	if (f->file >= 0)
		H5Fclose(f->file);
	H5Pclose(f->object);
	H5Tclose(f->row);
	H5Eclear2(H5E_DEFAULT);
	free(f);
}

/* Make the groups above NAME, and NAME itself if it ends with a slash. */
static int groups_add(struct h5 *f, const char *name, struct err *e)
{
	char path[FORMAT_PATH + 1];

	for (const char *s = name + 1; (s = strchr(s, '/')); s++) {
		hid_t group;

		snprintf(path, sizeof(path), "%.*s", (int)(s - name), name);
		if (H5Lexists(f->file, path, H5P_DEFAULT) > 0)
			continue;
		group = H5Gcreate2(f->file, path, H5P_DEFAULT, f->object,
				   H5P_DEFAULT);
		if (group < 0)
			return failed(f, "create", path, e);
		H5Gclose(group);
	}
	return 0;
}

/* A contiguous dataset with its space taken at once and never filled. */
static hid_t dataset_add(struct h5 *f, const char *name, hid_t type, int ndim,
			 const hsize_t *dim)
{
	hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
	hid_t space =
		ndim ? H5Screate_simple(ndim, dim, NULL) : H5Screate(H5S_NULL);
	hid_t set;

	H5Pset_layout(dcpl, H5D_CONTIGUOUS);
	H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
	H5Pset_obj_track_times(dcpl, false);
	set = H5Dcreate2(f->file, name, type, space, H5P_DEFAULT, dcpl,
			 H5P_DEFAULT);
	H5Sclose(space);
	H5Pclose(dcpl);
	return set;
}

int h5_data_add(struct h5 *f, const char *name, struct h5_data *data,
		struct err *e)
{
	hsize_t dim[FORMAT_DIMS];
	hid_t type, set;
	haddr_t at;

	if (groups_add(f, name, e))
		return -1;
	for (int i = 0; i < data->ndim; i++)
		dim[i] = (hsize_t)data->dim[i];
	type = dtype_open(data->dtype);
	set = dataset_add(f, name, type, data->ndim, dim);
	H5Tclose(type);
	if (set < 0)
		return failed(f, "create", name, e);
	at = H5Dget_offset(set);
	H5Dclose(set);
	if (at == HADDR_UNDEF)
		return failed(f, "place", name, e);
	data->at = (int64_t)at;
	return 0;
}

static int dtype_find(hid_t type, enum ckpt_dtype *out)
{
	for (int i = 0; format_dtype(i); i++) {
		hid_t mine = dtype_open((enum ckpt_dtype)i);
		bool same = H5Tequal(mine, type) > 0;

		H5Tclose(mine);
		if (same) {
			*out = (enum ckpt_dtype)i;
			return 0;
		}
	}
	return -1;
}

static int data_describe(hid_t set, struct h5_data *data)
{
	hid_t type = H5Dget_type(set), space = H5Dget_space(set);
	hsize_t dim[H5S_MAX_RANK] = {0};
	int n = H5Sget_simple_extent_ndims(space), found;

	found = dtype_find(type, &data->dtype);
	H5Tclose(type);
	if (n > 0 && n <= FORMAT_DIMS)
		H5Sget_simple_extent_dims(space, dim, NULL);
	H5Sclose(space);
	if (found || n < 1 || n > FORMAT_DIMS)
		return -1;
	data->ndim = n;
	for (int i = 0; i < n; i++)
		data->dim[i] = (int64_t)dim[i];
	data->at = (int64_t)H5Dget_offset(set);
	return data->at < 0 ? -1 : 0;
}

int h5_data_find(struct h5 *f, const char *name, struct h5_data *data,
		 struct err *e)
{
	hid_t set = H5Dopen2(f->file, name, H5P_DEFAULT);
	int rc;

	memset(data, 0, sizeof(*data));
	if (set < 0)
		return failed(f, "open", name, e);
	rc = data_describe(set, data);
	H5Dclose(set);
	return rc ? bad(f, name, "not a contiguous array of numbers", e) : 0;
}

static herr_t count_one(hid_t group, const char *name, const H5L_info_t *info,
			void *arg)
{
	H5O_info_t what;

	(void)info;
	if (H5Oget_info_by_name2(group, name, &what, H5O_INFO_BASIC,
				 H5P_DEFAULT) < 0)
		return -1;
	*(int64_t *)arg += what.type != H5O_TYPE_GROUP;
	return 0;
}

int h5_data_count(struct h5 *f, int64_t *count, struct err *e)
{
	hid_t group;
	herr_t rc;

	*count = 0;
	if (H5Lexists(f->file, FORMAT_DATA, H5P_DEFAULT) <= 0)
		return 0;
	group = H5Gopen2(f->file, FORMAT_DATA, H5P_DEFAULT);
	if (group < 0)
		return failed(f, "open", FORMAT_DATA, e);
	rc = H5Lvisit(group, H5_INDEX_NAME, H5_ITER_NATIVE, count_one, count);
	H5Gclose(group);
	return rc < 0 ? failed(f, "list", FORMAT_DATA, e) : 0;
}

/* A table is one-dimensional; an empty one has no extent. */
static int table_add(struct h5 *f, const char *name, hid_t type, int64_t n,
		     struct err *e)
{
	hsize_t dim = (hsize_t)n;
	hid_t set = dataset_add(f, name, type, n ? 1 : 0, &dim);

	if (set < 0)
		return failed(f, "create", name, e);
	H5Dclose(set);
	return 0;
}

int h5_rows_add(struct h5 *f, int64_t rows, struct err *e)
{
	return table_add(f, FORMAT_ROWS, f->row, rows, e);
}

typedef herr_t transfer(hid_t set, hid_t type, hid_t memory, hid_t file,
			void *data);

static herr_t do_write(hid_t set, hid_t type, hid_t memory, hid_t file,
		       void *data)
{
	return H5Dwrite(set, type, memory, file, H5P_DEFAULT, data);
}

static herr_t do_read(hid_t set, hid_t type, hid_t memory, hid_t file,
		      void *data)
{
	return H5Dread(set, type, memory, file, H5P_DEFAULT, data);
}

/* Elements FIRST .. FIRST + N of a table to or from DATA. */
static herr_t table_do(hid_t set, hid_t type, int64_t first, int64_t n,
		       transfer *go, void *data)
{
	hsize_t start = (hsize_t)first, count = (hsize_t)n;
	hid_t file = H5Dget_space(set);
	hid_t memory = H5Screate_simple(1, &count, NULL);
	herr_t rc = H5Sselect_hyperslab(file, H5S_SELECT_SET, &start, NULL,
					&count, NULL);

	if (rc >= 0)
		rc = go(set, type, memory, file, data);
	H5Sclose(memory);
	H5Sclose(file);
	return rc;
}

static int rows_do(struct h5 *f, int64_t first, int64_t n, transfer *go,
		   void *rows, const char *what, struct err *e)
{
	hid_t set;
	herr_t rc;

	if (n == 0)
		return 0;
	set = H5Dopen2(f->file, FORMAT_ROWS, H5P_DEFAULT);
	if (set < 0)
		return failed(f, "open", FORMAT_ROWS, e);
	rc = table_do(set, f->row, first, n, go, rows);
	H5Dclose(set);
	return rc < 0 ? failed(f, what, FORMAT_ROWS, e) : 0;
}

int h5_rows_write(struct h5 *f, int64_t first, int64_t n,
		  const struct format_row *rows, struct err *e)
{
	return rows_do(f, first, n, do_write, (void *)(uintptr_t)rows, "write",
		       e);
}

int h5_rows_read(struct h5 *f, int64_t first, int64_t n,
		 struct format_row *rows, struct err *e)
{
	return rows_do(f, first, n, do_read, rows, "read", e);
}

int h5_rows_count(struct h5 *f, int64_t *rows, struct err *e)
{
	hid_t set = H5Dopen2(f->file, FORMAT_ROWS, H5P_DEFAULT), type, space;
	bool same;

	if (set < 0)
		return failed(f, "open", FORMAT_ROWS, e);
	type = H5Dget_type(set);
	space = H5Dget_space(set);
	same = H5Tequal(type, f->row) > 0;
	*rows = H5Sget_simple_extent_npoints(space);
	H5Sclose(space);
	H5Tclose(type);
	H5Dclose(set);
	return same ? 0 : bad(f, FORMAT_ROWS, "rows of another version", e);
}

int h5_files_write(struct h5 *f, int n, const char *names, struct err *e)
{
	hid_t type = text_type(FORMAT_FILE), set;
	int rc = table_add(f, FORMAT_FILES, type, n, e);

	if (!rc && n) {
		set = H5Dopen2(f->file, FORMAT_FILES, H5P_DEFAULT);
		if (table_do(set, type, 0, n, do_write,
			     (void *)(uintptr_t)names) < 0)
			rc = failed(f, "write", FORMAT_FILES, e);
		H5Dclose(set);
	}
	H5Tclose(type);
	return rc;
}

/* Write one attribute of TYPE. */
static int attr_put(struct h5 *f, const char *group, const char *name,
		    hid_t type, const void *value, struct err *e)
{
	char path[FORMAT_PATH];
	hid_t space, attr;
	herr_t rc = -1;

	snprintf(path, sizeof(path), "%s/", group);
	if (groups_add(f, path, e))
		return -1;
	space = H5Screate(H5S_SCALAR);
	attr = H5Acreate_by_name(f->file, group, name, type, space, H5P_DEFAULT,
				 H5P_DEFAULT, H5P_DEFAULT);
	H5Sclose(space);
	if (attr >= 0) {
		rc = H5Awrite(attr, type, value);
		H5Aclose(attr);
	}
	return rc < 0 ? failed(f, "write", name, e) : 0;
}

int h5_text_put(struct h5 *f, const char *group, const char *name,
		const char *text, struct err *e)
{
	size_t len = strlen(text);
	hid_t type = text_type(len ? len : 1);
	int rc = attr_put(f, group, name, type, text, e);

	H5Tclose(type);
	return rc;
}

int h5_int_put(struct h5 *f, const char *group, const char *name, int64_t value,
	       struct err *e)
{
	return attr_put(f, group, name, H5T_STD_I64LE, &value, e);
}

/* The attribute's value if it is of the wanted class, else -1. */
static int attr_read(hid_t attr, H5T_class_t class, size_t size, void *out)
{
	hid_t type = H5Aget_type(attr);
	int rc = -1;

	if (H5Tget_class(type) == class && H5Tget_size(type) == size &&
	    (class != H5T_STRING || !H5Tis_variable_str(type)))
		rc = H5Aread(attr, type, out) < 0 ? -1 : 0;
	H5Tclose(type);
	return rc;
}

int h5_text_get(struct h5 *f, const char *group, const char *name,
		struct arena *a, const char **text, struct err *e)
{
	hid_t attr =
		H5Aopen_by_name(f->file, group, name, H5P_DEFAULT, H5P_DEFAULT);
	hsize_t size;
	char *s;
	int rc;

	if (attr < 0)
		return failed(f, "find", name, e);
	size = H5Aget_storage_size(attr);
	if (size > TEXT_MAX) {
		H5Aclose(attr);
		return bad(f, name, "text too long", e);
	}
	s = arena_alloc(a, size + 1, 1);
	rc = attr_read(attr, H5T_STRING, size, s);
	H5Aclose(attr);
	*text = s;
	return rc ? bad(f, name, "not a text", e) : 0;
}

int h5_int_get(struct h5 *f, const char *group, const char *name,
	       int64_t *value, struct err *e)
{
	hid_t attr =
		H5Aopen_by_name(f->file, group, name, H5P_DEFAULT, H5P_DEFAULT);
	int rc;

	if (attr < 0)
		return failed(f, "find", name, e);
	rc = attr_read(attr, H5T_INTEGER, sizeof(*value), value);
	H5Aclose(attr);
	return rc ? bad(f, name, "not an integer", e) : 0;
}

struct names {
	struct arena *arena;
	const char **list;
	int count;
};

static herr_t add_name(hid_t at, const char *name, const H5A_info_t *info,
		       void *arg)
{
	struct names *n = arg;

	(void)at;
	(void)info;
	if (n->count == ATTRS_MAX)
		return -1;
	n->list[n->count++] = arena_strdup(n->arena, name);
	return 0;
}

int h5_attrs(struct h5 *f, const char *group, struct arena *a,
	     const char ***names, int *count, struct err *e)
{
	struct names n = {.arena = a};

	n.list = arena_alloc(a, ATTRS_MAX, sizeof(*n.list));
	if (H5Aiterate_by_name(f->file, group, H5_INDEX_NAME, H5_ITER_INC, NULL,
			       add_name, &n, H5P_DEFAULT) < 0)
		return failed(f, "list", group, e);
	*names = n.list;
	*count = n.count;
	return 0;
}
