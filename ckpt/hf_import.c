/* SPDX-License-Identifier: Apache-2.0 */
/* From safetensors to a checkpoint. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/commit.h"
#include "ckpt/hf.h"
#include "ckpt/hf_fp8.h"
#include "ckpt/io.h"
#include "ckpt/number.h"
#include "ckpt/pack.h"
#include "ckpt/safetensors.h"

/* The scales of tensor TENSOR of 8 bits. */
struct scales {
	int tensor;
	float *list;
};

/* Rows FIRST .. END of a weight that its tensor has turned. */
struct stripe {
	int weight;
	int64_t first, end;
	char *data;
};

struct importer {
	struct arena *a;
	const char *dir;
	struct config *config;
	const struct hf_names *names;
	struct weights weights;
	struct hf_map map;
	struct safe safe;
	const struct safe_tensor **from;  /* of each tensor of the map */
	enum ckpt_dtype *type;		  /* of each, as stored; bf16 for fp8 */
	const struct safe_tensor **scale; /* of each; NULL: not fp8 */
	int64_t block[2];		  /* that has one */
	struct scales scales;
	enum ckpt_dtype widest;
	struct ckpt_item *items; /* one for each weight */
	char *out, *raw;
	struct stripe stripe;
	struct head head;
	struct commit commit;
	const struct ckpt_watch *watch;
	int64_t done, total;
};

static int read_configs(struct importer *im, const char *config,
			struct report *r, struct err *e)
{
	const char *file = arena_printf(im->a, "%s/config.json", im->dir);
	struct config *ours = arena_alloc(im->a, 1, sizeof(*ours));
	const char *diff;

	im->config = arena_alloc(im->a, 1, sizeof(*im->config));
	if (hf_config_read(file, im->config, &im->names, im->a, r, e) ||
	    hf_config_block(file, im->block, im->a, e))
		return -1;
	if (!config)
		return 0;
	if (config_load(config, NULL, 0, im->a, ours, r, e))
		return -1;
	shape_finalize(&ours->shape);
	shape_check(&ours->shape, r);
	if (report_count(r, ERROR))
		return err_set(e, CODE_CONFIG, "%s has %zu error%s", config,
			       report_count(r, ERROR),
			       plural((long long)report_count(r, ERROR)));
	diff = hf_config_difference(&im->config->shape, &ours->shape, im->a);
	if (*diff)
		return err_set(e, CODE_CKPT,
			       "%s and %s are two models (there / wanted): %s",
			       file, config, diff);
	im->config->shape = ours->shape;
	return 0;
}

/* The tensor under its name, or that of a bare model without a head. */
static const struct safe_tensor *find(const struct importer *im,
				      const char *name)
{
	size_t prefix = strlen(im->names->prefix);
	const struct safe_tensor *t = safe_find(&im->safe, name);

	if (t || strncmp(name, im->names->prefix, prefix))
		return t;
	return safe_find(&im->safe, name + prefix);
}

/* Whether the bytes of both are the same. */
static int compare(struct importer *im, const struct safe_tensor *x,
		   const struct safe_tensor *y, bool *same, struct err *e)
{
	*same = x->bytes == y->bytes && !strcmp(x->dtype, y->dtype);
	for (int64_t at = 0; *same && at < x->bytes; at += PACK_BYTES) {
		int64_t left = x->bytes - at;
		size_t n = left < PACK_BYTES ? (size_t)left : PACK_BYTES;

		if (safe_read(&im->safe, x, at, n, im->out, e) ||
		    safe_read(&im->safe, y, at, n, im->raw, e))
			return -1;
		*same = !memcmp(im->out, im->raw, n);
	}
	return 0;
}

/* What is there twice has one place here. */
static int check_copy(struct importer *im, const struct safe_tensor *one,
		      const struct safe_tensor *copy, struct err *e)
{
	bool same;

	if (compare(im, one, copy, &same, e))
		return -1;
	if (same)
		return 0;
	return err_set(e, CODE_CKPT,
		       "%s: tensor '%s' is not the same as '%s', but the model "
		       "has them once",
		       im->dir, copy->name, one->name);
}

