/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of every weight has one place in one tensor, and no other. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt/hf.h"
#include "ckpt/hf_fp8.h"
#include "ckpt/number.h"

static void read_config(const char *file, struct config *c,
			const struct hf_names **names, struct arena *a)
{
	struct report r = {.arena = a};
	struct err e;

	if (hf_config_read(file, c, names, a, &r, &e))
		fail_msg("%s", e.text);
}

static void count_rows(const struct hf_map *m, const struct hf_tensor *t,
		       const struct weights *w, int64_t first[], char *ours,
		       struct arena *a)
{
	char *theirs = arena_alloc(a, (size_t)t->outs, 1);

	assert_int_equal(t->ins, w->list[t->weight].dim[1]);
	for (int64_t k = t->first; k < t->end; k++) {
		const struct hf_piece *p = &m->piece[k];

		for (int64_t i = 0; i < p->rows; i++) {
			int64_t row = p->row + i * p->step;

			assert_true(row < w->list[t->weight].dim[0]);
			assert_true(p->at + i < t->outs);
			assert_false(ours[first[t->weight] + row]++);
			assert_false(theirs[p->at + i]++);
		}
	}
	assert_null(memchr(theirs, 0, (size_t)t->outs));
}

static void check_whole(const char *type, struct shape *s, struct arena *a)
{
	const struct hf_names *names = hf_names(type);
	int64_t rows = 0, *first;
	struct weights w;
	struct hf_map m;
	struct err e;
	char *ours;

	weights_build(&w, s, a);
	assert_int_equal(hf_map_build(&m, names, s, &w, a, &e), 0);
	first = arena_alloc(a, (size_t)w.count, sizeof(*first));
	for (int i = 0; i < w.count; i++) {
		first[i] = rows;
		rows += w.list[i].dim[0];
	}
	ours = arena_alloc(a, (size_t)rows, 1);
	for (int i = 0; i < m.tensors; i++)
		if (m.tensor[i].copy_of < 0)
			count_rows(&m, &m.tensor[i], &w, first, ours, a);
	assert_null(memchr(ours, 0, (size_t)rows));
}

static void test_whole(void **state)
{
	static const char *const models[] = {"gpt2",
					     "llama2",
					     "llama3",
					     "mistral",
					     "qwen2",
					     "qwen3",
					     "mixtral",
					     "qwen3_moe",
					     "deepseek_v2",
					     "deepseek_v3",
					     "deepseek_v3_whole",
					     "deepseek_v3_mtp"};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		const struct hf_names *names;
		struct arena a = {0};
		struct config c;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		read_config(arena_printf(&a, "test/data/hf/%s/config.json",
					 models[i]),
			    &c, &names, &a);
		check_whole(names->type, &c.shape, &a);
		c.shape.rotary_interleaved = true;
		check_whole(names->type, &c.shape, &a);
		arena_close(&a);
	}
}

/* What is written of a shape is read as that shape, in the same family. */
static void check_back(const struct config *c, const char *type,
		       struct arena *a)
{
	const struct hf_names *names;
	char path[] = "/tmp/u-hf-map.XXXXXX";
	struct config back;
	struct err e;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	if (hf_config_write(path, "/nowhere", &c->shape, CKPT_F16, &names, a,
			    &e))
		fail_msg("%s: %s", type, e.text);
	read_config(path, &back, &names, a);
	assert_string_equal(hf_config_difference(&back.shape, &c->shape, a),
			    "");
	assert_string_equal(names->type, type);
	assert_int_equal(unlink(path), 0);
}

