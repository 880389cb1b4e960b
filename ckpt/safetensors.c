/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/io.h"

static const struct {
	const char *name;
	int64_t bytes;
} dtypes[] = {
	{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
	{"U64", 8}, {"I32", 4}, {"U32", 4},  {"I16", 2},     {"U16", 2},
	{"I8", 1},  {"U8", 1},	{"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

const char *safe_shape(const int64_t *dim, int ndim, struct arena *a)
{
	const char *text = "(";

	for (int i = 0; i < ndim; i++)
		text = arena_printf(a, "%s%s%" PRId64, text, i ? ", " : "",
				    dim[i]);
	return arena_printf(a, "%s)", text);
}

const char *safe_shard(int nth, int count, struct arena *a)
{
	if (count == 1)
		return SAFE_FILE;
	return arena_printf(a, "model-%05d-of-%05d.safetensors", nth + 1,
			    count);
}

/* What is being read: one header. */
struct header {
	struct safe *s;
	const char *path;
	int file;
	size_t first;	    /* of its tensors in the list */
	int64_t data, size; /* where payloads begin, of the file */
};

/* A list of at most MAX integers from 0 on. */
static int read_ints(json_t *list, int64_t *out, int max)
{
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > (size_t)max)
		return -1;
	for (size_t i = 0; i < n; i++) {
		json_t *one = json_array_get(list, i);

		out[i] = json_integer_value(one);
		if (!json_is_integer(one) || out[i] < 0)
			return -1;
	}
	return (int)n;
}

/* Bytes of a tensor of this type and shape, or -1: there is no such. */
static int64_t count_bytes(const struct safe_tensor *t)
{
	int64_t n = -1;

	for (size_t i = 0; t->dtype && i < sizeof(dtypes) / sizeof(*dtypes);
	     i++)
		if (!strcmp(dtypes[i].name, t->dtype))
			n = dtypes[i].bytes;
	for (int i = 0; n >= 0 && i < t->ndim; i++)
		if (__builtin_mul_overflow(n, t->dim[i], &n))
			n = -1;
	return n;
}

static bool is_printable(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == 0x7f)
			return false;
	return true;
}

static int read_tensor(struct header *h, const char *name, json_t *value,
		       struct err *e)
{
	struct safe *s = h->s;
	const char *dtype = json_string_value(json_object_get(value, "dtype"));
	struct safe_tensor t = {.file = h->file};
	int64_t part[2];

	if (!is_printable(name))
		return err_set(e, CODE_CKPT,
			       "%s: a tensor's name has a control character",
			       h->path);
	t.name = arena_strdup(s->arena, name);
	t.dtype = dtype ? arena_strdup(s->arena, dtype) : NULL;
	t.ndim = read_ints(json_object_get(value, "shape"), t.dim, SAFE_DIMS);
	if (!dtype || t.ndim < 0 ||
	    read_ints(json_object_get(value, "data_offsets"), part, 2) != 2)
		return err_set(e, CODE_CKPT,
			       "%s: tensor '%.100s' wants a dtype, a shape of "
			       "at most %d sizes and two data_offsets",
			       h->path, name, SAFE_DIMS);
	t.bytes = count_bytes(&t);
	if (t.bytes < 0)
		return err_set(
			e, CODE_CKPT,
			"%s: tensor '%.100s' of type %.20s, shape %.100s "
			"is none that is known",
			h->path, name, t.dtype,
			safe_shape(t.dim, t.ndim, s->arena));
	if (part[1] < part[0] || part[1] - part[0] != t.bytes ||
	    part[1] > h->size - h->data)
		return err_set(e, CODE_CKPT,
			       "%s: tensor '%.100s' needs %" PRId64
			       " bytes, its offsets are %" PRId64 " .. %" PRId64
			       " of %" PRId64,
			       h->path, name, t.bytes, part[0], part[1],
			       h->size - h->data);
	t.at = h->data + part[0];
	s->list = arena_grow(s->arena, s->list, s->count, &s->cap,
			     sizeof(*s->list));
	s->list[s->count++] = t;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct safe_tensor *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The payloads lie one behind the other, from the first byte to the last. */
static int check_places(struct header *h, struct err *e)
{
	struct safe *s = h->s;
	int64_t at = h->data;

	if (s->count > h->first)
		qsort(s->list + h->first, s->count - h->first, sizeof(*s->list),
		      by_place);
	for (size_t i = h->first; i < s->count; i++) {
		const struct safe_tensor *t = &s->list[i];

		if (t->at != at)
			return err_set(e, CODE_CKPT,
				       "%s: tensor '%.100s' begins at byte "
				       "%" PRId64 ", the one before ends at "
				       "%" PRId64 ": %s",
				       h->path, t->name, t->at, at,
				       t->at < at ? "they overlap" : "a hole");
		at += t->bytes;
	}
	if (at != h->size)
		return err_set(e, CODE_CKPT,
			       "%s: %" PRId64 " bytes behind the last tensor",
			       h->path, h->size - at);
	return 0;
}

static int read_tensors(struct header *h, const char *text, size_t len,
			struct err *e)
{
	json_error_t why;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	json_t *value;
	const char *name;
	int rc = 0;

	if (!json_is_object(root))
		rc = err_set(e, CODE_CKPT, "%s: the header is no object: %s",
			     h->path, root ? "another value" : why.text);
	json_object_foreach(root, name,
			    value) if (!rc && strcmp(name, "__metadata__") != 0)
		rc = read_tensor(h, name, value, e);
	json_decref(root);
	return rc ? rc : check_places(h, e);
}

static int read_header(struct header *h, int fd, struct err *e)
{
	unsigned char bytes[8];
	uint64_t len = 0;
	char *text;
	int rc;

	if (h->size < 8)
		return err_set(e, CODE_CKPT,
			       "%s: %" PRId64 " bytes are no safetensors file",
			       h->path, h->size);
	if (io_read(fd, bytes, 8, 0, h->path, e))
		return -1;
	for (int i = 7; i >= 0; i--)
		len = len << 8 | bytes[i];
	if (len > SAFE_HEADER_MAX || len > (uint64_t)h->size - 8)
		return err_set(e, CODE_CKPT,
			       "%s: a header of %" PRIu64
			       " bytes, in a file of "
			       "%" PRId64 " and at most %d",
			       h->path, len, h->size, SAFE_HEADER_MAX);
	text = malloc((size_t)len + 1);
	if (!text)
		return err_set(e, CODE_LAUNCH, "out of memory");
	h->data = 8 + (int64_t)len;
	rc = io_read(fd, text, (size_t)len, 8, h->path, e);
	if (!rc)
		rc = read_tensors(h, text, (size_t)len, e);
	free(text);
	return rc;
}

static int open_file(struct safe *s, int file, int *fd, struct err *e)
{
	int slot = file % SAFE_OPEN;

	if (s->open[slot].fd >= 0 && s->open[slot].file != file) {
		close(s->open[slot].fd);
		s->open[slot].fd = -1;
	}
	if (s->open[slot].fd < 0) {
		s->open[slot].file = file;
		s->open[slot].fd = open(
			arena_printf(s->arena, "%s/%s", s->dir, s->file[file]),
			O_RDONLY | O_CLOEXEC);
	}
	*fd = s->open[slot].fd;
	return *fd < 0 ? err_sys(e, errno == ENOENT ? CODE_CKPT : CODE_USAGE,
				 "cannot open %s/%s", s->dir, s->file[file])
		       : 0;
}

static int add_file(struct safe *s, const char *name, struct err *e)
{
	struct header h = {.s = s, .file = s->files, .first = s->count};
	struct stat st;
	int fd;

	h.path = arena_printf(s->arena, "%s/%s", s->dir, name);
	s->file[s->files++] = name;
	if (open_file(s, h.file, &fd, e))
		return -1;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return err_set(e, CODE_USAGE, "%s is not a file", h.path);
	h.size = st.st_size;
	return read_header(&h, fd, e);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct safe_tensor *)a)->name,
		      ((const struct safe_tensor *)b)->name);
}