/* A head that is tied may be there, too, if it is the embedding. */
static int check_tied(struct importer *im, const struct safe_tensor *head,
		      struct err *e)
{
	bool same;

	if (compare(im, im->from[0], head, &same, e))
		return -1;
	if (same)
		return 0;
	return err_set(e, CODE_CKPT,
		       "%s: tensor '%s' is not the embedding, but config.json "
		       "ties them; tie_word_embeddings = false keeps both",
		       im->dir, head->name);
}

/* The scales of fp8 tensor I. */
static int bind_scale(struct importer *im, int i, struct err *e)
{
	const struct safe_tensor *from = im->from[i], *scale;
	const char *name = arena_printf(im->a, "%s" HF_FP8_SCALE, from->name);
	int64_t dim[2];
	enum ckpt_dtype type;

	scale = find(im, name);
	if (!scale)
		return err_set(e, CODE_CKPT,
			       "%s: no tensor '%s', the scales of '%s'",
			       im->dir, name, from->name);
	for (int k = 0; k < 2; k++)
		dim[k] = hf_fp8_blocks(from->dim[k], im->block[k]);
	if (scale->ndim != 2 || scale->dim[0] != dim[0] ||
	    scale->dim[1] != dim[1] || !hf_dtype(scale->dtype, &type) ||
	    !number_widens(type, CKPT_F32))
		return err_set(e, CODE_CKPT,
			       "%s: tensor '%s' is %s of %s; blocks of %" PRId64
			       " x %" PRId64 " make it %s of F32 or BF16",
			       im->dir, name,
			       safe_shape(scale->dim, scale->ndim, im->a),
			       scale->dtype, im->block[0], im->block[1],
			       safe_shape(dim, 2, im->a));
	im->scale[i] = scale;
	im->type[i] = CKPT_BF16;
	return 0;
}

static int bind_one(struct importer *im, int i, struct err *e)
{
	const struct hf_tensor *t = &im->map.tensor[i];
	const struct safe_tensor *from = find(im, t->name);

	if (!from)
		return err_set(
			e, CODE_CKPT, "%s: no tensor '%s' for our weight '%s'",
			im->dir, t->name, im->weights.list[t->weight].name);
	if (from->ndim != t->ndim || from->dim[0] != t->dim[0] ||
	    (t->ndim > 1 && from->dim[1] != t->dim[1]))
		return err_set(e, CODE_CKPT,
			       "%s: tensor '%s' is %s, config.json makes it %s",
			       im->dir, from->name,
			       safe_shape(from->dim, from->ndim, im->a),
			       safe_shape(t->dim, t->ndim, im->a));
	im->from[i] = from;
	if (!strcmp(from->dtype, HF_FP8) && t->ndim == 2 && !t->turned) {
		if (bind_scale(im, i, e))
			return -1;
	} else if (!hf_dtype(from->dtype, &im->type[i]))
		return err_set(e, CODE_CKPT,
			       "%s: tensor '%s' is of type %s; F64, F32, F16 "
			       "and BF16 can be kept, " HF_FP8
			       " of matrices be scaled",
			       im->dir, from->name, from->dtype);
	if (t->copy_of >= 0)
		return check_copy(im, im->from[t->copy_of], from, e);
	im->widest = i ? number_widest(im->widest, im->type[i]) : im->type[i];
	return 0;
}

static int check_rest(struct importer *im, const bool *used, struct err *e)
{
	bool tied = im->config->shape.share_embeddings_and_output_weights;

	for (size_t i = 0; i < im->safe.count; i++) {
		const struct safe_tensor *t = &im->safe.list[i];

		if (used[i] || hf_is_ignored(im->names, t->name))
			continue;
		if (!tied || strcmp(t->name, "lm_head.weight") != 0)
			return err_set(e, CODE_CKPT,
				       "%s: tensor '%.200s' has no place in "
				       "%s with this config.json",
				       im->dir, t->name, im->names->type);
		if (check_tied(im, t, e))
			return -1;
	}
	return 0;
}