static void test_configs(void **state)
{
	static const char *const models[][2] = {
		{"gpt2-xl", "gpt2"},
		{"llama-2-70b", "llama"},
		{"llama-3-8b", "llama"},
		{"llama-3.1-8b", "llama"},
		{"mistral-7b", "mistral"},
		{"mixtral-8x7b", "mixtral"},
		{"qwen2-7b", "qwen2"},
		{"qwen3-8b", "qwen3"},
		{"qwen3_moe/config", "qwen3_moe"},
		{"qwen3-30b-a3b", "qwen3_moe"},
		{"deepseek-v2-lite", "deepseek_v2"},
		{"deepseek-v3", "deepseek_v3"},
		{"deepseek_v3_whole/config", "deepseek_v3"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		const struct hf_names *names;
		struct arena a = {0};
		struct config c;
		struct err e;

		assert_int_equal(arena_open(&a, &e), 0);
		read_config(
			arena_printf(&a, "test/data/hf/%s.json", models[i][0]),
			&c, &names, &a);
		assert_string_equal(names->type, models[i][1]);
		check_back(&c, models[i][1], &a);
		arena_close(&a);
	}
}

/* Positions, biases and activations that only some models have. */
static void test_variants(void **state)
{
	const struct hf_names *names;
	struct arena a = {0};
	struct config c, plain;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	read_config("test/data/hf/llama-3-8b.json", &plain, &names, &a);
	c = plain;
	c.shape.position_embedding_type = POS_YARN;
	c.shape.yarn_rotary_scaling_factor = 4;
	c.shape.yarn_beta_fast = 16;
	check_back(&c, "llama", &a);
	c = plain;
	c.shape.seq_len_interpolation_factor = 2.5;
	c.shape.add_bias_linear = c.shape.add_qkv_bias = true;
	check_back(&c, "llama", &a);
	read_config("test/data/hf/gpt2.json", &c, &names, &a);
	c.shape.activation_func = ACT_GELU;
	c.shape.share_embeddings_and_output_weights = false;
	check_back(&c, "gpt2", &a);
	arena_close(&a);
}

/* What no family can say is refused, with its name. */
static void test_cannot(void **state)
{
	const struct hf_names *names;
	struct arena a = {0};
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	read_config("test/data/hf/llama-3-8b.json", &c, &names, &a);
	c.shape.layernorm_zero_centered_gamma = true;
	assert_int_equal(hf_config_write("/dev/shm/u-hf-map", "/nowhere",
					 &c.shape, CKPT_F32, &names, &a, &e),
			 -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "the nearest, llama, differs in"));
	assert_non_null(strstr(e.text, "layernorm_zero_centered_gamma"));
	assert_int_equal(unlink("/dev/shm/u-hf-map"), 0);
	arena_close(&a);
}

static void test_ignored(void **state)
{
	const struct hf_names *gpt2 = hf_names("gpt2"),
			      *llama = hf_names("llama");

	(void)state;
	assert_true(hf_is_ignored(gpt2, "transformer.h.11.attn.bias"));
	assert_true(hf_is_ignored(gpt2, "h.0.attn.masked_bias"));
	assert_false(hf_is_ignored(gpt2, "h.0.attn.c_attn.bias"));
	assert_false(hf_is_ignored(gpt2, "h..attn.bias"));
	assert_true(hf_is_ignored(
		llama, "model.layers.3.self_attn.rotary_emb.inv_freq"));
	assert_false(hf_is_ignored(llama, "model.layers.3.self_attn.q.bias"));
	assert_null(hf_names("bert"));
}

/* Pairs lie together in ours, half a head apart in theirs. */
static void test_pairs(void **state)
{
	struct shape s = {.num_attention_heads = 2,
			  .num_query_groups = 1,
			  .kv_channels = 4,
			  .rotary_interleaved = true};
	struct weight w = {.name = "layers/0000/attn/qkv/w",
			   .experts = 1,
			   .dim = {16, 3},
			   .ndim = 2};
	struct weights all = {.list = &w, .count = 1};
	struct arena a = {0};
	struct hf_map m;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(hf_map_build(&m, hf_names("llama"), &s, &all, &a, &e),
			 0);
	assert_int_equal(m.tensors, 3);
	assert_string_equal(m.tensor[1].name,
			    "model.layers.0.self_attn.k_proj.weight");
	assert_int_equal(m.pieces, 7);
	/* The second query head: its even rows are theirs from 4 on. */
	assert_int_equal(m.piece[2].row, 4);
	assert_int_equal(m.piece[2].step, 2);
	assert_int_equal(m.piece[2].at, 4);
	assert_int_equal(m.piece[3].row, 5);
	assert_int_equal(m.piece[3].at, 6);
	/* Values are not rotated. */
	assert_int_equal(m.piece[6].row, 12);
	assert_int_equal(m.piece[6].step, 1);
	arena_close(&a);
}

/* Each depth repeats the embedding and the head, behind the first ones. */
static void test_copies(void **state)
{
	static const char *const names[][2] = {
		{"model.layers.2.embed_tokens.weight",
		 "model.embed_tokens.weight"},
		{"model.layers.2.shared_head.head.weight", "lm_head.weight"}};
	const struct hf_names *family;
	struct arena a = {0};
	struct weights w;
	struct config c;
	struct hf_map m;
	struct err e;
	size_t found = 0;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	read_config("test/data/hf/deepseek_v3_mtp/config.json", &c, &family,
		    &a);
	weights_build(&w, &c.shape, &a);
	assert_int_equal(hf_map_build(&m, family, &c.shape, &w, &a, &e), 0);
	for (int i = 0; i < m.tensors; i++) {
		const struct hf_tensor *t = &m.tensor[i];

		if (t->copy_of < 0)
			continue;
		assert_true(t->copy_of < i);
		assert_string_equal(t->name, names[found][0]);
		assert_string_equal(m.tensor[t->copy_of].name,
				    names[found++][1]);
		assert_int_equal(t->first, m.tensor[t->copy_of].first);
	}
	assert_int_equal(found, 2);
	arena_close(&a);
}

