/* SPDX-License-Identifier: Apache-2.0 */
/* Which layout a checkpoint is resharded to. */
#include <string.h>

#include "ckpt/tools.h"

static const char pipeline[] = "pipeline_model_parallel_size";

/* What a change of the pipeline's size makes meaningless. */
static const char *const stages[] = {
	"virtual_pipeline_model_parallel_size",
	"num_layers_per_virtual_pipeline_stage",
	"num_virtual_stages_per_pipeline_rank",
	"num_layers_in_first_pipeline_stage",
	"num_layers_in_last_pipeline_stage",
	"account_for_embedding_in_pipeline_split",
	"account_for_loss_in_pipeline_split",
	"pipeline_model_parallel_layout",
	"microbatch_group_size_per_vp_stage",
};

/* Whether one of the sets is of place.NAME. */
static bool is_set(const char *const *sets, int n, const char *name)
{
	size_t len = strlen(name);

	for (int i = 0; i < n; i++)
		if (!strncmp(sets[i], "place.", 6) &&
		    !strncmp(sets[i] + 6, name, len) &&
		    strspn(sets[i] + 6 + len, " ") ==
			    strcspn(sets[i] + 6 + len, "="))
			return true;
	return false;
}

static bool is_dropped(const char *const *sets, int n, const char *name)
{
	if (is_set(sets, n, name))
		return true;
	if (!is_set(sets, n, pipeline))
		return false;
	for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++)
		if (!strcmp(stages[i], name))
			return true;
	return false;
}

/* The checkpoint's own shape and place, with the sets. */
static int read_own(const struct ckpt *c, const char *const *sets, int n,
		    struct config *out, struct arena *a, struct report *r,
		    struct err *e)
{
	const struct head_lines *shape = &c->head.shape,
				*place = &c->head.place;
	const char **all = arena_alloc(
		a, (size_t)(shape->count + place->count + n), sizeof(*all));
	int count = 0;

	for (int i = 0; i < shape->count; i++)
		all[count++] =
			arena_printf(a, "shape.%s=%s", shape->list[i].name,
				     shape->list[i].text);
	for (int i = 0; i < place->count; i++)
		if (!is_dropped(sets, n, place->list[i].name))
			all[count++] = arena_printf(a, "place.%s=%s",
						    place->list[i].name,
						    place->list[i].text);
	for (int i = 0; i < n; i++)
		all[count++] = sets[i];
	return config_load("/dev/null", all, count, a, out, r, e);
}

static int check_same_shape(const struct ckpt *c, const struct config *target,
			    struct arena *a, struct err *e)
{
	char hash[33];

	shape_hash(&target->shape, hash);
	if (!strcmp(hash, c->head.shape_hash))
		return 0;
	return err_set(e, CODE_CKPT,
		       "resharding keeps the model as it is, but the shapes "
		       "differ (there / wanted): %s",
		       head_difference(&c->shape, &target->shape, a));
}

static int64_t default_world(const struct ckpt *c, const struct place *p)
{
	int64_t copy = p->tensor_model_parallel_size *
		       p->pipeline_model_parallel_size *
		       p->context_parallel_size;

	return c->head.world % copy ? copy : c->head.world;
}

int ckpt_target(const struct ckpt *c, const char *file, const char *const *sets,
		int set_count, int64_t world, struct config *out,
		struct grid *grid, struct arena *a, struct report *r,
		struct err *e)
{
	int rc = file ? config_load(file, sets, set_count, a, out, r, e)
		      : read_own(c, sets, set_count, out, a, r, e);

	if (rc)
		return -1;
	if (report_count(r, ERROR))
		return err_set(e, CODE_CONFIG, "the target has %zu error%s",
			       report_count(r, ERROR),
			       plural((long long)report_count(r, ERROR)));
	shape_finalize(&out->shape);
	shape_check(&out->shape, r);
	place_finalize(&out->place, &out->shape);
	if (!world && !report_count(r, ERROR))
		world = default_world(c, &out->place);
	place_check(&out->place, &out->shape, world, r);
	if (report_count(r, ERROR))
		return err_set(e, CODE_CONFIG,
			       "the target layout is not valid: %zu error%s",
			       report_count(r, ERROR),
			       plural((long long)report_count(r, ERROR)));
	if (check_same_shape(c, out, a, e))
		return -1;
	return grid_build(grid, &out->place, world, e);
}
