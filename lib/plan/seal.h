/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seal: one line that says for which job a config was judged.  Slurm
 * compares it with what the job asks for (slurm/trisect_seal.lua).
 *
 *   seal=1 shape=HASH world=N [nodes=N] [per-node=N] [gpus-per-node=N]
 *   [memory=NG] [step=Ns] [steps=N] file=NAME sum=XXXXXXXX
 *
 * memory is that of the rank which needs most (of its GPU, or with no GPUs of
 * its host), step the expected time of a training step, steps train_iters, sum
 * a checksum of all before it: it finds slips, not forgers.
 */
#ifndef PLAN_SEAL_H
#define PLAN_SEAL_H

#include "lib/plan/verdict.h"

#define SEAL_PREFIX   "#TRISECT "
#define SEAL_VARIABLE "TRISECT_SEAL"

/* A batch script is at most so long: Slurm's own limit. */
enum { SEAL_SCRIPT_MAX = 4 << 20 };

/*
 * The seal of V, which is valid, for a job on CL; GPUS: on GPUs.  CODE_USAGE
 * if CL has no world (one that was assumed for V will not do), or the
 * vocabulary is not known.
 */
int seal_build(const char **out, const struct verdict *v,
	       const struct cluster *cl, bool gpus, struct err *e);

/*
 * Put SEAL into the batch script FILE, behind its #SBATCH lines, in place of
 * any that is there; whole or not at all.  CODE_USAGE: it is no script.
 */
int seal_write(const char *file, const char *seal, struct arena *a,
	       struct err *e);

/* The script TEXT with SEAL, or NULL: it begins with no "#!". */
const char *seal_script(const char *text, const char *seal, struct arena *a);

#endif
