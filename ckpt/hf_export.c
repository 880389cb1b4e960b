/* SPDX-License-Identifier: Apache-2.0 */
/* From a checkpoint to safetensors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/hf.h"
#include "ckpt/io.h"
#include "ckpt/pack.h"
#include "ckpt/safetensors.h"
#include "lib/base/sys.h"

/* Inputs FIRST .. END of a tensor that is turned. */
struct stripe {
	int tensor;
	int64_t first, end;
	char *data;
};

struct exporter {
	struct arena arena;
	struct ckpt *c;
	const char *temp;
	enum ckpt_dtype type;
	int64_t size; /* of an element */
	struct hf_map map;
	int *shard_first; /* the first tensor of each file, and the end */
	int shards;
	char *out, *raw;
	struct stripe stripe;
	const struct ckpt_watch *watch;
	int64_t done, total;
};

static int64_t tensor_bytes(const struct exporter *x, int i)
{
	return x->map.tensor[i].outs * x->map.tensor[i].ins * x->size;
}

/* Tensors one behind the other until a file would be more than SHARD. */
static void deal(struct exporter *x, int64_t shard)
{
	int n = x->map.tensors;
	int64_t bytes = 0;

	x->shard_first =
		arena_alloc(&x->arena, (size_t)n + 1, sizeof(*x->shard_first));
	for (int i = 0; i < n; i++) {
		int64_t next = tensor_bytes(x, i);

		if (i == 0 || bytes + next > shard) {
			x->shard_first[x->shards++] = i;
			bytes = 0;
		}
		bytes += next;
		x->total += next;
	}
	x->shard_first[x->shards] = n;
}

/* What piece P has of elements LO .. HI of a tensor COLS wide. */
static int read_piece(struct exporter *x, const struct hf_piece *p, int weight,
		      int64_t cols, int64_t lo, int64_t hi, struct err *e)
{
	int64_t len = p->step == 1 ? p->rows : 1;

	for (int64_t i = 0; i < p->rows; i += len) {
		int64_t from = (p->at + i) * cols, end = from + len * cols;
		int64_t shift = (p->row + i * p->step - p->at - i) * cols;

		if (from < lo)
			from = lo;
		if (end > hi)
			end = hi;
		if (from < end &&
		    load_weight(x->c, weight, ROLE_PARAM, from + shift,
				end + shift, x->out + (from - lo) * x->size, e))
			return -1;
	}
	return 0;
}

/* Our rows ROW .. ROW + N of the stripe's inputs, into RAW. */
static int read_box(struct exporter *x, const struct hf_tensor *t, int64_t row,
		    int64_t n, struct err *e)
{
	int64_t ins = x->stripe.end - x->stripe.first;
	struct ckpt_item item = {
		.piece = {.weight = t->weight,
			  .role = ROLE_PARAM,
			  .dtype = x->type,
			  .box = {{row, x->stripe.first}, {n, ins}},
			  .hi = n * ins},
		.data = x->raw,
	};

	return ckpt_read(x->c, &x->c->weights, &item, 1, e);
}

/* All that piece P has of the stripe. */
static int turn_piece(struct exporter *x, const struct hf_tensor *t,
		      const struct hf_piece *p, struct err *e)
{
	const struct stripe *s = &x->stripe;
	int64_t ins = s->end - s->first, rows = PACK_BYTES / (ins * x->size);

	if (p->step > 1 || rows < 1)
		rows = 1;
	for (int64_t i = 0; i < p->rows; i += rows) {
		int64_t n = p->rows - i < rows ? p->rows - i : rows;

		if (read_box(x, t, p->row + i * p->step, n, e))
			return -1;
		for (int64_t j = 0; j < n; j++)
			hf_turn(s->data + (p->at + i + j) * x->size, t->outs,
				x->raw + j * ins * x->size, 1, ins,
				(size_t)x->size);
	}
	return 0;
}

static int load_stripe(struct exporter *x, int tensor, int64_t first,
		       struct err *e)
{
	const struct hf_tensor *t = &x->map.tensor[tensor];
	struct stripe *s = &x->stripe;
	int64_t rows = HF_STRIPE / (t->outs * x->size);

	if (!s->data)
		s->data = arena_alloc(&x->arena, HF_STRIPE, 1);
	s->tensor = tensor;
	s->first = first;
	s->end = first + rows < t->ins ? first + rows : t->ins;
	for (int64_t k = t->first; k < t->end; k++)
		if (turn_piece(x, t, &x->map.piece[k], e))
			return -1;
	return 0;
}

/* *DATA = elements from LO on of a tensor, at most *N of them. */
static int read_turned(struct exporter *x, int tensor, int64_t lo, int64_t *n,
		       const char **data, struct err *e)
{
	int64_t outs = x->map.tensor[tensor].outs, row = lo / outs;
	struct stripe *s = &x->stripe;

	if (s->tensor != tensor || row < s->first || row >= s->end)
		if (load_stripe(x, tensor, row, e))
			return -1;
	if (*n > s->end * outs - lo)
		*n = s->end * outs - lo;
	*data = s->data + (lo - s->first * outs) * x->size;
	return 0;
}

