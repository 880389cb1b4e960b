/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads: from whatever files hold them to where they are wanted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/crc.h"
#include "ckpt/io.h"
#include "ckpt/load.h"
#include "ckpt/number.h"
#include "ckpt/pack.h"
#include "ckpt/plan.h"

/* All of a file that is not payload: headers, attributes, its index. */
static int prove_file(struct ckpt *c, int file, int fd, struct err *e)
{
	const struct manifest_file *f = &c->manifest.files[file];
	struct extent *part = malloc(((size_t)f->rows + 1) * sizeof(*part));
	uint32_t crc = 0;
	int64_t n;
	int rc;

	if (!part)
		return err_set(e, CODE_LAUNCH, "out of memory");
	n = index_extents(&c->index, file, part);
	rc = pack_between(fd, part, n, f->size, f->name, &crc, e);
	free(part);
	if (!rc && crc != f->crc)
		rc = err_set(e, CODE_CKPT,
			     "%s is damaged outside of its payloads: crc "
			     "%08" PRIx32 ", the manifest says %08" PRIx32,
			     f->name, crc, f->crc);
	c->proven[file] = !rc;
	return rc;
}

int load_file(struct ckpt *c, int file, int *fd, struct err *e)
{
	int slot = file % LOAD_FILES;
	const char *name = c->manifest.files[file].name;

	if (c->open[slot].fd < 0 || c->open[slot].file != file) {
		if (c->open[slot].fd >= 0)
			close(c->open[slot].fd);
		c->open[slot].file = file;
		c->open[slot].fd =
			openat(c->folder, name, O_RDONLY | O_CLOEXEC);
		if (c->open[slot].fd < 0)
			return err_sys(e, CODE_CKPT, "cannot open %s", name);
	}
	*fd = c->open[slot].fd;
	return c->proven[file] ? 0 : prove_file(c, file, *fd, e);
}

int load_prove(struct ckpt *c, struct err *e)
{
	int fd;

	for (int i = 0; i < c->manifest.count; i++)
		if (load_file(c, i, &fd, e))
			return err_wrap(e, "checkpoint %s: ", c->dir);
	return 0;
}

static int64_t row_bytes(const struct row *row)
{
	return (row->piece.hi - row->piece.lo) *
	       (int64_t)ckpt_dtype_size(row->piece.dtype);
}

/* Bytes FIRST .. FIRST + N of the row were read: follow its checksum. */
static int follow(struct ckpt *c, int64_t at, int64_t first, int64_t n,
		  const char *data, struct err *e)
{
	const struct row *row = &c->index.list[at];
	struct chain *chain = &c->chain[at];
	int64_t skip = chain->next - first;

	if (skip < 0 || skip >= n)
		return 0;
	chain->crc = crc32c(chain->crc, data + skip, (size_t)(n - skip));
	chain->next = first + n;
	if (chain->next < row_bytes(row) || chain->crc == row->crc)
		return 0;
	return err_set(
		e, CODE_CKPT,
		"%s: %s of %s is damaged: crc %08" PRIx32
		", the index says %08" PRIx32,
		c->manifest.files[row->file].name, format_role(row->piece.role),
		c->weights.list[row->piece.weight].name, chain->crc, row->crc);
}

int load_payload(struct ckpt *c, int64_t at, int64_t first, int64_t n,
		 void *data, struct err *e)
{
	const struct row *row = &c->index.list[at];
	int fd;

	if (load_file(c, row->file, &fd, e) ||
	    io_read(fd, data, (size_t)n, row->at + first,
		    c->manifest.files[row->file].name, e))
		return -1;
	c->bytes_read += n;
	return follow(c, at, first, n, data, e);
}

int load_rest(struct ckpt *c, struct err *e)
{
	for (int64_t i = 0; i < c->index.count; i++) {
		int64_t end = row_bytes(&c->index.list[i]);

		if (c->index.list[i].piece.replica)
			continue;
		while (c->chain[i].next < end) {
			int64_t n = end - c->chain[i].next;

			if (n > LOAD_WINDOW)
				n = LOAD_WINDOW;
			if (load_payload(c, i, c->chain[i].next, n, c->window,
					 e))
				return -1;
		}
	}
	return 0;
}

/* Where a row's elements go. */
struct target {
	int64_t row;
	enum ckpt_dtype from, to;
	int64_t from_size, to_size;
	char *data;
};

/* LEN elements that lie together on both sides. */
static int move_run(struct ckpt *c, const struct target *t, int64_t from,
		    int64_t to, int64_t len, struct err *e)
{
	bool direct = t->from == t->to;

	while (len) {
		int64_t n = LOAD_WINDOW / t->from_size;
		char *at = t->data + to * t->to_size;

		if (n > len)
			n = len;
		if (load_payload(c, t->row, from * t->from_size,
				 n * t->from_size, direct ? at : c->window, e))
			return -1;
		if (!direct)
			number_convert(at, t->to, c->window, t->from, n);
		from += n;
		to += n;
		len -= n;
	}
	return 0;
}

