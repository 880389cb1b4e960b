/* SPDX-License-Identifier: Apache-2.0 */
/* Placement's derived values and the padded vocabulary. */
#include "lib/plan/place.h"

#include "test/config-test.h"

static int64_t padded(int64_t vocab, int64_t unit, int64_t tp, bool pad)
{
	struct place p = {.make_vocab_size_divisible_by = unit,
			  .tensor_model_parallel_size = tp,
			  .should_pad_vocab = pad};

	return place_padded_vocab(&p, vocab);
}

static void test_padded_vocab(void **state)
{
	/* vocabulary, unit, tp, rows; the study's table and the goldens */
	static const int64_t cases[][4] = {
		{50257, 128, 1, 50304},
		{50257, 128, 8, 51200},
		{32000, 128, 8, 32768},
		{32000, 128, 1, 32000},
		{50257, 128, 6, 50688},
		{151936, 128, 8, 152576},
		{129280, 128, 16, 131072},
		{102400, 128, 6, 102912},
		{128256, 128, 3, 128256},
		{129, 128, 1, 256},
		{128, 128, 1, 128},
		{1, 128, 1, 128},
		{128256, 128, 4, 128512},
		{129280, 128, 8, 130048},
		{37, 4, 2, 40},
		{50257, 1, 2, 50258},
		{151669, 1, 4, 151672},
		{151669, 32, 4, 151680},
		{151669, 128, 4, 152064},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int64_t *c = cases[i];

		assert_int_equal(padded(c[0], c[1], c[2], true), c[3]);
		assert_int_equal(padded(c[0], c[1], c[2], false), c[0]);
	}
}

/* A placement of LAYERS with SETTINGS, finalised. */
static struct place *placed(int layers, const char *settings)
{
	struct report r;
	struct config *c =
		config_of(arena_printf(&arena,
				       "shape: { num_layers = %d; }; "
				       "place: { %s };",
				       layers, settings),
			  NULL, &r);

	assert_non_null(c);
	assert_int_equal(r.count, 0);
	place_finalize(&c->place, &c->shape);
	return &c->place;
}

static const struct origin *from(const struct place *p, const void *value)
{
	return field_from(&place_group, p, value);
}

static void test_virtual_stages(void **state)
{
	struct place *p = placed(8, "");
	int64_t *vp = &p->virtual_pipeline_model_parallel_size;

	(void)state;
	assert_int_equal(*vp, 1);
	assert_int_equal(from(p, vp)->kind, ORIGIN_DERIVED);
	p = placed(8, "pipeline_model_parallel_size = 2; "
		      "num_layers_per_virtual_pipeline_stage = 1;");
	assert_int_equal(p->virtual_pipeline_model_parallel_size, 4);
	p = placed(30, "pipeline_model_parallel_size = 4; "
		       "account_for_embedding_in_pipeline_split = true; "
		       "account_for_loss_in_pipeline_split = true; "
		       "num_layers_per_virtual_pipeline_stage = 4;");
	assert_int_equal(p->virtual_pipeline_model_parallel_size, 2);
	p = placed(8, "pipeline_model_parallel_size = 2; "
		      "num_virtual_stages_per_pipeline_rank = 2;");
	assert_int_equal(p->virtual_pipeline_model_parallel_size, 2);
	p = placed(8, "pipeline_model_parallel_size = 2; "
		      "pipeline_model_parallel_layout = \"Ett|tt|tt|ttL\";");
	assert_int_equal(p->virtual_pipeline_model_parallel_size, 2);
	/* what does not divide stays open */
	p = placed(8, "pipeline_model_parallel_size = 2; "
		      "num_layers_per_virtual_pipeline_stage = 3;");
	assert_false(IS_SET(p->virtual_pipeline_model_parallel_size));
	p = placed(8, "pipeline_model_parallel_size = 2; "
		      "pipeline_model_parallel_layout = \"Ett|tt|tttL\";");
	assert_false(IS_SET(p->virtual_pipeline_model_parallel_size));
}

static void test_sharding(void **state)
{
	struct place *p = placed(1, "use_distributed_optimizer = true;");

	(void)state;
	assert_int_equal(p->data_parallel_sharding_strategy, SHARD_OPTIM);
	p = placed(1, "data_parallel_sharding_strategy = \"optim\";");
	assert_true(p->use_distributed_optimizer);
	p = placed(1, "data_parallel_sharding_strategy = \"optim\"; "
		      "use_distributed_optimizer = false;");
	assert_false(p->use_distributed_optimizer);
	p = placed(1, "use_distributed_optimizer = true; "
		      "data_parallel_sharding_strategy = \"no_shard\";");
	assert_int_equal(p->data_parallel_sharding_strategy, SHARD_NONE);
	p = placed(1, "");
	assert_false(p->use_distributed_optimizer);
	assert_int_equal(p->data_parallel_sharding_strategy, SHARD_NONE);
}

/* Choices that follow from others, where none was given. */
static void test_choices(void **state)
{
	struct place *p = placed(1, "");

	(void)state;
	assert_true(p->batch_p2p_comm && !p->mtp_standalone);
	assert_int_equal(p->cp_comm_type.count, 0);
	assert_int_equal(p->recompute_modules.count, 0);
	p = placed(1, "overlap_p2p_comm = true; context_parallel_size = 2; "
		      "recompute_granularity = \"selective\";");
	assert_false(p->batch_p2p_comm);
	assert_string_equal(p->cp_comm_type.item[0], "p2p");
	assert_string_equal(p->recompute_modules.item[0], "core_attn");
	p = placed(1, "overlap_p2p_comm = true; batch_p2p_comm = true; "
		      "context_parallel_size = 2; cp_comm_type = \"a2a\"; "
		      "recompute_granularity = \"selective\"; "
		      "recompute_modules = [\"mlp\", \"layernorm\"];");
	assert_true(p->batch_p2p_comm);
	assert_string_equal(p->cp_comm_type.item[0], "a2a");
	assert_int_equal(p->recompute_modules.count, 2);
	p = placed(2, "pipeline_model_parallel_size = 3; "
		      "pipeline_model_parallel_layout = \"Ett|m|L\";");
	assert_true(p->mtp_standalone);
	p = placed(2, "pipeline_model_parallel_size = 3; "
		      "pipeline_model_parallel_layout = \"Et|t|mL\";");
	assert_false(p->mtp_standalone);
}

static void test_the_rest(void **state)
{
	struct place *p = placed(4, "tensor_model_parallel_size = 2; "
				    "pipeline_model_parallel_size = 4;");

	(void)state;
	assert_int_equal(p->expert_tensor_parallel_size, 2);
	assert_int_equal(p->microbatch_group_size_per_vp_stage, 4);
	assert_string_equal(
		from(p, &p->microbatch_group_size_per_vp_stage)->why,
		"pipeline_model_parallel_size");
	assert_true(p->should_pad_vocab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_padded_vocab), TEST(test_virtual_stages),
		TEST(test_sharding),	 TEST(test_choices),
		TEST(test_the_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
