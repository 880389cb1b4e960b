/* SPDX-License-Identifier: Apache-2.0 */
/* Angles of rotary positions against Megatron's own functions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "lib/plan/rope.h"
#include "lib/plan/shape.h"

enum { PAIRS_MAX = 256 };

static json_t *golden;

static int load(void **state)
{
	(void)state;
	golden = json_load_file("test/data/golden/rope.json", 0, NULL);
	return golden ? 0 : -1;
}

static int unload(void **state)
{
	(void)state;
	json_decref(golden);
	return 0;
}

static double number(json_t *of, const char *name, double otherwise)
{
	json_t *x = json_object_get(of, name);

	return json_is_number(x) ? json_number_value(x) : otherwise;
}

static struct shape shape_of(int type, json_t *g)
{
	return (struct shape){
		.num_layers = 6,
		.position_embedding_type = type,
		.kv_channels = (int64_t)number(g, "dim", 16),
		.rotary_base = number(g, "base", 10000),
		.rotary_percent = 1,
		.seq_len_interpolation_factor = NAN,
	};
}

static void check_frequencies(const struct shape *s, json_t *want, double off)
{
	double freq[PAIRS_MAX];

	rope_frequencies(s, freq);
	assert_int_equal(rope_pairs(s), json_array_size(want));
	for (int64_t j = 0; j < rope_pairs(s); j++) {
		double x = json_real_value(json_array_get(want, (size_t)j));

		assert_true(fabs(freq[j] / x - 1) <= off);
	}
}

static void test_yarn(void **state)
{
	json_t *all = json_object_get(golden, "yarn"), *one;
	size_t i;

	(void)state;
	json_array_foreach(all, i, one)
	{
		json_t *g = json_object_get(one, "cfg");
		struct shape s = shape_of(POS_YARN, g);
		double freq[PAIRS_MAX];

		s.yarn_rotary_scaling_factor = number(g, "scale", 1);
		s.yarn_original_max_position_embeddings =
			(int64_t)number(g, "orig", 0);
		s.yarn_beta_fast = number(g, "bf", 0);
		s.yarn_beta_slow = number(g, "bs", 0);
		s.yarn_correction_range_round_to_int =
			json_is_true(json_object_get(g, "rnd"));
		s.yarn_mscale = number(g, "mscale", 1);
		s.yarn_mscale_all_dim = number(g, "mall", 0);
		check_frequencies(&s, json_object_get(one, "inv_freq"), 1e-14);
		assert_true(fabs(rope_frequencies(&s, freq) -
				 number(one, "concentration", 0)) < 1e-15);
	}
	assert_true(i >= 4);
}

/* Latent attention has the same numbers under names of its own. */
static void test_latent(void **state)
{
	json_t *all = json_object_get(golden, "yarn"), *one;
	size_t i, scales = 0;

	(void)state;
	json_array_foreach(all, i, one)
	{
		json_t *g = json_object_get(one, "cfg");
		json_t *scale = json_object_get(one, "mla_softmax_mscale");
		struct shape s = shape_of(POS_ROPE, NULL);
		double freq[PAIRS_MAX], m = json_number_value(scale);

		if (!json_is_true(json_object_get(g, "rnd")))
			continue; /* which it always does */
		s.multi_latent_attention = true;
		s.rope_type = ROPE_YARN;
		s.rotary_base = number(g, "base", 0);
		s.qk_head_dim = 128;
		s.qk_pos_emb_head_dim = (int64_t)number(g, "dim", 0);
		s.rotary_scaling_factor = number(g, "scale", 1);
		s.original_max_position_embeddings =
			(int64_t)number(g, "orig", 0);
		s.beta_fast = number(g, "bf", 0);
		s.beta_slow = number(g, "bs", 0);
		s.mscale = number(g, "mscale", 1);
		s.mscale_all_dim = number(g, "mall", 0);
		check_frequencies(&s, json_object_get(one, "inv_freq"), 1e-14);
		assert_true(fabs(rope_frequencies(&s, freq) -
				 number(one, "concentration", 0)) < 1e-15);
		m *= m / sqrt(128 + number(g, "dim", 0));
		assert_true(fabs(rope_latent_scale(&s) / m - 1) < 1e-14);
		scales++;
	}
	assert_true(scales >= 3);
}