static int sort(struct safe *s, struct err *e)
{
	if (s->count)
		qsort(s->list, s->count, sizeof(*s->list), by_name);
	for (size_t i = 1; i < s->count; i++)
		if (!strcmp(s->list[i - 1].name, s->list[i].name))
			return err_set(e, CODE_CKPT,
				       "%s: tensor '%.100s' is in %s and in %s",
				       s->dir, s->list[i].name,
				       s->file[s->list[i - 1].file],
				       s->file[s->list[i].file]);
	return 0;
}

static bool is_file_name(const char *name)
{
	return *name && *name != '.' && !strchr(name, '/') &&
	       is_printable(name) && strlen(name) < 200;
}

/* NAME's place in the files, which is added if it is new. */
static int find_file(struct safe *s, const char *name, struct err *e)
{
	for (int i = 0; i < s->files; i++)
		if (!strcmp(s->file[i], name))
			return 0;
	return add_file(s, arena_strdup(s->arena, name), e);
}

/* Every tensor is where the index says, and in it. */
static int check_map(struct safe *s, json_t *map, struct err *e)
{
	const char *name;
	json_t *file;

	json_object_foreach(map, name, file)
	{
		const struct safe_tensor *t = safe_find(s, name);

		if (!t || strcmp(s->file[t->file], json_string_value(file)))
			return err_set(e, CODE_CKPT,
				       "%s/" SAFE_INDEX ": tensor '%.100s' is "
				       "not in %.200s",
				       s->dir, name, json_string_value(file));
	}
	for (size_t i = 0; i < s->count; i++)
		if (!json_object_get(map, s->list[i].name))
			return err_set(
				e, CODE_CKPT,
				"%s/%s: tensor '%.100s' is not in " SAFE_INDEX,
				s->dir, s->file[s->list[i].file],
				s->list[i].name);
	return 0;
}