/* transformers saves no layers of multi-token prediction, but counts them. */
static int check_depths(struct importer *im, struct err *e)
{
	const struct shape *s = &im->config->shape;
	const char *layer =
		arena_printf(im->a, "layers.%" PRId64 ".", s->num_layers);

	if (!s->mtp_num_layers)
		return 0;
	for (size_t i = 0; i < im->safe.count; i++)
		if (strstr(im->safe.list[i].name, layer))
			return 0;
	return err_set(e, CODE_CKPT,
		       "%s: no tensor of a layer %" PRId64
		       ", but config.json has num_nextn_predict_layers %" PRId64
		       "; 0 there is the model without them",
		       im->dir, s->num_layers, s->mtp_num_layers);
}

/* Room for the scales of any tensor, as they are stored behind the floats. */
static void make_scales(struct importer *im)
{
	int64_t most = 0;

	for (int i = 0; i < im->map.tensors; i++) {
		const struct safe_tensor *s = im->scale[i];

		if (s && s->dim[0] * s->dim[1] > most)
			most = s->dim[0] * s->dim[1];
	}
	im->scales.tensor = -1;
	im->scales.list = arena_alloc(im->a, 2 * (size_t)most + 1,
				      sizeof(*im->scales.list));
}

/* Every place has its tensor, every tensor its place. */
static int bind(struct importer *im, struct err *e)
{
	const struct hf_map *m = &im->map;
	bool *used = arena_alloc(im->a, im->safe.count + 1, sizeof(*used));
	int64_t row = PACK_BYTES;

	for (int i = 0; i < m->tensors; i++)
		if (m->tensor[i].turned && m->tensor[i].outs * 8 > row)
			row = m->tensor[i].outs * 8;
	im->out = arena_alloc(im->a, PACK_BYTES, 1);
	im->raw = arena_alloc(im->a, (size_t)row, 1);
	if (check_depths(im, e))
		return -1;
	im->from = arena_alloc(im->a, (size_t)m->tensors, sizeof(*im->from));
	im->type = arena_alloc(im->a, (size_t)m->tensors, sizeof(*im->type));
	im->scale = arena_alloc(im->a, (size_t)m->tensors, sizeof(*im->scale));
	for (int i = 0; i < m->tensors; i++) {
		if (bind_one(im, i, e))
			return -1;
		used[im->from[i] - im->safe.list] = true;
		if (im->scale[i])
			used[im->scale[i] - im->safe.list] = true;
	}
	make_scales(im);
	return check_rest(im, used, e);
}

static void make_items(struct importer *im)
{
	int n = im->weights.count;

	im->items = arena_alloc(im->a, (size_t)n, sizeof(*im->items));
	for (int i = 0; i < n; i++) {
		const struct weight *w = &im->weights.list[i];

		im->items[i].piece = (struct ckpt_piece){
			.weight = i,
			.role = ROLE_PARAM,
			.dtype = im->widest,
			.box = {{0, 0}, {w->dim[0], w->dim[1]}},
			.hi = weight_elements(w),
		};
	}
	im->total = pack_bytes(im->items, n);
}

static int load_scales(struct importer *im, int i, struct err *e)
{
	const struct safe_tensor *s = im->scale[i];
	int64_t n = s->dim[0] * s->dim[1];
	float *raw = im->scales.list + n;
	enum ckpt_dtype type;

	if (im->scales.tensor == i)
		return 0;
	if (!hf_dtype(s->dtype, &type) ||
	    safe_read(&im->safe, s, 0, (size_t)s->bytes, raw, e))
		return -1;
	number_convert(im->scales.list, CKPT_F32, raw, type, n);
	im->scales.tensor = i;
	return 0;
}

