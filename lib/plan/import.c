/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/plan/import.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/utf8.h"
#include "lib/plan/conf_read.h"
#include "lib/plan/grid.h"
#include "lib/plan/grid_rule.h"
#include "lib/plan/import_hf.h"
#include "lib/plan/import_megatron.h"

static int unreadable(struct import *im, int line, const char *what)
{
	struct origin at = {.file = im->file, .line = line};

	report_add(im->report, "conf-unreadable", ERROR, "", &at, "%s", what);
	if (line)
		return err_set(im->err, CODE_USAGE, "%s:%d: %s", im->file, line,
			       what);
	return err_set(im->err, CODE_USAGE, "%s: %s", im->file, what);
}

static int check_bytes(struct import *im, const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + len;
	int line = 1;
	size_t n;

	for (; p < end; p += n) {
		n = utf8_length(p, end);
		if (!*p)
			return unreadable(im, line,
					  "a NUL byte: this is no text");
		if (!n)
			return unreadable(im, line,
					  "a byte that is no UTF-8: save the "
					  "file as UTF-8");
		line += *p == '\n';
	}
	return 0;
}

static int read_text(struct import *im, struct conf_file *f)
{
	const char *mark;

	if (conf_open(f, im->file))
		return unreadable(im, 0,
				  arena_printf(im->arena, "cannot read it: %s",
					       strerror(errno)));
	if (conf_read(f, CONF_BYTES_MAX, im->arena))
		return unreadable(
			im, 0,
			arena_printf(im->arena, "cannot read it: %s",
				     errno == EFBIG
					     ? "it is longer than 1 MiB, or it "
					       "grew meanwhile"
					     : strerror(errno)));
	mark = conf_mark(f->text, f->len);
	if (mark)
		return unreadable(
			im, 1, arena_printf(im->arena, "begins with %s", mark));
	return check_bytes(im, f->text, f->len);
}

int import_read(struct import *im, enum config_format format)
{
	struct conf_file f;
	int bad;

	if (read_text(im, &f))
		return -1;
	bad = format == CONFIG_HF     ? import_hf(im, f.text, f.len)
	      : format == CONFIG_VLLM ? import_vllm(im, f.text, f.len)
				      : import_megatron(im, f.text, f.len);
	if (im->ignored.count)
		report_add(im->report, "import-ignored", NOTE, "",
			   &im->ignored.first,
			   "%d %s%s of logs, paths, files and services %s "
			   "left out: %s",
			   im->ignored.count,
			   format == CONFIG_HF ? "key" : "flag",
			   plural(im->ignored.count),
			   im->ignored.count == 1 ? "is" : "are",
			   im->ignored.text);
	return bad;
}

int import_load(struct conf_text *t, enum config_format format,
		const char *file, struct arena *a, struct config *c,
		struct report *r, struct err *e)
{
	struct import im = {
		.arena = a, .report = r, .err = e, .file = file, .config = c};

	if (import_read(&im, format))
		return -1;
	import_text(&im, t);
	return 0;
}

void import_excuse_vocab(struct config *c, struct report *r)
{
	struct origin *from =
		field_origin(&shape_group, &c->shape, &c->shape.vocab_size);

	if (IS_SET(c->shape.vocab_size) || from->kind == ORIGIN_GIVEN)
		return;
	report_add(r, "import-vocab", NOTE, "shape.vocab_size", NULL,
		   "the vocabulary is the tokenizer's and not known here: no "
		   "parameters, no padding, no hash, no memory");
	report_suggest(r, "--vocab-size N");
	/* Whoever asks for it need not ask again. */
	from->kind = ORIGIN_GIVEN;
	from->file = "the tokenizer";
}

void import_say_length(const struct config *c, struct report *r)
{
	const struct shape *s = &c->shape;

	if (field_from(&shape_group, s, &s->seq_length)->kind != ORIGIN_DEFAULT)
		return;
	report_add(r, "import-length", NOTE, "shape.seq_length", NULL,
		   "samples of %" PRId64
		   " tokens are assumed: a config.json does not say how the "
		   "model is trained",
		   s->seq_length);
	report_suggest(r, "--set shape.seq_length=N");
}

static int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Whether the batch is a whole number of micro-batches for every rank. */
static bool batch_fits(const struct run *run, int64_t dp)
{
	if (!IS_SET(run->global_batch_size) || !IS_SET(run->micro_batch_size))
		return true;
	return run->global_batch_size / run->micro_batch_size >= dp &&
	       run->global_batch_size % (run->micro_batch_size * dp) == 0;
}

int64_t import_world(struct config *c, struct report *r)
{
	int64_t dense = grid_dense_ranks(&c->place);
	int64_t expert = grid_expert_ranks(&c->place), unit, world;
	struct grid g;
	struct err e;

	if (dense > GRID_WORLD_MAX || expert > GRID_WORLD_MAX)
		return 0;
	unit = dense / common_divisor(dense, expert) * expert;
	for (world = unit; world <= GRID_WORLD_MAX; world += unit)
		if (!grid_build(&g, &c->place, world, &e) &&
		    batch_fits(&c->run, g.dp))
			break;
	if (world > GRID_WORLD_MAX)
		world = grid_build(&g, &c->place, unit, &e) ? 0 : unit;
	if (world)
		report_add(r, "import-world", NOTE, "", NULL,
			   "world %" PRId64 " is assumed, the smallest that "
			   "fits; --world says another",
			   world);
	return world;
}