static int read_map(struct safe *s, json_t *map, struct err *e)
{
	const char *name;
	json_t *file;

	if (!json_object_size(map))
		return err_set(e, CODE_CKPT, "%s/" SAFE_INDEX ": no weight_map",
			       s->dir);
	s->file =
		arena_alloc(s->arena, json_object_size(map), sizeof(*s->file));
	json_object_foreach(map, name, file)
	{
		if (!json_is_string(file) ||
		    !is_file_name(json_string_value(file)))
			return err_set(e, CODE_CKPT,
				       "%s/" SAFE_INDEX ": tensor '%.100s' "
				       "wants the name of a file in the same "
				       "folder",
				       s->dir, name);
		if (find_file(s, json_string_value(file), e))
			return -1;
	}
	return sort(s, e) ? -1 : check_map(s, map, e);
}

static int open_index(struct safe *s, const char *path, struct err *e)
{
	json_error_t why;
	char *text;
	json_t *root;
	int rc;

	if (io_read_text(path, SAFE_HEADER_MAX, s->arena, &text, e))
		return -1;
	root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	if (root)
		rc = read_map(s, json_object_get(root, "weight_map"), e);
	else
		rc = err_set(e, CODE_CKPT, "%s:%d: %s", path, why.line,
			     why.text);
	json_decref(root);
	return rc;
}

int safe_open(struct safe *s, const char *dir, struct arena *a, struct err *e)
{
	const char *index = arena_printf(a, "%s/" SAFE_INDEX, dir);

	*s = (struct safe){.dir = dir, .arena = a};
	for (int i = 0; i < SAFE_OPEN; i++)
		s->open[i].fd = -1;
	if (!access(index, F_OK))
		return open_index(s, index, e);
	if (access(arena_printf(a, "%s/" SAFE_FILE, dir), F_OK))
		return err_set(e, CODE_USAGE,
			       "%s has neither " SAFE_FILE " nor " SAFE_INDEX
			       " (other formats hold programs and are not "
			       "read)",
			       dir);
	s->file = arena_alloc(a, 1, sizeof(*s->file));
	return add_file(s, SAFE_FILE, e) ? -1 : sort(s, e);
}

void safe_close(struct safe *s)
{
	for (int i = 0; i < SAFE_OPEN; i++)
		if (s->open[i].fd >= 0)
			close(s->open[i].fd);
}

const struct safe_tensor *safe_find(const struct safe *s, const char *name)
{
	struct safe_tensor key = {.name = name};

	if (!s->count)
		return NULL;
	return bsearch(&key, s->list, s->count, sizeof(key), by_name);
}

int safe_read(struct safe *s, const struct safe_tensor *t, int64_t first,
	      size_t n, void *data, struct err *e)
{
	int fd;

	if (open_file(s, t->file, &fd, e))
		return -1;
	return io_read(fd, data, n, t->at + first, s->file[t->file], e);
}
