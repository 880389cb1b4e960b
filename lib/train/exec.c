/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/train/exec.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const struct kern *exec_kern(int dtype)
{
	return dtype == DTYPE_FP64 ? &kern_cpu_f64 : &kern_cpu_f32;
}

struct prog_scalars *exec_scalars(const struct exec *x)
{
	return (struct prog_scalars *)x->base[FAMILY_HOST];
}

static void *at(const struct exec *x, struct ref r)
{
	return r.family < 0 ? NULL : x->base[r.family] + r.at;
}

int32_t *exec_ids(const struct exec *x, int mb)
{
	return (int32_t *)at(x, x->prog->ids) + mb * x->prog->tokens;
}

int32_t *exec_labels(const struct exec *x, int mb)
{
	return (int32_t *)at(x, x->prog->labels) + mb * x->prog->tokens;
}

double *exec_loss(const struct exec *x)
{
	return at(x, x->prog->loss);
}

double *exec_coef(const struct exec *x)
{
	return at(x, x->prog->coef);
}

/* {cos, sin} of position t times base^(-j / R): model-numerics 2.6. */
static void fill_rope(struct exec *x, const struct shape *s)
{
	int64_t half = x->prog->rope_half;
	void *table = at(x, x->prog->rope);

	for (int64_t t = 0; table && t < s->seq_length; t++) {
		for (int64_t j = 0; j < half; j++) {
			double angle =
				(double)t *
				pow(s->rotary_base, -(double)j / (double)half);
			int64_t i = 2 * (t * half + j);

			if (x->prog->elem == sizeof(double)) {
				((double *)table)[i] = cos(angle);
				((double *)table)[i + 1] = sin(angle);
			} else {
				((float *)table)[i] = (float)cos(angle);
				((float *)table)[i + 1] = (float)sin(angle);
			}
		}
	}
}