/* The same of one of 8 bits. */
static int read_scaled(struct importer *im, int i, int64_t first, int64_t n,
		       char *to, struct err *e)
{
	const struct hf_fp8 m = {.cols = im->from[i]->dim[1],
				 .block = {im->block[0], im->block[1]},
				 .scale = im->scales.list};

	if (load_scales(im, i, e) ||
	    safe_read(&im->safe, im->from[i], first, (size_t)n, im->raw, e))
		return -1;
	hf_fp8_convert(to, im->widest, (const uint8_t *)im->raw, first, n, &m);
	return 0;
}

/* N elements of tensor I from FIRST on, as what is saved. */
static int read_run(struct importer *im, int i, int64_t first, int64_t n,
		    char *to, struct err *e)
{
	int64_t size = (int64_t)ckpt_dtype_size(im->type[i]);
	bool direct = im->type[i] == im->widest;

	if (im->scale[i])
		return read_scaled(im, i, first, n, to, e);
	if (safe_read(&im->safe, im->from[i], first * size, (size_t)(n * size),
		      direct ? to : im->raw, e))
		return -1;
	if (!direct)
		number_convert(to, im->widest, im->raw, im->type[i], n);
	return 0;
}

/* What piece P has of elements LO .. HI of a weight COLS wide. */
static int read_piece(struct importer *im, const struct hf_piece *p,
		      int64_t cols, int64_t lo, int64_t hi, struct err *e)
{
	int64_t size = (int64_t)ckpt_dtype_size(im->widest);
	int64_t len = p->step == 1 ? p->rows : 1;

	for (int64_t i = 0; i < p->rows; i += len) {
		int64_t row = p->row + i * p->step, from = row * cols;
		int64_t end = from + len * cols;
		int64_t shift = (p->at + i - row) * cols;

		if (from < lo)
			from = lo;
		if (end > hi)
			end = hi;
		if (from < end &&
		    read_run(im, p->tensor, from + shift, end - from,
			     im->out + (from - lo) * size, e))
			return -1;
	}
	return 0;
}

/* ROWS inputs from FIRST on are in RAW: into the stripe with them. */
static void turn_block(struct importer *im, const struct hf_tensor *t,
		       int64_t first, int64_t rows, size_t size)
{
	const struct stripe *s = &im->stripe;

	for (int64_t k = t->first; k < t->end; k++) {
		const struct hf_piece *p = &im->map.piece[k];

		for (int64_t j = 0; j < p->rows; j++) {
			int64_t row = p->row + j * p->step;

			if (row >= s->first && row < s->end)
				hf_turn(s->data + (size_t)((row - s->first) *
								   t->ins +
							   first) *
							  size,
					1, im->raw + (size_t)(p->at + j) * size,
					t->outs, rows, size);
		}
	}
}

/* The stripe that begins with row FIRST of the weight. */
static int load_stripe(struct importer *im, int weight, int64_t first,
		       struct err *e)
{
	int64_t at = im->map.weight_first[weight];
	int tensor = im->map.piece[at].tensor;
	const struct hf_tensor *t = &im->map.tensor[tensor];
	struct stripe *s = &im->stripe;
	size_t size = ckpt_dtype_size(im->type[tensor]);
	int64_t line = t->outs * (int64_t)size, rows;

	if (!s->data)
		s->data = arena_alloc(im->a, HF_STRIPE, 1);
	rows = HF_STRIPE / (t->ins * (int64_t)size);
	s->weight = weight;
	s->first = first;
	s->end = first + rows < t->outs ? first + rows : t->outs;
	rows = line < PACK_BYTES ? PACK_BYTES / line : 1;
	for (int64_t i = 0; i < t->ins; i += rows) {
		int64_t n = t->ins - i < rows ? t->ins - i : rows;

		if (safe_read(&im->safe, im->from[tensor], i * line,
			      (size_t)(n * line), im->raw, e))
			return -1;
		turn_block(im, t, i, n, size);
	}
	return 0;
}

/* Elements LO .. HI of a weight whose tensor is turned. */
static int read_turned(struct importer *im, int weight, int64_t lo, int64_t hi,
		       struct err *e)
{
	int tensor = im->map.piece[im->map.weight_first[weight]].tensor;
	enum ckpt_dtype type = im->type[tensor];
	int64_t ins = im->map.tensor[tensor].ins, to = 0;
	struct stripe *s = &im->stripe;