static int read_part(struct exporter *x, int tensor, int64_t lo, int64_t *n,
		     const char **data, struct err *e)
{
	const struct hf_tensor *t = &x->map.tensor[tensor];
	int rc = 0;

	if (t->turned)
		return read_turned(x, tensor, lo, n, data, e);
	*data = x->out;
	for (int64_t i = t->first; !rc && i < t->end; i++)
		rc = read_piece(x, &x->map.piece[i], t->weight, t->ins, lo,
				lo + *n, e);
	return rc;
}

/* A file that is being written. */
struct file {
	const char *path;
	int fd;
	int64_t at, started;
};

static int write_tensor(struct exporter *x, struct file *f, int tensor,
			struct err *e)
{
	int64_t end = tensor_bytes(x, tensor) / x->size, n;

	for (int64_t lo = 0; lo < end; lo += n) {
		const char *data;

		n = PACK_BYTES / x->size < end - lo ? PACK_BYTES / x->size
						    : end - lo;
		if (read_part(x, tensor, lo, &n, &data, e) ||
		    io_write(f->fd, data, (size_t)(n * x->size), f->at, f->path,
			     e))
			return -1;
		f->at += n * x->size;
		x->done += n * x->size;
		io_start(f->fd, &f->started, f->at);
		if (ckpt_tick(x->watch, x->done, x->total, e))
			return -1;
	}
	return 0;
}

/* The header of tensors FIRST .. END. */
static json_t *make_header(const struct exporter *x, int first, int last)
{
	json_t *root = json_object(), *meta = json_object();
	int64_t at = 0;

	json_object_set_new(meta, "format", json_string("pt"));
	json_object_set_new(root, "__metadata__", meta);
	for (int i = first; i < last; i++) {
		const struct hf_tensor *t = &x->map.tensor[i];
		json_t *one = json_object(), *dims = json_array();
		json_t *place = json_array();

		for (int k = 0; k < t->ndim; k++)
			json_array_append_new(dims, json_integer(t->dim[k]));
		json_array_append_new(place, json_integer(at));
		at += tensor_bytes(x, i);
		json_array_append_new(place, json_integer(at));
		json_object_set_new(one, "dtype",
				    json_string(hf_dtype_name(x->type)));
		json_object_set_new(one, "shape", dims);
		json_object_set_new(one, "data_offsets", place);
		json_object_set_new(root, t->name, one);
	}
	return root;
}

/* Its length, the header, blanks up to a multiple of 8. */
static int write_header(struct file *f, json_t *root, struct err *e)
{
	char *text = json_dumps(root, JSON_COMPACT);
	unsigned char bytes[8];
	size_t len, padded;
	int rc;

	json_decref(root);
	if (!text)
		return err_set(e, CODE_LAUNCH, "out of memory");
	len = strlen(text);
	padded = (len + 7) / 8 * 8;
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)((uint64_t)padded >> 8 * i);
	rc = io_write(f->fd, bytes, 8, 0, f->path, e);
	if (!rc)
		rc = io_write(f->fd, text, len, 8, f->path, e);
	free(text);
	if (!rc)
		rc = io_write(f->fd, "        ", padded - len, 8 + (int64_t)len,
			      f->path, e);
	f->at = 8 + (int64_t)padded;
	return rc;
}

static int write_open(struct exporter *x, struct file *f, int first, int last,
		      struct err *e)
{
	int64_t bytes = 0;

	if (write_header(f, make_header(x, first, last), e))
		return -1;
	for (int i = first; i < last; i++)
		bytes += tensor_bytes(x, i);
	if (io_reserve(f->fd, f->at + bytes, f->path, e))
		return -1;
	for (int i = first; i < last; i++)
		if (write_tensor(x, f, i, e))
			return -1;
	return fsync(f->fd) ? io_failed("sync", f->path, e) : 0;
}

