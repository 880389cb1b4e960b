/* SPDX-License-Identifier: Apache-2.0 */
/* Nemotron-NAS: layers that each have sizes of their own. */
#include <string.h>

#include "lib/plan/config.h"
#include "lib/plan/hf.h"

/* Instead of a part of a layer. */
enum { PART_NONE = 0, PART_LINEAR = -1, PART_WRONG = -2 };

/* 2/3 of MULT * hidden_size, rounded up to a multiple of 256. */
static int64_t width_of(double mult, int64_t hidden)
{
	double width = 2 * mult * (double)hidden / 3;

	if (!(width >= 1 && width < 1 << 22))
		return PART_WRONG;
	return ((int64_t)width + 255) / 256 * 256;
}

/* What a part is replaced with, or OTHERWISE. */
static int64_t replaced(json_t *part, int64_t otherwise)
{
	if (!json_is_object(part))
		return PART_WRONG;
	if (json_is_true(json_object_get(part, "no_op")))
		return PART_NONE;
	if (json_is_true(json_object_get(part, "replace_with_linear")))
		return PART_LINEAR;
	return otherwise;
}

/* A size that a part gives itself; only words take a part away. */
static int64_t given_size(json_t *size)
{
	int64_t n = json_integer_value(size);

	return n > 0 ? n : PART_WRONG;
}

static int64_t groups_of(json_t *part, int64_t heads)
{
	json_t *each = json_object_get(part, "n_heads_in_group");
	json_t *groups = json_object_get(part, "num_query_groups");
	int64_t n = json_integer_value(each);

	if (json_is_integer(groups))
		return replaced(part, given_size(groups));
	return replaced(part, n > 0 && n <= heads && heads % n == 0
				      ? heads / n
				      : PART_WRONG);
}

static int64_t ffn_of(json_t *part, int64_t hidden)
{
	json_t *mult = json_object_get(part, "ffn_mult");
	json_t *width = json_object_get(part, "ffn_hidden_size");

	if (json_is_integer(width))
		return replaced(part, given_size(width));
	return replaced(part, width_of(json_number_value(mult), hidden));
}

/* The list of a part's sizes: one setting if all are the same. */
static void put_sizes(struct hf *h, const int64_t *size, int count,
		      const char *one, const char *each)
{
	bool same = size[0] > 0;

	for (int i = 1; i < count; i++)
		same &= size[i] == size[0];
	if (same)
		hf_say(h, "block_configs", one,
		       arena_printf(h->im->arena, "%lld", (long long)*size));
	else
		hf_say(h, "block_configs", each, hf_ints(h, size, count));
	if (!same)
		hf_say(h, "block_configs", "heterogeneous_block_specs", "true");
}

/* Read the sizes of every block; false: one of them is none. */
static bool read_blocks(struct hf *h, json_t *blocks, int64_t *groups,
			int64_t *ffn)
{
	int64_t heads = import_int(h->im, "num_attention_heads", 0);
	int64_t hidden = import_int(h->im, "hidden_size", 0);
	json_t *block, *mlp;
	size_t i;

	json_array_foreach(blocks, i, block)
	{
		mlp = json_object_get(block, "ffn");
		mlp = mlp ? mlp : json_object_get(block, "mlp");
		groups[i] =
			groups_of(json_object_get(block, "attention"), heads);
		ffn[i] = ffn_of(mlp, hidden);
		if (groups[i] < PART_LINEAR || ffn[i] < PART_LINEAR) {
			hf_cannot(h, "block_configs",
				  arena_printf(h->im->arena,
					       "what block %zu says", i));
			return false;
		}
	}
	return true;
}

void hf_blocks(struct hf *h)
{
	json_t *blocks = hf_get(h, "block_configs");
	size_t count = json_array_size(blocks);
	int64_t layers = import_int(h->im, "num_layers", 0);
	int64_t *groups, *ffn;

	if (!count || count > IMPORT_ITEMS_MAX || (int64_t)count != layers) {
		hf_cannot(h, "block_configs",
			  arena_printf(h->im->arena,
				       "%zu blocks for %lld layers", count,
				       (long long)layers));
		return;
	}
	groups = arena_alloc(h->im->arena, count, sizeof(*groups));
	ffn = arena_alloc(h->im->arena, count, sizeof(*ffn));
	if (!read_blocks(h, blocks, groups, ffn))
		return;
	put_sizes(h, groups, (int)count, "num_query_groups",
		  "heterogeneous_num_query_groups");
	put_sizes(h, ffn, (int)count, "ffn_hidden_size",
		  "heterogeneous_ffn_hidden_size");
}

void hf_nemotron(struct hf *h)
{
	static const char *const read[] = {"block_configs", "intermediate_size",
					   "num_key_value_heads", NULL};

	hf_llama(h);
	hf_skip(h, read);
	hf_blocks(h);
}
