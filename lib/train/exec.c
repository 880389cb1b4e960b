/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/exec.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/sys.h"
#include "lib/plan/rope.h"
#include "lib/train/exec_op.h"
#include "lib/train/machine.h"

/* What ops get, and what the host writes for the next run. */
static void *at(const struct exec *x, struct ref r)
{
	return r.family < 0 ? NULL : x->base[r.family] + r.at;
}

static void *at_host(const struct exec *x, struct ref r)
{
	assert(r.family == FAMILY_HOST);
	return x->host + r.at;
}

struct kern_scalars *exec_scalars(const struct exec *x)
{
	return (struct kern_scalars *)x->host;
}

/* Micro-batch MB at DEPTH. */
static int64_t slot(const struct exec *x, int mb, int depth)
{
	return (int64_t)depth * x->prog->train.microbatches + mb;
}

int32_t *exec_ids(const struct exec *x, int mb, int depth)
{
	return (int32_t *)at_host(x, x->prog->ids) +
	       slot(x, mb, depth) * x->prog->tokens;
}

int32_t *exec_labels(const struct exec *x, int mb, int depth)
{
	return (int32_t *)at_host(x, x->prog->labels) +
	       slot(x, mb, depth) * x->prog->tokens;
}

int32_t *exec_doc(const struct exec *x, int mb)
{
	if (x->prog->doc.family < 0)
		return NULL;
	return (int32_t *)at_host(x, x->prog->doc) + mb * x->prog->tokens;
}

int32_t *exec_place(const struct exec *x, int mb, int depth)
{
	if (x->prog->place.family < 0)
		return NULL;
	return (int32_t *)at_host(x, x->prog->place) +
	       slot(x, mb, depth) * x->prog->tokens;
}

struct exec_objective exec_objective(const struct exec *x, int mb, int depth)
{
	const struct prog *p = x->prog;
	int64_t i = slot(x, mb, depth);
	struct exec_objective o = {
		.loss = (double *)at_host(x, p->loss) + i,
		.coef = (double *)at_host(x, p->coef) + i,
	};

	if (depth) {
		o.share =
			(double *)at_host(x, p->share) + slot(x, mb, depth - 1);
		o.right =
			(double *)at_host(x, p->right) + slot(x, mb, depth - 1);
	}
	return o;
}

/* {cos, sin} of each position's angles. */
static int make_rope(void *table, size_t sum, const struct shape *s,
		     int64_t rows, struct err *e)
{
	int64_t half = rope_pairs(s);
	double *freq = malloc((size_t)half * sizeof(*freq)), factor;

	if (!freq)
		return err_set(e, CODE_LAUNCH, "out of memory");
	factor = rope_frequencies(s, freq);
	for (int64_t i = 0; i < rows * half; i++) {
		double angle = (double)(i / half) * freq[i % half];
		double x = factor * cos(angle), y = factor * sin(angle);

		if (sum == sizeof(double)) {
			((double *)table)[2 * i] = x;
			((double *)table)[2 * i + 1] = y;
		} else {
			((float *)table)[2 * i] = (float)x;
			((float *)table)[2 * i + 1] = (float)y;
		}
	}
	free(freq);
	return 0;
}

static int fill_rope(struct exec *x, const struct shape *s, struct err *e)
{
	const struct prog *p = x->prog;
	size_t bytes = (size_t)(p->rope_rows * p->rope_half * 2) * p->sum;
	void *table;
	int bad;

	if (p->rope.family < 0)
		return 0;
	table = malloc(bytes);
	if (!table)
		return err_set(e, CODE_LAUNCH,
			       "cannot allocate %zu bytes for rope's table",
			       bytes);
	bad = make_rope(table, p->sum, s, p->rope_rows, e) ||
	      x->machine->copy(x, at(x, p->rope), table, bytes, e);
	free(table);
	return bad ? -1 : 0;
}

int exec_open(struct exec *x, const struct prog *p, const struct machine *m,
	      const struct config *c, struct comm *comm,
	      struct comm_group *const groups[PROG_GROUPS], struct err *e)
{
	*x = (struct exec){
		.prog = p,
		.machine = m,
		.kern = m->kern(c->spec.params_dtype),
		.dtype = c->spec.params_dtype,
		.comm = comm,
	};
	assert(x->kern && x->kern->size == p->elem && x->kern->sum == p->sum);
	memcpy(x->group, groups, sizeof(x->group));
	for (int i = 0; i < EXEC_IN_FLIGHT; i++)
		x->req_op[i] = -1;
	if (!m->open(x, e) && !fill_rope(x, &c->shape, e))
		return 0;
	exec_close(x);
	return -1;
}

void exec_close(struct exec *x)
{
	x->machine->close(x);
	memset(x->base, 0, sizeof(x->base));
	x->own = NULL;
}

int exec_lag(const struct exec *x)
{
	return x->machine->lag;
}

int exec_prepare(struct exec *x, struct err *e)
{
	assert(x->runs <= x->machine->lag);
	x->prepared = sys_seconds();
	return x->machine->prepare(x, e);
}

int exec_results(struct exec *x, struct kern_scalars *out, double *seconds,
		 struct err *e)
{
	double unused;

	assert(x->runs > 0);
	x->runs--;
	return x->machine->results(x, out, seconds ? seconds : &unused, e);
}

