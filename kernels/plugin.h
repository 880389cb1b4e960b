/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of shared objects that compute ops of kern.h in another way or
 * bring hooks (spec.plugins).  One exports
 *
 *   const struct plugin *trisect_plugin(void);
 *
 * whose answer, and all that it points to, stays as long as the object is
 * loaded.  Nothing of trisect is linked: a plugin needs this header alone.
 */
#ifndef KERNELS_PLUGIN_H
#define KERNELS_PLUGIN_H

#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header and of kern.h: another number, another interface. */
enum { PLUGIN_ABI = 1 };
#define PLUGIN_SYMBOL "trisect_plugin"

/* A rectangle of a weight that this rank has, row-major. */
struct plugin_weight {
	const char *name;	/* of the whole weight, "embed/tok" */
	int64_t dim[2];		/* of the whole weight; a vector has dim[1] 1 */
	int64_t off[2], cnt[2]; /* this rectangle */
	int chunk;		/* of this rank, from 0 */
	bool frozen;		/* no step changes it */
	void *data; /* the host's: float if SIZE is 4, double if it is 8, bf16
		       or fp16 if it is 2 */
	size_t size;
};

struct plugin_model {
	struct plugin_weight *weight;
	int weights, chunks;
};

/*
 * Called once on every rank, with what the config has behind "NAME.HOOK:" or
 * "".  As a pre-wrap hook it may change DATA, by what depends on the weight's
 * name and the place in it, so that copies stay equal and no layout matters; a
 * post-wrap hook looks only.  Returns M, or NULL: it has failed and the job
 * ends.
 */
struct plugin_hook {
	const char *name; /* NULL behind the last one */
	const struct plugin_model *(*call)(const struct plugin_model *m,
					   const char *args);
};

struct plugin {
	uint32_t abi;	     /* PLUGIN_ABI; the first member for ever */
	uint32_t kern_bytes; /* sizeof(struct kern) */
	const char *about;   /* a few words for stage-build --explain */
	/*
	 * The ops that it has for LAYER (global, then those of multi-token
	 * prediction) and the elements of LOCAL, the built-in table
	 * ("cpu_f64", "cuda_bf16"): only those members of the answer that are
	 * not NULL count, and of these only what a layer is made of
	 * (spec.overrides); NULL: none.  An op keeps kern.h's contract, works
	 * in the memory that is planned for the built-in one, and may call
	 * that.  May be NULL.  Is called in any order, from one thread.
	 */
	const struct kern *(*ops)(const struct kern *local, int64_t layer);
	const struct plugin_hook *hooks; /* or NULL */
};

#ifdef __cplusplus
}
#endif

#endif
