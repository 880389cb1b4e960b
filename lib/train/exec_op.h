/* SPDX-License-Identifier: Apache-2.0 */
/* One op of a program, as a call of kern.h. */
#ifndef LIB_TRAIN_EXEC_OP_H
#define LIB_TRAIN_EXEC_OP_H

#include "kernels/kern.h"
#include "lib/plan/prog.h"

/* An op's arguments as the kernels take them, in their order. */
struct op_args {
	struct queue *q;
	void *p[9];
	const int64_t *n;
	struct kern_drop drop;
	struct kern_attn_dims attn;
	struct kern_scalars *scalars; /* the host's */
};

/* Give OP, which is none of communication, to K. */
void op_run(const struct kern *k, const struct op *op, const struct op_args *a);

#endif
