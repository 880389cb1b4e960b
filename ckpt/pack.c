/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/crc.h"
#include "ckpt/io.h"

struct pack {
	struct arena arena;
	const char *path, *name;
	const struct weights *weights;
	const struct ckpt_item *items;
	struct format_row *rows;
	int n;
	struct h5 *h5;
	int fd;
	int64_t started; /* bytes whose writing to the disk has begun */
};

static int64_t piece_bytes(const struct ckpt_piece *p)
{
	return p->replica
		       ? 0
		       : (p->hi - p->lo) * (int64_t)ckpt_dtype_size(p->dtype);
}

int64_t pack_bytes(const struct ckpt_item *items, int n)
{
	int64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += piece_bytes(&items[i].piece);
	return sum;
}

/* Earlier pieces of the same weight and role in this file. */
static int count_before(const struct pack *p, int i)
{
	const struct ckpt_piece *me = &p->items[i].piece;
	int nth = 0;

	for (int k = i - 1; k >= 0; k--) {
		const struct ckpt_piece *it = &p->items[k].piece;

		nth += it->weight == me->weight && it->role == me->role &&
		       !it->replica;
	}
	return nth;
}

/* A whole box keeps its dims, an interval of one is flat. */
static void describe(const struct ckpt_piece *p, const struct weight *w,
		     struct h5_data *out)
{
	*out = (struct h5_data){.dtype = p->dtype, .ndim = 1};
	out->dim[0] = p->hi - p->lo;
	if (p->hi - p->lo != box_elements(&p->box))
		return;
	out->ndim = w->ndim;
	for (int i = 0; i < w->ndim; i++)
		out->dim[i] = p->box.cnt[i];
}

/* Create what the file will hold; the payloads have their places then. */
static int create(struct pack *p, const struct head *h, struct err *e)
{
	char path[FORMAT_PATH];
	struct h5_data data;

	if (h5_create(&p->h5, p->path, e) || head_write(h, p->h5, p->name, e))
		return -1;
	for (int i = 0; i < p->n; i++) {
		const struct ckpt_piece *it = &p->items[i].piece;
		const struct weight *w = &p->weights->list[it->weight];
		struct row row = {.piece = *it};

		if (!it->replica) {
			describe(it, w, &data);
			format_path(path, it->role, w->name,
				    count_before(p, i));
			if (h5_data_add(p->h5, path, &data, e))
				return -1;
			row.at = data.at;
		}
		index_encode(&p->rows[i], &row, w);
	}
	return h5_rows_add(p->h5, p->n, e);
}

static int open_payloads(struct pack *p, struct err *e)
{
	int64_t end = 0;

	p->fd = open(p->path, O_RDWR | O_CLOEXEC);
	if (p->fd < 0)
		return io_failed("open", p->path, e);
	for (int i = 0; i < p->n; i++)
		if (p->rows[i].bytes && p->rows[i].at + p->rows[i].bytes > end)
			end = p->rows[i].at + p->rows[i].bytes;
	return io_reserve(p->fd, end, p->path, e);
}

static int write_payload(struct pack *p, int i, const struct feed *feed,
			 struct err *e)
{
	const struct ckpt_item *item = &p->items[i];
	struct format_row *row = &p->rows[i];
	int64_t size = (int64_t)ckpt_dtype_size(item->piece.dtype);
	int64_t total = item->piece.hi - item->piece.lo;

	for (int64_t at = 0; at < total;) {
		int64_t n = PACK_BYTES / size;
		const void *data;

		if (n > total - at)
			n = total - at;
		if (feed->get(feed->arg, item, at, n, &data, e))
			return -1;
		row->crc = crc32c(row->crc, data, (size_t)(n * size));
		if (row->bytes && io_write(p->fd, data, (size_t)(n * size),
					   row->at + at * size, p->path, e))
			return -1;
		at += n;
		if (row->bytes)
			io_start(p->fd, &p->started, row->at + at * size);
	}
	return 0;
}

int pack_between(int fd, const struct extent *part, int64_t n, int64_t size,
		 const char *path, uint32_t *crc, struct err *e)
{
	int64_t at = 0;

	*crc = 0;
	for (int64_t i = 0; i <= n; i++) {
		int64_t end = i < n ? part[i].first : size;

		if (end < at || end > size)
			return err_set(e, CODE_CKPT,
				       "%s: payloads overlap or end behind the "
				       "file",
				       path);
		if (io_checksum(fd, at, end - at, path, crc, e))
			return -1;
		if (i < n)
			at = part[i].end;
	}
	return 0;
}

static int by_first(const void *a, const void *b)
{
	int64_t x = ((const struct extent *)a)->first;
	int64_t y = ((const struct extent *)b)->first;

	return (x > y) - (x < y);
}

/* Size and checksum of the finished file. */
static int describe_file(struct pack *p, struct manifest_file *out,
			 struct err *e)
{
	struct extent *part =
		arena_alloc(&p->arena, (size_t)p->n + 1, sizeof(*part));
	struct stat st;
	int64_t n = 0;

	if (fstat(p->fd, &st))
		return io_failed("read", p->path, e);
	for (int i = 0; i < p->n; i++)
		if (p->rows[i].bytes)
			part[n++] = (struct extent){p->rows[i].at,
						    p->rows[i].at +
							    p->rows[i].bytes};
	qsort(part, (size_t)n, sizeof(*part), by_first);
	memset(out, 0, sizeof(*out));
	memcpy(out->name, p->name, strlen(p->name) + 1);
	out->size = st.st_size;
	out->rows = p->n;
	return pack_between(p->fd, part, n, st.st_size, p->path, &out->crc, e);
}

static int write_all(struct pack *p, const struct head *h,
		     const struct feed *feed, struct manifest_file *out,
		     struct err *e)
{
	if (create(p, h, e) || open_payloads(p, e))
		return -1;
	for (int i = 0; i < p->n; i++)
		if (write_payload(p, i, feed, e))
			return -1;
	if (h5_rows_write(p->h5, 0, p->n, p->rows, e) || h5_finish(p->h5, e))
		return -1;
	if (describe_file(p, out, e))
		return -1;
	return fsync(p->fd) ? io_failed("sync", p->path, e) : 0;
}

int pack_write(const char *dir, const char *name, const struct head *h,
	       const struct weights *w, const struct ckpt_item *items, int n,
	       const struct feed *feed, struct manifest_file *out,
	       struct err *e)
{
	struct pack p = {
		.name = name, .weights = w, .items = items, .n = n, .fd = -1};
	int rc;

	if (arena_open(&p.arena, e))
		return -1;
	p.path = arena_printf(&p.arena, "%s/%s", dir, name);
	p.rows = arena_alloc(&p.arena, (size_t)n + 1, sizeof(*p.rows));
	rc = write_all(&p, h, feed, out, e);
	h5_close(p.h5);
	if (p.fd >= 0)
		close(p.fd);
	arena_close(&p.arena);
	return rc;
}