const void *exec_see(struct exec *x, struct ref r, size_t bytes, void *room,
		     struct err *e)
{
	if (!x->queue)
		return at(x, r);
	return x->machine->copy(x, room, at(x, r), bytes, e) ? NULL : room;
}

void *exec_map(struct exec *x, int family, bool read, struct err *e)
{
	static char nothing[1]; /* of a stage without parameters */
	size_t bytes = (size_t)x->prog->bytes[family];
	void *map;

	if (!bytes)
		return nothing;
	if (!x->queue)
		return x->base[family];
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		err_sys(e, CODE_LAUNCH,
			"cannot allocate %zu bytes of the host for %s", bytes,
			family_name(family));
		return NULL;
	}
	if (!read || !x->machine->copy(x, map, x->base[family], bytes, e))
		return map;
	munmap(map, bytes);
	return NULL;
}

int exec_unmap(struct exec *x, int family, void *map, bool write, struct err *e)
{
	size_t bytes = (size_t)x->prog->bytes[family];
	int bad = 0;

	if (!x->queue || !bytes)
		return 0;
	if (write)
		bad = x->machine->copy(x, x->base[family], map, bytes, e);
	munmap(map, bytes);
	return bad;
}

/* A collective's type, by what its elements are and their size. */
static enum comm_type comm_type(const struct exec *x, const struct op *op)
{
	size_t size = op->type == TYPE_F64   ? sizeof(double)
		      : op->type == TYPE_SUM ? x->prog->sum
					     : x->prog->elem;

	return size == sizeof(double)	? COMM_F64
	       : size == sizeof(float)	? COMM_F32
	       : x->dtype == DTYPE_BF16 ? COMM_BF16
					: COMM_FP16;
}

/* Start op I; its request stays with it until it is waited for. */
static int run_comm(struct exec *x, const struct op *op, int i, struct err *e)
{
	static const enum comm_op ops[] = {
		[PROG_SUM] = COMM_SUM,
		[PROG_MAX] = COMM_MAX,
		[PROG_REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
		[PROG_ALL_GATHER] = COMM_ALL_GATHER,
		[PROG_SEND] = COMM_SEND,
		[PROG_RECV] = COMM_RECV,
	};
	int slot = 0;

	while (x->req_op[slot] >= 0)
		slot++;
	assert(slot < EXEC_IN_FLIGHT);
	x->req_op[slot] = i;
	x->req[slot] = (struct comm_req){
		.op = ops[op->comm],
		.group = x->group[op->group],
		.type = comm_type(x, op),
		.send = at(x, op->ref[0]),
		.recv = at(x, op->ref[1]),
		.n = op->n[0],
		.peer = op->peer,
		.tag = op->tag,
		.queue = x->queue,
		.scratch = at(x, op->ref[2]),
		.scratch_bytes = (size_t)op->n[1],
		.name = op_code_name(op->code),
	};
	return comm_start(&x->req[slot], e);
}

static int run_wait(struct exec *x, const struct op *op, struct err *e)
{
	for (int slot = 0; slot < EXEC_IN_FLIGHT; slot++) {
		if (x->req_op[slot] != op->wait)
			continue;
		x->req_op[slot] = -1;
		return comm_wait(&x->req[slot], e);
	}
	assert(!"a wait without its start");
	return -1;
}

/* One op of kern.h: its pointers and integers in the order of arguments. */
static void run_kern(struct exec *x, const struct op *op)
{
	struct kern_scalars *scalars =
		(struct kern_scalars *)x->base[FAMILY_HOST];
	struct op_args a = {
		.scalars = scalars,
		.q = x->queue ? x->queue : at(x, x->prog->room),
		.n = op->n,
		.drop = op->drop,
	};
	const struct kern *k = x->kern;

	for (int i = 0; i < 9; i++)
		a.p[i] = at(x, op->ref[i]);
	a.drop.key = scalars->key;
	if (op->attn) {
		a.attn = *op->attn;
		a.attn.drop = a.drop;
	}
	if (x->layer_kern && op->layer >= 0)
		k = &x->layer_kern[op->layer];
	op_run(k, op, &a);
}

static int run_op(struct exec *x, const struct prog_list *list, int i,
		  struct err *e)
{
	const struct op *op = &list->op[i];
	char name[96];
	int bad = 0;

	x->now = op;
	switch (op->code) {
	case OP_COMM: bad = run_comm(x, op, i, e); break;
	case OP_WAIT: bad = run_wait(x, op, e); break;
	default: run_kern(x, op);
	}
	if (!bad)
		return 0;
	if (op->code == OP_WAIT)
		op = &list->op[op->wait];
	return err_wrap(e, "%s: ", op_text(op, name, sizeof(name)));
}

static int run_list(struct exec *x, const struct prog_list *list, bool timed,
		    struct err *e)
{
	const struct machine *m = x->machine;

	if (m->begin(x, e) || (timed && m->mark(x, 0, e)))
		return -1;
	for (int i = 0; i < list->count; i++)
		if (run_op(x, list, i, e) || (timed && m->mark(x, i + 1, e)))
			return -1;
	x->now = NULL;
	x->runs++;
	return m->end(x, e);
}

int exec_run(struct exec *x, const struct prog_list *list, struct err *e)
{
	return run_list(x, list, false, e);
}

int exec_time(struct exec *x, const struct prog_list *list, double *ms,
	      struct err *e)
{
	if (run_list(x, list, true, e))
		return -1;
	return x->machine->marks(x, list->count, ms, e);
}
