/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/index.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 256 }; /* rows that go through memory at once */

static int by_text(const void *a, const void *b, void *arg)
{
	const struct weights *w = arg;

	return strcmp(w->list[*(const int *)a].name,
		      w->list[*(const int *)b].name);
}

void index_open(struct index *x, const struct weights *w,
		const struct manifest *m, struct arena *a)
{
	*x = (struct index){.weights = w, .manifest = m};
	for (int i = 0; i < m->count; i++)
		x->cap += m->files[i].rows;
	x->list = arena_alloc(a, (size_t)x->cap + 1, sizeof(*x->list));
	x->file_first =
		arena_alloc(a, (size_t)m->count + 1, sizeof(*x->file_first));
	x->by_name = arena_alloc(a, (size_t)w->count + 1, sizeof(*x->by_name));
	for (int i = 0; i < w->count; i++)
		x->by_name[i] = i;
	qsort_r(x->by_name, (size_t)w->count, sizeof(*x->by_name), by_text,
		(void *)(uintptr_t)w);
}

static int find_weight(const struct index *x, const char *name)
{
	int lo = 0, hi = x->weights->count;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2;
		int diff = strcmp(x->weights->list[x->by_name[mid]].name, name);

		if (diff == 0)
			return x->by_name[mid];
		if (diff < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

void index_encode(struct format_row *out, const struct row *row,
		  const struct weight *w)
{
	const struct ckpt_piece *p = &row->piece;

	*out = (struct format_row){
		.lo = p->lo,
		.hi = p->hi,
		.at = row->at,
		.crc = row->crc,
		.replica = (uint32_t)p->replica,
		.role = (uint8_t)p->role,
		.dtype = (uint8_t)p->dtype,
		.ndim = (uint8_t)w->ndim,
	};
	assert(strlen(w->name) < FORMAT_NAME);
	memcpy(out->name, w->name, strlen(w->name));
	for (int i = 0; i < w->ndim; i++) {
		out->shape[i] = w->dim[i];
		out->off[i] = p->box.off[i];
		out->cnt[i] = p->box.cnt[i];
	}
	if (!p->replica)
		out->bytes =
			(p->hi - p->lo) * (int64_t)ckpt_dtype_size(p->dtype);
}

static bool box_ok(const struct format_row *in, const struct weight *w,
		   struct box *box)
{
	*box = (struct box){{0, 0}, {1, 1}};
	if (in->ndim != w->ndim)
		return false;
	for (int i = 0; i < FORMAT_DIMS; i++) {
		bool used = i < w->ndim;

		if (in->shape[i] != (used ? w->dim[i] : 0))
			return false;
		if (!used && (in->off[i] || in->cnt[i]))
			return false;
		if (!used)
			continue;
		if (in->cnt[i] < 1 || in->cnt[i] > w->dim[i] ||
		    in->off[i] < 0 || in->off[i] > w->dim[i] - in->cnt[i])
			return false;
		box->off[i] = in->off[i];
		box->cnt[i] = in->cnt[i];
	}
	return true;
}

/* A row from disk; what is wrong with it, or NULL. */
static const char *decode(const struct index *x, const struct format_row *in,
			  int file, struct row *out)
{
	struct ckpt_piece *p = &out->piece;
	int64_t size = x->manifest->files[file].size, bytes;

	*out = (struct row){.file = file, .crc = in->crc, .at = in->at};
	if (!format_role(in->role) || !format_dtype(in->dtype))
		return "role or dtype unknown";
	p->role = (enum ckpt_role)in->role;
	p->dtype = (enum ckpt_dtype)in->dtype;
	p->weight = find_weight(x, in->name);
	if (p->weight < 0)
		return "the model has no such weight";
	if (!box_ok(in, &x->weights->list[p->weight], &p->box))
		return "its box is not within the weight";
	p->lo = in->lo;
	p->hi = in->hi;
	if (p->lo < 0 || p->lo >= p->hi || p->hi > box_elements(&p->box))
		return "its interval is not within its box";
	if (in->replica > INT16_MAX)
		return "its replica number is wrong";
	p->replica = (int)in->replica;
	bytes = (p->hi - p->lo) * (int64_t)ckpt_dtype_size(p->dtype);
	if (in->bytes != (p->replica ? 0 : bytes))
		return "its bytes are not its elements'";
	if (in->at < 0 || in->at > size - in->bytes)
		return "its bytes are outside the file";
	return NULL;
}

static int add_row(struct index *x, const struct format_row *in, int file,
		   const char *where, struct err *e)
{
	const struct manifest *m = x->manifest;
	const char *why = "more rows than promised";
	char name[FORMAT_NAME];

	memcpy(name, in->name, sizeof(name));
	name[FORMAT_NAME - 1] = 0;
	if (file < 0)
		file = in->file < (uint32_t)m->count ? (int)in->file : -1;
	if (file < 0)
		why = "its file is not in the manifest";
	else if (in->name[FORMAT_NAME - 1])
		why = "its name is too long";
	else if (x->count < x->cap)
		why = decode(x, in, file, &x->list[x->count]);
	if (!why && x->count && x->list[x->count - 1].file > file)
		why = "rows are not in the order of the files";
	if (why)
		return err_set(e, CODE_CKPT, "%s: row %" PRId64 ", '%s': %s",
			       where, x->count, name, why);
	x->count++;
	x->file_first[file + 1] = x->count;
	return 0;
}

/* Rows per file as promised; file_first for those without any. */
static int close_files(struct index *x, struct err *e)
{
	const struct manifest *m = x->manifest;

	for (int i = 0; i < m->count; i++) {
		int64_t first = x->file_first[i];

		if (m->files[i].rows == 0)
			x->file_first[i + 1] = first;
		if (x->file_first[i + 1] - first != m->files[i].rows)
			return err_set(e, CODE_CKPT,
				       "%s: %" PRId64
				       " rows, the manifest says %" PRId64,
				       m->files[i].name,
				       x->file_first[i + 1] - first,
				       m->files[i].rows);
	}
	return 0;
}

int index_read(struct index *x, struct h5 *f, int file, struct err *e)
{
	const struct manifest *m = x->manifest;
	const char *where = file < 0 ? FORMAT_INDEX : m->files[file].name;
	int64_t want = file < 0 ? m->index.rows : m->files[file].rows, rows;
	struct format_row part[PART];

	if (h5_rows_count(f, &rows, e))
		return -1;
	if (rows != want)
		return err_set(e, CODE_CKPT,
			       "%s: %" PRId64
			       " rows, the manifest says %" PRId64,
			       where, rows, want);
	for (int64_t i = 0; i < rows; i += PART) {
		int n = rows - i < PART ? (int)(rows - i) : PART;

		if (h5_rows_read(f, i, n, part, e))
			return -1;
		for (int k = 0; k < n; k++)
			if (add_row(x, &part[k], file, where, e))
				return -1;
	}
	return file < 0 || file == m->count - 1 ? close_files(x, e) : 0;
}

int index_write(const struct index *x, struct h5 *f, struct err *e)
{
	struct format_row part[PART];

	if (h5_rows_add(f, x->count, e))
		return -1;
	for (int64_t i = 0; i < x->count; i += PART) {
		int n = x->count - i < PART ? (int)(x->count - i) : PART;

		for (int k = 0; k < n; k++) {
			const struct row *row = &x->list[i + k];

			index_encode(&part[k], row,
				     &x->weights->list[row->piece.weight]);
			part[k].file = (uint32_t)row->file;
		}
		if (h5_rows_write(f, i, n, part, e))
			return -1;
	}
	return 0;
}

static int sign(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* By weight, role and place; zero if both are the same part of the same. */
static int by_place(const struct ckpt_piece *a, const struct ckpt_piece *b)
{
	int d = sign(a->weight, b->weight);

	if (!d)
		d = sign(a->role, b->role);
	for (int i = 0; i < 2 && !d; i++)
		d = sign(a->box.off[i], b->box.off[i]);
	for (int i = 0; i < 2 && !d; i++)
		d = sign(a->box.cnt[i], b->box.cnt[i]);
	if (!d)
		d = sign(a->lo, b->lo);
	return d ? d : sign(a->hi, b->hi);
}

static int by_row(const void *pa, const void *pb, void *arg)
{
	const struct row *list = arg;
	int a = *(const int *)pa, b = *(const int *)pb;
	int d = by_place(&list[a].piece, &list[b].piece);

	if (!d)
		d = sign(list[a].piece.replica, list[b].piece.replica);
	return d ? d : sign(a, b);
}

void index_sort(struct index *x, struct arena *a)
{
	size_t groups = (size_t)x->weights->count * ROLES;

	x->order = arena_alloc(a, (size_t)x->count + 1, sizeof(*x->order));
	x->group = arena_alloc(a, groups + 1, sizeof(*x->group));
	for (int64_t i = 0; i < x->count; i++) {
		const struct ckpt_piece *p = &x->list[i].piece;

		x->order[i] = (int)i;
		x->group[(size_t)p->weight * ROLES + (size_t)p->role + 1]++;
	}
	for (size_t i = 0; i < groups; i++)
		x->group[i + 1] += x->group[i];
	qsort_r(x->order, (size_t)x->count, sizeof(*x->order), by_row, x->list);
}

void index_range(const struct index *x, int weight, enum ckpt_role role,
		 int64_t *first, int64_t *end)
{
	size_t g = (size_t)weight * ROLES + (size_t)role;

	*first = x->group[g];
	*end = x->group[g + 1];
}

bool index_same_place(const struct ckpt_piece *a, const struct ckpt_piece *b)
{
	return by_place(a, b) == 0;
}

static int by_first(const void *a, const void *b)
{
	return sign(((const struct extent *)a)->first,
		    ((const struct extent *)b)->first);
}

int64_t index_extents(const struct index *x, int file, struct extent *out)
{
	int64_t n = 0;

	for (int64_t i = x->file_first[file]; i < x->file_first[file + 1];
	     i++) {
		const struct row *row = &x->list[i];
		const struct ckpt_piece *p = &row->piece;

		if (p->replica)
			continue;
		out[n].first = row->at;
		out[n++].end =
			row->at +
			(p->hi - p->lo) * (int64_t)ckpt_dtype_size(p->dtype);
	}
	qsort(out, (size_t)n, sizeof(*out), by_first);
	return n;
}