int exec_open(struct exec *x, const struct prog *p, const struct kern *k,
	      const struct shape *s,
	      struct comm_group *const groups[PROG_GROUPS], struct err *e)
{
	memset(x, 0, sizeof(*x));
	x->prog = p;
	x->kern = k;
	assert(k->size == p->elem);
	memcpy(x->group, groups, sizeof(x->group));
	for (int i = 0; i < EXEC_IN_FLIGHT; i++)
		x->req_op[i] = -1;
	for (int f = 0; f < FAMILIES; f++) {
		if (!p->bytes[f])
			continue;
		x->base[f] =
			mmap(NULL, (size_t)p->bytes[f], PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (x->base[f] != MAP_FAILED) {
			x->allocated += p->bytes[f];
			continue;
		}
		x->base[f] = NULL;
		err_sys(e, CODE_LAUNCH,
			"cannot allocate %" PRId64 " bytes for %s", p->bytes[f],
			family_name(f));
		exec_close(x);
		return -1;
	}
	fill_rope(x, s);
	return 0;
}

void exec_close(struct exec *x)
{
	for (int f = 0; f < FAMILIES; f++)
		if (x->base[f])
			munmap(x->base[f], (size_t)x->prog->bytes[f]);
	memset(x->base, 0, sizeof(x->base));
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
	bool f64 = op->host_f64 || x->prog->elem == sizeof(double);
	int slot = 0;

	while (x->req_op[slot] >= 0)
		slot++;
	assert(slot < EXEC_IN_FLIGHT);
	x->req_op[slot] = i;
	x->req[slot] = (struct comm_req){
		.op = ops[op->comm],
		.group = x->group[op->group],
		.type = f64 ? COMM_F64 : COMM_F32,
		.send = at(x, op->ref[0]),
		.recv = at(x, op->ref[1]),
		.n = op->n[0],
		.peer = op->peer,
		.tag = op->tag,
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

static void run_metrics(struct exec *x, const struct op *op)
{
	struct prog_scalars *s = exec_scalars(x);
	const double *loss = at(x, op->ref[0]), *coef = at(x, op->ref[1]);
	double sum = 0;

	for (int64_t mb = 0; mb < op->n[0]; mb++)
		sum += loss[mb] * coef[mb];
	s->metrics[METRIC_LOSS] = op->n[1] ? sum : 0;
	s->metrics[METRIC_TOKENS] = op->n[1] ? s->tokens : 0;
	s->metrics[METRIC_STOP] = s->stop;
}

/* coeff = clip / (norm + 1e-6), applied if less than one. */
static void run_clip(struct exec *x)
{
	struct prog_scalars *s = exec_scalars(x);
	double scale = 1, tokens = s->metrics[METRIC_TOKENS];

	if (s->per_token > 0)
		scale = 1 / (tokens > 1 ? tokens : 1);
	s->grad_norm = sqrt(s->metrics[METRIC_SUMSQ]) * scale;
	if (s->clip > 0 && s->clip / (s->grad_norm + 1e-6) < 1)
		scale *= s->clip / (s->grad_norm + 1e-6);
	s->adam.grad_scale = scale;
}

/* An op's arguments as the kernels take them. */
struct args {
	void *p[9];
	const int64_t *n;
	struct kern_drop drop;
	struct kern_attn_dims attn;
};

static bool run_forward(const struct kern *k, const struct op *op,
			const struct args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_EMBED_FWD:
		k->embed_fwd(NULL, p[0], p[1], p[2], n[0], n[1], n[2], n[3]);
		return true;
	case OP_POS_FWD:
		k->pos_fwd(NULL, p[0], p[1], n[0], n[1], n[2], n[3]);
		return true;
	case OP_DROP:
		k->drop(NULL, p[0], p[1], n[0], n[1], &a->drop);
		return true;
	case OP_RESID:
		k->resid(NULL, p[0], p[1], p[2], p[3], n[0], n[1], &a->drop);
		return true;
	case OP_NORM_FWD:
		k->norm_fwd(NULL, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			    p[7], op->norm, &a->drop);
		return true;
	case OP_LINEAR_FWD:
		k->linear_fwd(NULL, p[0], p[1], p[2], p[3], n[0], n[1], n[2]);
		return true;
	case OP_ROPE:
		k->rope(NULL, p[0], p[1], &a->attn, n[0], n[1],
			op->flag ? -1 : 1);
		return true;
	case OP_ATTN_FWD:
		k->attn_fwd(NULL, p[0], p[1], p[2], p[3], &a->attn);
		return true;
	case OP_ACT_FWD:
		k->act_fwd(NULL, p[0], p[1], n[0], n[1], (enum kern_act)n[2],
			   n[3]);
		return true;
	case OP_CE_MAX:
		k->ce_max(NULL, p[0], p[1], n[0], n[1], n[2]);
		return true;
	case OP_CE_SUMS:
		k->ce_sums(NULL, p[0], p[1], p[2], p[3], n[0], n[1], n[2],
			   n[3]);
		return true;
	case OP_CE_GRAD:
		k->ce_grad(NULL, p[0], p[1], p[2], p[3], p[4], p[5], n[0], n[1],
			   n[2], n[3]);
		return true;
	default: return false;
	}
}

static bool run_backward(const struct kern *k, const struct op *op,
			 const struct args *a)
{
	void *const *p = a->p;
	const int64_t *n = a->n;

	switch (op->code) {
	case OP_EMBED_BWD:
		k->embed_bwd(NULL, p[0], p[1], p[2], n[0], n[1], n[2], n[3]);
		return true;
	case OP_POS_BWD:
		k->pos_bwd(NULL, p[0], p[1], n[0], n[1], n[2], n[3]);
		return true;
	case OP_NORM_BWD:
		k->norm_bwd(NULL, p[0], p[1], p[2], p[3], p[4], p[5], p[6],
			    p[7], op->norm);
		return true;
	case OP_LINEAR_BWD_X:
		k->linear_bwd_x(NULL, p[0], p[1], p[2], n[0], n[1], n[2]);
		return true;
	case OP_LINEAR_BWD_W:
		k->linear_bwd_w(NULL, p[0], p[1], p[2], n[0], n[1], n[2]);
		return true;
	case OP_BIAS_BWD:
		k->bias_bwd(NULL, p[0], p[1], n[0], n[1]);
		return true;
	case OP_ATTN_BWD:
		k->attn_bwd(NULL, p[0], p[1], p[2], p[3], p[4], p[5], &a->attn);
		return true;
	case OP_ACT_BWD:
		k->act_bwd(NULL, p[0], p[1], p[2], n[0], n[1],
			   (enum kern_act)n[2], n[3]);
		return true;
	default: return false;
	}
}

static bool run_flat(const struct kern *k, const struct op *op,
		     const struct args *a, const struct kern_adam *adam)
{
	void *const *p = a->p;
	int64_t n = a->n[0];

	switch (op->code) {
	case OP_SUMSQ: k->sumsq(NULL, p[0], p[1], n); return true;
	case OP_ADAMW:
		k->adamw(NULL, p[0], p[1], p[2], p[3], n, adam, op->flag);
		return true;
	case OP_ZERO: k->zero(NULL, p[0], n); return true;
	case OP_COPY: k->copy(NULL, p[0], p[1], n); return true;
	case OP_ADD: k->add(NULL, p[0], p[1], n); return true;
	default: return false;
	}
}

/* One op of kern.h: its pointers and integers in the order of arguments. */
static void run_kern(struct exec *x, const struct op *op)
{
	struct args a = {.n = op->n, .drop = op->drop};
	bool done;

	for (int i = 0; i < 9; i++)
		a.p[i] = at(x, op->ref[i]);
	a.drop.key = exec_scalars(x)->key;
	if (op->attn) {
		a.attn = *op->attn;
		a.attn.drop = a.drop;
	}
	done = run_forward(x->kern, op, &a) || run_backward(x->kern, op, &a) ||
	       run_flat(x->kern, op, &a, &exec_scalars(x)->adam);
	assert(done);
}

int exec_run(struct exec *x, const struct prog_list *list, struct err *e)
{
	char name[96];

	for (int i = 0; i < list->count; i++) {
		const struct op *op = &list->op[i];
		int bad = 0;

		x->now = op;
		switch (op->code) {
		case OP_COMM: bad = run_comm(x, op, i, e); break;
		case OP_WAIT: bad = run_wait(x, op, e); break;
		case OP_METRICS: run_metrics(x, op); break;
		case OP_CLIP: run_clip(x); break;
		default: run_kern(x, op);
		}
		if (bad) {
			if (op->code == OP_WAIT)
				op = &list->op[op->wait];
			return err_wrap(
				e, "%s: ", op_text(op, name, sizeof(name)));
		}
	}
	x->now = NULL;
	return 0;
}