/* Rows that lie close enough to be read with what is between them. */
static int move_rows(struct ckpt *c, const struct target *t, struct move m,
		     int64_t total, int64_t at_once, struct err *e)
{
	while (m.rows) {
		int64_t rows = m.rows < at_once ? m.rows : at_once;
		int64_t n = rows * m.from_step;

		/* To the next row's start, so that no byte is left out. */
		if (n > total - m.from)
			n = total - m.from;
		if (load_payload(c, t->row, m.from * t->from_size,
				 n * t->from_size, c->window, e))
			return -1;
		for (int64_t i = 0; i < rows; i++)
			number_convert(
				t->data + (m.to + i * m.to_step) * t->to_size,
				t->to,
				c->window + i * m.from_step * t->from_size,
				t->from, m.len);
		m.rows -= rows;
		m.from += rows * m.from_step;
		m.to += rows * m.to_step;
	}
	return 0;
}

static int move_do(struct ckpt *c, const struct target *t, const struct move *m,
		   struct err *e)
{
	const struct ckpt_piece *p = &c->index.list[t->row].piece;
	int64_t at_once = LOAD_WINDOW / (m->from_step * t->from_size);

	if (m->rows > 1 && at_once > 0 &&
	    (m->from_step - m->len) * t->from_size <= LOAD_GAP)
		return move_rows(c, t, *m, p->hi - p->lo, at_once, e);
	for (int64_t i = 0; i < m->rows; i++)
		if (move_run(c, t, m->from + i * m->from_step,
			     m->to + i * m->to_step, m->len, e))
			return -1;
	return 0;
}

/* What row AT has of the item; *COUNT += elements. */
static int read_row(struct ckpt *c, int64_t at, const struct ckpt_item *item,
		    int64_t *count, struct err *e)
{
	const struct ckpt_piece *from = &c->index.list[at].piece;
	const struct ckpt_piece *to = &item->piece;
	struct target t = {
		.row = at,
		.from = from->dtype,
		.to = to->dtype,
		.from_size = (int64_t)ckpt_dtype_size(from->dtype),
		.to_size = (int64_t)ckpt_dtype_size(to->dtype),
		.data = item->data,
	};
	struct move m[PLAN_MOVES];
	int n = plan_moves(from, to, m);

	if (n && !number_converts(t.from, t.to))
		return err_set(e, CODE_CKPT, "%s of %s is stored as %s, not %s",
			       format_role(to->role),
			       c->weights.list[to->weight].name,
			       format_dtype(t.from), format_dtype(t.to));
	for (int i = 0; i < n; i++) {
		if (move_do(c, &t, &m[i], e))
			return -1;
		*count += m[i].len * m[i].rows;
	}
	return 0;
}

static int read_item(struct ckpt *c, const struct ckpt_item *item,
		     struct err *e)
{
	const struct ckpt_piece *p = &item->piece;
	int64_t first, end, count = 0;

	if (!c->index.has[p->role])
		return err_set(e, CODE_CKPT,
			       "it has no %s; run.load with run.finetune = "
			       "true takes weights alone",
			       format_role(p->role));
	index_range(&c->index, p->weight, p->role, &first, &end);
	for (int64_t i = first; i < end; i++) {
		int64_t row = c->index.order[i];

		if (!c->index.list[row].piece.replica &&
		    read_row(c, row, item, &count, e))
			return -1;
	}
	if (count != p->hi - p->lo)
		return err_set(e, CODE_CKPT,
			       "%" PRId64 " of %" PRId64
			       " elements of %s of %s are in no file",
			       p->hi - p->lo - count, p->hi - p->lo,
			       format_role(p->role),
			       c->weights.list[p->weight].name);
	return 0;
}

int ckpt_read(struct ckpt *c, const struct weights *w, struct ckpt_item *items,
	      int n, struct err *e)
{
	for (int i = 0; i < n; i++) {
		int weight = items[i].piece.weight;

		if (weight >= c->weights.count ||
		    strcmp(w->list[weight].name, c->weights.list[weight].name))
			return err_set(e, CODE_CKPT,
				       "checkpoint %s has no weight '%s'",
				       c->dir, w->list[weight].name);
		if (read_item(c, &items[i], e))
			return err_wrap(e, "checkpoint %s: ", c->dir);
	}
	return 0;
}

int load_weight(struct ckpt *c, int weight, enum ckpt_role role, int64_t lo,
		int64_t hi, void *data, struct err *e)
{
	const struct weight *w = &c->weights.list[weight];
	struct ckpt_item item = {
		.piece = {.weight = weight,
			  .role = role,
			  .dtype = c->index.dtype[role],
			  .box = {{0, 0}, {w->dim[0], w->dim[1]}},
			  .lo = lo,
			  .hi = hi},
		.data = data,
	};

	return read_item(c, &item, e);
}