/* Its plain rope turns a part, and knows no other scaling. */
static void test_latent_plain(void **state)
{
	struct shape s = shape_of(POS_ROPE, NULL), other;
	double freq[PAIRS_MAX], plain[PAIRS_MAX];

	(void)state;
	rope_frequencies(&s, plain);
	other = s;
	other.multi_latent_attention = true;
	other.rope_type = ROPE_PLAIN;
	other.kv_channels = 64;
	other.qk_head_dim = 20;
	other.qk_pos_emb_head_dim = 16;
	other.rope_scaling = true;
	other.rope_scaling_factor = 8;
	other.seq_len_interpolation_factor = 4;
	other.rotary_scaling_factor = 40;
	assert_int_equal(rope_pairs(&other), 8);
	assert_true(rope_frequencies(&other, freq) == 1);
	assert_memory_equal(freq, plain, 8 * sizeof(*freq));
	assert_true(rope_latent_scale(&other) == 1 / 6.0);
	other.rotary_percent = 0.5;
	assert_int_equal(rope_pairs(&other), 4);
}

static void test_llama3(void **state)
{
	json_t *g = json_object_get(golden, "llama3");
	struct shape s = shape_of(POS_ROPE, g);

	(void)state;
	s.rope_scaling = true;
	s.rope_scaling_factor = number(g, "factor", 0);
	check_frequencies(&s, json_object_get(g, "inv_freq"), 1e-14);
}

/* A factor of 1 is plain, stretched positions are slower, mrope is rope. */
static void test_plain(void **state)
{
	double plain[PAIRS_MAX], freq[PAIRS_MAX];
	struct shape s = shape_of(POS_ROPE, NULL);

	(void)state;
	assert_true(rope_frequencies(&s, plain) == 1);
	assert_true(plain[0] == 1 && fabs(plain[4] - 0.01) < 1e-16);
	s.position_embedding_type = POS_MROPE;
	rope_frequencies(&s, freq);
	assert_memory_equal(freq, plain, 8 * sizeof(*freq));
	s.seq_len_interpolation_factor = 4;
	rope_frequencies(&s, freq);
	for (int j = 0; j < 8; j++)
		assert_true(freq[j] == plain[j] / 4);
	s = shape_of(POS_YARN, NULL);
	s.yarn_rotary_scaling_factor = 1;
	s.yarn_original_max_position_embeddings = 4096;
	s.yarn_beta_fast = 32;
	s.yarn_beta_slow = 1;
	assert_true(rope_frequencies(&s, freq) == 1);
	for (int j = 0; j < 8; j++)
		assert_true(fabs(freq[j] / plain[j] - 1) < 1e-15);
	s = shape_of(POS_ROPE, NULL);
	s.rotary_percent = 0.5;
	assert_int_equal(rope_pairs(&s), 4);
	s.position_embedding_type = POS_NONE;
	assert_int_equal(rope_pairs(&s), 0);
	s.position_embedding_type = POS_LEARNED;
	assert_int_equal(rope_pairs(&s), 0);
}

/* N: every Nth layer has none, the period ends with it; a list: 1 has none. */
static void test_layers(void **state)
{
	static const int64_t third[] = {3}, none[] = {0};
	static const int64_t list[] = {1, 0, 0, 0, 0, 1};
	struct shape s = shape_of(POS_ROPE, NULL);

	(void)state;
	for (int n = 0; n < 8; n++)
		assert_true(rope_turns(&s, n));
	s.no_rope_freq = (struct ints){third, 1, false};
	for (int n = 0; n < 6; n++)
		assert_int_equal(rope_turns(&s, n), n != 2 && n != 5);
	assert_false(rope_turns(&s, 6)); /* a depth is like the last layer */
	s.no_rope_freq = (struct ints){none, 1, false};
	assert_true(rope_turns(&s, 5));
	s.no_rope_freq = (struct ints){list, 6, true};
	for (int n = 0; n < 6; n++)
		assert_int_equal(rope_turns(&s, n), n != 0 && n != 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_yarn),
		cmocka_unit_test(test_latent),
		cmocka_unit_test(test_latent_plain),
		cmocka_unit_test(test_llama3),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_layers),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
