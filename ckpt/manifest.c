/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/manifest.h"

#include <inttypes.h>
#include <libconfig.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/crc.h"
#include "ckpt/io.h"

/* The last line holds the checksum of all before it. */
#define SELF_LINE  "self = \"%08" PRIx32 "\";\n"
#define SELF_BYTES 19

enum { TEXT_MAX = 1 << 28, FILES_MAX = 1 << 20, ROWS_MAX = 1 << 30 };

/* Pieces of text, put one behind the other. */
struct text {
	char *at;
	size_t used, size;
};

static void put(struct text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	t->used +=
		(size_t)vsnprintf(t->at + t->used, t->size - t->used, fmt, ap);
	va_end(ap);
}

static void put_file(struct text *t, const struct manifest_file *f)
{
	put(t,
	    "{ name = \"%s\"; size = %" PRId64 "L; rows = %" PRId64
	    "; crc = \"%08" PRIx32 "\"; }",
	    f->name, f->size, f->rows, f->crc);
}

static void put_all(struct text *t, const struct manifest *m)
{
	put(t,
	    "# A complete checkpoint; see FORMAT.md.\n"
	    "format = %d;\nstep = %" PRId64 ";\nnonce = \"%016" PRIx64
	    "\";\nshape_hash = \"%s\";\nindex = ",
	    FORMAT_VERSION, m->step, m->nonce, m->shape_hash);
	put_file(t, &m->index);
	put(t, ";\nfiles = (");
	for (int i = 0; i < m->count; i++) {
		put(t, i ? ",\n  " : "\n  ");
		put_file(t, &m->files[i]);
	}
	put(t, "\n);\n");
	put(t, SELF_LINE, crc32c(0, t->at, t->used));
}

int manifest_write(const struct manifest *m, const char *dir, struct err *e)
{
	struct arena a = {0};
	struct text t;
	int rc;

	if (arena_open(&a, e))
		return -1;
	t = (struct text){.size = 1024 + 160 * (size_t)m->count};
	t.at = arena_alloc(&a, t.size, 1);
	put_all(&t, m);
	rc = io_write_text(arena_printf(&a, "%s/" FORMAT_MANIFEST, dir), t.at,
			   e);
	arena_close(&a);
	return rc;
}

static int check_self(const char *text, const char *path, struct err *e)
{
	size_t len = strlen(text);
	char want[SELF_BYTES + 1];

	if (len < SELF_BYTES)
		return err_set(e, CODE_CKPT, "%s is cut off", path);
	snprintf(want, sizeof(want), SELF_LINE,
		 crc32c(0, text, len - SELF_BYTES));
	if (strcmp(text + len - SELF_BYTES, want))
		return err_set(e, CODE_CKPT,
			       "%s is damaged: its checksum is not its text's",
			       path);
	return 0;
}

static int get_hex(const config_setting_t *s, const char *name, int digits,
		   uint64_t *out)
{
	const char *text;
	char *end;

	if (!config_setting_lookup_string(s, name, &text) ||
	    (int)strlen(text) != digits)
		return -1;
	*out = strtoull(text, &end, 16);
	return *end ? -1 : 0;
}

static int get_int(const config_setting_t *s, const char *name, int64_t max,
		   int64_t *out)
{
	long long n;

	if (!config_setting_lookup_int64(s, name, &n) || n < 0 || n > max)
		return -1;
	*out = n;
	return 0;
}

static int get_file(const config_setting_t *s, struct manifest_file *f)
{
	const char *name;
	uint64_t crc;

	if (!s || !config_setting_lookup_string(s, "name", &name) ||
	    !format_file_ok(name) ||
	    get_int(s, "size", INT64_MAX / 2, &f->size) ||
	    get_int(s, "rows", ROWS_MAX, &f->rows) ||
	    get_hex(s, "crc", 8, &crc))
		return -1;
	memcpy(f->name, name, strlen(name) + 1);
	f->crc = (uint32_t)crc;
	return 0;
}

static int get_files(const config_setting_t *s, struct manifest *m,
		     struct arena *a)
{
	int n = s ? config_setting_length(s) : -1;
	int64_t rows = 0;

	if (n < 0 || n > FILES_MAX)
		return -1;
	m->files = arena_alloc(a, (size_t)n + 1, sizeof(*m->files));
	for (m->count = 0; m->count < n; m->count++) {
		struct manifest_file *f = &m->files[m->count];

		if (get_file(config_setting_get_elem(s, (unsigned)m->count), f))
			return -1;
		/* Sorted, hence each once. */
		if (m->count && strcmp(f[-1].name, f->name) >= 0)
			return -1;
		rows += f->rows;
	}
	return rows == m->index.rows ? 0 : -1;
}

static int get_all(const config_t *c, struct manifest *m, struct arena *a,
		   const char *path, struct err *e)
{
	const config_setting_t *top = config_root_setting(c);
	const char *hash;
	int64_t version;

	if (get_int(top, "format", INT32_MAX, &version))
		return err_set(e, CODE_CKPT, "%s: no format number", path);
	if (version != FORMAT_VERSION)
		return err_set(e, CODE_CKPT,
			       "%s: format %" PRId64 ", this program reads %d",
			       path, version, FORMAT_VERSION);
	if (get_int(top, "step", FORMAT_STEP_MAX, &m->step) ||
	    get_hex(top, "nonce", 16, &m->nonce) ||
	    !config_setting_lookup_string(top, "shape_hash", &hash) ||
	    strlen(hash) != 32)
		return err_set(e, CODE_CKPT, "%s: no step, nonce or shape_hash",
			       path);
	memcpy(m->shape_hash, hash, 33);
	if (get_file(config_setting_get_member(top, "index"), &m->index) ||
	    m->index.rows >
		    m->index.size / (int64_t)sizeof(struct format_row) ||
	    get_files(config_setting_get_member(top, "files"), m, a))
		return err_set(e, CODE_CKPT, "%s: its list of files is wrong",
			       path);
	return 0;
}

int manifest_read(struct manifest *m, const char *dir, struct arena *a,
		  struct err *e)
{
	const char *path = arena_printf(a, "%s/" FORMAT_MANIFEST, dir);
	char *text;
	config_t c;
	int rc;

	memset(m, 0, sizeof(*m));
	if (io_read_text(path, TEXT_MAX, a, &text, e) ||
	    check_self(text, path, e))
		return -1;
	config_init(&c);
	if (config_read_string(&c, text) == CONFIG_TRUE)
		rc = get_all(&c, m, a, path, e);
	else
		rc = err_set(e, CODE_CKPT, "%s:%d: %s", path,
			     config_error_line(&c), config_error_text(&c));
	config_destroy(&c);
	return rc;
}
