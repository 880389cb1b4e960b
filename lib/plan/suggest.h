/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements of a model that pass every check and fit in memory, ranked by
 * the step time that estimate.h predicts, then by memory.
 *
 * The space: every tp, cp, pp, dp that tile the world, ep and etp besides, tp
 * and etp within a node and etp at most tp; sequence_parallel on and off;
 * every number of virtual stages up to SUGGEST_VIRTUAL, and every
 * micro_batch_size up to SUGGEST_MICRO that divides the batch; the even cut of
 * the layers and the one that balances the stages' times; no recompute, that
 * of norms and mlps, and that of the fewest layers which makes it fit; no
 * sharding, that of the optimizer, and of parameters too.  Of each (tp, pp,
 * cp, ep, etp) the best one is kept.  Behind the best SUGGEST_ROWS come, if
 * they are not among them, the best SUGGEST_SERVED that train-worker runs.
 */
#ifndef PLAN_SUGGEST_H
#define PLAN_SUGGEST_H

#include "lib/plan/cluster.h"
#include "lib/plan/config.h"

enum {
	SUGGEST_ROWS = 12,
	SUGGEST_SERVED = 4,
	SUGGEST_MICRO = 64,
	SUGGEST_VIRTUAL = 32,
	SUGGEST_SETS = 32
};

/* What is computed again: nothing, modules, or N layers of each stage. */
enum suggest_again { AGAIN_NONE, AGAIN_MODULES, AGAIN_LAYERS };

struct placement {
	int tp, pp, vp, cp, ep, etp, dp;
	bool sp, balanced;
	int64_t micro;
	int again; /* enum suggest_again */
	int64_t layers;
	int sharding;	    /* enum place_sharding */
	const char *layout; /* of a balanced cut */
};

struct suggestion {
	struct placement place;
	const char *
		set[SUGGEST_SETS]; /* "place.x=2": what makes it of the input */
	int sets;
	int64_t memory;
	bool planned; /* memory is the plan's, and train-worker runs it */
	double step, bubble, tokens_per_second, flops_share;
};

struct suggest {
	const struct config *loaded;
	struct cluster on;
	struct suggestion *row; /* the best first */
	int rows;
	int best; /* of them; behind those the best that train-worker runs */
	int64_t looked_at;	 /* placements */
	struct suggestion given; /* the input's own, if it has any */
	bool has_given, given_fits;
	const char *hints; /* settings of the input that are not kept, or "" */
	/* without rows: */
	int64_t nearest;	/* bytes of what needs least, or 0 */
	struct placement least; /* that one */
	const char *refused; /* why a placement that fits was none, or NULL */
};

/*
 * Search for LOADED, as config_load left it, on ON, finished and with a world.
 * Everything is from A.  Fails (CODE_CONFIG) for what no placement can make
 * good: a model that is invalid by itself, or no global_batch_size.
 */
int suggest_build(struct suggest *out, const struct config *loaded,
		  const struct cluster *on, struct arena *a, struct err *e);

/*
 * The same for FILE of FORMAT with SETS; what ON leaves open is the GPU's
 * memory and CLUSTER_PER_NODE.  Fails also (CODE_USAGE) for a file that
 * cannot be read, and without a world; (CODE_FINDINGS) for what its text has
 * wrong.
 */
int suggest_load(struct suggest *out, const char *file,
		 enum config_format format, const struct cluster *on,
		 const char *const *sets, int set_count, struct arena *a,
		 struct err *e);

#endif