	while (lo < hi) {
		int64_t row = lo / ins, n;

		if (s->weight != weight || row < s->first || row >= s->end)
			if (load_stripe(im, weight, row, e))
				return -1;
		n = (hi < s->end * ins ? hi : s->end * ins) - lo;
		number_convert(
			im->out + to * (int64_t)ckpt_dtype_size(im->widest),
			im->widest,
			s->data + (lo - s->first * ins) *
					  (int64_t)ckpt_dtype_size(type),
			type, n);
		lo += n;
		to += n;
	}
	return 0;
}

static int from_files(void *arg, const struct ckpt_item *item, int64_t lo,
		      int64_t n, const void **data, struct err *e)
{
	struct importer *im = arg;
	const struct hf_map *m = &im->map;
	int weight = item->piece.weight, rc = 0;
	int64_t first = m->weight_first[weight];
	int64_t end = m->weight_first[weight + 1];

	*data = im->out;
	im->done += n * (int64_t)ckpt_dtype_size(im->widest);
	if (ckpt_tick(im->watch, im->done, im->total, e))
		return -1;
	if (m->tensor[m->piece[first].tensor].turned)
		return read_turned(im, weight, lo, lo + n, e);
	for (int64_t i = first; !rc && i < end; i++)
		rc = read_piece(im, &m->piece[i],
				im->weights.list[weight].dim[1], lo, lo + n, e);
	return rc;
}

static int write_step(struct importer *im, bool force, struct err *e)
{
	const struct feed feed = {from_files, im};
	const char *texts =
		arena_printf(im->a, "%s/" HF_FOLDER, im->commit.temp);
	struct manifest_file file;
	char name[FORMAT_FILE];
	int64_t room;
	bool bad;

	if (ckpt_check_old(im->commit.step, force, &bad, e) ||
	    commit_begin(&im->commit, e))
		return -1;
	room = io_free(im->commit.temp);
	if (room >= 0 && room < im->total)
		return err_set(e, CODE_STORAGE, "%" PRId64 " byte%s free", room,
			       room == 1 ? " is" : "s are");
	format_model(name, 0, 0);
	if (pack_write(im->commit.temp, name, &im->head, &im->weights,
		       im->items, im->weights.count, &feed, &file, e) ||
	    hf_texts_copy(im->dir, texts, true, e))
		return -1;
	if (commit_manifest(&im->commit, &im->head, &im->weights, &file, 1, e))
		return -1;
	return commit_end(&im->commit, bad, e);
}

static int import_files(struct importer *im, const char *run_dir, bool force,
			struct err *e)
{
	struct ckpt_progress progress = {.seed = im->config->run.seed};
	int rc;

	weights_build(&im->weights, &im->config->shape, im->a);
	if (hf_map_build(&im->map, im->names, &im->config->shape, &im->weights,
			 im->a, e) ||
	    bind(im, e))
		return -1;
	make_items(im);
	head_build(&im->head, im->config, 1, &progress, false, im->a);
	commit_paths(&im->commit, run_dir, &progress, NULL, im->a);
	rc = write_step(im, force, e);
	if (!rc)
		return 0;
	commit_abort(&im->commit);
	return err_wrap(e, "importing to %s (%" PRId64 " bytes): ",
			im->commit.step, im->total);
}

int ckpt_import_hf(const char *dir, const char *config, const char *run_dir,
		   bool force, const struct ckpt_watch *watch, struct arena *a,
		   struct report *r, struct err *e)
{
	struct importer im = {
		.a = a, .dir = dir, .watch = watch, .stripe.weight = -1};
	int rc;

	if (ckpt_check_run_dir(run_dir, a, e) ||
	    read_configs(&im, config, r, e))
		return -1;
	rc = safe_open(&im.safe, dir, a, e);
	if (!rc)
		rc = import_files(&im, run_dir, force, e);
	safe_close(&im.safe);
	return rc;
}