/* All numbers of 8 bits, by what their bits mean. */
static void test_fp8(void **state)
{
	(void)state;
	for (int i = 0; i < 256; i++) {
		float x = hf_fp8_widen((uint8_t)i);
		int power = i >> 3 & 15;
		double want = power ? (1 + (i & 7) / 8.0) * pow(2, power - 7)
				    : (i & 7) / 8.0 * pow(2, -6);

		if ((i & 127) == 127)
			assert_true(isnan(x));
		else
			assert_true((double)x == (i & 128 ? -want : want));
	}
	assert_true(hf_fp8_widen(0x7e) == 448);
}

/* A matrix of 130 x 261 whose last blocks have 2 rows and 5 columns. */
static void test_fp8_blocks(void **state)
{
	enum { ROWS = 130, COLS = 261, FIRST = 127 * COLS + 100, PART = 600 };
	static const float scale[6] = {1, 0.5F, 3, 0.1F, 7, 1e-3F};
	static uint8_t from[ROWS * COLS];
	static float f[ROWS * COLS];
	static double d[ROWS * COLS];
	static uint16_t half[ROWS * COLS];
	const struct hf_fp8 m = {
		.cols = COLS, .block = {128, 128}, .scale = scale};

	(void)state;
	assert_int_equal(hf_fp8_blocks(ROWS, 128) * hf_fp8_blocks(COLS, 128),
			 6);
	assert_int_equal(hf_fp8_blocks(256, 128), 2);
	for (int i = 0; i < ROWS * COLS; i++)
		from[i] = (uint8_t)(i * 37 % 127);
	hf_fp8_convert(f, CKPT_F32, from, 0, ROWS * COLS, &m);
	hf_fp8_convert(d, CKPT_F64, from, 0, ROWS * COLS, &m);
	hf_fp8_convert(half, CKPT_BF16, from, 0, ROWS * COLS, &m);
	for (int i = 0; i < ROWS * COLS; i++) {
		float s = scale[(i / COLS > 127 ? 3 : 0) + i % COLS / 128];
		float want = hf_fp8_widen(from[i]) * s;
		double near = number_get(half, CKPT_BF16, i);

		assert_true(f[i] == want && d[i] == (double)want);
		assert_true(fabs(near - (double)want) <=
			    fabs((double)want) / 256);
	}
	/* a part of it, as it comes from a file */
	hf_fp8_convert(d, CKPT_F64, from + FIRST, FIRST, PART, &m);
	for (int i = 0; i < PART; i++)
		assert_true(d[i] == (double)f[FIRST + i]);
}

static void test_unknown(void **state)
{
	struct shape s = {.num_attention_heads = 1};
	struct weight w = {.name = "mtp/00/enorm/w", .dim = {4, 1}, .ndim = 1};
	struct weights all = {.list = &w, .count = 1};
	struct arena a = {0};
	struct hf_map m;
	struct err e;

	(void)state;
	assert_int_equal(arena_open(&a, &e), 0);
	assert_int_equal(hf_map_build(&m, hf_names("llama"), &s, &all, &a, &e),
			 -1);
	assert_int_equal(e.code, CODE_CKPT);
	assert_non_null(strstr(e.text, "mtp/00/enorm/w"));
	arena_close(&a);
}

static void test_numbers(void **state)
{
	static const uint16_t bf16[] = {0x3fc0, 0xc000, 0x0001, 0x7f80};
	static const uint16_t f16[] = {0x3e00, 0xc000, 0x0001, 0xfc00};
	float f[4];
	double d[4];

	(void)state;
	number_convert(f, CKPT_F32, bf16, CKPT_BF16, 4);
	assert_true(f[0] == 1.5F && f[1] == -2 && f[2] == 0x1p-133F &&
		    isinf(f[3]));
	number_convert(d, CKPT_F64, f16, CKPT_F16, 4);
	assert_true(d[0] == 1.5 && d[1] == -2 && d[2] == 0x1p-24 &&
		    isinf(d[3]) && d[3] < 0);
	assert_int_equal(number_widest(CKPT_BF16, CKPT_F16), CKPT_F32);
	assert_int_equal(number_widest(CKPT_F32, CKPT_F16), CKPT_F32);
	assert_int_equal(number_widest(CKPT_BF16, CKPT_F64), CKPT_F64);
	assert_int_equal(number_widest(CKPT_BF16, CKPT_BF16), CKPT_BF16);
	assert_false(number_converts(CKPT_F32, CKPT_BF16));
	assert_true(number_converts(CKPT_F64, CKPT_F32));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_configs),
		cmocka_unit_test(test_variants),
		cmocka_unit_test(test_cannot),
		cmocka_unit_test(test_ignored),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_fp8_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