static int write_shard(struct exporter *x, int shard, struct err *e)
{
	struct file f = {
		.path = arena_printf(&x->arena, "%s/%s", x->temp,
				     safe_shard(shard, x->shards, &x->arena))};
	int rc;

	f.fd = open(f.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (f.fd < 0)
		return io_failed("create", f.path, e);
	rc = write_open(x, &f, x->shard_first[shard], x->shard_first[shard + 1],
			e);
	close(f.fd);
	return rc;
}

static int write_index(struct exporter *x, struct err *e)
{
	json_t *root = json_object(), *meta = json_object();
	json_t *map = json_object();
	char *text;
	int rc;

	json_object_set_new(meta, "total_size", json_integer(x->total));
	json_object_set_new(root, "metadata", meta);
	for (int s = 0; s < x->shards; s++)
		for (int i = x->shard_first[s]; i < x->shard_first[s + 1]; i++)
			json_object_set_new(map, x->map.tensor[i].name,
					    json_string(safe_shard(s, x->shards,
								   &x->arena)));
	json_object_set_new(root, "weight_map", map);
	text = json_dumps(root, JSON_INDENT(2));
	json_decref(root);
	if (!text)
		return err_set(e, CODE_LAUNCH, "out of memory");
	rc = io_write_text(arena_printf(&x->arena, "%s/" SAFE_INDEX, x->temp),
			   text, e);
	free(text);
	return rc;
}

/* The family, the names and the files of the model. */
static int prepare(struct exporter *x, int64_t shard, struct err *e)
{
	const char *texts = arena_printf(&x->arena, "%s/" HF_FOLDER, x->c->dir);
	const struct hf_names *names;
	int64_t room = io_free(x->temp), widest = PACK_BYTES;

	if (hf_config_write(arena_printf(&x->arena, "%s/config.json", x->temp),
			    arena_printf(&x->arena, "%s/config.json", texts),
			    &x->c->shape, x->type, &names, &x->arena, e) ||
	    hf_map_build(&x->map, names, &x->c->shape, &x->c->weights,
			 &x->arena, e))
		return -1;
	deal(x, shard);
	if (room >= 0 && room < x->total)
		return err_set(e, CODE_STORAGE,
			       "%" PRId64 " bytes are wanted, %" PRId64
			       " are free",
			       x->total, room);
	for (int i = 0; i < x->map.tensors; i++)
		if (x->map.tensor[i].ins * x->size > widest)
			widest = x->map.tensor[i].ins * x->size;
	x->out = arena_alloc(&x->arena, PACK_BYTES, 1);
	x->raw = arena_alloc(&x->arena, (size_t)widest, 1);
	return hf_texts_copy(texts, x->temp, false, e);
}

static int write_all(struct exporter *x, int64_t shard, struct err *e)
{
	if (prepare(x, shard, e))
		return -1;
	for (int i = 0; i < x->shards; i++)
		if (write_shard(x, i, e))
			return -1;
	if (x->shards > 1 && write_index(x, e))
		return -1;
	return load_rest(x->c, e) ? -1 : io_sync_dir(x->temp, e);
}

/* DIR is not there, or an empty folder. */
static int check_free(const char *dir, struct err *e)
{
	DIR *d = opendir(dir);
	int entries = 0;

	if (!d && errno == ENOENT)
		return 0;
	if (!d)
		return err_sys(e, CODE_USAGE, "cannot open folder %s", dir);
	while (readdir(d))
		entries++;
	closedir(d);
	if (entries <= 2)
		return 0;
	return err_set(e, CODE_CKPT,
		       "%s is there and not empty; export to a new folder",
		       dir);
}

/* The name, on the disk: the folder that it is in is synced. */
static int commit(struct exporter *x, const char *dir, struct err *e)
{
	char *parent = arena_strdup(&x->arena, dir);
	char *slash = strrchr(parent, '/');

	if (rename(x->temp, dir))
		return io_failed("rename", x->temp, e);
	if (slash)
		slash[slash == parent] = 0;
	return io_sync_dir(slash ? parent : ".", e);
}

static int export_to(struct exporter *x, const char *dir, int64_t shard,
		     struct err *e)
{
	size_t made = 0, len = strlen(dir);
	int rc;

	while (len > 1 && dir[len - 1] == '/')
		len--;
	dir = arena_strndup(&x->arena, dir, len);
	if (!ckpt_has_role(x->c, ROLE_PARAM))
		return err_set(e, CODE_CKPT, "%s has no parameters", x->c->dir);
	x->temp = arena_printf(&x->arena, "%s.tmp-%ld", dir, (long)getpid());
	rc = check_free(dir, e);
	if (rc)
		return rc;
	rc = sys_make_dir(x->temp, &made, e) || write_all(x, shard, e) ||
	     commit(x, dir, e);
	if (!rc)
		return 0;
	io_remove(x->temp);
	sys_remove_dir(x->temp, made);
	return err_wrap(e, "exporting to %s (%" PRId64 " bytes): ", dir,
			x->total);
}

int ckpt_export_hf(struct ckpt *c, const char *dir, int64_t shard,
		   const struct ckpt_watch *watch, struct err *e)
{
	struct exporter x = {.c = c,
			     .watch = watch,
			     .type = c->index.dtype[ROLE_PARAM],
			     .stripe.tensor = -1};
	int rc;

	if (arena_open(&x.arena, e))
		return -1;
	x.size = (int64_t)ckpt_dtype_size(x.type);
	rc = export_to(&x, dir, shard, e);
	arena_close(&x.arena);
	return rc;
}
